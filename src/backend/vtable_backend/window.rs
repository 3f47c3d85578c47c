//! Adapter from the win_ slots of a C comm table to [`WireWindows`].

use super::{BackendObject, call, whole};
use crate::abi::backend::vtable::{DTL_WIN_KEY_BYTES, dtl_comm_vtable_t};
use crate::abi::status::{DTL_ERROR_INVALID_ARGUMENT, DTL_ERROR_NATIVE_BACKEND};
use crate::abi::word::{dtl_dtype_t, dtl_reduce_op_t};
use crate::backend::p2p_protocol::{Change, WireWindows};
use crate::error::{Error, Result};
use crate::runtime::component::{OpId, Swap, TargetRange};
use crate::sys::memory::buf::{Addr, Region};
use std::ffi::c_void;
use std::sync::Arc;

type Create = unsafe extern "C" fn(
    *mut c_void,
    *mut c_void,
    *mut c_void,
    u64,
    *mut *mut c_void,
    *mut c_void,
    *mut u32,
) -> i32;
type Attach =
    unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void, i32, *const c_void, u32) -> i32;
type Destroy = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void) -> i32;
type Put = unsafe extern "C" fn(
    *mut c_void,
    *mut c_void,
    *mut c_void,
    *const c_void,
    u64,
    i32,
    u64,
    *mut u64,
) -> i32;
type Get = unsafe extern "C" fn(
    *mut c_void,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    u64,
    i32,
    u64,
    *mut u64,
) -> i32;
type Flush = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void, i32, *mut u64) -> i32;
type Atomics =
    unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void, dtl_dtype_t, *mut i32) -> i32;
type Accumulate = unsafe extern "C" fn(
    *mut c_void,
    *mut c_void,
    *mut c_void,
    *const c_void,
    *mut c_void,
    u64,
    dtl_dtype_t,
    dtl_reduce_op_t,
    i32,
    u64,
    *mut u64,
) -> i32;
type CompareAndSwap = unsafe extern "C" fn(
    *mut c_void,
    *mut c_void,
    *mut c_void,
    *const c_void,
    *const c_void,
    *mut c_void,
    dtl_dtype_t,
    i32,
    u64,
    *mut u64,
) -> i32;

/// Slot groups of a table that has the transfer group.
#[derive(Clone, Copy)]
pub(super) struct Slots {
    create: Create,
    attach: Attach,
    destroy: Destroy,
    put: Put,
    get: Get,
    flush: Flush,
    atomics: Option<AtomicSlots>,
}

#[derive(Clone, Copy)]
struct AtomicSlots {
    atomics: Atomics,
    accumulate: Accumulate,
    compare_and_swap: CompareAndSwap,
}

impl Slots {
    /// Reads the window slots of a table. Returns `None` if the table has none of the transfer
    /// slots, and an error if a group is incomplete.
    pub(super) fn of(table: &dtl_comm_vtable_t) -> Result<Option<Slots>> {
        whole(
            "comm",
            "transfer",
            &[
                ("win_create", table.win_create.is_some()),
                ("win_attach", table.win_attach.is_some()),
                ("win_destroy", table.win_destroy.is_some()),
                ("win_put", table.win_put.is_some()),
                ("win_get", table.win_get.is_some()),
                ("win_flush", table.win_flush.is_some()),
            ],
        )?;
        let has_atomics = whole(
            "comm",
            "atomic",
            &[
                ("win_atomics", table.win_atomics.is_some()),
                ("win_accumulate", table.win_accumulate.is_some()),
                ("win_compare_and_swap", table.win_compare_and_swap.is_some()),
            ],
        )?;
        if has_atomics && table.win_create.is_none() {
            return Err(Error::new(
                DTL_ERROR_INVALID_ARGUMENT,
                "comm.win_create is NULL: the atomic slots need the transfer slots beside them",
            ));
        }
        Ok(Slots::transfers(table, AtomicSlots::of(table)))
    }

    fn transfers(table: &dtl_comm_vtable_t, atomics: Option<AtomicSlots>) -> Option<Slots> {
        Some(Slots {
            create: table.win_create?,
            attach: table.win_attach?,
            destroy: table.win_destroy?,
            put: table.win_put?,
            get: table.win_get?,
            flush: table.win_flush?,
            atomics,
        })
    }
}

impl AtomicSlots {
    fn of(table: &dtl_comm_vtable_t) -> Option<AtomicSlots> {
        Some(AtomicSlots {
            atomics: table.win_atomics?,
            accumulate: table.win_accumulate?,
            compare_and_swap: table.win_compare_and_swap?,
        })
    }
}

/// Window operations of one open communicator.
pub(super) struct NativeWindows {
    pub(super) owner: Arc<BackendObject>,
    pub(super) slots: Slots,
    pub(super) comm: Addr,
}

/// Buffer for the remote key that a slot writes, aligned for any struct.
#[repr(align(16))]
struct Key([u8; DTL_WIN_KEY_BYTES as usize]);

