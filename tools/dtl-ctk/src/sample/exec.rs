//! Exec table of the backend "sample". A stream is a queue with a thread. An event refers to the
//! completion state ([`Fence`]) of the latest `event_record` call for it. A parallel loop runs on
//! several threads, which take chunks of its iterations.

use super::launch::launch;
use super::{Out, Ptr, Status, fault, module, put};
use dtl_sys::*;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Instant;

/// Number of threads that run a parallel loop.
const THREADS: u32 = 3;

pub(super) fn table() -> dtl_exec_vtable_t {
    dtl_exec_vtable_t {
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
        module_compile: Some(module::module_compile),
        module_destroy: Some(module::module_destroy),
        kernel_get: Some(module::kernel_get),
        kernel_destroy: Some(module::kernel_destroy),
        kernel_launch: Some(module::kernel_launch),
        ..DTL_EXEC_VTABLE_INIT
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

type Work = Box<dyn FnOnce() -> Status + Send>;

/// Queue entry: work, or an `event_record` operation, which copies the stream's failure status
/// without clearing it.
enum Item {
    Work(Work),
    Record(Arc<Fence>),
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    /// Number of items that are queued or running.
    left: u64,
    /// First failure that has not been reported.
    failure: dtl_status_t,
    ends: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// Stream with its own thread. The thread ends when the stream has been destroyed and all queued
/// work is complete.
pub(super) struct Stream {
    shared: Arc<Shared>,
}

impl Stream {
    fn new() -> Stream {
        let shared = Arc::new(Shared { queue: Mutex::default(), changed: Condvar::new() });
        let own = Arc::clone(&shared);
        let thread = thread::spawn(move || own.work());
        if fault::is("exec.stream_destroy.leaves_stacks") {
            std::mem::forget(thread); // neither joined nor detached
        }
        Stream { shared }
    }

    pub(super) fn push(&self, work: impl FnOnce() -> Status + Send + 'static) {
        self.put(Item::Work(Box::new(work)));
    }

    fn put(&self, item: Item) {
        let mut queue = lock(&self.shared.queue);
        if fault::is("exec.stream_host_callback.reordered") && queue.items.len() > 2 {
            queue.items.push_front(item);
        } else {
            queue.items.push_back(item);
        }
        queue.left += 1;
        self.shared.changed.notify_all();
    }

    /// Waits for all work that is queued on the stream. Returns the first failure that has not been
    /// reported, and clears it.
    fn synchronize(&self) -> Status {
        if_fault!("exec.stream_synchronize.at_once" => return DTL_SUCCESS);
        let mut queue = lock(&self.shared.queue);
        let (mut passes, first_only) = (0, fault::is("exec.stream_synchronize.first_only"));
        while queue.left > 0 && !(first_only && passes > 1) {
            passes += 1;
            queue = self.shared.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        if_fault!("exec.stream_synchronize.drops_failure" => queue.failure = DTL_SUCCESS);
        if_fault!("exec.stream_synchronize.failure_again" => return queue.failure);
        std::mem::take(&mut queue.failure)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if_fault!("exec.stream_destroy.drops_work" => lock(&self.shared.queue).items.clear());
        lock(&self.shared.queue).ends = !fault::is("exec.stream_destroy.leaves_threads");
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
            let skips =
                failure != DTL_SUCCESS && fault::is("exec.stream_host_callback.not_after_failure");
            let status = match item {
                Item::Work(_) if skips => DTL_SUCCESS,
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

/// State of one `event_record` operation: `done` is `None` while the operation is pending, then the
/// failure status of the stream and the time in nanoseconds at which the stream completed the
/// operation.
struct Fence {
    done: Mutex<Option<(dtl_status_t, u64)>>,
    changed: Condvar,
}

impl Fence {
    fn pending() -> Arc<Fence> {
        Arc::new(Fence { done: Mutex::new(None), changed: Condvar::new() })
    }

    fn complete(&self, failure: dtl_status_t) -> Status {
        *lock(&self.done) = Some((failure, now_ns()));
        self.changed.notify_all();
        DTL_SUCCESS
    }

    fn wait(&self) -> Status {
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

/// Event, represented by the [`Fence`] of the latest `event_record` call for it; `None` before the
/// first call.
type Event = Mutex<Option<Arc<Fence>>>;

pub(super) fn stream<'a>(pointer: Ptr) -> &'a Stream {
    // SAFETY: the library passes what `stream_create` gave and has not destroyed it.
    unsafe { &*pointer.cast::<Stream>() }
}

fn event<'a>(pointer: Ptr) -> &'a Event {
    // SAFETY: the library passes what `event_create` gave and has not destroyed it.
    unsafe { &*pointer.cast::<Event>() }
}

unsafe extern "C" fn stream_create(_: Ptr, _: i32, _: u64, out: Out) -> Status {
    if fault::is("exec.stream_create.same_stream") {
        static ONE: OnceLock<usize> = OnceLock::new();
        let one = ONE.get_or_init(|| Box::into_raw(Box::new(Stream::new())).expose_provenance());
        return put(out, std::ptr::with_exposed_provenance_mut(*one));
    }
    put(out, Box::into_raw(Box::new(Stream::new())).cast())
}

unsafe extern "C" fn stream_destroy(_: Ptr, stream: Ptr) -> Status {
    if_fault!("exec.stream_create.same_stream" => return DTL_SUCCESS);
    // SAFETY: what `stream_create` gave, destroyed once.
    drop(unsafe { Box::from_raw(stream.cast::<Stream>()) });
    DTL_SUCCESS
}

unsafe extern "C" fn stream_synchronize(_: Ptr, pointer: Ptr) -> Status {
    stream(pointer).synchronize()
}

unsafe extern "C" fn stream_query(_: Ptr, pointer: Ptr, done: *mut i32) -> Status {
    if fault::is("exec.stream_query.always_done") || fault::is("exec.stream_query.never_done") {
        return put(done, i32::from(fault::is("exec.stream_query.always_done")));
    }
    if fault::is("exec.stream_query.waits") {
        let status = stream(pointer).synchronize();
        put(done, 1);
        return status;
    }
    let queue = lock(&stream(pointer).shared.queue);
    put(done, i32::from(queue.left == 0));
    if queue.left == 0 { queue.failure } else { DTL_SUCCESS }
}

unsafe extern "C" fn stream_wait_event(_: Ptr, pointer: Ptr, after: Ptr) -> Status {
    if_fault!("exec.stream_wait_event.ignored" => return DTL_SUCCESS);
    if fault::is("exec.stream_wait_event.later_record") {
        let after = after.expose_provenance();
        stream(pointer).push(move || {
            thread::sleep(std::time::Duration::from_millis(30));
            let fence = lock(event(std::ptr::with_exposed_provenance_mut(after))).clone();
            fence.map_or(DTL_SUCCESS, |fence| fence.wait())
        });
        return DTL_SUCCESS;
    }
    if let Some(fence) = lock(event(after)).clone() {
        let drops = fault::is("exec.stream_wait_event.drops_failure");
        stream(pointer)
            .push(move || if drops { fence.wait().min(DTL_SUCCESS) } else { fence.wait() });
    }
    DTL_SUCCESS
}

unsafe extern "C" fn stream_host_callback(
    _: Ptr,
    pointer: Ptr,
    function: dtl_task_fn_t,
    user: Ptr,
) -> Status {
    let (Some(function), user) = (function, user.expose_provenance()) else {
        return DTL_ERROR_NULL_POINTER;
    };
    let call = move || function(std::ptr::with_exposed_provenance_mut(user));
    if fault::is("exec.stream_host_callback.at_once") {
        call();
        return DTL_SUCCESS;
    }
    static CALLS: AtomicU64 = AtomicU64::new(0);
    if fault::is("exec.stream_host_callback.lost")
        && CALLS.fetch_add(1, Ordering::Relaxed) % 64 == 63
    {
        return DTL_SUCCESS;
    }
    if_fault!("exec.stream_host_callback.twice" => stream(pointer).push(call));
    stream(pointer).push(call);
    DTL_SUCCESS
}

unsafe extern "C" fn event_create(_: Ptr, _: u64, out: Out) -> Status {
    if fault::is("exec.event_create.same_event") {
        static ONE: OnceLock<usize> = OnceLock::new();
        let one = ONE.get_or_init(|| Box::into_raw(Box::<Event>::default()).expose_provenance());
        return put(out, std::ptr::with_exposed_provenance_mut(*one));
    }
    put(out, Box::into_raw(Box::<Event>::default()).cast())
}

unsafe extern "C" fn event_destroy(_: Ptr, event: Ptr) -> Status {
    if_fault!("exec.event_create.same_event" => return DTL_SUCCESS);
    if_fault!("exec.event_destroy.leaks" => std::hint::black_box(Box::leak(Box::new([1u8; 4096]))));
    // SAFETY: what `event_create` gave, destroyed once.
    drop(unsafe { Box::from_raw(event.cast::<Event>()) });
    DTL_SUCCESS
}

unsafe extern "C" fn event_record(_: Ptr, record: Ptr, on: Ptr) -> Status {
    let fence = Fence::pending();
    if fault::is("exec.event_record.keeps_the_old") && lock(event(record)).is_some() {
        return DTL_SUCCESS;
    }
    *lock(event(record)) = Some(Arc::clone(&fence));
    if_fault!("exec.event_record.complete_early" => return fence.complete(DTL_SUCCESS));
    if fault::is("exec.event_record.before_last_work") {
        let mut queue = lock(&stream(on).shared.queue);
        let last = queue.items.pop_back();
        queue.items.push_back(Item::Record(fence));
        queue.items.extend(last);
        queue.left += 1;
        stream(on).shared.changed.notify_all();
        return DTL_SUCCESS;
    }
    stream(on).put(Item::Record(fence));
    DTL_SUCCESS
}

unsafe extern "C" fn event_query(_: Ptr, pointer: Ptr, done: *mut i32) -> Status {
    let fence = lock(event(pointer)).clone();
    let new =
        if fault::is("exec.event_query.new_is_pending") { None } else { Some((DTL_SUCCESS, 0)) };
    let reached = fence.map_or(new, |fence| *lock(&fence.done));
    if fault::is("exec.event_query.always_done") || fault::is("exec.event_query.never_done") {
        return put(done, i32::from(fault::is("exec.event_query.always_done")));
    }
    put(done, i32::from(reached.is_some()));
    let drops = fault::is("exec.event_query.drops_failure");
    reached.filter(|_| !drops).map_or(DTL_SUCCESS, |(failure, _)| failure)
}

unsafe extern "C" fn event_sync(_: Ptr, pointer: Ptr) -> Status {
    if_fault!("exec.event_sync.at_once" => return DTL_SUCCESS);
    let fence = lock(event(pointer)).clone();
    let failure = fence.map_or(DTL_SUCCESS, |fence| fence.wait());
    if fault::is("exec.event_sync.drops_failure") { DTL_SUCCESS } else { failure }
}

unsafe extern "C" fn event_elapsed(_: Ptr, start: Ptr, stop: Ptr, out: *mut u64) -> Status {
    let stamp = |pointer| {
        lock(event(pointer)).clone().and_then(|fence| lock(&fence.done).map(|(_, ns)| ns))
    };
    let (Some(start), Some(stop)) = (stamp(start), stamp(stop)) else {
        return DTL_ERROR_INVALID_STATE;
    };
    if let Some(ns) = wrong_time(start, stop) {
        return put(out, ns);
    }
    match stop.checked_sub(start) {
        Some(ns) => put(out, ns),
        None => DTL_ERROR_INVALID_ARGUMENT,
    }
}

/// Returns the wrong elapsed time that the injected fault reports, in nanoseconds; `None` if no
/// such fault is injected.
fn wrong_time(start: u64, stop: u64) -> Option<u64> {
    let ns = stop.wrapping_sub(start);
    match () {
        () if fault::is("exec.event_elapsed.zero") => Some(0),
        () if fault::is("exec.event_elapsed.microseconds") => Some(ns / 1000),
        () if fault::is("exec.event_elapsed.too_long") => Some(ns.wrapping_mul(2)),
        () if fault::is("exec.event_elapsed.swapped") => Some(start.saturating_sub(stop)),
        () if fault::is("exec.event_elapsed.wraps") => Some(ns),
        () => None,
    }
}

unsafe extern "C" fn execute(_: Ptr, function: dtl_task_fn_t, user: Ptr) -> Status {
    let Some(function) = function else { return DTL_ERROR_NULL_POINTER };
    if fault::is("exec.execute.does_not_wait") {
        let user = user.expose_provenance();
        thread::spawn(move || function(std::ptr::with_exposed_provenance_mut(user)));
        return DTL_SUCCESS;
    }
    if_fault!("exec.execute.twice" => function(user));
    let status = function(user);
    if fault::is("exec.execute.drops_status") { DTL_SUCCESS } else { status }
}

unsafe extern "C" fn parallel_for(
    _: Ptr,
    begin: u64,
    end: u64,
    grain: u64,
    body: dtl_range_fn_t,
    user: Ptr,
) -> Status {
    let Some(body) = body else { return DTL_ERROR_NULL_POINTER };
    if_fault!("exec.parallel_for.ignores_grain" => return body(begin, end, user));
    if fault::is("exec.parallel_for.does_not_wait") {
        let user = user.expose_provenance();
        thread::spawn(move || body(begin, end, std::ptr::with_exposed_provenance_mut(user)));
        return DTL_SUCCESS;
    }
    let begin = if fault::is("exec.parallel_for.ignores_begin") { 0 } else { begin };
    let (pieces, user) = ((end - begin).div_ceil(grain), user.expose_provenance());
    let (next, failure) = (AtomicU64::new(0), AtomicI32::new(DTL_SUCCESS));
    let work = || {
        while failure.load(Ordering::SeqCst) == DTL_SUCCESS {
            let piece = next.fetch_add(1, Ordering::Relaxed);
            if piece >= pieces {
                return;
            }
            let from = begin + piece * grain;
            let last = piece + 1 == pieces;
            if_fault!("exec.parallel_for.last_piece_missing" if last => return);
            let over = fault::is("exec.parallel_for.over_the_end");
            let to = from.saturating_add(grain).min(if over { u64::MAX } else { end });
            if fault::is("exec.parallel_for.piece_twice") && last {
                body(from, to, std::ptr::with_exposed_provenance_mut(user));
            }
            let status = body(from, to, std::ptr::with_exposed_provenance_mut(user));
            if status != DTL_SUCCESS {
                let _ = failure.compare_exchange(
                    DTL_SUCCESS,
                    status,
                    Ordering::SeqCst,
                    Ordering::SeqCst,
                );
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..u64::from(THREADS).min(pieces) {
            scope.spawn(work);
        }
        work();
    });
    fault::or("exec.parallel_for.drops_failure", DTL_SUCCESS, failure.load(Ordering::SeqCst))
}

unsafe extern "C" fn max_parallelism(_: Ptr, out: *mut u32) -> Status {
    let low = if fault::is("exec.max_parallelism.too_low") { 1 } else { THREADS };
    put(out, if fault::is("exec.max_parallelism.enormous") { 1 << 30 } else { low })
}
