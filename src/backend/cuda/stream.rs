//! A CUstream as the queue of a stream.
//!
//! A fault of the device reaches every later call by itself: CUDA returns its code for the whole
//! context from then on. So copies, fills and launches need no events of their own.
//!
//! Host callbacks are not called by cuLaunchHostFunc: that would call them on a thread of the
//! driver, which serves all streams and so may not wait for any; and not at all behind a fault. A
//! value in page-locked memory, for which the stream waits (cuStreamWaitValue32), holds it
//! meanwhile.

use super::driver::{Driver, Inside, enter, new_stream};
use super::event::Event;
use super::symbols::*;
use crate::backend::driver::stream_callbacks::Hold;
use crate::backend::driver::{self, Driver as _};
use crate::error::{Result, fail};
use crate::sys::memory::buf::Addr;
use crate::sys::sync::lock::Mutex;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A CUstream.
pub struct Queue {
    /// Keeps the context.
    pub(super) driver: Arc<Driver>,
    /// The CUstream; 0, 1 and 2 mean a context's default streams.
    pub(super) id: Addr,
    /// The context that it belongs to.
    pub(super) context: Addr,
    /// The device's index in the driver's list.
    pub(super) device: i32,
    is_wrapped: bool,
    gate: Mutex<Option<Gate>>,
}

/// Values for which the stream waits.
struct Gate {
    word: Arc<Word>,
    /// The latest value.
    last: u32,
}

/// A word of page-locked memory that the stream compares with a value.
struct Word {
    driver: Arc<Driver>,
    context: Addr,
    at: Addr,
}

/// A wait of the stream for one value.
struct Waiting {
    before: Event,
    word: Arc<Word>,
    value: u32,
}

impl Queue {
    /// Creates a stream on a device.
    pub(super) fn create(driver: &Arc<Driver>, device: i32) -> Result<Self> {
        let context = driver.context(device)?;
        let inside = driver.enter(device)?;
        let id = new_stream(driver.cuda)?;
        drop(inside);
        Ok(Queue::new(driver, id, context, device, false))
    }

    /// Wraps a stream of the program on a device: of the primary context or another one. NULL and
    /// the sentinels of cuda.h mean the default streams of the primary context.
    pub(super) fn wrap(driver: &Arc<Driver>, device: i32, id: Addr) -> Result<Self> {
        let primary = driver.context(device)?;
        if id.get() <= 2 {
            return Ok(Queue::new(driver, id, primary, device, true));
        }
        let mut context = ptr::null_mut();
        // SAFETY: the program passes a live stream; there is room for a context.
        let code = unsafe { (driver.cuda.cuStreamGetCtx)(id.ptr(), &raw mut context) };
        driver.cuda.check(code, "the CUstream to wrap (cuStreamGetCtx)")?;
        let context = Addr::new(context);
        let inside = enter(driver.cuda, context)?;
        let mut ordinal = 0;
        // SAFETY: room for a device.
        let code = unsafe { (driver.cuda.cuCtxGetDevice)(&raw mut ordinal) };
        drop(inside);
        driver.cuda.check(code, "cuCtxGetDevice")?;
        if driver.card(device)?.id != ordinal {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "the CUstream is of CUDA's device {ordinal}, and the current one is {device}: make \
                 that current first \
                 (dtl_backend_set_device)"
            );
        }
        Ok(Queue::new(driver, id, context, device, true))
    }

    fn new(driver: &Arc<Driver>, id: Addr, context: Addr, device: i32, is_wrapped: bool) -> Self {
        let driver = Arc::clone(driver);
        Queue { driver, id, context, device, is_wrapped, gate: Mutex::new(None) }
    }

    /// Makes its context current in the calling thread.
    #[inline]
    pub(super) fn enter(&self) -> Result<Inside> {
        enter(self.driver.cuda, self.context)
    }

    fn new_event(&self, flags: c_uint) -> Result<Event> {
        Event::create(&self.driver, self.context, self.device, flags)
    }
}

impl driver::Queue for Queue {
    type Event = Event;

    fn native(&self) -> Addr {
        self.id
    }

    fn is_wrapped(&self) -> bool {
        self.is_wrapped
    }

    fn record(&self, is_timed: bool) -> Result<Event> {
        let _inside = self.enter()?;
        let event =
            self.new_event(if is_timed { CU_EVENT_DEFAULT } else { CU_EVENT_DISABLE_TIMING })?;
        event.record(self.id).map(|()| event)
    }

