//! A stream: a CUstream, the failures that CUDA does not tell, and a thread for its host callbacks.
//!
//! A fault of the device reaches every later call by itself: CUDA answers its code for the whole
//! context from then on. What CUDA does not know is a callback's status, and that a stream which
//! waited for an event shares what failed before it.
//!
//! Callbacks have a thread of their own. cuLaunchHostFunc would call them on one of the driver's,
//! which serves all streams and so may not wait for any; and not at all behind a fault. A value in
//! page-locked memory, for which the stream waits (cuStreamWaitValue32), holds it meanwhile.

use super::driver::{Driver, Inside, enter};
use super::errors::{NOT_READY, NOT_SUPPORTED};
use super::event::Mark;
use super::symbols::*;
use crate::abi::runtime::dtl_task_fn_t;
use crate::backend::driver::stream_callbacks::{Hold, Log, Piece, Task, Worker, collect};
use crate::error::{Error, Result, fail};
use crate::sys::buf::Addr;
use crate::sys::lock::Mutex;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// One stream.
pub(super) struct Lane {
    /// Keeps the context.
    pub(super) driver: Arc<Driver>,
    /// Its CUstream; 0, 1 and 2 mean a context's default streams.
    pub(super) stream: Addr,
    /// The context that it belongs to.
    pub(super) context: Addr,
    /// The device's place in the driver's list.
    pub(super) device: i32,
    /// Whether the CUstream is the program's.
    wrapped: bool,
    log: Arc<Mutex<Log<Wait>>>,
    host: Mutex<Option<Host>>,
}

/// A wait for another stream's record.
struct Wait(Arc<Record>);

/// A point in a stream's work.
pub(super) struct Record {
    lane: Arc<Lane>,
    mark: Mark,
    /// Failures of work after this ...
    after: u64,
    /// ... and up to this are the record's.
    upto: u64,
}

/// What the host does in the stream's order.
struct Host {
    worker: Worker,
    gate: Arc<Gate>,
    /// Number of the latest task.
    last: u32,
}

/// A word that the stream waits for.
struct Gate {
    driver: Arc<Driver>,
    context: Addr,
    word: Addr,
}

/// The host's task of one number.
struct Turn {
    before: Mark,
    gate: Arc<Gate>,
    number: u32,
}

impl Piece for Wait {
    fn has_ended(&self) -> bool {
        !matches!(self.0.mark.is_reached(), Ok(false))
    }

    fn failure(&self) -> Option<Error> {
        self.0.failure()
    }
}

impl Record {
    /// The present end of a stream.
    pub(super) fn new(lane: Arc<Lane>, flags: i64) -> Result<Self> {
        let inside = lane.enter()?;
        let mark = Mark::create(&lane.driver, lane.context, flags)?;
        drop(inside);
        let mut record = Record { lane: Arc::clone(&lane), mark, after: 0, upto: 0 };
        record.renew(lane)?;
        Ok(record)
    }

    /// Whether it can be made that of another stream.
    pub(super) fn fits(&self, lane: &Lane) -> bool {
        self.mark.context == lane.context
    }

    /// Makes it the present end of a stream that it fits. If that fails it is as it was.
    pub(super) fn renew(&mut self, lane: Arc<Lane>) -> Result<()> {
        let _inside = lane.enter()?;
        let log = lane.log.lock();
        self.mark.record(lane.stream)?;
        (self.after, self.upto) = (log.told, log.last);
        drop(log);
        self.lane = lane;
        Ok(())
    }

    /// Whether the work before it is done; its failure if it failed.
    pub(super) fn is_done(&self) -> Result<bool> {
        if !self.mark.is_reached()? {
            return Ok(false);
        }
        self.failure().map_or(Ok(true), Err)
    }

    /// Waits for it.
    pub(super) fn wait(&self) -> Result<()> {
        self.mark.wait()?;
        self.failure().map_or(Ok(()), Err)
    }

