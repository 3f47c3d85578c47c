//! Blocking of a CUstream while the host executes work in stream order.
//!
//! The library does not use cuLaunchHostFunc for host callbacks. The driver would call them on one
//! of its threads, which serves all streams, so a callback could not wait for any stream. After a
//! device fault the driver would not call them at all. Instead, the stream waits for a value in
//! page-locked memory (cuStreamWaitValue32).
//!
//! The thread that runs the callbacks does not make any driver calls. cuMemFree, cuMemFreeHost,
//! cuMemHostUnregister and cuModuleLoadDataEx wait for all work of the context and hold the
//! context's lock meanwhile. If the callback thread needed that lock to release a stream, such a
//! call would deadlock. Two measures avoid the deadlock. First, a callback queued with
//! cuStreamAddCallback signals that the stream has reached the wait; the driver calls this callback
//! even after a fault. Second, the page-locked memory is reused instead of freed.

use super::driver::{CudaDriver, Words};
use super::symbols::*;
use crate::backend::driver::Driver as _;
use crate::backend::driver::stream_callbacks::Hold;
use crate::error::Result;
use crate::runtime::exec::fence::Fence;
use crate::sys::memory::buf::Addr;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Size of one allocation of page-locked memory, in bytes.
const PAGE: usize = 4096;
/// Distance in bytes between the page-locked words of different streams: one cache line, so that
/// callbacks of different streams write to different cache lines.
const LINE: usize = 64;

impl Words {
    /// Allocates `PAGE` bytes of page-locked memory, adds all words in it except the first to the
    /// list of unused words, and returns the address of the first word.
    fn grow(&mut self, driver: &CudaDriver, device: i32) -> Result<Addr> {
        let (cuda, mut page) = (driver.cuda, ptr::null_mut());
        let flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
        let _inside = driver.enter(device)?;
        // SAFETY: `page` is valid for writing a pointer, and the context is current.
        let code = unsafe { (cuda.cuMemHostAlloc)(&raw mut page, PAGE, flags) };
        cuda.check(code, "page-locked words for streams' host callbacks (cuMemHostAlloc)")?;
        // SAFETY: the page has `PAGE` bytes, was just allocated, and nothing else uses it.
        unsafe { page.cast::<u8>().write_bytes(0, PAGE) };
        self.pages.push(Addr::new(page));
        let lines = (LINE..PAGE).step_by(LINE);
        self.unused.extend(lines.map(|at| Addr::new(page.wrapping_byte_add(at))));
        Ok(Addr::new(page))
    }
}

/// 32-bit word in page-locked memory. The device can block a stream until the word reaches a given
/// value.
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
        // SAFETY: `at` is a cache line of page-locked memory that this object owns and that the
        // driver object keeps allocated. The device only reads it.
        unsafe { &*self.at.ptr().cast::<AtomicU32>() }
    }
}

impl Drop for Word {
    fn drop(&mut self) {
        // The values of a word only increase: a stream that still waits for an old value proceeds,
        // even if another stream reuses the word.
        if let Ok(card) = self.driver.card(self.device) {
            card.words.lock().unused.push(self.at);
        }
    }
}

/// Page-locked word that blocks one stream (cuStreamWaitValue32), and the latest value that the
/// stream waits for.
pub(super) struct Gate {
    word: Arc<Word>,
    /// Latest value for which the stream waits.
    last: u32,
}

impl Gate {
    /// Creates a gate (a page-locked word on which a stream can wait) for a stream of `device`.
    /// Returns `None` if the driver lacks the functions to block a stream.
    pub(super) fn new(driver: &Arc<CudaDriver>, device: i32) -> Result<Option<Self>> {
        let cuda = driver.cuda;
        if cuda.cuStreamWaitValue32_v2.is_none() || cuda.cuStreamAddCallback.is_none() {
            return Ok(None);
        }
        let word = Arc::new(Word::new(driver, device)?);
        let last = word.value().load(Ordering::Relaxed);
        Ok(Some(Gate { word, last }))
    }

    /// Blocks work queued later on `stream` until `release` of the returned object is called.
    /// Returns `None` if the device cannot block a stream. The caller must have made the stream's
    /// context current.
    pub(super) fn hold(&mut self, stream: Addr) -> Result<Option<StreamWait>> {
        let cuda = self.word.driver.cuda;
        let (Some(add_callback), Some(wait_value)) =
            (cuda.cuStreamAddCallback, cuda.cuStreamWaitValue32_v2)
        else {
            return Ok(None);
        };
        let arrival = Arc::new(Fence::pending());
        let user = Arc::into_raw(Arc::clone(&arrival));
        // SAFETY: the stream is alive, and `arrive` takes ownership of the reference that `user`
        // points to.
        let code = unsafe { add_callback(stream.ptr(), Some(arrive), user.cast_mut().cast(), 0) };
        if code != CUDA_SUCCESS {
            // SAFETY: `user` is the reference created above, and the failed call did not pass it
            // on.
            drop(unsafe { Arc::from_raw(user) });
            return Err(cuda.error(code, "cuStreamAddCallback"));
        }
        let value = self.last.wrapping_add(1);
        let (at, flags) = (self.word.at.get() as CUdeviceptr, CU_STREAM_WAIT_VALUE_GEQ);
        // SAFETY: the stream is alive, and the word is page-locked memory that lives until the
        // driver object is dropped.
        let code = unsafe { wait_value(stream.ptr(), at, value, flags) };
        if code == CUDA_ERROR_NOT_SUPPORTED {
            return Ok(None);
        }
        cuda.check(code, "cuStreamWaitValue32")?;
        self.last = value;
        Ok(Some(StreamWait { arrival, word: Arc::clone(&self.word), value }))
    }
}

/// Callback that signals that a stream has reached the position at which it is blocked. It must not
/// block, because the driver's callback thread serves all streams.
unsafe extern "C" fn arrive(_stream: CUstream, _status: CUresult, arrival: *mut c_void) {
    // SAFETY: `arrival` is the reference that `hold` passed; the driver calls this function once.
    let arrival = unsafe { Arc::from_raw(arrival.cast::<Fence>().cast_const()) };
    arrival.complete(None);
}

/// Wait operation that blocks a stream at one position in its queue until `release` is called.
pub(super) struct StreamWait {
    /// Completed when the stream reaches the position.
    arrival: Arc<Fence>,
    word: Arc<Word>,
    value: u32,
}

impl Hold for StreamWait {
    fn wait(&self) {
        // A fence that is completed without a failure, and that belongs to no queue, cannot fail.
        let _ = self.arrival.join();
    }

    fn release(&self) {
        self.word.value().store(self.value, Ordering::Release);
    }
}
