//! One rank of an NCCL communicator: creation, use, destruction.
//!
//! The NCCL communicator is nonblocking (`ncclConfig_t.blocking` = 0): a long-running call
//! continues in the background, and the library makes its next call only after that call has
//! completed. So collectives wait in a queue of this module, and a test of any collective advances
//! all of them. Collectives are queued on one stream in call order and complete in that order, so a
//! single number records which of them have completed.

use super::collectives::{NcclTarget, PostCopy, refuses};
use super::discovery::Nccl;
use super::symbols::*;
use crate::abi::handle::dtl_backend_t;
use crate::abi::status::{DTL_ERROR_CANCELED, DTL_ERROR_INVALID_STATE};
use crate::backend::cuda::Cuda;
use crate::backend::cuda::external_stream::{ExternalStream, Point, address};
use crate::error::{Error, Result, fail, failure};
use crate::runtime::comm::coll::{CollArgs, CollCall};
use crate::runtime::component::{
    BootstrapId, DeviceComm, Hold, MemoryPlace, NativeCollectives, OpId, Refusal, Registration,
};
use crate::runtime::log;
use crate::runtime::registry::Backend;
use crate::sys::memory::buf::{Addr, Region};
use crate::sys::sync::lock::{Mutex, MutexGuard};
use crate::sys::sync::wait::{self, Backoff, Deadline};
use std::collections::VecDeque;
use std::ptr;
use std::sync::Arc;

/// Maximum time in nanoseconds to wait for ncclCommFinalize, which is collective, or for the end of
/// aborted work.
const LEAVE_NS: u64 = 2_000_000_000;

/// One rank of an NCCL communicator, with the queue of its collectives.
pub(super) struct NcclComm {
    nccl: Arc<Nccl>,
    cuda: Arc<Cuda>,
    devices: Arc<Backend>,
    state: Mutex<NcclState>,
    /// Stream that NCCL's communicator uses. `drop` destroys the communicator before the stream.
    queue: ExternalStream,
}

#[derive(Default)]
struct NcclState {
    /// NCCL's communicator; null before its creation and after its destruction.
    comm: Addr,
    rank: i32,
    size: i32,
    /// Number of the next collective. `over` is the number of the first collective that has not
    /// completed.
    next: u64,
    over: u64,
    /// Collectives that have not been queued on the stream yet.
    waiting: VecDeque<CollArgs>,
    /// Copy that must be queued after the collective that NCCL is queueing; `None` while NCCL is
    /// not queueing a collective.
    entering: Option<PostCopy>,
    /// Positions in the stream at which the queued collectives end, in queue order.
    running: VecDeque<Point>,
    /// True while a thread waits, without the lock, until NCCL has registered or deregistered a
    /// buffer. Meanwhile no other call of NCCL is allowed on the communicator.
    is_registering: bool,
    /// Reason why no more collectives can be started.
    failed: Option<Error>,
}

impl NcclComm {
    pub(super) fn new(
        nccl: Arc<Nccl>,
        cuda: Arc<Cuda>,
        devices: Arc<Backend>,
        queue: ExternalStream,
    ) -> Self {
        NcclComm { nccl, cuda, devices, state: Mutex::default(), queue }
    }

    /// Returns the asynchronous error state of the communicator.
    fn ask(&self, state: &NcclState) -> ncclResult_t {
        let mut code = ncclSuccess;
        // SAFETY: NCCL's communicator is alive, and `code` has room for a result.
        let queried =
            unsafe { (self.nccl.calls.ncclCommGetAsyncError)(state.comm.ptr(), &raw mut code) };
        if queried == ncclSuccess { code } else { queried }
    }

    /// Returns true if the communicator is ready, and false if a call continues in the background;
    /// `what` names the action that may have failed.
    fn is_ready(&self, state: &NcclState, what: &str) -> Result<bool> {
        match self.ask(state) {
            ncclSuccess => Ok(true),
            ncclInProgress => Ok(false),
            code => Err(self.error(code, what)),
        }
    }

    fn error(&self, code: ncclResult_t, what: &str) -> Error {
        self.nccl.calls.error(code, what)
    }