    /// Nanoseconds from it to another one; `None`: one was not reached yet.
    pub(super) fn until(&self, stop: &Record) -> Result<Option<i64>> {
        if self.mark.context != stop.mark.context {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "the events are of devices {} and {} or of two contexts, whose clocks differ; \
                 record both on one device",
                self.lane.device,
                stop.lane.device
            );
        }
        let elapsed = self.mark.until(&stop.mark)?;
        Ok(elapsed.map(|milliseconds| (f64::from(milliseconds) * 1e6).round() as i64))
    }

    /// Of a record that was reached.
    fn failure(&self) -> Option<Error> {
        collect(&self.lane.log, self.upto);
        self.lane.log.lock().first_failure(self.after, self.upto)
    }
}

impl Lane {
    /// A new stream on a device.
    pub(super) fn create(driver: Arc<Driver>, device: i32) -> Result<Self> {
        let context = driver.context(device)?;
        let inside = driver.enter(device)?;
        let stream = super::driver::new_stream(driver.cuda)?;
        drop(inside);
        Ok(Lane::new(driver, stream, context, device, false))
    }

    /// One that the program made, on a device: of the primary context or another one. NULL and the
    /// sentinels of cuda.h mean the default streams of the primary context.
    pub(super) fn of_program(driver: Arc<Driver>, device: i32, stream: Addr) -> Result<Self> {
        let primary = driver.context(device)?;
        if stream.get() <= 2 {
            return Ok(Lane::new(driver, stream, primary, device, true));
        }
        let mut context = ptr::null_mut();
        // SAFETY: a stream by the program's word, and room for a context.
        let code = unsafe { (driver.cuda.cuStreamGetCtx)(stream.ptr(), &raw mut context) };
        driver.cuda.check(code, "the CUstream to wrap (cuStreamGetCtx)")?;
        let context = Addr::new(context);
        let inside = enter(driver.cuda, context)?;
        let mut id = 0;
        // SAFETY: room for a device.
        let code = unsafe { (driver.cuda.cuCtxGetDevice)(&raw mut id) };
        drop(inside);
        driver.cuda.check(code, "cuCtxGetDevice")?;
        if driver.card(device)?.id != id {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "the CUstream is of CUDA's device {id}, and the current one is {device}: make that \
                 current first \
                 (dtl_backend_set_device)"
            );
        }
        Ok(Lane::new(driver, stream, context, device, true))
    }

    fn new(driver: Arc<Driver>, stream: Addr, context: Addr, device: i32, wrapped: bool) -> Self {
        Lane {
            driver,
            stream,
            context,
            device,
            wrapped,
            log: Arc::default(),
            host: Mutex::new(None),
        }
    }

    /// Makes its context current in the calling thread.
    #[inline]
    pub(super) fn enter(&self) -> Result<Inside> {
        enter(self.driver.cuda, self.context)
    }

    /// Later work waits for the record; its failure is this stream's.
    pub(super) fn wait_for(&self, record: Arc<Record>) -> Result<()> {
        collect(&self.log, u64::MAX);
        let _inside = self.enter()?;
        let mut log = self.log.lock();
        record.mark.hold(self.stream)?;
        log.add(Wait(record));
        Ok(())
    }

    /// Calls a function on a host thread in the stream's order. `None`: the driver cannot hold a
    /// stream.
    pub(super) fn call(&self, task: dtl_task_fn_t, user: Addr) -> Option<Result<()>> {
        let hold = self.driver.cuda.cuStreamWaitValue32_v2?;
        let queue = || {
            let _inside = self.enter()?;
            let mut host = self.host.lock();
            let host = match host.as_mut() {
                Some(host) => host,
                None => host.insert(self.start()?),
            };
            let flags = CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC;
            let before = Mark::create(&self.driver, self.context, flags)?;
            let mut log = self.log.lock();
            before.record(self.stream)?;
            let number = host.last.wrapping_add(1);
            let (word, flags) = (host.gate.word.get() as Ptr, CU_STREAM_WAIT_VALUE_GEQ as Uint);
            // SAFETY: a stream, and a word of page-locked memory that lives until the stream was
            // let go on.
            let code = unsafe { hold(self.stream.ptr(), word, number, flags) };
            if code == NOT_SUPPORTED {
                return Ok(false);
            }
            self.driver.cuda.check(code, "cuStreamWaitValue32")?;
            host.last = number;
            let turn = Box::new(Turn { before, gate: Arc::clone(&host.gate), number });
            host.worker.give(log.number(), turn, Task::Call(task, user)).map(|()| true)
        };
        match queue() {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }

    fn start(&self) -> Result<Host> {
        let (cuda, mut word) = (self.driver.cuda, ptr::null_mut());
        // SAFETY: room for a pointer; the context is current.
        let code =
            unsafe { (cuda.cuMemHostAlloc)(&raw mut word, 64, CU_MEMHOSTALLOC_DEVICEMAP as Uint) };
        cuda.check(code, "a page-locked word for a stream's host callbacks (cuMemHostAlloc)")?;
        let gate =
            Gate { driver: Arc::clone(&self.driver), context: self.context, word: Addr::new(word) };
        gate.word().store(0, Ordering::Relaxed);
        let worker = Worker::start("dtl-cuda-stream", Arc::clone(&self.log))?;
        Ok(Host { worker, gate: Arc::new(gate), last: 0 })
    }

    /// Waits for all work queued so far; its first failure, once. A lost device's is told each
    /// time.
    pub(super) fn synchronize(&self) -> Result<()> {
        if self.is_own_thread() {
            return fail!(
                DTL_ERROR_INVALID_STATE,
                "a stream's own work cannot wait for the stream; wait in another thread"
            );
        }
        let upto = self.log.lock().last;
        let inside = self.enter()?;
        // SAFETY: a stream that is alive.
        let code = unsafe { (self.driver.cuda.cuStreamSynchronize)(self.stream.ptr()) };
        drop(inside);
        self.driver.cuda.check(code, "work of a stream (cuStreamSynchronize)")?;
        collect(&self.log, upto);
        self.log.lock().tell(upto)
    }

    /// Whether all work queued so far is done; its failure, which stays.
    pub(super) fn query(&self) -> Result<bool> {
        let upto = self.log.lock().last;
        let inside = self.enter()?;
        // SAFETY: a stream that is alive.
        let code = unsafe { (self.driver.cuda.cuStreamQuery)(self.stream.ptr()) };
        drop(inside);
        if code == NOT_READY {
            return Ok(false);
        }
        self.driver.cuda.check(code, "work of a stream (cuStreamQuery)")?;
        collect(&self.log, upto);
        self.log.lock().untold(upto).map(|()| true)
    }

    /// Finishes what is queued, unless the stream's own work asks for it, and ends the thread.
    pub(super) fn close(&self) {
        if !self.is_own_thread() {
            // Nobody is left to be told of a failure.
            let _ = self.synchronize();
            collect(&self.log, u64::MAX); // shares of other streams, which may have one of this
        }
        let host = self.host.lock().take();
        if let Some(host) = host {
            host.worker.end();
        }
    }

    fn is_own_thread(&self) -> bool {
        self.host.lock().as_ref().is_some_and(|host| host.worker.is_calling())
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if !self.wrapped {
            if let Ok(_inside) = self.enter() {
                // SAFETY: a stream of ours, given up once.
                let _ = unsafe { (self.driver.cuda.cuStreamDestroy_v2)(self.stream.ptr()) };
            }
        }
    }
}

impl Gate {
    fn word(&self) -> &AtomicU32 {
        // SAFETY: page-locked memory of 64 bytes that this object owns; the device only reads it.
        unsafe { &*self.word.ptr().cast::<AtomicU32>() }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if let Ok(_inside) = enter(self.driver.cuda, self.context) {
            // SAFETY: what cuMemHostAlloc gave, given back once; no stream waits for it any more.
            let _ = unsafe { (self.driver.cuda.cuMemFreeHost)(self.word.ptr()) };
        }
    }
}

impl Hold for Turn {
    fn wait(&self) {
        // A fault is the work's before it.
        let _ = self.before.wait();
    }

    fn release(&self) {
        self.gate.word().store(self.number, Ordering::Release);
    }
}
