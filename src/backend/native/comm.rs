//! A C comm table as [`Comm`] and [`Transport`].
//!
//! A table that does not say DTL_COMM_THREADS is called by one thread at a time: a lock for each
//! opened communicator, held for the length of one non-blocking slot.

use super::{Owner, call, required, take_error_text};
use crate::abi::status::DTL_SUCCESS;
use crate::abi::vtable::*;
use crate::error::{Result, fail};
use crate::runtime::backend::{Comm, Done, OpId, OpenArgs, Selector, Transport};
use crate::sys::buf::{Addr, Region};
use crate::sys::lock::{Mutex, MutexGuard};
use std::ffi::c_void;
use std::sync::Arc;

type Close = unsafe extern "C" fn(*mut c_void, *mut c_void) -> i32;
type Isend = unsafe extern "C" fn(*mut c_void, *mut c_void, *const c_void, u64, i32, u64, *mut u64) -> i32;
type Irecv = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void, u64, i32, u64, u64, *mut u64) -> i32;
type Test = unsafe extern "C" fn(*mut c_void, *mut c_void, u64, *mut i32, *mut dtl_comm_done_t) -> i32;
type Open =
    unsafe extern "C" fn(*mut c_void, *const dtl_comm_open_t, *mut *mut c_void, *mut i32, *mut i32) -> i32;

#[derive(Clone, Copy)]
struct Slots {
    table: dtl_comm_vtable_t,
    open: Open,
    close: Close,
    isend: Isend,
    irecv: Irecv,
    test: Test,
}

pub(super) struct NativeComm {
    owner: Arc<Owner>,
    slots: Slots,
}

impl NativeComm {
    pub(super) fn new(owner: Arc<Owner>, table: &dtl_comm_vtable_t) -> Result<Self> {
        let slots = Slots {
            table: *table,
            open: required!(table, "comm", open),
            close: required!(table, "comm", close),
            isend: required!(table, "comm", isend),
            irecv: required!(table, "comm", irecv),
            test: required!(table, "comm", test),
        };
        let bits = table.match_bits;
        if bits != 0 && !(28..=64).contains(&bits) {
            return fail!(DTL_ERROR_INVALID_ARGUMENT, "comm.match_bits is {bits}: use 28 to 64, or 0 for 64");
        }
        if bits != 0 && bits < 64 && table.dup.is_none() {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "comm.dup is NULL: a transport that matches {bits} bits only needs it, one dup for each context"
            );
        }
        if table.flags & !DTL_COMM_THREADS != 0 {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "comm.flags is {:#x}: only DTL_COMM_THREADS is known",
                table.flags
            );
        }
        Ok(NativeComm { owner, slots })
    }
}

impl Comm for NativeComm {
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
        call!(
            self.owner,
            "comm.open",
            self.slots.open,
            &raw const open,
            &raw mut comm,
            &raw mut rank,
            &raw mut size
        )?;
        let transport = NativeTransport::new(Arc::clone(&self.owner), self.slots, comm, rank, size);
        if !(0..size).contains(&rank) {
            transport.close()?;
            return fail!(
                DTL_ERROR_NATIVE_BACKEND,
                "backend {}: comm.open answered rank {rank} of {size}",
                self.owner.name
            );
        }
        Ok(Box::new(transport))
    }
}

struct NativeTransport {
    owner: Arc<Owner>,
    slots: Slots,
    comm: Addr,
    rank: i32,
    size: i32,
    one_at_a_time: Option<Mutex<()>>,
}

impl NativeTransport {
    fn new(owner: Arc<Owner>, slots: Slots, comm: *mut c_void, rank: i32, size: i32) -> Self {
        let threads = slots.table.flags & DTL_COMM_THREADS != 0;
        let one_at_a_time = (!threads).then(|| Mutex::new(()));
        NativeTransport { owner, slots, comm: Addr::new(comm), rank, size, one_at_a_time }
    }

    fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        self.one_at_a_time.as_ref().map(Mutex::lock)
    }
}

impl Transport for NativeTransport {
    fn progress(&self) {}
    fn probe(&self, _: Selector) -> Result<Option<Done>> {
        Ok(None)
    }
    fn take(&self, _: Selector) -> Result<Option<crate::runtime::backend::Matched>> {
        Ok(None)
    }
    fn receive_matched(&self, m: OpId, _: Region) -> Result<OpId> {
        Ok(m)
    }

    fn rank(&self) -> i32 {
        self.rank
    }

    fn size(&self) -> i32 {
        self.size
    }

    fn isend(
        &self,
        data: Region,
        dest: i32,
        word: u64,
        _mode: crate::runtime::backend::SendMode,
    ) -> Result<OpId> {
        let _turn = self.turn();
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

    fn irecv(&self, data: Region, select: Selector) -> Result<OpId> {
        let _turn = self.turn();
        let (buf, size) = (data.addr().ptr(), data.len() as u64);
        let mut op = 0;
        call!(
            self.owner,
            "comm.irecv",
            self.slots.irecv,
            self.comm.ptr(),
            buf,
            size,
            select.source,
            select.word,
            select.ignore,
            &raw mut op
        )?;
        Ok(OpId(op))
    }

    fn test(&self, op: OpId) -> Result<Option<Done>> {
        let _turn = self.turn();
        let mut done = 0;
        let mut result = dtl_comm_done_t { source: 0, status: DTL_SUCCESS, match_word: 0, size_bytes: 0 };
        call!(
            self.owner,
            "comm.test",
            self.slots.test,
            self.comm.ptr(),
            op.0,
            &raw mut done,
            &raw mut result
        )?;
        Ok((done != 0).then_some(Done {
            source: result.source,
            status: result.status,
            word: result.match_word,
            size: result.size_bytes,
        }))
    }

    fn cancel(&self, op: OpId) -> Result<()> {
        let Some(slot) = self.slots.table.cancel else { return Ok(()) };
        let _turn = self.turn();
        call!(self.owner, "comm.cancel", slot, self.comm.ptr(), op.0)
    }

    fn describe(&self) -> String {
        format!("registered backend {}", self.owner.name)
    }

    fn failure_text(&self) -> Option<String> {
        Some(take_error_text()).filter(|said| !said.is_empty())
    }

    fn close(&self) -> Result<()> {
        let _turn = self.turn();
        call!(self.owner, "comm.close", self.slots.close, self.comm.ptr())
    }
}
