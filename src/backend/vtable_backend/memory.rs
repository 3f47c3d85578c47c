//! Adapters from C tables of memory and transfer functions to [`Memory`] and [`Transfer`].

use super::{BackendObject, NativeComponent, call, presence, required, status_of, whole};
use crate::abi::backend::vtable::{dtl_memory_vtable_t, dtl_transfer_vtable_t};
use crate::abi::devices::device::{dtl_mem_info_t, dtl_mem_kind_info_t};
use crate::abi::status::DTL_ERROR_NOT_FOUND;
use crate::abi::word::dtl_enum_word_t;
use crate::backend::staging_pool::StagingPool;
use crate::error::{Error, Result};
use crate::from_c::blank;
use crate::last_error::Mark;
use crate::runtime::component::{
    CopySide, DriverAllocation, Exports, Extent, Memory, Rows, StagingBuffer, Ticket, Token,
    Transfer,
};
use crate::runtime::enums::describe;
use crate::runtime::enums::schedule::check_memory_kind;
use crate::runtime::log;
use crate::runtime::memory::MOST_ALIGNMENT;
use crate::sys::memory::buf::{Addr, Region};
use std::sync::Arc;

/// Checks that a memory table has all mandatory slots (functions) and no incomplete group of
/// optional slots.
pub(super) fn check(table: &dtl_memory_vtable_t) -> Result<()> {
    whole("memory", "stream-ordered", presence!(table, alloc_async, free_async))?;
    whole("memory", "registration", presence!(table, register_host, unregister_host))?;
    whole("memory", "handle", presence!(table, export_handle, import_handle, close_handle))?;
    required("memory", presence!(table, alloc, free))
}

/// Memory table of a registered backend.
pub(super) struct NativeMemory {
    owner: Arc<BackendObject>,
    table: dtl_memory_vtable_t,
    /// Host buffers that are registered with the backend.
    staging: Arc<StagingPool>,
}

impl Drop for NativeMemory {
    fn drop(&mut self) {
        self.trim();
    }
}

impl NativeMemory {
    pub(super) fn new(owner: Arc<BackendObject>, table: dtl_memory_vtable_t) -> NativeMemory {
        NativeMemory { owner, table, staging: Arc::default() }
    }

    /// Checks the alignment that `kind_info` declared. A value of 0 means that no alignment is
    /// declared, and is replaced with 1.
    fn check_alignment(&self, kind: dtl_enum_word_t, info: &mut dtl_mem_kind_info_t) -> Result<()> {
        info.alignment = info.alignment.max(1);
        if info.alignment.is_power_of_two() && info.alignment <= MOST_ALIGNMENT {
            return Ok(());
        }
        let text = format!(
            "declared alignment {} for kind {}: use a power of two up to 2^30, or 0 for none",
            info.alignment,
            describe(kind)
        );
        Err(self.owner.invalid("memory.kind_info", &text))
    }

    /// Checks the description that `pointer_info` wrote for `addr` and returns the allocation.
    /// Returns an error if the description does not match memory at `addr`.
    fn found(&self, addr: Addr, info: &dtl_mem_info_t) -> Result<DriverAllocation> {
        let dtl_mem_info_t { kind, device, size_bytes: size, .. } = *info;
        let base = Addr::new(info.base);
        let wrong = |how: &str| {
            let text = format!("described {addr:?} {how}");
            Err(self.owner.invalid("memory.pointer_info", &text))
        };
        if let Err(error) = check_memory_kind(kind) {
            return wrong(&format!("wrongly: {}", error.text()));
        }
        if device < 0 {
            return wrong(&format!("as memory of device {device}: devices are counted from 0"));
        }
        let offset = addr.get().checked_sub(base.get()).map_or(u64::MAX, |offset| offset as u64);
        let is_range = size > 0 && (base.get() as u64).checked_add(size - 1).is_some();
        if offset >= size || !is_range {
            let why = if is_range { "do not contain it" } else { "is not a range of addresses" };
            return wrong(&format!("as part of {size} bytes at {base:?}, which {why}"));
        }
        Ok(DriverAllocation { kind, device, base, size })
    }
}

/// Adds the requested memory kind to an error that a function of the plugin's memory table
/// returned, because the message of such an error does not always name the kind.
fn of_kind(error: Error, kind: dtl_enum_word_t) -> Error {
    error.within(&format!("memory kind {}", describe(kind)))
}

impl Memory for NativeMemory {
    fn alloc(&self, Extent { kind, size, align }: Extent) -> Result<Addr> {
        let mut out = std::ptr::null_mut();
        call!(self.memory.alloc(size, align, kind, &raw mut out))
            .map_err(|error| of_kind(error, kind))?;
        Ok(Addr::new(out))
    }

    fn free(&self, addr: Addr, Extent { kind, size, align }: Extent) -> Result<()> {
        call!(self.memory.free(addr.ptr(), size, align, kind))
    }

    fn kind_info(&self, kind: dtl_enum_word_t) -> Result<Option<dtl_mem_kind_info_t>> {
        let mut out: dtl_mem_kind_info_t = blank();
        let answer = call!(self.memory.kind_info?(kind, &raw mut out));
        if let Some(end) = out.name.last_mut() {
            *end = 0;
        }
        answer.and_then(|()| self.check_alignment(kind, &mut out)).map(|()| Some(out))
    }

    fn memory_info(&self) -> Result<Option<(u64, u64)>> {
        let (mut free, mut total) = (0, 0);
        let answer = call!(self.memory.memory_info?(&raw mut free, &raw mut total));
        answer.map(|()| Some((free, total)))
    }