    /// Advances all collectives: counts those that have completed, and queues those that are not on
    /// the stream yet.
    fn advance(&self, state: &mut NcclState) -> Result<()> {
        while let Some(point) = state.running.pop_front() {
            if !point.is_done()? {
                state.running.push_front(point);
                break;
            }
            // Collectives that NCCL has aborted reach their point on the stream, too.
            self.is_ready(state, "a collective of NCCL's")?;
            state.over += 1;
            self.queue.recycle(point);
        }
        while !state.is_registering && self.is_ready(state, "a collective of NCCL's")? {
            if let Some(behind) = state.entering.take() {
                self.behind(state, behind)?;
            }
            let Some(args) = state.waiting.pop_front() else { return Ok(()) };
            let inside = self.queue.enter()?;
            let target = NcclTarget {
                calls: self.nccl.calls,
                comm: state.comm.ptr(),
                stream: self.queue.stream(),
                rank: state.rank,
                size: state.size,
            };
            let (code, behind) = target.queue(&args);
            drop(inside);
            match code {
                ncclSuccess => self.behind(state, behind)?,
                ncclInProgress => state.entering = Some(behind),
                code => return Err(self.error(code, "queueing a collective of NCCL's")),
            }
        }
        Ok(())
    }

    /// Queues the copy `behind`, if any, after a queued collective, and records the position in the
    /// stream at which both end.
    fn behind(&self, state: &mut NcclState, behind: PostCopy) -> Result<()> {
        if let Some((from, into)) = behind {
            self.queue.copy(into, from)?;
        }
        state.running.push_back(self.queue.point()?);
        Ok(())
    }

    /// Aborts the communicator on this rank. All later calls return the error `why`, or an earlier
    /// error if one is stored.
    fn abort(&self, state: &mut NcclState, why: Error) {
        let comm = std::mem::replace(&mut state.comm, Addr::NULL);
        state.failed.get_or_insert(why);
        state.waiting.clear();
        if comm.is_null() {
            return;
        }
        // If the device is lost, the communicator is aborted without its context.
        let inside = self.queue.enter();
        // SAFETY: NCCL's communicator is aborted once; its kernels end by themselves.
        let code = unsafe { (self.nccl.calls.ncclCommAbort)(comm.ptr()) };
        drop(inside);
        if ![ncclSuccess, ncclInProgress].contains(&code) {
            log::warning!("{}", self.error(code, "ncclCommAbort"));
        }
        self.drain(state);
    }

    /// Waits, at most `LEAVE_NS` nanoseconds, until aborted collectives no longer access their
    /// buffers. Does not wait if the device is lost, because a lost device does not access any
    /// buffers.
    fn drain(&self, state: &mut NcclState) {
        let Ok(end) = self.queue.point() else { return };
        let is_over = || end.is_done().map(|is_done| is_done.then_some(()));
        if let Ok(None) = wait::poll(Deadline::after(LEAVE_NS), is_over) {
            log::warning!(
                "aborted collectives of NCCL are still on the device after {} ms",
                LEAVE_NS / 1_000_000
            );
            return;
        }
        state.running.clear();
        state.entering = None;
    }

    /// Waits until a call that has returned `code` ends, for `LEAVE_NS` nanoseconds at most.
    /// Returns the result of the call, which is `ncclInProgress` if it has not ended.
    fn wait(&self, state: &NcclState, mut code: ncclResult_t) -> ncclResult_t {
        let (deadline, mut backoff) = (Deadline::after(LEAVE_NS), Backoff::new());
        while code == ncclInProgress && !deadline.passed() {
            backoff.pause();
            code = self.ask(state);
        }
        code
    }

    /// Finalizes and destroys the communicator; returns false if finalization fails or takes longer
    /// than `LEAVE_NS` nanoseconds, for example because another rank does not finalize.
    fn finalize(&self, state: &mut NcclState) -> bool {
        let Ok(_inside) = self.queue.enter() else { return false };
        // SAFETY: NCCL's communicator is alive and has no work in flight.
        let code = unsafe { (self.nccl.calls.ncclCommFinalize)(state.comm.ptr()) };
        if self.wait(state, code) != ncclSuccess {
            return false;
        }
        let comm = std::mem::replace(&mut state.comm, Addr::NULL);
        // SAFETY: NCCL's communicator has no work in flight, is finalized, and is destroyed once.
        let code = unsafe { (self.nccl.calls.ncclCommDestroy)(comm.ptr()) };
        if ![ncclSuccess, ncclInProgress].contains(&code) {
            log::warning!("{}", self.error(code, "ncclCommDestroy"));
        }
        true
    }
}

