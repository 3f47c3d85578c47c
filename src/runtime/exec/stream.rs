//! Streams: one interface for the library's own queue and for the streams of backends. A backend
//! may omit optional functions (slots of its function table). This module then uses a generic
//! version:
//!
//! | omitted slot | generic version |
//! |---|---|
//! | stream_query | records an event and queries it; without events, waits for the stream |
//! | stream_wait_event | the caller waits for the event |
//! | stream_host_callback | the caller waits for the stream, then runs the callback |
//! | launch | the grid is run on the host, as a host callback |
//! | event_* | recording an event waits for the stream |
//!
//! Read [`super::host::host_stream`] next for the library's own queue, or [`super::event`] for
//! events.

use super::deferred_errors::{DeferredErrors, Mark};
use super::event::{Event, EventImpl as EventBody};
use super::host::closure_table;
use super::host::host_stream::{HostStream, StreamWork};
use super::kernel::{Grid, Kernel, check_shape};
use super::{Limits, exec_of, host_callback, reentrancy};
use crate::abi::devices::exec::dtl_launch_t;
use crate::abi::runtime::dtl_task_fn_t;
use crate::abi::status::*;
use crate::error::{Error, Result, fail, failure};
use crate::hints;
use crate::runtime::component::{Exec, Launch, ModuleLaunch, Token};
use crate::runtime::exec::fence::timed_out;
use crate::runtime::log;
use crate::runtime::registry::Backend;
use crate::runtime::trace::{self, Args};
use crate::sys::compute::callback::ArgPack;
use crate::sys::memory::buf::Addr;
use crate::sys::sync::lock::Mutex;
use crate::sys::sync::wait::{Backoff, Deadline};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// In-order queue of work on a device.
pub struct Stream {
    backend: Arc<Backend>,
    device: i32,
    limits: Limits,
    body: StreamImpl,
}

enum StreamImpl {
    Own(HostStream),
    Backend(Foreign),
}

/// Stream of a backend.
struct Foreign {
    token: Token,
    /// True if the library created the backend's stream and must destroy it.
    owned: bool,
    /// Failures of work that the library runs in the order of the stream. `synchronize` returns the
    /// first failure and clears it.
    trail: Arc<DeferredErrors>,
    /// Number of pieces of work that were queued on the stream through the library. If the number
    /// has changed, `query_by_event` records the event in `probe` again.
    queued: AtomicU64,
    /// Event through which the stream is queried if the backend does not implement stream_query,
    /// and the value of `queued` when the event was last recorded. If this value is `None`, the
    /// event must be recorded again.
    probe: Mutex<Option<(Token, Option<u64>)>>,
}

impl Stream {
    /// Creates a stream on a device: a backend stream if the backend provides streams, else the
    /// library's own queue.
    pub fn create(backend: Arc<Backend>, device: i32, flags: u64) -> Result<Self> {
        Stream::with_priority(backend, device, flags, 0)
    }

