//! Adapter from a C table of communication functions (comm table) to [`Comm`]: the functions of the
//! table implement [`Wire`], on which `p2p_protocol` builds a transport.

use super::comm_memory::Registrations;
use super::{
    BackendObject, NativeComponent, call, keep_said, presence, required, take_error_text, whole,
};
use crate::abi::backend::vtable::*;
use crate::abi::comm::communicator::{DTL_COMM_DETERMINISTIC, DTL_COMM_STAGE};
use crate::abi::status::{DTL_ERROR_NATIVE_BACKEND, DTL_SUCCESS};
use crate::backend::p2p_protocol::{
    self, Wire, WireBuffers, WireCollectives, WireDevices, WireWindows,
};
use crate::error::{Result, fail, is_status};
use crate::last_error::Mark;
use crate::runtime::component::{Comm, Completion, OpId, OpenArgs, Properties, Transport};
use crate::sys::memory::buf::{Addr, Region};
use std::sync::Arc;

/// Checks that a comm table has all mandatory slots (functions) and no incomplete group of optional
/// slots, and that its numeric fields are valid.
pub(super) fn check(table: &dtl_comm_vtable_t) -> Result<()> {
    required("comm", presence!(table, open, close, isend, irecv, test))?;
    let slots = presence!(table, win_create, win_attach, win_destroy, win_put, win_get, win_flush);
    let has_windows = whole("comm", "transfer", slots)?;
    let slots = presence!(table, win_atomics, win_accumulate, win_compare_and_swap);
    if whole("comm", "atomic", slots)? && !has_windows {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "comm.win_create is NULL: the atomic slots need the transfer slots beside them"
        );
    }
    whole("comm", "collective", presence!(table, coll_supports, coll_start))?;
    whole("comm", "memory", presence!(table, mem_supports, mem_register, mem_deregister))?;
    let bits = table.match_bits;
    if bits != 0 && !(28..=64).contains(&bits) {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "comm.match_bits is {bits}: use 28 to 64, or 0 for 64"
        );
    }
    if table.flags & !DTL_COMM_ONLY_IN_CALLS != 0 {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "comm.flags is {:#x}: use DTL_COMM_ONLY_IN_CALLS or 0",
            table.flags
        );
    }
    Ok(())
}

impl Comm for NativeComponent<dtl_comm_vtable_t> {
    fn opens_by_job(&self) -> bool {
        true
    }

    fn settings_field(&self) -> Option<&'static str> {
        Some("desc.config")
    }

    fn flags(&self) -> u64 {
        let stages = if self.table.mem_register.is_some() { DTL_COMM_STAGE } else { 0 };
        DTL_COMM_DETERMINISTIC | stages
    }

    fn open(&self, args: &OpenArgs) -> Result<Box<dyn Transport>> {
        let (named_rank, named_size) = args.rank_size().unwrap_or((-1, -1));
        let open = dtl_comm_open_t {
            struct_size: size_of::<dtl_comm_open_t>() as u32,
            rank: named_rank,
            size: named_size,
            reserved: 0,
            flags: args.flags,
            job: args.job.as_ptr(),
            timeout_ns: args.timeout_ns,
            config: args.settings.ptr(),
        };
        let (mut object, mut rank, mut size) = (std::ptr::null_mut(), -1, -1);
        drop(take_error_text()); // of an operation that was never tested again
        call!(self.comm.open(&raw const open, &raw mut object, &raw mut rank, &raw mut size))?;
        let (owner, object) = (Arc::clone(&self.owner), Addr::new(object));
        let properties = Arc::new(Properties {
            allows_progress_thread: self.table.flags & DTL_COMM_ONLY_IN_CALLS == 0,
            // True, because it is unknown how the program's slots treat canceled operations.
            may_keep_cancelled: true,
            ..Properties::new(rank, size, format!("registered backend {}", owner.name))
        });
        let memory = Registrations::default();
        let mut wire = NativeWire { owner, table: self.table, object, properties, memory };
        if !(0..size).contains(&rank) {
            wire.close()?;
            let text = format!("answered rank {rank} of {size}");
            return Err(self.owner.invalid("comm.open", &text));
        }
        p2p_protocol::open(Box::new(wire))
    }
}

