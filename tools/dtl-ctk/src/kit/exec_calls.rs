//! Streams, events, executors and kernels as tests see them; closures in the place of C functions.
//!
//! Closures live until the process ends: a backend that calls one too often, or too late, is a
//! failed test then and not a crash of the kit.

use crate::kit::calls::Backend;
use crate::kit::outcome::{Called, Outcome, call, called, skip};
use crate::kit::subject::becomes;
use dtl_sys::*;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// A function for streams and executors.
pub(crate) struct Job {
    body: Box<dyn Fn() -> i32 + Send + Sync>,
    runs: AtomicU64,
}

impl Job {
    pub(crate) fn new(body: impl Fn() -> i32 + Send + Sync + 'static) -> &'static Job {
        Box::leak(Box::new(Job { body: Box::new(body), runs: AtomicU64::new(0) }))
    }

    /// How often it has been called and has returned.
    pub(crate) fn runs(&self) -> u64 {
        self.runs.load(Ordering::SeqCst)
    }

    fn user(&'static self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }
}

extern "C" fn run_job(user: *mut c_void) -> i32 {
    if user.is_null() {
        return dtl_sys::DTL_ERROR_NULL_POINTER;
    }
    // SAFETY: `user` is the job that was passed along; jobs live for ever.
    let job = unsafe { &*user.cast::<Job>() };
    let status = (job.body)();
    job.runs.fetch_add(1, Ordering::SeqCst);
    status
}

/// Work that lasts until it is released, at most two seconds.
pub(crate) struct Hold {
    go: Arc<AtomicBool>,
    in_caller: Arc<AtomicBool>,
    begun: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
    pub(crate) job: &'static Job,
}

impl Hold {
    pub(crate) fn new() -> Hold {
        let (go, in_caller) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (seen, told, caller) =
            (Arc::clone(&go), Arc::clone(&in_caller), thread::current().id());
        let (begun, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (begin, end) = (Arc::clone(&begun), Arc::clone(&ended));
        let job = Job::new(move || {
            begin.store(true, Ordering::SeqCst);
            if thread::current().id() == caller {
                // Nobody is left to release it.
                told.store(true, Ordering::SeqCst);
            } else {
                becomes(Duration::from_secs(2), || seen.load(Ordering::SeqCst));
            }
            end.store(true, Ordering::SeqCst);
            0
        });
        Hold { go, in_caller, begun, ended, job }
    }

    /// Queues it; skips the test where the backend calls functions in the caller's thread.
    pub(crate) fn on(&self, stream: &Stream) -> Outcome {
        stream.callback(self.job)?;
        if self.in_caller.load(Ordering::SeqCst) {
            skip!("the backend calls host functions in the caller's thread");
        }
        Ok(())
    }

    pub(crate) fn release(&self) {
        self.go.store(true, Ordering::SeqCst);
    }

    /// Returns true if `job` runs while this one lasts.
    pub(crate) fn outlasts(&self, job: &Job) -> bool {
        becomes(Duration::from_secs(10), || job.runs() > 0 || self.has_ended()) && !self.has_ended()
    }

    /// Waits until it runs.
    pub(crate) fn begins(&self) -> bool {
        becomes(Duration::from_secs(10), || self.begun.load(Ordering::SeqCst))
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }
}

/// A stream; destroyed when dropped.
pub(crate) struct Stream {
    pub(crate) handle: dtl_stream_t,
    is_default: bool,
}

impl Stream {
    pub(crate) fn new(backend: Backend, device: i32) -> Called<Stream> {
        Stream::with_flags(backend, device, 0)
    }

    pub(crate) fn with_flags(backend: Backend, device: i32, flags: u64) -> Called<Stream> {
        let mut handle = dtl_stream_t { id: 0 };
        call!(dtl_stream_create(backend.handle, device, flags, &raw mut handle))?;
        Ok(Stream { handle, is_default: false })
    }

    /// The device's default stream.
    pub(crate) fn default_of(backend: Backend, device: i32) -> Called<Stream> {
        let mut handle = dtl_stream_t { id: 0 };
        call!(dtl_stream_default(backend.handle, device, &raw mut handle))?;
        Ok(Stream { handle, is_default: true })
    }

    pub(crate) fn wrap(backend: Backend, native: *mut c_void) -> Called<Stream> {
        let mut handle = dtl_stream_t { id: 0 };
        call!(dtl_stream_wrap(backend.handle, native, &raw mut handle))?;
        Ok(Stream { handle, is_default: false })
    }

    pub(crate) fn native(&self) -> Called<*mut c_void> {
        let mut native = ptr::null_mut();
        call!(dtl_stream_native(self.handle, &raw mut native))?;
        Ok(native)
    }

    pub(crate) fn destroy(self) -> Called {
        let handle = self.handle;
        std::mem::forget(self);
        called("dtl_stream_destroy", dtl_stream_destroy(handle))
    }

    pub(crate) fn synchronize(&self) -> Called {
        called("dtl_stream_synchronize", dtl_stream_synchronize(self.handle))
    }

    pub(crate) fn query(&self) -> Called<bool> {
        let mut done = -1;
        call!(dtl_stream_query(self.handle, &raw mut done))?;
        Ok(done != 0)
    }

    pub(crate) fn wait_event(&self, event: &Event) -> Called {
        called("dtl_stream_wait_event", dtl_stream_wait_event(self.handle, event.handle))
    }

    pub(crate) fn callback(&self, job: &'static Job) -> Called {
        call!(dtl_stream_host_callback(self.handle, Some(run_job), job.user()))
    }

    pub(crate) fn copy(&self, dst: *mut c_void, src: *const c_void, size: u64) -> Called {
        call!(dtl_mem_copy_async(self.handle, dst, src, size))
    }

    pub(crate) fn fill(&self, dst: *mut c_void, value: u8, size: u64) -> Called {
        call!(dtl_mem_fill_async(self.handle, dst, value, size))
    }

    pub(crate) fn launch(&self, kernel: &Kernel, shape: &dtl_launch_t, args: &[&[u8]]) -> Called {
        let pointers: Vec<*const c_void> = args.iter().map(|arg| arg.as_ptr().cast()).collect();
        let sizes: Vec<u64> = args.iter().map(|arg| arg.len() as u64).collect();
        let (values, count) = (pointers.as_ptr(), args.len() as u32);
        let shape = ptr::from_ref(shape);
        call!(dtl_kernel_launch(self.handle, kernel.handle, shape, values, sizes.as_ptr(), count))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.is_default {
            let _ = dtl_stream_destroy(self.handle);
        }
    }
}

/// An event; destroyed when dropped.
pub(crate) struct Event {
    pub(crate) handle: dtl_event_t,
}

impl Event {
    pub(crate) fn new(backend: Backend) -> Called<Event> {
        Event::with_flags(backend, 0)
    }

    pub(crate) fn with_flags(backend: Backend, flags: u64) -> Called<Event> {
        let mut handle = dtl_event_t { id: 0 };
        call!(dtl_event_create(backend.handle, flags, &raw mut handle))?;
        Ok(Event { handle })
    }

    /// A new one, recorded on a stream.
    pub(crate) fn on(backend: Backend, stream: &Stream) -> Called<Event> {
        let event = Event::new(backend)?;
        event.record(stream)?;
        Ok(event)
    }

    pub(crate) fn destroy(self) -> Called {
        let handle = self.handle;
        std::mem::forget(self);
        called("dtl_event_destroy", dtl_event_destroy(handle))
    }

    pub(crate) fn record(&self, stream: &Stream) -> Called {
        called("dtl_event_record", dtl_event_record(self.handle, stream.handle))
    }

    pub(crate) fn sync(&self) -> Called {
        called("dtl_event_sync", dtl_event_sync(self.handle))
    }

    pub(crate) fn wait(&self, timeout_ns: u64) -> Called {
        called("dtl_event_wait", dtl_event_wait(self.handle, timeout_ns))
    }

    pub(crate) fn is_complete(&self) -> Called<bool> {
        let mut state = -1;
        call!(dtl_event_query(self.handle, &raw mut state))?;
        Ok(state == DTL_EVENT_COMPLETE)
    }

    /// Nanoseconds to a later event.
    pub(crate) fn elapsed(&self, stop: &Event) -> Called<u64> {
        let mut ns = u64::MAX;
        call!(dtl_event_elapsed_ns(self.handle, stop.handle, &raw mut ns))?;
        Ok(ns)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _ = dtl_event_destroy(self.handle);
    }
}

/// A loop's body.
pub(crate) struct Piece {
    body: Box<dyn Fn(u64, u64) -> i32 + Send + Sync>,
}

impl Piece {
    pub(crate) fn new(body: impl Fn(u64, u64) -> i32 + Send + Sync + 'static) -> &'static Piece {
        Box::leak(Box::new(Piece { body: Box::new(body) }))
    }
}

extern "C" fn run_piece(begin: u64, end: u64, user: *mut c_void) -> i32 {
    if user.is_null() {
        return dtl_sys::DTL_ERROR_NULL_POINTER;
    }
    // SAFETY: `user` is the piece that was passed along; pieces live for ever.
    let piece = unsafe { &*user.cast::<Piece>() };
    (piece.body)(begin, end)
}

/// A fold over u64 values: what it adds for an iteration.
type Fold = fn(u64, u64) -> u64;

extern "C" fn run_fold(begin: u64, end: u64, acc: *mut c_void, user: *mut c_void) -> i32 {
    // SAFETY: `user` is the function's place, which lives through the call.
    let fold = unsafe { *user.cast::<Fold>() };
    // SAFETY: the accumulator is a u64, 64-byte aligned.
    let acc = unsafe { &mut *acc.cast::<u64>() };
    for index in begin..end {
        *acc = fold(*acc, index);
    }
    0
}

extern "C" fn run_combine(into: *mut c_void, from: *const c_void, _user: *mut c_void) {
    // SAFETY: accumulators are u64, 64-byte aligned.
    let from = unsafe { *from.cast::<u64>() };
    // SAFETY: as above; the two are apart.
    let into = unsafe { &mut *into.cast::<u64>() };
    *into = into.wrapping_mul(1_000_003).wrapping_add(from);
}

/// An executor; destroyed when dropped.
pub(crate) struct Executor {
    pub(crate) handle: dtl_executor_t,
}

impl Executor {
    /// The backend's own, or what the library puts in its place.
    pub(crate) fn new(backend: Backend) -> Called<Executor> {
        let mut handle = dtl_executor_t { id: 0 };
        call!(dtl_executor_create(backend.handle, ptr::null(), &raw mut handle))?;
        Ok(Executor { handle })
    }

    pub(crate) fn destroy(self) -> Called {
        let handle = self.handle;
        std::mem::forget(self);
        called("dtl_executor_destroy", dtl_executor_destroy(handle))
    }

    pub(crate) fn run(&self, job: &'static Job) -> Called {
        call!(dtl_executor_run(self.handle, Some(run_job), job.user()))
    }

    pub(crate) fn start(&self, job: &'static Job, event: Option<&Event>) -> Called {
        let event = event.map_or(dtl_event_t { id: 0 }, |event| event.handle);
        call!(dtl_executor_run_async(self.handle, Some(run_job), job.user(), event))
    }

    pub(crate) fn each(&self, begin: u64, end: u64, grain: u64, piece: &'static Piece) -> Called {
        let user = ptr::from_ref(piece).cast_mut().cast();
        call!(dtl_executor_parallel_for(self.handle, begin, end, grain, Some(run_piece), user))
    }

    /// A reduction whose combination is not commutative.
    pub(crate) fn reduce(&self, begin: u64, end: u64, grain: u64, fold: Fold) -> Called<u64> {
        let (identity, mut result) = (Wide(0), Wide(u64::MAX));
        let user = ptr::from_ref(&fold).cast_mut().cast();
        call!(dtl_executor_parallel_reduce(
            self.handle,
            begin,
            end,
            grain,
            8,
            (&raw const identity).cast(),
            Some(run_fold),
            Some(run_combine),
            user,
            (&raw mut result).cast()
        ))?;
        Ok(result.0)
    }

    pub(crate) fn synchronize(&self) -> Called {
        called("dtl_executor_synchronize", dtl_executor_synchronize(self.handle))
    }

    pub(crate) fn info(&self) -> Called<dtl_executor_info_t> {
        let mut info = dtl_executor_info_t {
            struct_size: size_of::<dtl_executor_info_t>() as u32,
            kind: 0,
            max_parallelism: 0,
            suggested_parallelism: 0,
        };
        call!(dtl_executor_info(self.handle, &raw mut info))?;
        Ok(info)
    }
}

/// A result on a cache line of its own.
#[repr(align(64))]
struct Wide(u64);

impl Drop for Executor {
    fn drop(&mut self) {
        let _ = dtl_executor_destroy(self.handle);
    }
}

/// One call of a kernel.
pub(crate) struct Thread<'a> {
    pub(crate) context: &'a dtl_kernel_context_t,
    args: *const *const c_void,
}

impl Thread<'_> {
    /// The bytes of an argument, read as a number.
    pub(crate) fn number(&self, index: usize) -> u64 {
        let place = self.place(index);
        // SAFETY: the argument has 8 bytes.
        unsafe { place.cast::<u64>().read_unaligned() }
    }

    /// The first bytes of an argument.
    pub(crate) fn bytes(&self, index: usize, count: usize) -> &[u8] {
        let place = self.place(index);
        // SAFETY: the argument has as many bytes.
        unsafe { std::slice::from_raw_parts(place.cast(), count) }
    }

    fn place(&self, index: usize) -> *const c_void {
        let place = self.args.wrapping_add(index);
        // SAFETY: the launch had at least that many arguments.
        unsafe { *place }
    }

    /// The memory that the block's threads share.
    #[allow(
        clippy::mut_from_ref,
        reason = "the block's memory, which its threads use one after another"
    )]
    pub(crate) fn shared(&self) -> &mut [u8] {
        if self.context.shared.is_null() {
            return &mut [];
        }
        // SAFETY: that many bytes, of this block, whose threads run one after another.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.context.shared.cast(),
                self.context.shared_bytes as usize,
            )
        }
    }

    /// Number of this block among all, x fastest.
    pub(crate) fn block(&self) -> u64 {
        flat(self.context.block_index, self.context.grid)
    }

    /// Number of this thread among those of all blocks.
    pub(crate) fn number_of_all(&self) -> u64 {
        let in_block: u64 = self.context.block.iter().map(|size| u64::from(*size)).product();
        self.block() * in_block + flat(self.context.thread_index, self.context.block)
    }
}

