//! Streams: the library's own queue or a backend's stream behind one interface, with generic
//! versions of the slots that a backend omits.
//!
//! | omitted slot | generic version |
//! |---|---|
//! | stream_query | an event is recorded and queried; without events, waits for the stream |
//! | stream_wait_event | the caller waits for the event |
//! | stream_host_callback | the caller waits for the stream, then calls |
//! | launch | the grid is run on the host, as a host callback |
//! | event_* | the record waits for the stream |
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
use crate::runtime::component::{Exec, Launch, ModuleLaunch, Token};
use crate::runtime::log;
use crate::runtime::registry::Backend;
use crate::runtime::trace::{self, Args};
use crate::sys::{compute::callback::ArgPack, memory::buf::Addr, sync::lock::Mutex};
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
    /// Failures of the work that the library does in the stream. `synchronize` reports the first
    /// failure once.
    trail: Arc<DeferredErrors>,
    /// Number of pieces of work queued through the library, compared by `query_by_event`.
    queued: AtomicU64,
    /// Event for backends without stream_query, with the value of `queued` at its last record.
    probe: Mutex<Option<(Token, Option<u64>)>>,
}

impl Stream {
    /// Creates a stream on a device: a backend stream if the backend provides streams, else the
    /// library's own queue.
    pub fn create(backend: Arc<Backend>, device: i32, flags: u64) -> Result<Self> {
        if flags != 0 {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "stream flags {flags:#x} are unknown; pass 0"
            );
        }
        let body = match backend.exec.as_deref().filter(|exec| exec.groups().streams) {
            Some(exec) => {
                StreamImpl::Backend(Foreign::new(exec.stream_create(device, flags)?, true))
            }
            None => StreamImpl::Own(HostStream::new(Arc::clone(&backend), device)),
        };
        let limits = super::limits(&backend, device);
        Ok(Stream { backend, device, limits, body })
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

    /// Returns the number of references to the backend that the stream has. The library's own queue
    /// has one reference in addition.
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

    /// Returns the native pointer of the backend's stream. Fails with NOT_SUPPORTED for a stream of
    /// the library's own.
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

    /// Returns the token of the backend's stream; `None` for a stream of the library's own.
    pub fn token(&self) -> Option<Token> {
        match &self.body {
            StreamImpl::Backend(foreign) => Some(foreign.token),
            StreamImpl::Own(_) => None,
        }
    }

    /// Counts a piece of work that a component queued on [`Stream::token`] itself.
    pub fn note_work(&self) {
        if let StreamImpl::Backend(foreign) = &self.body {
            foreign.queued.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits for all work queued so far. Reports and clears its first failure.
    pub fn synchronize(&self) -> Result<()> {
        match &self.body {
            StreamImpl::Own(queue) => queue.synchronize("a stream"),
            StreamImpl::Backend(foreign) => {
                let result = exec_of(&self.backend)?.stream_synchronize(foreign.token);
                let failure = foreign.trail.take();
                result.and(failure.map_or(Ok(()), Err))
            }
        }
    }

    /// Returns true if all work has completed. Fails if the work failed; the failure stays
    /// unreported.
    pub fn query(&self) -> Result<bool> {
        let foreign = match &self.body {
            StreamImpl::Own(queue) if !queue.is_finished() => return Ok(false),
            StreamImpl::Own(queue) => return queue.failure().map_or(Ok(true), Err),
            StreamImpl::Backend(foreign) => foreign,
        };
        let exec = exec_of(&self.backend)?;
        let done = match exec.stream_query(foreign.token) {
            Some(result) => result?,
            None if exec.groups().events => foreign.query_by_event(exec)?,
            // Without events, waits for the stream, like a record on it does. Work of the stream
            // itself still runs.
            None => !reentrancy::is(foreign.trail.id()) && self.finish(foreign).is_ok(),
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
            _ => self.record_own(event),
        }
    }

    /// Records an event by the slow path. Separate from `record`, so that the record of a backend
    /// event takes few instructions.
    #[inline(never)]
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

    /// Makes work that is queued later wait for the latest record of the event. A failure before
    /// the record becomes a failure of the stream.
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
                match exec_of(&self.backend)?.stream_wait_event(foreign.token, of.token) {
                    Some(result) => result.and_then(|()| self.carry(foreign, event, of.mark())),
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

    /// Transfers a failure before the event, for which the stream waits, to the stream.
    fn carry(&self, foreign: &Foreign, event: &Event, mark: Option<Mark>) -> Result<()> {
        let Some(mark) = mark else { return Ok(()) };
        match mark.result().and_then(|()| event.query()) {
            Ok(true) => {}
            Ok(false) => return self.run(move || mark.result()),
            failed => foreign.trail.note(failed.map(drop)),
        }
        Ok(())
    }

    /// Waits for the stream and records its failure as unreported. Fails with INVALID_STATE if work
    /// of the stream itself is the caller.
    fn finish(&self, foreign: &Foreign) -> Result<()> {
        match exec_of(&self.backend)?.stream_synchronize(foreign.token) {
            Err(error) if error.status() == DTL_ERROR_INVALID_STATE => Err(error),
            result => {
                foreign.trail.note(result);
                Ok(())
            }
        }
    }

    /// Waits for the stream and runs work that its backend cannot queue. A failure of the work is
    /// recorded in the stream.
    pub fn run_here(&self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let StreamImpl::Backend(foreign) = &self.body else { return work() };
        self.finish(foreign)?;
        foreign.trail.note(work());
        Ok(())
    }

    /// Calls a function on a host thread in the order of the stream.
    pub fn host_callback(&self, function: dtl_task_fn_t, user: Addr) -> Result<()> {
        match &self.body {
            StreamImpl::Own(queue) => queue.push(StreamWork::Call(function, user)),
            StreamImpl::Backend(_) => self.run(move || host_callback(function, user)),
        }
    }

    /// Runs library code on a host thread in the order of the stream. A failure is recorded in the
    /// stream.
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
        let queued =
            exec.stream_host_callback(foreign.token, (function, user)).unwrap_or_else(|| {
                self.finish(foreign)?;
                if let Some(function) = function {
                    function(user.ptr()); // the closure records its failure in the stream
                }
                Ok(())
            });
        queued.inspect_err(|_| {
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

    /// Fails if a launch is invalid on this stream, whether a handler or the backend would run it.
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
            part.check(sizes)?;
        }
        Ok(())
    }

    /// Launches a kernel on a backend's stream: the backend's own kernel, host code by the launch
    /// slot of the backend, or host code by the library.
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
        if !code.is_whole_block {
            if let Some(result) = exec_of(&self.backend)?.launch(foreign.token, &launch) {
                return result;
            }
        }
        let grid = Grid::new(code, *shape, args)?;
        self.run(move || grid.run())
    }

    /// Accepts no more work, finishes the queued work and ends the worker. Called after the handle
    /// is destroyed.
    pub fn close(self: &Arc<Self>) {
        match &self.body {
            StreamImpl::Own(queue) => queue.close(),
            // The destruction of a backend's stream waits for its work, but happens only when the
            // last call that uses the stream has returned.
            StreamImpl::Backend(foreign) if foreign.owned && Arc::strong_count(self) > 1 => {
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
            exec.stream_unwrap(foreign.token);
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

    /// Queries the stream by an event. The event is recorded once for the work queued so far and is
    /// queried until it is reached.
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