/// Open communicator of a registered backend.
pub(super) struct NativeWire {
    pub(super) owner: Arc<BackendObject>,
    pub(super) table: dtl_comm_vtable_t,
    /// Address of the backend's communicator object.
    pub(super) object: Addr,
    properties: Arc<Properties>,
    pub(super) memory: Registrations,
}

impl NativeWire {
    /// Stores the reason why an operation failed, for [`Wire::failure_text`], and replaces an
    /// invalid status with DTL_ERROR_NATIVE_BACKEND. An invalid boolean output is returned as an
    /// error: only 1 reports the completion of an operation, so after any other value the backend
    /// may still use the operation's buffer.
    #[cold]
    fn failed(&self, done: i32, result: &mut dtl_comm_done_t, before: Mark) -> Result<()> {
        if done != 1 {
            drop(take_error_text());
            return fail!(
                DTL_ERROR_NATIVE_BACKEND,
                "{} wrote {done} into its boolean output: use 0 or 1",
                self.completes()
            );
        }
        keep_said(before, result.status);
        if !is_status(result.status) {
            let wrong =
                format!("wrote status {} into its result, which is not a status", result.status);
            super::set_error_text(format!("{} {wrong}", self.completes()));
            result.status = DTL_ERROR_NATIVE_BACKEND;
        }
        Ok(())
    }
}

impl Wire for NativeWire {
    fn properties(&self) -> &Arc<Properties> {
        &self.properties
    }

    fn isend(&mut self, data: Region, dest: i32, word: u64) -> Result<OpId> {
        let (buf, size) = (data.addr().ptr().cast_const(), data.len() as u64);
        let mut op = 0;
        call!(self.comm.isend(self.object.ptr(), buf, size, dest, word, &raw mut op))?;
        Ok(OpId(op))
    }

    fn irecv(&mut self, data: Region, source: i32, word: u64) -> Result<OpId> {
        let (buf, size) = (data.addr().ptr(), data.len() as u64);
        let mut op = 0;
        call!(self.comm.irecv(self.object.ptr(), buf, size, source, word, 0, &raw mut op))?;
        Ok(OpId(op))
    }

    fn test(&mut self, op: OpId) -> Result<Option<Completion>> {
        let mut done = 0;
        let mut result =
            dtl_comm_done_t { source: 0, status: DTL_SUCCESS, match_word: 0, size_bytes: 0 };
        let before = Mark::now();
        call!(self.comm.test(self.object.ptr(), op.0, &raw mut done, &raw mut result))?;
        if done == 0 {
            return Ok(None);
        }
        if done != 1 || result.status != DTL_SUCCESS {
            self.failed(done, &mut result, before)?;
        }
        if !self.memory.receives.is_empty() {
            self.end_receive(op, result.status == DTL_SUCCESS && result.size_bytes > 0);
        }
        Ok(Some(Completion {
            source: result.source,
            status: result.status,
            match_bits: result.match_word,
            size: result.size_bytes,
        }))
    }

    fn completes(&self) -> String {
        let Properties { rank, size, .. } = *self.properties;
        format!("backend {}: comm.test on rank {rank} of {size}", self.owner.name)
    }

    fn can_cancel(&self) -> bool {
        self.table.cancel.is_some()
    }

    fn cancel(&mut self, op: OpId) -> Result<()> {
        if !self.can_cancel() {
            return Ok(());
        }
        call!(self.comm.cancel(self.object.ptr(), op.0))
    }

    fn failure_text(&self) -> Option<String> {
        Some(take_error_text()).filter(|text| !text.is_empty())
    }

    fn windows(&mut self) -> Result<&mut dyn WireWindows, &'static str> {
        if self.table.win_create.is_some() {
            Ok(self)
        } else {
            Err("the backend's table has no slots for windows")
        }
    }

    fn devices(&mut self) -> Option<&mut dyn WireDevices> {
        if self.table.mem_register.is_some() { Some(self) } else { None }
    }

    fn buffers(&mut self) -> Option<&mut dyn WireBuffers> {
        if self.table.mem_register.is_some() { Some(self) } else { None }
    }

    fn collectives(&mut self) -> Option<&mut dyn WireCollectives> {
        if self.table.coll_start.is_some() { Some(self) } else { None }
    }

    fn close(&mut self) -> Result<()> {
        self.end_registrations();
        call!(self.comm.close(self.object.ptr()))
    }
}
