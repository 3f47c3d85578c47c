//! Safe wrappers for streams, events, executors and kernels, with closures in place of C functions.
//!
//! Closures live until the process ends, so that a backend that calls a closure too often or too
//! late fails a test instead of crashing the test program.

use crate::kit::calls::Backend;
use crate::kit::outcome::{Called, Outcome, call, output, skip};
use crate::kit::subject::{Subject, becomes};
use dtl_sys::*;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Function that tests run on streams and executors, with a counter of its completed calls.
pub(crate) struct Job {
    body: Box<dyn Fn() -> i32 + Send + Sync>,
    runs: AtomicU64,
}

impl Job {
    pub(crate) fn new(body: impl Fn() -> i32 + Send + Sync + 'static) -> &'static Job {
        kept(Job { body: Box::new(body), runs: AtomicU64::new(0) })
    }

    /// Returns the number of completed calls.
    pub(crate) fn runs(&self) -> u64 {
        self.runs.load(Ordering::SeqCst)
    }

    fn user(&'static self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }
}

extern "C" fn run_job(user: *mut c_void) -> i32 {
    if user.is_null() {
        return DTL_ERROR_NULL_POINTER;
    }
    // SAFETY: `user` is the job that was passed along; jobs live for ever.
    let job = unsafe { &*user.cast::<Job>() };
    let status = (job.body)();
    job.runs.fetch_add(1, Ordering::SeqCst);
    status
}

/// Job that runs until [`Hold::release`] is called, for at most two seconds.
pub(crate) struct Hold {
    states: Arc<States>,
    pub(crate) job: &'static Job,
}

#[derive(Default)]
struct States {
    go: AtomicBool,
    in_caller: AtomicBool,
    begun: AtomicBool,
    ended: AtomicBool,
}

impl Hold {
    pub(crate) fn new() -> Hold {
        let (states, caller) = (Arc::new(States::default()), thread::current().id());
        let own = Arc::clone(&states);
        let job = Job::new(move || {
            own.begun.store(true, Ordering::SeqCst);
            if thread::current().id() == caller {
                // Nobody is left to release it.
                own.in_caller.store(true, Ordering::SeqCst);
            } else {
                becomes(Duration::from_secs(2), || own.go.load(Ordering::SeqCst));
            }
            own.ended.store(true, Ordering::SeqCst);
            0
        });
        Hold { states, job }
    }

    /// Queues the job as a host function on a stream. Skips the test if the backend calls host
    /// functions in the caller's thread.
    pub(crate) fn on(&self, stream: &Stream) -> Outcome {
        stream.callback(self.job)?;
        if self.states.in_caller.load(Ordering::SeqCst) {
            skip!("the backend calls host functions in the caller's thread");
        }
        Ok(())
    }

    pub(crate) fn release(&self) {
        self.states.go.store(true, Ordering::SeqCst);
    }

    /// Returns true if `job` completes while the job of this [`Hold`] is still running.
    pub(crate) fn outlasts(&self, job: &Job) -> bool {
        becomes(LONG, || job.runs() > 0 || self.has_ended()) && !self.has_ended()
    }

    /// Waits until it runs.
    pub(crate) fn begins(&self) -> bool {
        becomes(LONG, || self.states.begun.load(Ordering::SeqCst))
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.states.ended.load(Ordering::SeqCst)
    }
}

/// Maximum time for which a test waits for a condition.
pub(crate) const LONG: Duration = Duration::from_secs(10);

/// Creates a stream on the first device.
pub(crate) fn stream(s: &Subject) -> Outcome<Stream> {
    Ok(Stream::new(s.backend, 0)?)
}

/// Creates a stream and enqueues a job on it that runs until the `Hold` is released.
pub(crate) fn busy(s: &Subject) -> Outcome<(Stream, Hold)> {
    let (stream, hold) = (stream(s)?, Hold::new());
    hold.on(&stream)?;
    Ok((stream, hold))
}

/// Creates a job that sleeps for this number of milliseconds.
pub(crate) fn slow(ms: u64) -> &'static Job {
    Job::new(move || {
        thread::sleep(Duration::from_millis(ms));
        0
    })
}

/// Creates a job that fails with this status.
pub(crate) fn failing(status: i32) -> &'static Job {
    Job::new(move || status)
}

