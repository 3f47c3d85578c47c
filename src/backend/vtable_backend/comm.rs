//! Adapter from a C comm table to [`Comm`]: the slots implement [`Wire`], and `p2p_protocol` makes
//! a transport of the wire.

use super::window::{self, NativeWindows};
use super::{BackendObject, call, keep_said, required, take_error_text};
use crate::abi::backend::vtable::*;
use crate::abi::status::{DTL_ERROR_NATIVE_BACKEND, DTL_SUCCESS};
use crate::backend::p2p_protocol::{self, Wire, WireWindows};
use crate::error::{Result, fail, is_status};
use crate::last_error::Mark;
use crate::runtime::component::{Comm, Completion, OpId, OpenArgs, Properties, Transport};
use crate::sys::memory::buf::{Addr, Region};
use std::ffi::c_void;
use std::sync::Arc;

type Close = unsafe extern "C" fn(*mut c_void, *mut c_void) -> i32;
type Isend =
    unsafe extern "C" fn(*mut c_void, *mut c_void, *const c_void, u64, i32, u64, *mut u64) -> i32;
type Irecv = unsafe extern "C" fn(
    *mut c_void,
    *mut c_void,
    *mut c_void,
    u64,
    i32,
    u64,
    u64,
    *mut u64,
) -> i32;
type Test =
    unsafe extern "C" fn(*mut c_void, *mut c_void, u64, *mut i32, *mut dtl_comm_done_t) -> i32;
type Open = unsafe extern "C" fn(
    *mut c_void,
    *const dtl_comm_open_t,
    *mut *mut c_void,
    *mut i32,
    *mut i32,
) -> i32;

#[derive(Clone, Copy)]
struct Slots {
    table: dtl_comm_vtable_t,
    open: Open,
    close: Close,
    isend: Isend,
    irecv: Irecv,
    test: Test,
    windows: Option<window::Slots>,
}

pub(super) struct NativeComm {
    owner: Arc<BackendObject>,
    slots: Slots,
}

impl NativeComm {
    pub(super) fn new(owner: Arc<BackendObject>, table: &dtl_comm_vtable_t) -> Result<Self> {
        let slots = Slots {
            table: *table,
            open: required!(table, "comm", open),
            close: required!(table, "comm", close),
            isend: required!(table, "comm", isend),
            irecv: required!(table, "comm", irecv),
            test: required!(table, "comm", test),
            windows: window::Slots::of(table)?,
        };
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
        Ok(NativeComm { owner, slots })
    }
}

impl Comm for NativeComm {
    fn takes_native(&self) -> bool {
        true
    }

    fn open(&self, args: &OpenArgs) -> Result<Box<dyn Transport>> {
        let (named_rank, named_size) = args.rank_size().unwrap_or((-1, -1));
        let open = dtl_comm_open_t {
            struct_size: size_of::<dtl_comm_open_t>() as u32,
            flags: args.flags,
            rank: named_rank,
            size: named_size,
            job: args.job.as_ptr(),
            timeout_ns: args.timeout_ns,
            native: args.native.ptr(),
        };
        let (mut comm, mut rank, mut size) = (std::ptr::null_mut(), -1, -1);
        drop(take_error_text()); // of an operation that was never tested again
        call!(
            self.owner,
            "comm.open",
            self.slots.open,
            &raw const open,
            &raw mut comm,
            &raw mut rank,
            &raw mut size
        )?;
        let (owner, comm) = (Arc::clone(&self.owner), Addr::new(comm));
        let windows = self.slots.windows.map(|slots| NativeWindows {
            owner: Arc::clone(&owner),
            slots,
            comm,
        });
        let properties = Arc::new(Properties {
            allows_progress_thread: self.slots.table.flags & DTL_COMM_ONLY_IN_CALLS == 0,
            // True, because it is unknown how the program's slots treat cancelled operations.
            may_keep_cancelled: true,
            ..Properties::new(rank, size, format!("registered backend {}", owner.name))
        });
        let mut wire = NativeWire { owner, slots: self.slots, comm, properties, windows };
        if !(0..size).contains(&rank) {
            wire.close()?;
            return fail!(
                DTL_ERROR_NATIVE_BACKEND,
                "backend {}: comm.open answered rank {rank} of {size}",
                self.owner.name
            );
        }
        p2p_protocol::open(Box::new(wire))
    }
}

struct NativeWire {
    owner: Arc<BackendObject>,
    slots: Slots,
    comm: Addr,
    properties: Arc<Properties>,
    windows: Option<NativeWindows>,
}

impl NativeWire {
    /// Stores the reason of a failed operation for [`Wire::failure_text`], and converts a number
    /// that is not a status into DTL_ERROR_NATIVE_BACKEND. An invalid boolean output is returned as
    /// an error: only 1 reports the completion of an operation, so the transport may still use its
    /// buffer.
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
            super::leave_error_text(format!("{} {wrong}", self.completes()));
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
        call!(
            self.owner,
            "comm.isend",
            self.slots.isend,
            self.comm.ptr(),
            buf,
            size,
            dest,
            word,
            &raw mut op
        )?;
        Ok(OpId(op))
    }

    fn irecv(&mut self, data: Region, source: i32, word: u64) -> Result<OpId> {
        let (buf, size) = (data.addr().ptr(), data.len() as u64);
        let mut op = 0;
        call!(
            self.owner,
            "comm.irecv",
            self.slots.irecv,
            self.comm.ptr(),
            buf,
            size,
            source,
            word,
            0,
            &raw mut op
        )?;
        Ok(OpId(op))
    }

    fn test(&mut self, op: OpId) -> Result<Option<Completion>> {
        let mut done = 0;
        let mut result =
            dtl_comm_done_t { source: 0, status: DTL_SUCCESS, match_word: 0, size_bytes: 0 };
        let before = Mark::now();
        call!(
            self.owner,
            "comm.test",
            self.slots.test,
            self.comm.ptr(),
            op.0,
            &raw mut done,
            &raw mut result
        )?;
        if done == 0 {
            return Ok(None);
        }
        if done != 1 || result.status != DTL_SUCCESS {
            self.failed(done, &mut result, before)?;
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
        self.slots.table.cancel.is_some()
    }

    fn cancel(&mut self, op: OpId) -> Result<()> {
        let Some(slot) = self.slots.table.cancel else { return Ok(()) };
        call!(self.owner, "comm.cancel", slot, self.comm.ptr(), op.0)
    }

    fn failure_text(&self) -> Option<String> {
        Some(take_error_text()).filter(|text| !text.is_empty())
    }

    fn windows(&mut self) -> std::result::Result<&mut dyn WireWindows, &'static str> {
        let windows =
            self.windows.as_mut().ok_or("the backend's table has no slots for windows")?;
        Ok(windows)
    }

    fn close(&mut self) -> Result<()> {
        call!(self.owner, "comm.close", self.slots.close, self.comm.ptr())
    }
}
