//! The exec table of the backend "sample": a stream is a queue with a thread, an event the fence of its
//! latest record, a loop a few threads that take pieces.

use super::put;
use dtl::abi::exec::*;
use dtl::abi::runtime::dtl_task_fn_t;
use dtl::abi::status::*;
use dtl::abi::vtable::dtl_exec_vtable_t;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Instant;

/// Threads of a loop.
const THREADS: u32 = 3;

pub(super) fn table() -> dtl_exec_vtable_t {
    dtl_exec_vtable_t {
        struct_size: size_of::<dtl_exec_vtable_t>() as u32,
        reserved: 0,
        stream_create: Some(stream_create),
        stream_destroy: Some(stream_destroy),
        stream_synchronize: Some(stream_synchronize),
        stream_query: Some(stream_query),
        stream_wait_event: Some(stream_wait_event),
        stream_host_callback: Some(stream_host_callback),
        event_create: Some(event_create),
        event_destroy: Some(event_destroy),
        event_record: Some(event_record),
        event_query: Some(event_query),
        event_sync: Some(event_sync),
        event_elapsed: Some(event_elapsed),
        launch: Some(launch),
        execute: Some(execute),
        parallel_for: Some(parallel_for),
        max_parallelism: Some(max_parallelism),
        suggested_parallelism: Some(max_parallelism),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

type Work = Box<dyn FnOnce() -> dtl_status_t + Send>;

/// A piece of work, or a record of an event, which sees the stream's failure and does not change it.
enum Item {
    Work(Work),
    Record(Arc<Fence>),
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    /// Items that are queued or running.
    left: u64,
    /// First failure that was not reported.
    failure: dtl_status_t,
    ends: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// A stream: its thread ends when it is destroyed and its work is done.
pub(super) struct Stream {
    shared: Arc<Shared>,
}

impl Stream {
    fn new() -> Stream {
        let shared = Arc::new(Shared { queue: Mutex::default(), changed: Condvar::new() });
        let own = Arc::clone(&shared);
        thread::spawn(move || own.work());
        Stream { shared }
    }

    pub(super) fn push(&self, work: impl FnOnce() -> dtl_status_t + Send + 'static) {
        self.put(Item::Work(Box::new(work)));
    }

    fn put(&self, item: Item) {
        let mut queue = lock(&self.shared.queue);
        queue.items.push_back(item);
        queue.left += 1;
        self.shared.changed.notify_all();
    }

    /// Waits for all work; the failure is reported once.
    fn synchronize(&self) -> dtl_status_t {
        let mut queue = lock(&self.shared.queue);
        while queue.left > 0 {
            queue = self.shared.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::take(&mut queue.failure)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        lock(&self.shared.queue).ends = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn work(&self) {
        loop {
            let mut queue = lock(&self.queue);
            let item = loop {
                if let Some(item) = queue.items.pop_front() {
                    break item;
                }
                if queue.ends {
                    return;
                }
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            };
            let failure = queue.failure;
            drop(queue);
            let status = match item {
                Item::Work(work) => work(),
                Item::Record(fence) => fence.complete(failure),
            };
            let mut queue = lock(&self.queue);
            if queue.failure == DTL_SUCCESS {
                queue.failure = status;
            }
            queue.left -= 1;
            self.changed.notify_all();
        }
    }
}

/// When a record was reached, and with which failure.
struct Fence {
    done: Mutex<Option<(dtl_status_t, u64)>>,
    changed: Condvar,
}

impl Fence {
    fn pending() -> Arc<Fence> {
        Arc::new(Fence { done: Mutex::new(None), changed: Condvar::new() })
    }

    fn complete(&self, failure: dtl_status_t) -> dtl_status_t {
        *lock(&self.done) = Some((failure, now_ns()));
        self.changed.notify_all();
        DTL_SUCCESS
    }

    fn wait(&self) -> dtl_status_t {
        let mut done = lock(&self.done);
        loop {
            match *done {
                Some((failure, _)) => return failure,
                None => done = self.changed.wait(done).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

fn now_ns() -> u64 {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    BEGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// An event: the fence of its latest record.
type Event = Mutex<Option<Arc<Fence>>>;

pub(super) fn stream<'a>(pointer: *mut c_void) -> &'a Stream {
    // SAFETY: the library passes what `stream_create` gave and has not destroyed it.
    unsafe { &*pointer.cast::<Stream>() }
}

fn event<'a>(pointer: *mut c_void) -> &'a Event {
    // SAFETY: the library passes what `event_create` gave and has not destroyed it.
    unsafe { &*pointer.cast::<Event>() }
}

unsafe extern "C" fn stream_create(_: *mut c_void, _: i32, _: u64, out: *mut *mut c_void) -> dtl_status_t {
    put(out, Box::into_raw(Box::new(Stream::new())).cast())
}

unsafe extern "C" fn stream_destroy(_: *mut c_void, stream: *mut c_void) -> dtl_status_t {
    // SAFETY: what `stream_create` gave, destroyed once.
    drop(unsafe { Box::from_raw(stream.cast::<Stream>()) });
    DTL_SUCCESS
}

unsafe extern "C" fn stream_synchronize(_: *mut c_void, pointer: *mut c_void) -> dtl_status_t {
    stream(pointer).synchronize()
}

unsafe extern "C" fn stream_query(_: *mut c_void, pointer: *mut c_void, done: *mut i32) -> dtl_status_t {
    let queue = lock(&stream(pointer).shared.queue);
    put(done, i32::from(queue.left == 0));
    if queue.left == 0 { queue.failure } else { DTL_SUCCESS }
}

unsafe extern "C" fn stream_wait_event(
    _: *mut c_void,
    pointer: *mut c_void,
    after: *mut c_void,
) -> dtl_status_t {
    if let Some(fence) = lock(event(after)).clone() {
        stream(pointer).push(move || fence.wait());
    }
    DTL_SUCCESS
}

unsafe extern "C" fn stream_host_callback(
    _: *mut c_void,
    pointer: *mut c_void,
    function: dtl_task_fn_t,
    user: *mut c_void,
) -> dtl_status_t {
    let (Some(function), user) = (function, user.expose_provenance()) else {
        return DTL_ERROR_NULL_POINTER;
    };
    stream(pointer).push(move || function(std::ptr::with_exposed_provenance_mut(user)));
    DTL_SUCCESS
}

unsafe extern "C" fn event_create(_: *mut c_void, _: u64, out: *mut *mut c_void) -> dtl_status_t {
    put(out, Box::into_raw(Box::<Event>::default()).cast())
}

unsafe extern "C" fn event_destroy(_: *mut c_void, event: *mut c_void) -> dtl_status_t {
    // SAFETY: what `event_create` gave, destroyed once.
    drop(unsafe { Box::from_raw(event.cast::<Event>()) });
    DTL_SUCCESS
}

unsafe extern "C" fn event_record(_: *mut c_void, record: *mut c_void, on: *mut c_void) -> dtl_status_t {
    let fence = Fence::pending();
    *lock(event(record)) = Some(Arc::clone(&fence));
    stream(on).put(Item::Record(fence));
    DTL_SUCCESS
}

unsafe extern "C" fn event_query(_: *mut c_void, pointer: *mut c_void, done: *mut i32) -> dtl_status_t {
    let fence = lock(event(pointer)).clone();
    let reached = fence.map_or(Some((DTL_SUCCESS, 0)), |fence| *lock(&fence.done));
    put(done, i32::from(reached.is_some()));
    reached.map_or(DTL_SUCCESS, |(failure, _)| failure)
}

unsafe extern "C" fn event_sync(_: *mut c_void, pointer: *mut c_void) -> dtl_status_t {
    let fence = lock(event(pointer)).clone();
    fence.map_or(DTL_SUCCESS, |fence| fence.wait())
}

unsafe extern "C" fn event_elapsed(
    _: *mut c_void,
    start: *mut c_void,
    stop: *mut c_void,
    out: *mut u64,
) -> dtl_status_t {
    let stamp = |pointer| lock(event(pointer)).clone().and_then(|fence| lock(&fence.done).map(|(_, ns)| ns));
    let (Some(start), Some(stop)) = (stamp(start), stamp(stop)) else { return DTL_ERROR_INVALID_STATE };
    match stop.checked_sub(start) {
        Some(ns) => put(out, ns),
        None => DTL_ERROR_INVALID_ARGUMENT,
    }
}

/// A launch with copies of its arguments.
struct Grid {
    shape: dtl_launch_t,
    kernel: extern "C" fn(*const dtl_kernel_context_t, *const *const c_void) -> dtl_status_t,
    user: usize,
    args: Vec<Vec<u64>>,
}

impl Grid {
    fn run(&self) -> dtl_status_t {
        let args: Vec<*const c_void> = self.args.iter().map(|arg| arg.as_ptr().cast()).collect();
        let shape = &self.shape;
        for block in positions(shape.grid) {
            let mut shared = vec![0u64; (shape.shared_bytes as usize).div_ceil(8)];
            for thread in positions(shape.block) {
                let context = dtl_kernel_context_t {
                    struct_size: size_of::<dtl_kernel_context_t>() as u32,
                    shared_bytes: shape.shared_bytes,
                    grid: shape.grid,
                    block: shape.block,
                    block_index: block,
                    thread_index: thread,
                    shared: if shared.is_empty() { std::ptr::null_mut() } else { shared.as_mut_ptr().cast() },
                    user: std::ptr::with_exposed_provenance_mut(self.user),
                };
                let status = (self.kernel)(&raw const context, args.as_ptr());
                if status != DTL_SUCCESS {
                    return status;
                }
            }
        }
        DTL_SUCCESS
    }
}

/// All positions of a size, x fastest.
fn positions([width, height, depth]: [u32; 3]) -> impl Iterator<Item = [u32; 3]> {
    (0..depth).flat_map(move |z| (0..height).flat_map(move |y| (0..width).map(move |x| [x, y, z])))
}

/// An argument's bytes in memory that is aligned to 8.
fn copied(arg: *const c_void, size: u64) -> Vec<u64> {
    let mut copy = vec![0u64; (size as usize).div_ceil(8)];
    super::memory::move_bytes(copy.as_mut_ptr().cast(), arg, size);
    copy
}

unsafe extern "C" fn launch(
    _: *mut c_void,
    on: *mut c_void,
    shape: *const dtl_launch_t,
    kernel: dtl_kernel_fn_t,
    user: *mut c_void,
    args: *const *const c_void,
    sizes: *const u64,
    count: u32,
) -> dtl_status_t {
    let Some(kernel) = kernel else { return DTL_ERROR_NULL_POINTER };
    // SAFETY: the library passes a valid shape.
    let shape = unsafe { *shape };
    let read = |index: usize| {
        // SAFETY: `count` arguments.
        let arg = unsafe { args.wrapping_add(index).read() };
        // SAFETY: and as many sizes.
        (arg, unsafe { sizes.wrapping_add(index).read() })
    };
    let args = (0..count as usize).map(read).map(|(arg, size)| copied(arg, size)).collect();
    let grid = Grid { shape, kernel, user: user.expose_provenance(), args };
    stream(on).push(move || grid.run());
    DTL_SUCCESS
}

unsafe extern "C" fn execute(_: *mut c_void, function: dtl_task_fn_t, user: *mut c_void) -> dtl_status_t {
    function.map_or(DTL_ERROR_NULL_POINTER, |function| function(user))
}

unsafe extern "C" fn parallel_for(
    _: *mut c_void,
    begin: u64,
    end: u64,
    grain: u64,
    body: dtl_range_fn_t,
    user: *mut c_void,
) -> dtl_status_t {
    let Some(body) = body else { return DTL_ERROR_NULL_POINTER };
    let (pieces, user) = ((end - begin).div_ceil(grain), user.expose_provenance());
    let (next, failure) = (AtomicU64::new(0), AtomicI32::new(DTL_SUCCESS));
    let work = || {
        while failure.load(Ordering::SeqCst) == DTL_SUCCESS {
            let piece = next.fetch_add(1, Ordering::Relaxed);
            if piece >= pieces {
                return;
            }
            let from = begin + piece * grain;
            let to = from.saturating_add(grain).min(end);
            let status = body(from, to, std::ptr::with_exposed_provenance_mut(user));
            if status != DTL_SUCCESS {
                let _ = failure.compare_exchange(DTL_SUCCESS, status, Ordering::SeqCst, Ordering::SeqCst);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..u64::from(THREADS).min(pieces) {
            scope.spawn(work);
        }
        work();
    });
    failure.load(Ordering::SeqCst)
}

unsafe extern "C" fn max_parallelism(_: *mut c_void, out: *mut u32) -> dtl_status_t {
    put(out, THREADS)
}