/// Leaks a value that a test shares with its closures, so that the value lives as long as the
/// process.
pub(crate) fn kept<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// Creates a counter that a test shares with its closures. The counter is never freed.
pub(crate) fn counter() -> &'static AtomicU64 {
    kept(AtomicU64::new(0))
}

/// Creates this number of counters.
pub(crate) fn counters(count: u64) -> &'static [AtomicU64] {
    kept((0..count).map(|_| AtomicU64::new(0)).collect::<Vec<_>>())
}

/// Returns the index and value of the first counter that is not 1.
pub(crate) fn not_once(counters: &[AtomicU64]) -> Option<(usize, u64)> {
    counters.iter().map(|count| count.load(Ordering::SeqCst)).enumerate().find(|(_, is)| *is != 1)
}

/// List to which closures append values.
pub(crate) struct Notes<T>(Mutex<Vec<T>>);

impl<T: Clone> Notes<T> {
    pub(crate) fn new() -> &'static Notes<T> {
        kept(Notes(Mutex::default()))
    }

    pub(crate) fn add(&self, note: T) {
        if let Ok(mut notes) = self.0.lock() {
            notes.push(note);
        }
    }

    pub(crate) fn list(&self) -> Vec<T> {
        self.0.lock().map(|notes| notes.clone()).unwrap_or_default()
    }
}

/// Defines handle types whose objects are destroyed on drop, or earlier by `destroy`.
macro_rules! owned {
    ($($name:ident $handle:ident $destroy:ident;)+) => {$(
        pub(crate) struct $name {
            pub(crate) handle: $handle,
        }

        impl $name {
            #[allow(dead_code, reason = "no test destroys kernels by hand")]
            pub(crate) fn destroy(self) -> Called {
                let handle = self.handle;
                std::mem::forget(self);
                call!($destroy(handle))
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                let _ = $destroy(self.handle);
            }
        }
    )+};
}

owned! {
    Stream dtl_stream_t dtl_stream_destroy;
    Event dtl_event_t dtl_event_destroy;
    Executor dtl_executor_t dtl_executor_destroy;
    Kernel dtl_kernel_t dtl_kernel_destroy;
}

impl Stream {
    pub(crate) fn new(backend: Backend, device: i32) -> Called<Stream> {
        Stream::with_flags(backend, device, 0)
    }

    pub(crate) fn with_flags(backend: Backend, device: i32, flags: u64) -> Called<Stream> {
        output!(DTL_STREAM_NULL, dtl_stream_create(backend.handle, device, flags))
            .map(|handle| Stream { handle })
    }

    /// Returns the device's default stream, which is not destroyed on drop.
    pub(crate) fn default_of(backend: Backend, device: i32) -> Called<ManuallyDrop<Stream>> {
        output!(DTL_STREAM_NULL, dtl_stream_default(backend.handle, device))
            .map(|handle| ManuallyDrop::new(Stream { handle }))
    }

    pub(crate) fn wrap(backend: Backend, native: *mut c_void) -> Called<Stream> {
        output!(DTL_STREAM_NULL, dtl_stream_wrap(backend.handle, native))
            .map(|handle| Stream { handle })
    }

    pub(crate) fn native(&self) -> Called<*mut c_void> {
        output!(ptr::null_mut(), dtl_stream_native(self.handle))
    }

    pub(crate) fn synchronize(&self) -> Called {
        call!(dtl_stream_wait(self.handle, DTL_TIMEOUT_INFINITE))
    }

    pub(crate) fn query(&self) -> Called<bool> {
        output!(-1, dtl_stream_query(self.handle)).map(|done| done != 0)
    }