impl NativeWindows {
    fn atomics(&self) -> Result<&AtomicSlots> {
        let absent = || {
            Error::new(
                DTL_ERROR_NATIVE_BACKEND,
                format!("backend {} has no atomic slots", self.owner.name),
            )
        };
        self.slots.atomics.as_ref().ok_or_else(absent)
    }

    /// Checks a window that comm.win_create returned. Returns an error if the window is null or,
    /// after destroying it, if its key is too long.
    fn checked(&mut self, window: Addr, bytes: u32) -> Result<()> {
        self.owner.not_null("comm.win_create", window.ptr())?;
        if bytes > DTL_WIN_KEY_BYTES {
            self.destroy(window)?;
            let text = format!(
                "backend {}: comm.win_create answered a key of {bytes} bytes; there is room for \
                 {DTL_WIN_KEY_BYTES}",
                self.owner.name
            );
            return Err(Error::new(DTL_ERROR_NATIVE_BACKEND, text));
        }
        Ok(())
    }
}

impl WireWindows for NativeWindows {
    fn create(&mut self, memory: Region) -> Result<(Addr, Vec<u8>)> {
        let base = if memory.is_empty() { std::ptr::null_mut() } else { memory.addr().ptr() };
        let (mut window, mut key, mut bytes) =
            (std::ptr::null_mut(), Key([0; DTL_WIN_KEY_BYTES as usize]), 0);
        call!(
            self.owner,
            "comm.win_create",
            self.slots.create,
            self.comm.ptr(),
            base,
            memory.len() as u64,
            &raw mut window,
            (&raw mut key).cast(),
            &raw mut bytes
        )?;
        let window = Addr::new(window);
        self.checked(window, bytes)?;
        Ok((window, key.0.iter().copied().take(bytes as usize).collect()))
    }

    fn attach(&mut self, window: Addr, rank: i32, key: &[u64], bytes: usize) -> Result<()> {
        call!(
            self.owner,
            "comm.win_attach",
            self.slots.attach,
            self.comm.ptr(),
            window.ptr(),
            rank,
            key.as_ptr().cast(),
            bytes as u32
        )
    }

    fn destroy(&mut self, window: Addr) -> Result<()> {
        call!(self.owner, "comm.win_destroy", self.slots.destroy, self.comm.ptr(), window.ptr())
    }

    fn put(&mut self, window: Addr, from: Region, to: TargetRange) -> Result<OpId> {
        let mut op = 0;
        call!(
            self.owner,
            "comm.win_put",
            self.slots.put,
            self.comm.ptr(),
            window.ptr(),
            from.addr().ptr().cast_const(),
            to.len as u64,
            to.target,
            to.offset as u64,
            &raw mut op
        )?;
        Ok(OpId(op))
    }

    fn get(&mut self, window: Addr, into: Region, from: TargetRange) -> Result<OpId> {
        let mut op = 0;
        call!(
            self.owner,
            "comm.win_get",
            self.slots.get,
            self.comm.ptr(),
            window.ptr(),
            into.addr().ptr(),
            from.len as u64,
            from.target,
            from.offset as u64,
            &raw mut op
        )?;
        Ok(OpId(op))
    }

    fn flush(&mut self, window: Addr, target: i32) -> Result<OpId> {
        let mut op = 0;
        call!(
            self.owner,
            "comm.win_flush",
            self.slots.flush,
            self.comm.ptr(),
            window.ptr(),
            target,
            &raw mut op
        )?;
        Ok(OpId(op))
    }

    fn has_atomics(&mut self, window: Addr, dtype: dtl_dtype_t) -> Result<bool> {
        let Some(slots) = &self.slots.atomics else { return Ok(false) };
        let mut yes = 0;
        call!(
            self.owner,
            "comm.win_atomics",
            slots.atomics,
            self.comm.ptr(),
            window.ptr(),
            dtype,
            &raw mut yes
        )?;
        self.owner.boolean("comm.win_atomics", yes)
    }

    fn accumulate(&mut self, window: Addr, change: Change) -> Result<OpId> {
        let mut op = 0;
        call!(
            self.owner,
            "comm.win_accumulate",
            self.atomics()?.accumulate,
            self.comm.ptr(),
            window.ptr(),
            or_null(change.from).cast_const(),
            or_null(change.result),
            change.count as u64,
            change.dtype,
            change.op,
            change.to.target,
            change.to.offset as u64,
            &raw mut op
        )?;
        Ok(OpId(op))
    }

    fn compare_and_swap(&mut self, window: Addr, swap: Swap, to: TargetRange) -> Result<OpId> {
        let mut op = 0;
        call!(
            self.owner,
            "comm.win_compare_and_swap",
            self.atomics()?.compare_and_swap,
            self.comm.ptr(),
            window.ptr(),
            swap.value.addr().ptr().cast_const(),
            swap.expected.addr().ptr().cast_const(),
            swap.result.addr().ptr(),
            swap.dtype,
            to.target,
            to.offset as u64,
            &raw mut op
        )?;
        Ok(OpId(op))
    }
}

/// Returns the address of a region, or null if the region is empty.
fn or_null(region: Region) -> *mut c_void {
    if region.is_empty() { std::ptr::null_mut() } else { region.addr().ptr() }
}