fn flat(index: [u32; 3], size: [u32; 3]) -> u64 {
    let [x, y, z] = index.map(u64::from);
    (z * u64::from(size[1]) + y) * u64::from(size[0]) + x
}

type KernelBody = Box<dyn Fn(&Thread<'_>) -> i32 + Send + Sync>;

extern "C" fn run_kernel(context: *const dtl_kernel_context_t, args: *const *const c_void) -> i32 {
    // SAFETY: valid through the call by the contract of kernels.
    let context = unsafe { &*context };
    if context.user.is_null() {
        return dtl_sys::DTL_ERROR_NULL_POINTER;
    }
    // SAFETY: `user` is the body that was passed along; bodies live for ever.
    let body = unsafe { &*context.user.cast::<KernelBody>() };
    body(&Thread { context, args })
}

/// A kernel; destroyed when dropped.
pub(crate) struct Kernel {
    handle: dtl_kernel_t,
}

impl Kernel {
    pub(crate) fn new(
        backend: Backend,
        body: impl Fn(&Thread<'_>) -> i32 + Send + Sync + 'static,
    ) -> Called<Kernel> {
        let erased: KernelBody = Box::new(body);
        let body: &'static KernelBody = Box::leak(Box::new(erased));
        let user = ptr::from_ref(body).cast_mut().cast();
        let mut handle = dtl_kernel_t { id: 0 };
        call!(dtl_kernel_from_function(backend.handle, Some(run_kernel), user, &raw mut handle))?;
        Ok(Kernel { handle })
    }
}

impl Kernel {
    /// One that a module gave.
    pub(crate) fn of(handle: dtl_kernel_t) -> Kernel {
        Kernel { handle }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let _ = dtl_kernel_destroy(self.handle);
    }
}

/// A launch of so many blocks of so many threads.
pub(crate) fn shape(grid: [u32; 3], block: [u32; 3], shared_bytes: u32) -> dtl_launch_t {
    dtl_launch_t {
        struct_size: size_of::<dtl_launch_t>() as u32,
        shared_bytes,
        grid,
        block,
        schedule: 0,
    }
}