    pub(crate) fn wait_event(&self, event: &Event) -> Called {
        call!(dtl_stream_wait_event(self.handle, event.handle))
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
        let (values, count) = (pointers.as_ptr(), args.len() as u64);
        let shape = ptr::from_ref(shape);
        call!(dtl_kernel_launch(self.handle, kernel.handle, shape, values, sizes.as_ptr(), count))
    }
}

impl Event {
    pub(crate) fn new(backend: Backend) -> Called<Event> {
        Event::with_flags(backend, 0)
    }

    pub(crate) fn with_flags(backend: Backend, flags: u64) -> Called<Event> {
        output!(DTL_EVENT_NULL, dtl_event_create(backend.handle, flags))
            .map(|handle| Event { handle })
    }

    /// Creates an event and records it on a stream.
    pub(crate) fn on(backend: Backend, stream: &Stream) -> Called<Event> {
        let event = Event::new(backend)?;
        event.record(stream)?;
        Ok(event)
    }

    pub(crate) fn record(&self, stream: &Stream) -> Called {
        call!(dtl_event_record(self.handle, stream.handle))
    }

    pub(crate) fn sync(&self) -> Called {
        call!(dtl_event_wait(self.handle, DTL_TIMEOUT_INFINITE))
    }

    pub(crate) fn wait(&self, timeout_ns: u64) -> Called {
        call!(dtl_event_wait(self.handle, timeout_ns))
    }

    pub(crate) fn is_complete(&self) -> Called<bool> {
        output!(-1, dtl_event_query(self.handle)).map(|done| done != 0)
    }

    /// Returns the time from this event to `stop` in nanoseconds.
    pub(crate) fn elapsed(&self, stop: &Event) -> Called<u64> {
        output!(u64::MAX, dtl_event_elapsed_ns(self.handle, stop.handle))
    }
}

extern "C" fn run_piece<F: Fn(u64, u64) -> i32>(begin: u64, end: u64, user: *mut c_void) -> i32 {
    if user.is_null() {
        return DTL_ERROR_NULL_POINTER;
    }
    // SAFETY: `user` is the loop's body that was passed along; bodies live for ever.
    let piece = unsafe { &*user.cast::<F>() };
    piece(begin, end)
}

/// Function that combines the accumulator of a reduction with the index of an iteration.
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

impl Executor {
    /// Creates the backend's executor, or the library's if the backend has none.
    pub(crate) fn new(backend: Backend) -> Called<Executor> {
        output!(DTL_EXECUTOR_NULL, dtl_executor_create(backend.handle, ptr::null()))
            .map(|handle| Executor { handle })
    }

    pub(crate) fn run(&self, job: &'static Job) -> Called {
        call!(dtl_executor_run(self.handle, Some(run_job), job.user()))
    }

    pub(crate) fn start(&self, job: &'static Job, event: Option<&Event>) -> Called {
        let event = event.map_or(DTL_EVENT_NULL, |event| event.handle);
        call!(dtl_executor_run_async(self.handle, Some(run_job), job.user(), event))
    }

    pub(crate) fn each<F>(&self, begin: u64, end: u64, grain: u64, piece: F) -> Called
    where
        F: Fn(u64, u64) -> i32 + Send + Sync + 'static,
    {
        let (run, user) = (Some(run_piece::<F> as _), ptr::from_ref(kept(piece)).cast_mut().cast());
        call!(dtl_executor_parallel_for(self.handle, begin, end, grain, run, user))
    }

    /// Runs a reduction that combines partial results with an operation that is not commutative.
    pub(crate) fn reduce(&self, begin: u64, end: u64, grain: u64, fold: Fold) -> Called<u64> {
        let (identity, mut result) = (Wide(0), Wide(u64::MAX));
        let user = ptr::from_ref(&fold).cast_mut().cast();
        let (first, out) = ((&raw const identity).cast(), (&raw mut result).cast());
        call!(dtl_executor_parallel_reduce(
            self.handle,
            begin,
            end,
            grain,
            8,
            first,
            Some(run_fold),
            Some(run_combine),
            user,
            out
        ))?;
        Ok(result.0)
    }