impl NativeCollectives for NcclComm {
    fn refuses(&self, call: &CollCall<'_>) -> Result<Option<Refusal>> {
        Ok(refuses(call.args))
    }

    fn start(&self, call: &CollCall<'_>) -> Result<OpId> {
        let mut state = self.state.lock();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        let number = state.next;
        state.next += 1;
        state.waiting.push_back(call.args.clone());
        Ok(OpId(number))
    }
}

impl DeviceComm for NcclComm {
    fn another(&self) -> Result<Box<dyn DeviceComm>> {
        let queue = ExternalStream::create(&self.cuda, Some(self.queue.device()))?;
        Ok(Box::new(NcclComm::new(
            Arc::clone(&self.nccl),
            Arc::clone(&self.cuda),
            Arc::clone(&self.devices),
            queue,
        )))
    }

    fn invitation(&self) -> Result<BootstrapId> {
        let mut id = ncclUniqueId { internal: [0; 128] };
        let _inside = self.queue.enter()?;
        // SAFETY: `id` has room for a unique ID.
        let code = unsafe { (self.nccl.calls.ncclGetUniqueId)(&raw mut id) };
        if code != ncclSuccess {
            return Err(self.error(code, "ncclGetUniqueId"));
        }
        let mut words = BootstrapId::default();
        let bytes = id.internal.map(|byte| byte as u8);
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = bytes.try_into().map_or(0, u64::from_ne_bytes);
        }
        Ok(words)
    }

    fn connect(&self, invitation: &BootstrapId, rank: i32, size: i32) -> Result<()> {
        let mut id = ncclUniqueId { internal: [0; 128] };
        let bytes = invitation.iter().flat_map(|word| word.to_ne_bytes());
        for (to, byte) in id.internal.iter_mut().zip(bytes) {
            *to = byte as c_char;
        }
        let _inside = self.queue.enter()?;
        let (mut comm, mut config, mut state) =
            (ptr::null_mut(), Config::NON_BLOCKING, self.state.lock());
        let (init, config) = (self.nccl.calls.ncclCommInitRankConfig, (&raw mut config).cast());
        // SAFETY: `comm` has room for a communicator, and the call copies `config`.
        let code = unsafe { init(&raw mut comm, size, id, rank, config) };
        (state.comm, state.rank, state.size) = (Addr::new(comm), rank, size);
        if [ncclSuccess, ncclInProgress].contains(&code) {
            return Ok(());
        }
        Err(self.error(code, "ncclCommInitRankConfig"))
    }

    fn is_connected(&self) -> Result<bool> {
        self.is_ready(&self.state.lock(), "ncclCommInitRankConfig")
    }

    fn device(&self) -> (dtl_backend_t, i32) {
        (self.devices.handle(), self.queue.device())
    }

    fn registration(&self) -> Option<&dyn Registration> {
        self.nccl.calls.ncclCommRegister.is_some().then_some(self as _)
    }

    fn test(&self, op: OpId) -> Result<bool> {
        let started = op.0;
        let mut state = self.state.lock();
        if started < state.over {
            return Ok(true);
        }
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        let advanced = self.advance(&mut state);
        advanced.inspect_err(|error| self.abort(&mut state, error.clone()))?;
        Ok(started < state.over)
    }

    fn give_up(&self) {
        let mut state = self.state.lock();
        let why = Error::new(
            DTL_ERROR_INVALID_STATE,
            "the devices' communicator was given up with an earlier collective",
        );
        self.abort(&mut state, why);
    }

    /// Finalizes an idle communicator collectively with the other ranks. Aborts a communicator that
    /// has work in flight or cannot be finalized.
    fn leave(&self) {
        let mut state = self.state.lock();
        let is_idle =
            state.waiting.is_empty() && state.entering.is_none() && state.running.is_empty();
        let may_leave =
            is_idle && !state.is_registering && state.failed.is_none() && !state.comm.is_null();
        let destroyed = Error::new(DTL_ERROR_CANCELED, "the communicator was destroyed");
        if may_leave && self.finalize(&mut state) {
            state.failed = Some(destroyed);
        } else {
            self.abort(&mut state, destroyed);
        }
    }

    fn describe(&self) -> String {
        format!("NCCL {} for memory of cuda device {}", self.nccl.number(), self.queue.device())
    }
}