    fn alloc_async(&self, stream: Token, extent: Extent) -> Result<Option<Addr>> {
        let Extent { kind, size, align } = extent;
        let mut out = std::ptr::null_mut();
        let answer = call!(self.memory.alloc_async?(stream.ptr(), size, align, kind, &raw mut out));
        answer.map(|()| Some(Addr::new(out))).map_err(|error| of_kind(error, kind))
    }

    fn free_async(&self, stream: Token, addr: Addr, extent: Extent) -> Result<Option<()>> {
        let Extent { kind, size, align } = extent;
        call!(self.memory.free_async?(stream.ptr(), addr.ptr(), size, align, kind)).map(Some)
    }

    fn register(&self, region: Region) -> Result<Option<()>> {
        call!(self.memory.register_host?(region.addr().ptr(), region.len() as u64)).map(Some)
    }

    fn unregister(&self, region: Region) -> Result<Option<()>> {
        call!(self.memory.unregister_host?(region.addr().ptr(), region.len() as u64)).map(Some)
    }

    fn dmabuf(&self, region: Region) -> Result<Option<(i32, u64)>> {
        let (at, size) = (region.addr().ptr(), region.len() as u64);
        let (mut fd, mut offset) = (-1, 0);
        let answer = call!(self.memory.export_dmabuf?(at, size, &raw mut fd, &raw mut offset));
        answer.map(|()| Some((fd, offset)))
    }

    fn lend_host(&self, len: usize) -> Option<Box<dyn StagingBuffer>> {
        self.table.register_host?;
        self.staging.lend(len, |region| Memory::register(self, region).ok()?)
    }

    fn trim(&self) {
        self.staging.trim(|region| {
            let ended = Memory::unregister(self, region).map(drop);
            let is_ended = ended.is_ok();
            log::failure(format_args!("unregistering a staging buffer"), ended);
            is_ended
        });
    }

    fn can_identify(&self) -> bool {
        self.table.pointer_info.is_some()
    }

    fn identify(&self, addr: Addr) -> Result<Option<DriverAllocation>> {
        let Some(slot) = self.table.pointer_info else { return Ok(None) };
        let mut info: dtl_mem_info_t = blank();
        // `call!` is not used, because it formats an error message: NOT_FOUND is the result for
        // every host buffer.
        let before = Mark::now();
        let status = status_of!(self.owner, "memory.pointer_info", slot, addr.ptr(), &raw mut info);
        if status == DTL_ERROR_NOT_FOUND {
            return Ok(None);
        }
        self.owner.check("memory.pointer_info", status, before)?;
        self.found(addr, &info).map(Some)
    }

    fn exports(&self) -> Option<&dyn Exports> {
        self.table.export_handle.is_some().then_some(self as _)
    }
}

impl Exports for NativeMemory {
    fn export(&self, addr: Addr, extent: Extent) -> Result<Ticket> {
        let mut ticket = Ticket::default();
        let (Extent { kind, size, align }, to) = (extent, ticket.as_mut_ptr().cast());
        call!(self.memory.export_handle(addr.ptr(), size, align, kind, to))?;
        Ok(ticket)
    }

    fn import(&self, ticket: &Ticket, extent: Extent) -> Result<Addr> {
        let (Extent { kind, size, align }, from) = (extent, ticket.as_ptr().cast());
        let mut out = std::ptr::null_mut();
        call!(self.memory.import_handle(from, size, align, kind, &raw mut out))?;
        Ok(Addr::new(out))
    }

    fn close(&self, addr: Addr, extent: Extent) -> Result<()> {
        let Extent { kind, size, align } = extent;
        call!(self.memory.close_handle(addr.ptr(), size, align, kind))
    }
}

impl Transfer for NativeComponent<dtl_transfer_vtable_t> {
    fn copy(&self, dst: CopySide, src: CopySide) -> Result<()> {
        let (to, from) = (dst.region.addr().ptr(), src.region.addr().ptr());
        let size = src.region.len() as u64;
        call!(self.transfer.copy(to, dst.kind, from, src.kind, size))
    }

    fn copy_async(&self, stream: Token, dst: CopySide, src: CopySide) -> Result<Option<()>> {
        let (to, from) = (dst.region.addr().ptr(), src.region.addr().ptr());
        let size = src.region.len() as u64;
        call!(self.transfer.copy_async?(stream.ptr(), to, dst.kind, from, src.kind, size)).map(Some)
    }

    fn copy_2d(&self, dst: CopySide, src: CopySide, rows: Rows) -> Result<Option<()>> {
        let Rows { pitches: (dst_pitch, src_pitch), width, height } = rows;
        let (to, from) = (dst.region.addr().ptr(), src.region.addr().ptr());
        call!(self.transfer.copy_2d?(
            to, dst.kind, dst_pitch, from, src.kind, src_pitch, width, height
        ))
        .map(Some)
    }

    fn fill(&self, dst: CopySide, value: u8) -> Result<Option<()>> {
        let size = dst.region.len() as u64;
        call!(self.transfer.fill?(dst.region.addr().ptr(), dst.kind, value, size)).map(Some)
    }

    fn prefetch(&self, stream: Token, place: CopySide, device: i32) -> Result<Option<()>> {
        let at = place.region.addr().ptr();
        let size = place.region.len() as u64;
        call!(self.transfer.prefetch?(stream.ptr(), at, place.kind, size, device)).map(Some)
    }
}