    pub(crate) fn synchronize(&self) -> Called {
        call!(dtl_executor_wait(self.handle, DTL_TIMEOUT_INFINITE))
    }

    pub(crate) fn info(&self) -> Called<dtl_executor_info_t> {
        output!(DTL_EXECUTOR_INFO_INIT, dtl_executor_info(self.handle))
    }
}

/// Identity element or result of a reduction, aligned to 64 bytes like the accumulators.
#[repr(align(64))]
struct Wide(u64);

/// Arguments and thread indices of one call to a kernel's function.
pub(crate) struct Thread<'a> {
    pub(crate) context: &'a dtl_kernel_context_t,
    args: *const *const c_void,
}

impl Thread<'_> {
    /// Reads the 8 bytes of an argument as an integer.
    pub(crate) fn number(&self, index: usize) -> u64 {
        let place = self.place(index);
        // SAFETY: the argument has 8 bytes.
        unsafe { place.cast::<u64>().read_unaligned() }
    }

    /// Returns the first `count` bytes of an argument.
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

    /// Returns the shared memory of the block.
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

    /// Returns the linear index of this block in the grid. The x index varies fastest.
    pub(crate) fn block(&self) -> u64 {
        flat(self.context.block_index, self.context.grid)
    }

    /// Returns the linear index of this thread among the threads of all blocks.
    pub(crate) fn number_of_all(&self) -> u64 {
        let in_block: u64 = self.context.block.iter().map(|size| u64::from(*size)).product();
        self.block() * in_block + flat(self.context.thread_index, self.context.block)
    }
}

fn flat(index: [u32; 3], size: [u32; 3]) -> u64 {
    let [x, y, z] = index.map(u64::from);
    (z * u64::from(size[1]) + y) * u64::from(size[0]) + x
}

extern "C" fn run_kernel<F: Fn(&Thread<'_>) -> i32>(
    context: *const dtl_kernel_context_t,
    args: *const *const c_void,
) -> i32 {
    // SAFETY: valid through the call by the contract of kernels.
    let context = unsafe { &*context };
    if context.user.is_null() {
        return DTL_ERROR_NULL_POINTER;
    }
    // SAFETY: `user` is the body that was passed along; bodies live for ever.
    let body = unsafe { &*context.user.cast::<F>() };
    body(&Thread { context, args })
}

impl Kernel {
    pub(crate) fn new<F>(backend: Backend, body: F) -> Called<Kernel>
    where
        F: Fn(&Thread<'_>) -> i32 + Send + Sync + 'static,
    {
        let (run, user) = (Some(run_kernel::<F> as _), ptr::from_ref(kept(body)).cast_mut().cast());
        output!(DTL_KERNEL_NULL, dtl_kernel_from_function(backend.handle, run, user))
            .map(|handle| Kernel { handle })
    }

    /// Wraps the handle of a kernel from a module.
    pub(crate) fn of(handle: dtl_kernel_t) -> Kernel {
        Kernel { handle }
    }
}

/// Creates the parameters of a kernel launch: the grid dimensions in blocks, the block dimensions
/// in threads, and the shared memory in bytes.
pub(crate) const fn shape(grid: [u32; 3], block: [u32; 3], shared_bytes: u32) -> dtl_launch_t {
    dtl_launch_t { shared_bytes, grid, block, ..DTL_LAUNCH_INIT }
}

/// Launches a kernel that runs `body` in each thread, and waits for its completion. The caller
/// keeps the returned kernel and stream until it has checked the results, because destroying a
/// stream also waits and would hide a `synchronize` that returns too early.
pub(crate) fn launched(
    s: &Subject,
    shape: &dtl_launch_t,
    args: &[&[u8]],
    body: impl Fn(&Thread<'_>) -> i32 + Send + Sync + 'static,
) -> Outcome<(Kernel, Stream)> {
    let (kernel, stream) = (Kernel::new(s.backend, body)?, stream(s)?);
    stream.launch(&kernel, shape, args)?;
    stream.synchronize()?;
    Ok((kernel, stream))
}
