//! A CUstream that waits while the host works in its order.
//!
//! Host callbacks are not called by cuLaunchHostFunc: that would call them on a thread of the
//! driver, which serves all streams and so may not wait for any; and not at all behind a fault. A
//! value in page-locked memory, for which the stream waits (cuStreamWaitValue32), holds it
//! meanwhile.
//!
//! The thread that serves the callbacks makes no call of the driver. cuMemFree, cuMemFreeHost,
//! cuMemHostUnregister and cuModuleLoadDataEx wait for all work of the context and hold its lock
//! meanwhile. If that thread needed the lock before it releases a stream, such a call would never
//! end. So a function of cuStreamAddCallback, which is called behind a fault too, signals that the
//! stream has arrived, and words are reused, not freed.

use super::driver::CudaDriver;
use super::symbols::*;
use crate::backend::driver::Driver as _;
use crate::backend::driver::stream_callbacks::Hold;
use crate::error::Result;
use crate::sys::memory::buf::Addr;
use crate::sys::sync::lock::{Condvar, Mutex};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of page-locked memory that are allocated at a time.
const PAGE: usize = 4096;
/// Bytes of a word: a cache line, which no other stream's callbacks write.
const LINE: usize = 64;

/// Page-locked memory of a device's words. It is kept until the driver's end, because freeing it
/// waits for all streams.
#[derive(Default)]
pub(super) struct Words {
    pages: Vec<Addr>,
    unused: Vec<Addr>,
}

impl Words {
    /// Allocates a page; returns one of its words.
    fn grow(&mut self, driver: &CudaDriver, device: i32) -> Result<Addr> {
        let (cuda, mut page) = (driver.cuda, ptr::null_mut());
        let flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
        let inside = driver.enter(device)?;
        // SAFETY: room for a pointer; the context is current.
        let code = unsafe { (cuda.cuMemHostAlloc)(&raw mut page, PAGE, flags) };
        cuda.check(code, "page-locked words for streams' host callbacks (cuMemHostAlloc)")?;
        drop(inside);
        // SAFETY: the page that was just allocated, which nothing else uses.
        unsafe { page.cast::<u8>().write_bytes(0, PAGE) };
        self.pages.push(Addr::new(page));
        let lines = (LINE..PAGE).step_by(LINE);
        self.unused.extend(lines.map(|at| Addr::new(page.wrapping_byte_add(at))));
        Ok(Addr::new(page))
    }

    /// Frees the memory; the context is current, and no stream of the library is left.
    pub(super) fn free(&mut self, cuda: &Functions) {
        self.unused.clear();
        for page in self.pages.drain(..) {
            // SAFETY: allocated by cuMemHostAlloc and freed once.
            let _ = unsafe { (cuda.cuMemFreeHost)(page.ptr()) };
        }
    }
}

/// A word of page-locked memory that a stream compares with a value.
struct Word {
    driver: Arc<CudaDriver>,
    device: i32,
    at: Addr,
}

impl Word {
    fn new(driver: &Arc<CudaDriver>, device: i32) -> Result<Self> {
        let mut words = driver.card(device)?.words.lock();
        let at = match words.unused.pop() {
            Some(at) => at,
            None => words.grow(driver, device)?,
        };
        drop(words);
        Ok(Word { driver: Arc::clone(driver), device, at })
    }

    fn value(&self) -> &AtomicU32 {
        // SAFETY: a line of page-locked memory that this object owns and that the driver keeps; the
        // device only reads it.
        unsafe { &*self.at.ptr().cast::<AtomicU32>() }
    }
}

impl Drop for Word {
    fn drop(&mut self) {
        // Values only grow: a stream that waits for an old one goes on, whoever uses the word next.
        if let Ok(card) = self.driver.card(self.device) {
            card.words.lock().unused.push(self.at);
        }
    }
}

/// Values for which a stream waits.
pub(super) struct Gate {
    word: Arc<Word>,
    /// The latest value.
    last: u32,
}

impl Gate {
    /// `None`: the driver cannot hold a stream.
    pub(super) fn new(driver: &Arc<CudaDriver>, device: i32) -> Result<Option<Self>> {
        let cuda = driver.cuda;
        if cuda.cuStreamWaitValue32_v2.is_none() || cuda.cuStreamAddCallback.is_none() {
            return Ok(None);
        }
        let word = Arc::new(Word::new(driver, device)?);
        let last = word.value().load(Ordering::Relaxed);
        Ok(Some(Gate { word, last }))
    }

    /// Stops a stream, whose context is current, at its present end. `None`: the device has no way
    /// to do that.
    pub(super) fn hold(&mut self, stream: Addr) -> Result<Option<StreamWait>> {
        let cuda = self.word.driver.cuda;
        let (Some(add_callback), Some(wait_value)) =
            (cuda.cuStreamAddCallback, cuda.cuStreamWaitValue32_v2)
        else {
            return Ok(None);
        };
        let arrival = Arc::new(StreamArrival::default());
        let user = Arc::into_raw(Arc::clone(&arrival));
        // SAFETY: a live stream; the function takes the share that is passed.
        let code = unsafe { add_callback(stream.ptr(), Some(arrive), user.cast_mut().cast(), 0) };
        if code != CUDA_SUCCESS {
            // SAFETY: the share that was just made; the driver did not take it.
            drop(unsafe { Arc::from_raw(user) });
            return Err(cuda.error(code, "cuStreamAddCallback"));
        }
        let value = self.last.wrapping_add(1);
        let (at, flags) = (self.word.at.get() as CUdeviceptr, CU_STREAM_WAIT_VALUE_GEQ);
        // SAFETY: a stream, and a word of page-locked memory that lives until the driver's end.
        let code = unsafe { wait_value(stream.ptr(), at, value, flags) };
        if code == CUDA_ERROR_NOT_SUPPORTED {
            return Ok(None);
        }
        cuda.check(code, "cuStreamWaitValue32")?;
        self.last = value;
        Ok(Some(StreamWait { arrival, word: Arc::clone(&self.word), value }))
    }
}

/// Whether a stream has arrived at a point.
#[derive(Default)]
struct StreamArrival {
    has_arrived: Mutex<bool>,
    change: Condvar,
}

/// Called by the driver, on a thread that serves all streams: it does not block.
unsafe extern "C" fn arrive(_stream: CUstream, _status: CUresult, arrival: *mut c_void) {
    // SAFETY: the share that `hold` passed; the driver calls this once.
    let arrival = unsafe { Arc::from_raw(arrival.cast::<StreamArrival>().cast_const()) };
    *arrival.has_arrived.lock() = true;
    arrival.change.notify_one();
}

/// A stop of the stream, until the host has done its work.
pub(super) struct StreamWait {
    arrival: Arc<StreamArrival>,
    word: Arc<Word>,
    value: u32,
}

impl Hold for StreamWait {
    fn wait(&self) {
        let mut has_arrived = self.arrival.has_arrived.lock();
        while !*has_arrived {
            has_arrived = self.arrival.change.wait(has_arrived);
        }
    }

    fn release(&self) {
        self.word.value().store(self.value, Ordering::Release);
    }
}