impl NcclComm {
    /// Returns an error if NCCL's communicator has failed or executes a collective.
    fn check_idle(&self, state: &NcclState) -> Result<()> {
        match &state.failed {
            Some(error) => Err(error.clone()),
            None if state.over < state.next => fail!(
                DTL_ERROR_BUSY,
                "a collective of the communicator is in flight: complete it before a buffer is \
                 registered"
            ),
            None => Ok(()),
        }
    }

    /// Waits until no other thread registers or deregisters a buffer, and locks the state.
    fn lock_idle(&self) -> MutexGuard<'_, NcclState> {
        let mut backoff = Backoff::new();
        loop {
            let state = self.state.lock();
            if !state.is_registering {
                return state;
            }
            drop(state);
            backoff.pause();
        }
    }

    /// Waits for a call of NCCL with the result `code` that continues in the background. Releases
    /// the lock meanwhile, so that other threads can start and test collectives, which begin after
    /// the call. If the call takes longer than `LEAVE_NS` nanoseconds, aborts the communicator,
    /// because no other call of NCCL is allowed until it ends.
    fn settle<'a>(
        &'a self,
        mut state: MutexGuard<'a, NcclState>,
        mut code: ncclResult_t,
        what: &str,
    ) -> Result<()> {
        let (deadline, mut backoff) = (Deadline::after(LEAVE_NS), Backoff::new());
        state.is_registering = true;
        while code == ncclInProgress && !deadline.passed() {
            drop(state);
            backoff.pause();
            state = self.state.lock();
            if let Some(error) = state.failed.clone() {
                state.is_registering = false;
                return Err(error); // Another thread has aborted the communicator.
            }
            code = self.ask(&state);
        }
        state.is_registering = false;
        match code {
            ncclSuccess => Ok(()),
            ncclInProgress => {
                let why = failure!(
                    DTL_ERROR_TIMEOUT,
                    "{what} was still in progress after {} ms, so the devices' communicator was \
                     aborted: destroy the communicator on all ranks",
                    LEAVE_NS / 1_000_000
                );
                self.abort(&mut state, why.clone());
                Err(why)
            }
            code => Err(self.error(code, what)),
        }
    }
}

impl Registration for NcclComm {
    fn register(&self, buffer: Region, _place: MemoryPlace) -> Result<Option<Hold>> {
        let Some(register) = self.nccl.calls.ncclCommRegister else { return Ok(None) };
        let state = self.lock_idle();
        self.check_idle(&state)?;
        let (_inside, mut made) = (self.queue.enter()?, Box::new(ptr::null_mut()));
        // SAFETY: NCCL's communicator is alive, the buffer is device memory that stays allocated
        // until it is deregistered, and `made` has room for a handle. It is leaked after a failure,
        // because NCCL may still write to it.
        let code =
            unsafe { register(state.comm.ptr(), address(buffer), buffer.len(), &raw mut *made) };
        if let Err(error) = self.settle(state, code, "ncclCommRegister") {
            std::mem::forget(made);
            return Err(error);
        }
        // A null handle: NCCL does not use registered buffers here.
        Ok(if made.is_null() { None } else { Some(Arc::new(Addr::new(*made))) })
    }

    fn deregister(&self, hold: Hold) -> Result<()> {
        let (Some(deregister), Ok(made)) =
            (self.nccl.calls.ncclCommDeregister, hold.downcast::<Addr>())
        else {
            return Ok(());
        };
        let state = self.lock_idle();
        if state.comm.is_null() {
            return Ok(()); // It was aborted or destroyed, with all registrations.
        }
        let _inside = self.queue.enter()?;
        // SAFETY: NCCL's communicator is alive, and the handle is deregistered once.
        let code = unsafe { deregister(state.comm.ptr(), made.ptr()) };
        self.settle(state, code, "ncclCommDeregister")
    }

    fn is_in_use(&self, _buffer: Region) -> bool {
        let state = self.state.lock();
        state.failed.is_none() && state.over < state.next
    }
}

impl Drop for NcclComm {
    fn drop(&mut self) {
        self.leave();
    }
}