    fn record_again(&self, event: &Event) -> Result<bool> {
        if event.context != self.context {
            return Ok(false);
        }
        let _inside = self.enter()?;
        event.record(self.id).map(|()| true)
    }

    fn can_wait_for(&self, _other: &Self) -> bool {
        true
    }

    fn wait_event(&self, event: &Event) -> Result<Option<Event>> {
        let _inside = self.enter()?;
        event.hold(self.id).map(|()| None)
    }

    /// CUDA submits by itself.
    fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// Allocates the word. cuMemHostAlloc may wait for the device.
    fn prepare_hold(&self) -> Result<bool> {
        let mut gate = self.gate.lock();
        if gate.is_some() || self.driver.cuda.cuStreamWaitValue32_v2.is_none() {
            return Ok(gate.is_some());
        }
        let _inside = self.enter()?;
        let (cuda, mut at) = (self.driver.cuda, ptr::null_mut());
        // SAFETY: room for a pointer; the context is current.
        let code = unsafe { (cuda.cuMemHostAlloc)(&raw mut at, 64, CU_MEMHOSTALLOC_DEVICEMAP) };
        cuda.check(code, "a page-locked word for a stream's host callbacks (cuMemHostAlloc)")?;
        let driver = Arc::clone(&self.driver);
        let word = Arc::new(Word { driver, context: self.context, at: Addr::new(at) });
        word.value().store(0, Ordering::Relaxed);
        *gate = Some(Gate { word, last: 0 });
        Ok(true)
    }

    fn hold(&self) -> Result<Option<Box<dyn Hold>>> {
        let mut gate = self.gate.lock();
        let (Some(gate), Some(wait_value)) =
            (gate.as_mut(), self.driver.cuda.cuStreamWaitValue32_v2)
        else {
            return Ok(None);
        };
        let _inside = self.enter()?;
        let before = self.new_event(CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC)?;
        before.record(self.id)?;
        let value = gate.last.wrapping_add(1);
        let (at, flags) = (gate.word.at.get() as CUdeviceptr, CU_STREAM_WAIT_VALUE_GEQ);
        // SAFETY: a stream, and a word of page-locked memory that lives until the stream was
        // released.
        let code = unsafe { wait_value(self.id.ptr(), at, value, flags) };
        if code == CUDA_ERROR_NOT_SUPPORTED {
            return Ok(None);
        }
        self.driver.cuda.check(code, "cuStreamWaitValue32")?;
        gate.last = value;
        Ok(Some(Box::new(Waiting { before, word: Arc::clone(&gate.word), value })))
    }

    fn synchronize(&self) -> Result<()> {
        let inside = self.enter()?;
        // SAFETY: a live stream.
        let code = unsafe { (self.driver.cuda.cuStreamSynchronize)(self.id.ptr()) };
        drop(inside);
        self.driver.cuda.check(code, "work of a stream (cuStreamSynchronize)")
    }

    fn is_idle(&self, _last: u64, _ended: u64) -> Result<bool> {
        let inside = self.enter()?;
        // SAFETY: a live stream.
        let code = unsafe { (self.driver.cuda.cuStreamQuery)(self.id.ptr()) };
        drop(inside);
        if code == CUDA_ERROR_NOT_READY {
            return Ok(false);
        }
        self.driver.cuda.check(code, "work of a stream (cuStreamQuery)").map(|()| true)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if !self.is_wrapped {
            if let Ok(_inside) = self.enter() {
                // SAFETY: a stream of ours, given up once.
                let _ = unsafe { (self.driver.cuda.cuStreamDestroy_v2)(self.id.ptr()) };
            }
        }
    }
}

impl Word {
    fn value(&self) -> &AtomicU32 {
        // SAFETY: page-locked memory of 64 bytes that this object owns; the device only reads it.
        unsafe { &*self.at.ptr().cast::<AtomicU32>() }
    }
}

impl Drop for Word {
    fn drop(&mut self) {
        if let Ok(_inside) = enter(self.driver.cuda, self.context) {
            // SAFETY: allocated by cuMemHostAlloc and freed once; no stream waits for it any more.
            let _ = unsafe { (self.driver.cuda.cuMemFreeHost)(self.at.ptr()) };
        }
    }
}

impl Hold for Waiting {
    fn wait(&self) {
        // A fault belongs to the work before it.
        let _ = driver::Event::wait(&self.before);
    }

    fn release(&self) {
        self.word.value().store(self.value, Ordering::Release);
    }
}