    /// Creates a stream on a device. `priority` is clamped to the range of the device.
    pub fn with_priority(
        backend: Arc<Backend>,
        device: i32,
        flags: u64,
        priority: i32,
    ) -> Result<Self> {
        if flags != 0 {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "stream flags {flags:#x} are unknown; pass 0"
            );
        }
        let body = match backend.exec.as_deref().filter(|exec| exec.groups().streams) {
            Some(exec) => {
                let priority = match priority {
                    0 => 0,
                    wanted => {
                        let (least, greatest) = exec.stream_priorities(device)?;
                        wanted.min(least).max(greatest)
                    }
                };
                let stream = exec.stream_create(device, flags, priority)?;
                StreamImpl::Backend(Foreign::new(stream, true))
            }
            None => StreamImpl::Own(HostStream::new(Arc::clone(&backend), device)),
        };
        let limits = super::limits(&backend, device);
        Ok(Stream { backend, device, limits, body })
    }

    /// Returns the least and the greatest priority of streams on a device.
    pub fn priorities(backend: &Backend, device: i32) -> Result<(i32, i32)> {
        match backend.exec.as_deref().filter(|exec| exec.groups().streams) {
            Some(exec) => exec.stream_priorities(device),
            None => Ok((0, 0)),
        }
    }

    /// Creates a stream for `native`, a stream that the caller created with the backend's interface
    /// and continues to own.
    pub fn wrap(backend: Arc<Backend>, device: i32, native: Token) -> Result<Self> {
        let Some(exec) = backend.exec.as_deref().filter(|exec| exec.groups().streams) else {
            return fail!(
                DTL_ERROR_NOT_SUPPORTED,
                "backend '{}' has no streams of its own to wrap; use dtl_stream_create",
                backend.name()
            );
        };
        let body = StreamImpl::Backend(Foreign::new(exec.stream_wrap(device, native)?, false));
        let limits = super::limits(&backend, device);
        Ok(Stream { backend, device, limits, body })
    }

    /// Returns the backend for which the stream was created.
    pub fn backend(&self) -> &Arc<Backend> {
        &self.backend
    }

    /// Returns the number of references to the backend that the stream holds, including the
    /// reference that the library's own queue holds, if the stream uses one.
    pub fn home_shares(&self) -> usize {
        match &self.body {
            StreamImpl::Own(_) => 2,
            StreamImpl::Backend(_) => 1,
        }
    }

    /// Returns the device on which the stream was created.
    pub fn device(&self) -> i32 {
        self.device
    }

    /// Returns the backend's native stream pointer. Fails with NOT_SUPPORTED if the library itself
    /// implements the stream.
    pub fn native(&self) -> Result<Token> {
        match &self.body {
            StreamImpl::Backend(foreign) => {
                Ok(exec_of(&self.backend)?.stream_native(foreign.token))
            }
            StreamImpl::Own(_) => fail!(
                DTL_ERROR_NOT_SUPPORTED,
                "backend '{}' has no streams of its own: this one is the library's and has no \
                 native pointer",
                self.backend.name()
            ),
        }
    }

    /// Returns the token (backend-private pointer) of the backend's stream; `None` if the library
    /// itself implements the stream.
    pub fn token(&self) -> Option<Token> {
        match &self.body {
            StreamImpl::Backend(foreign) => Some(foreign.token),
            StreamImpl::Own(_) => None,
        }
    }

    /// Counts a piece of work that the caller queued directly on the backend's stream, to which
    /// [`Stream::token`] refers.
    pub fn note_work(&self) {
        if let StreamImpl::Backend(foreign) = &self.body {
            foreign.queued.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits for all work queued so far, without a time limit. See [`Stream::wait`].
    pub fn synchronize(&self) -> Result<()> {
        self.wait(Deadline::NEVER)
    }

    /// Waits for all work queued so far. Returns and clears the first failure of that work. Fails
    /// with TIMEOUT if the work is not complete at the deadline.
    pub fn wait(&self, deadline: Deadline) -> Result<()> {
        match &self.body {
            StreamImpl::Own(queue) => queue.wait("a stream", deadline),
            StreamImpl::Backend(foreign) => {
                let exec = exec_of(&self.backend)?;
                let polls = deadline.is_finite() && !reentrancy::is(foreign.trail.id());
                let mut backoff = Backoff::new();
                // Without queries and events, the slot waits, which has no time limit.
                let result = loop {
                    match if polls { foreign.poll(exec) } else { Ok(None) } {
                        Ok(None) => break exec.stream_synchronize(foreign.token),
                        Ok(Some(true)) => break Ok(()),
                        Ok(Some(false)) if deadline.passed() => return timed_out("a stream"),
                        Ok(Some(false)) => backoff.pause(),
                        Err(error) => break Err(error),
                    }
                };
                let failure = foreign.trail.take();
                result.and(failure.map_or(Ok(()), Err))
            }
        }
    }

    /// Returns true if all work has completed. Fails if some of the work has failed; the next
    /// `synchronize` returns that failure too.
    #[inline]
    pub fn query(&self) -> Result<bool> {
        let foreign = match &self.body {
            StreamImpl::Own(queue) => {
                return hints::out_of_line(|| {
                    let done = queue.is_finished();
                    queue.failure().filter(|_| done).map_or(Ok(done), Err)
                });
            }
            StreamImpl::Backend(foreign) => foreign,
        };
        let done = match foreign.poll(exec_of(&self.backend)?)? {
            Some(done) => done,
            // Without events, waits for the stream, like a record on it does. Work of the stream
            // itself still runs.
            None => hints::out_of_line(|| {
                !reentrancy::is(foreign.trail.id()) && self.finish(foreign).is_ok()
            }),
        };
        if done { foreign.trail.peek().map_or(Ok(true), Err) } else { Ok(false) }
    }

    /// Records an event at the current end of the stream.
    #[inline]
    pub fn record(&self, event: &Event) -> Result<()> {
        match (&self.body, &event.body) {
            (StreamImpl::Backend(foreign), EventBody::Backend(mark))
                if Arc::ptr_eq(&self.backend, event.backend()) =>
            {
                exec_of(&self.backend)?.event_record(mark.token, foreign.token)?;
                mark.follow(&foreign.trail);
                Ok(())
            }
            _ => hints::out_of_line(|| self.record_own(event)),
        }
    }

    /// Records an event that the library implements (slow path of `record`).
    fn record_own(&self, event: &Event) -> Result<()> {
        match (&self.body, &event.body) {
            (StreamImpl::Own(queue), EventBody::Own(own)) => {
                queue.mark(|failure| own.complete(failure), || own.begin())
            }
            (StreamImpl::Backend(foreign), EventBody::Own(own))
                if Arc::ptr_eq(&self.backend, event.backend()) =>
            {
                self.finish(foreign)?;
                own.complete(foreign.trail.peek());
                Ok(())
            }
            _ => Err(self.not_recordable(event)),
        }
    }

    #[cold]
    fn not_recordable(&self, event: &Event) -> Error {
        failure!(
            DTL_ERROR_INVALID_ARGUMENT,
            "an event of backend '{}' cannot be recorded on a stream of backend '{}'; make one \
             with dtl_event_create for that backend",
            event.backend().name(),
            self.backend.name()
        )
    }

    /// Makes work that is queued after this call wait for the latest recording of the event. If
    /// work queued before that recording has failed, its failure becomes a failure of this stream.
    pub fn wait_event(&self, event: &Arc<Event>) -> Result<()> {
        match (&self.body, &event.body) {
            (StreamImpl::Own(queue), EventBody::Own(own)) => {
                let fence = own.fence();
                if fence.is_done() && fence.result().is_ok() {
                    return Ok(());
                }
                queue.push(StreamWork::Await(fence))
            }
            (StreamImpl::Backend(foreign), EventBody::Backend(of))
                if Arc::ptr_eq(&self.backend, event.backend()) =>
            {
                self.note_work();
                match exec_of(&self.backend)?.stream_wait_event(foreign.token, of.token)? {
                    Some(()) => self.carry(foreign, event, of.mark()),
                    None => {
                        foreign.trail.note(event.sync());
                        Ok(())
                    }
                }
            }
            (_, EventBody::Own(own)) => {
                let fence = own.fence();
                self.run(move || fence.join())
            }
            _ => {
                let event = Arc::clone(event);
                self.run(move || event.sync())
            }
        }
    }

    /// Records a failure of the work queued before `event` as a failure of this stream, because
    /// this stream waits for the event.
    fn carry(&self, foreign: &Foreign, event: &Event, mark: Option<Mark>) -> Result<()> {
        let Some(mark) = mark else { return Ok(()) };
        match mark.result().and_then(|()| event.query()) {
            Ok(true) => {}
            Ok(false) => return self.run(move || mark.result()),
            failed => foreign.trail.note(failed.map(drop)),
        }
        Ok(())
    }

    /// Waits for the stream. If work of the stream has failed, stores the error, which the next
    /// call to `synchronize` returns. Fails with INVALID_STATE if the calling thread runs work of
    /// this stream.
    fn finish(&self, foreign: &Foreign) -> Result<()> {
        match exec_of(&self.backend)?.stream_synchronize(foreign.token) {
            Err(error) if error.status() == DTL_ERROR_INVALID_STATE => Err(error),
            result => {
                foreign.trail.note(result);
                Ok(())
            }
        }
    }

    /// Waits for the stream, if it is a backend's stream, and then runs `work`, which the backend
    /// cannot queue. Stores a failure of `work`, which the next `synchronize` of the backend's
    /// stream returns.
    pub fn run_here(&self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let StreamImpl::Backend(foreign) = &self.body else { return work() };
        self.finish(foreign)?;
        foreign.trail.note(work());
        Ok(())
    }

    /// Calls a function on a host thread, in stream order.
    pub fn host_callback(&self, function: dtl_task_fn_t, user: Addr) -> Result<()> {
        match &self.body {
            StreamImpl::Own(queue) => queue.push(StreamWork::Call(function, user)),
            StreamImpl::Backend(_) => self.run(move || host_callback(function, user)),
        }
    }

    /// Runs library code on a host thread, in stream order. If this code fails, the next
    /// `synchronize` returns the failure.
    pub fn run(&self, work: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
        let foreign = match &self.body {
            StreamImpl::Own(queue) => return queue.push(StreamWork::Run(Box::new(work))),
            StreamImpl::Backend(foreign) => foreign,
        };
        self.note_work();
        let exec = exec_of(&self.backend)?;
        let (trail, number) = (Arc::clone(&foreign.trail), foreign.trail.begin());
        let (function, user) = closure_table::issue(Box::new(move || {
            let result = reentrancy::during(trail.id(), work);
            let status = result.as_ref().map_or_else(Error::status, |()| DTL_SUCCESS);
            trail.end(number, result);
            status
        }));
        let queue = || {
            if exec.stream_host_callback(foreign.token, (function, user))?.is_none() {
                self.finish(foreign)?;
                if let Some(function) = function {
                    function(user.ptr()); // the closure records its failure in the stream
                }
            }
            Ok(())
        };
        queue().inspect_err(|_| {
            if closure_table::take_unrun(user) {
                foreign.trail.end(number, Ok(()));
            }
        })
    }

    /// Queues a launch of a kernel over a grid. The launch owns copies of the arguments.
    pub fn launch(&self, kernel: &Kernel, shape: &dtl_launch_t, args: ArgPack) -> Result<()> {
        trace::about(|| {
            Args::NONE.what(format_args!("{} on {}", kernel.name(), self.backend.name()))
        });
        self.check_launch(kernel, shape, args.sizes())?;
        match (&self.body, kernel.code) {
            (StreamImpl::Own(queue), Some(code)) => {
                queue.push(StreamWork::Launch(Grid::new(code, *shape, args)?))
            }
            (StreamImpl::Backend(foreign), _) => self.launch_foreign(foreign, kernel, shape, args),
            (StreamImpl::Own(_), None) => fail!(
                DTL_ERROR_NOT_SUPPORTED,
                "backend '{}' launches its kernels on streams of its own only, and this one is the \
                 library's",
                self.backend.name()
            ),
        }
    }

    /// Fails if a launch is invalid on this stream, regardless of whether a dispatch handler or the
    /// backend executes the launch.
    pub fn check_launch(&self, kernel: &Kernel, shape: &dtl_launch_t, sizes: &[u64]) -> Result<()> {
        if !Arc::ptr_eq(&self.backend, &kernel.backend) {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "a kernel of backend '{}' cannot be launched on a stream of backend '{}'; make the \
                 kernel for that backend",
                kernel.backend.name(),
                self.backend.name()
            );
        }
        check_shape(shape, &self.limits)?;
        if let Some(part) = &kernel.part {
            part.check(self.device, sizes)?;
        }
        Ok(())
    }

    /// Launches a kernel on a backend's stream. The backend launches the kernels of its own
    /// modules. Host code is launched through the backend's launch function. The library runs the
    /// host code itself if the backend has no launch function, or if one call of the code runs a
    /// whole block.
    fn launch_foreign(
        &self,
        foreign: &Foreign,
        kernel: &Kernel,
        shape: &dtl_launch_t,
        args: ArgPack,
    ) -> Result<()> {
        self.note_work();
        let (mut space, mut spill) = ([Addr::NULL; 16], Vec::new());
        let pointers = args.pointers(&mut space, &mut spill);
        let Some(code) = kernel.code else {
            let launch = ModuleLaunch { shape, args: pointers, sizes: args.sizes() };
            // A kernel has host code or a module.
            return kernel.part.as_ref().map_or(Ok(()), |part| part.launch(foreign.token, &launch));
        };
        let launch = Launch {
            shape,
            function: Some(code.function),
            user: code.user,
            args: pointers,
            sizes: args.sizes(),
        };
        // The launch slot calls the function once for each thread, so it cannot run whole-block
        // code.
        if !code.is_whole_block && exec_of(&self.backend)?.launch(foreign.token, &launch)?.is_some()
        {
            return Ok(());
        }
        let grid = Grid::new(code, *shape, args)?;
        self.run(move || grid.run())
    }

    /// Closes the stream: rejects new work, finishes the queued work and ends the worker. Called
    /// after the handle is destroyed.
    pub fn close(self: &Arc<Self>) {
        match &self.body {
            StreamImpl::Own(queue) => queue.close(),
            // The destruction of a backend's stream waits for its work, but happens only when the
            // last call that uses the stream has returned, or later, if another thread is in the
            // library. The owner of a wrapped native stream may destroy that stream before.
            StreamImpl::Backend(foreign) if !foreign.owned => {
                let _ = exec_of(&self.backend).map(|exec| exec.stream_unwrap(foreign.token, true));
            }
            StreamImpl::Backend(foreign) if Arc::strong_count(self) > 1 => {
                // An unreported failure is dropped: the handle is destroyed, so no call can return
                // the failure.
                let _ =
                    exec_of(&self.backend).and_then(|exec| exec.stream_synchronize(foreign.token));
            }
            StreamImpl::Backend(_) => {}
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let (StreamImpl::Backend(foreign), Some(exec)) = (&self.body, self.backend.exec.as_deref())
        else {
            return;
        };
        if let Some((probe, _)) = foreign.probe.lock().take() {
            log::failure("destroying a stream's event", exec.event_destroy(probe));
        }
        if foreign.owned {
            log::failure("destroying a stream", exec.stream_destroy(foreign.token));
        } else {
            exec.stream_unwrap(foreign.token, false);
        }
    }
}

impl Foreign {
    fn new(token: Token, owned: bool) -> Self {
        Foreign {
            token,
            owned,
            trail: Arc::default(),
            queued: AtomicU64::new(0),
            probe: Mutex::new(None),
        }
    }

    /// Returns true if all work has completed; `None` if the backend implements neither queries of
    /// streams nor events.
    #[inline]
    fn poll(&self, exec: &dyn Exec) -> Result<Option<bool>> {
        match exec.stream_query(self.token)? {
            None => hints::out_of_line(|| {
                exec.groups().events.then(|| self.query_by_event(exec)).transpose()
            }),
            done => Ok(done),
        }
    }

    /// Queries the stream through the event in `probe`. Records the event first if work has been
    /// queued since the event was last recorded.
    fn query_by_event(&self, exec: &dyn Exec) -> Result<bool> {
        let mut probe = self.probe.lock();
        let (token, recorded) = match *probe {
            Some(probe) => probe,
            None => (exec.event_create(0)?, None),
        };
        let queued = self.queued.load(Ordering::Relaxed);
        *probe = Some((token, recorded));
        if recorded != Some(queued) {
            exec.event_record(token, self.token)?;
            *probe = Some((token, Some(queued)));
        }
        let done = exec.event_query(token)?;
        if done {
            // records again at the next query, to include work queued without the library
            *probe = Some((token, None));
        }
        Ok(done)
    }
}

/// Waits for the streams of a device, then for the device. Returns the first failure. The slot that
/// waits for the device has no time limit: it is not called if a stream is not done in time.
pub fn wait_for_device(
    backend: &Backend,
    device: i32,
    streams: &[Arc<Stream>],
    deadline: Deadline,
) -> Result<()> {
    let waited = streams.iter().map(|stream| stream.wait(deadline)).fold(Ok(()), Result::and);
    if waited.is_err() && deadline.passed() {
        return waited;
    }
    let own = backend.device.as_ref().map_or(Ok(()), |own| own.synchronize(device));
    own.and(waited)
}
