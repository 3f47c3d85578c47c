//! Execution: the traits of the execution table.

use super::slot::{Address, In, Last, New, Out, function_of, present, size, slots};
use super::source::parameters;
use super::{Arguments, Driver, Parameter, SourceText, Table};
use crate::{Error, Result, sys};
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Streams of a driver: queues of work, in order. [`Table::streams`] adds them.
///
/// Dropping a stream destroys it; queued work must still run, and `drop` may wait for it.
/// Functions are called from any thread, also for one stream at the same time. So a stream is `Sync`:
/// ```compile_fail,E0277
/// use dtl_binding::Result;
/// use dtl_binding::driver::{Driver, Streams};
/// use std::cell::Cell;
///
/// struct Card;
/// impl Driver for Card {}
/// impl Streams for Card {
///     type Stream = Cell<u64>;
///     fn create_stream(&self, _device: i32, _flags: u64) -> Result<Cell<u64>> {
///         Ok(Cell::new(0))
///     }
///     fn synchronize(&self, _stream: &Cell<u64>) -> Result {
///         Ok(())
///     }
/// }
/// ```
pub trait Streams: Driver {
    /// A stream.
    type Stream: Send + Sync + 'static;

    /// Creates a stream on a device. `flags` are those of `dtl_stream_create`.
    ///
    /// # Errors
    /// The status and text of `dtl_stream_create`.
    fn create_stream(&self, device: i32, flags: u64) -> Result<Self::Stream>;

    /// Waits for all work in the stream.
    ///
    /// # Errors
    /// The failure of the work; DTL_ERROR_BACKEND if it has no status of its own.
    fn synchronize(&self, stream: &Self::Stream) -> Result;

    /// Returns true if all work in the stream is done, without waiting. `None`: the library records
    /// and queries an event, or waits if there are no events.
    const QUERY: Option<fn(&Self, &Self::Stream) -> Result<bool>> = None;

    /// Queues a callback on a thread of the host, after the work queued before. `None`: the calling
    /// thread waits for the stream, then calls it.
    const HOST_CALLBACK: Option<fn(&Self, &Self::Stream, Callback) -> Result> = None;
}

/// Function of the program or of the library that a stream calls.
///
/// Call it once, or drop it if it will never be called: the work behind it then never runs.
#[derive(Debug)]
pub struct Callback {
    function: extern "C" fn(*mut c_void) -> sys::dtl_status_t,
    user: *mut c_void,
}

// SAFETY: the header allows the call on any thread.
unsafe impl Send for Callback {}

impl Callback {
    /// Calls the function. A status that it returns is not a failure of the stream's work: the
    /// library reports it.
    pub fn call(self) {
        let _ = (self.function)(self.user);
    }
}

/// Threads that run the callbacks of a stream, for drivers without threads for it. The drop waits for
/// them.
#[derive(Debug, Default)]
pub struct CallbackThreads(Mutex<Vec<JoinHandle<()>>>);

impl CallbackThreads {
    /// Runs a function in a new thread, for example: waits for the work before a callback, calls it,
    /// and lets the queue continue.
    ///
    /// # Errors
    /// DTL_ERROR_LIMIT if no thread can be started.
    pub fn spawn(&self, run: impl FnOnce() + Send + 'static) -> Result {
        let mut threads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|thread| !thread.is_finished());
        let thread = thread::Builder::new().name("dtl-callback".into()).spawn(run);
        let failed = |error| format!("a thread for a callback: {error}: end other threads");
        threads.push(thread.map_err(|error| Error::new(sys::DTL_ERROR_LIMIT, failed(error)))?);
        Ok(())
    }

    /// Returns true in a callback, which must not wait for its stream.
    #[must_use]
    pub fn has_current(&self) -> bool {
        let threads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        threads.iter().any(|thread| thread.thread().id() == thread::current().id())
    }
}

impl Drop for CallbackThreads {
    fn drop(&mut self) {
        for thread in self.0.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // A callback may destroy its own stream.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join(); // the panic hook has reported a panic
            }
        }
    }
}

/// Events of a driver: points in the work of a stream. [`Table::events`] adds them.
///
/// An event is destroyed by its drop. Functions are called from any thread, also for one event at
/// the same time.
pub trait Events: Streams {
    /// An event.
    type Event: Send + Sync + 'static;

    /// Creates an event that was never recorded. `flags` are those of `dtl_event_create`.
    ///
    /// # Errors
    /// The status and text of `dtl_event_create`.
    fn create_event(&self, flags: u64) -> Result<Self::Event>;

    /// Records the event at the current end of the stream. It replaces an earlier record.
    ///
    /// # Errors
    /// The status and text of `dtl_event_record`.
    fn record(&self, event: &Self::Event, stream: &Self::Stream) -> Result;

    /// Returns true if the work before the record is done, or the event was never recorded.
    ///
    /// # Errors
    /// The failure of the work, in every query until the event is recorded again.
    fn query(&self, event: &Self::Event) -> Result<bool>;

    /// Waits for the event. Fails as `query` does. `None`: the library polls `query`.
    const WAIT: Option<fn(&Self, &Self::Event) -> Result> = None;

    /// Makes work that is queued in the stream from now on wait for the event. `None`: the calling
    /// thread waits.
    const STREAM_WAIT: Option<fn(&Self, &Self::Stream, &Self::Event) -> Result> = None;

    /// Returns the nanoseconds between two completed events. `None`: DTL_ERROR_NOT_SUPPORTED.
    const ELAPSED: Option<fn(&Self, &Self::Event, &Self::Event) -> Result<u64>> = None;
}

/// Priorities of streams. [`Table::priorities`] adds them.
pub trait Priorities: Streams {
    /// Returns the least and the greatest priority of a device: `greatest <= 0 <= least`.
    ///
    /// # Errors
    /// The status and text of `dtl_stream_priority_range`.
    fn range(&self, device: i32) -> Result<(i32, i32)>;

    /// Creates a stream with a priority other than 0 from the range of the device.
    ///
    /// # Errors
    /// The status and text of `dtl_stream_create_with_priority`.
    fn create_stream_with(&self, device: i32, flags: u64, priority: i32) -> Result<Self::Stream>;
}

/// Modules of a driver: compiled source, and the kernels in it. [`Table::modules`] adds them.
///
/// Modules and kernels are destroyed by their drops. A module is dropped after its kernels, but
/// launches that are queued must still run. Functions are called from any thread, at the same time.
pub trait Modules: Streams {
    /// Compiled source.
    type Module: Send + Sync + 'static;
    /// A kernel.
    type Kernel: Send + Sync + 'static;

    /// Compiles or loads source for a device. Appends the whole log of the compiler to `log`, also
    /// after a success.
    ///
    /// # Errors
    /// DTL_ERROR_COMPILE_FAILED for an error in the source. DTL_ERROR_NOT_SUPPORTED for a language
    /// that the driver does not support; the text names those that it supports.
    fn compile(
        &self,
        device: i32,
        source: SourceText<'_>,
        log: &mut String,
    ) -> Result<Self::Module>;

    /// Finds a kernel. `signature` has the parameters that the program expects, if it has named
    /// them (see `dtl_kernel_get`).
    ///
    /// # Errors
    /// DTL_ERROR_NOT_FOUND if there is no such kernel. DTL_ERROR_INVALID_ARGUMENT if there is no
    /// signature and the module does not describe the arguments, or if the two differ.
    fn kernel(
        &self,
        module: &Self::Module,
        name: &str,
        signature: Option<&[Parameter]>,
    ) -> Result<Self::Kernel>;

    /// Queues a kernel. The library has checked grid and block against the limits of the device; the
    /// number and the sizes of the arguments are checked only if there is a signature.
    ///
    /// # Errors
    /// DTL_ERROR_INVALID_ARGUMENT for arguments that do not match, and for `shared_bytes` above the
    /// limit of the device.
    fn launch(
        &self,
        stream: &Self::Stream,
        kernel: &Self::Kernel,
        shape: &sys::dtl_launch_t,
        arguments: Arguments<'_>,
    ) -> Result;
}

slots! {
    fn stream_create<Streams>(driver, device: i32, flags: u64, out: New<'_, D::Stream>) {
        out.set(driver.create_stream(device, flags)?);
        Ok(())
    }
    fn stream_destroy<Streams>(_driver, stream: Last<D::Stream>) {
        drop(stream);
        Ok(())
    }
    fn stream_synchronize<Streams>(driver, stream: &D::Stream) {
        driver.synchronize(stream)
    }
    fn stream_query<Streams>(driver, stream: &D::Stream, out: Out<'_, i32>) {
        out.set_bool(function_of(D::QUERY)?(driver, stream)?);
        Ok(())
    }
    fn stream_host_callback<Streams>(
        driver, stream: &D::Stream, function: Address<sys::dtl_task_fn_t>,
        user: Address<*mut c_void>,
    ) {
        let function = function_of(function.0)?;
        function_of(D::HOST_CALLBACK)?(driver, stream, Callback { function, user: user.0 })
    }
    fn event_create<Events>(driver, flags: u64, out: New<'_, D::Event>) {
        out.set(driver.create_event(flags)?);
        Ok(())
    }
    fn event_destroy<Events>(_driver, event: Last<D::Event>) {
        drop(event);
        Ok(())
    }
    fn event_record<Events>(driver, event: &D::Event, stream: &D::Stream) {
        driver.record(event, stream)
    }
    fn event_query<Events>(driver, event: &D::Event, out: Out<'_, i32>) {
        out.set_bool(driver.query(event)?);
        Ok(())
    }
    fn event_sync<Events>(driver, event: &D::Event) {
        function_of(D::WAIT)?(driver, event)
    }
    fn stream_wait_event<Events>(driver, stream: &D::Stream, event: &D::Event) {
        function_of(D::STREAM_WAIT)?(driver, stream, event)
    }
    fn event_elapsed<Events>(driver, start: &D::Event, stop: &D::Event, out: Out<'_, u64>) {
        out.set(function_of(D::ELAPSED)?(driver, start, stop)?);
        Ok(())
    }
    fn stream_priorities<Priorities>(
        driver, device: i32, out_least: Out<'_, i32>, out_greatest: Out<'_, i32>,
    ) {
        let (least, greatest) = driver.range(device)?;
        out_least.set(least);
        out_greatest.set(greatest);
        Ok(())
    }
    fn stream_create_with_priority<Priorities>(
        driver, device: i32, flags: u64, priority: i32, out: New<'_, D::Stream>,
    ) {
        out.set(driver.create_stream_with(device, flags, priority)?);
        Ok(())
    }
    fn module_compile<Modules>(
        driver, device: i32, source: In<'_, sys::dtl_source_t>, log: Address<sys::dtl_text_fn_t>,
        user: Address<*mut c_void>, out: New<'_, D::Module>,
    ) {
        let mut text = String::new();
        // SAFETY: the library passes a source that lives through the call.
        let source = unsafe { SourceText::new(source.0) };
        let compiled = source.and_then(|source| driver.compile(device, source, &mut text));
        if let Some(log) = log.0 {
            // SAFETY: `text` has this many bytes, and `user` belongs to the function.
            unsafe { log(user.0, text.as_ptr().cast(), text.len() as u64) };
        }
        out.set(compiled?);
        Ok(())
    }
    fn module_destroy<Modules>(_driver, module: Last<D::Module>) {
        drop(module);
        Ok(())
    }
    fn kernel_get<Modules>(
        driver, module: &D::Module, name: super::slot::Text<'_>,
        signature: super::slot::Text<'_>, out: New<'_, D::Kernel>,
    ) {
        let name = name.get("name")?.unwrap_or_default();
        let signature = signature.get("signature")?.map(parameters);
        out.set(driver.kernel(module, name, signature.as_deref())?);
        Ok(())
    }
    fn kernel_destroy<Modules>(_driver, kernel: Last<D::Kernel>) {
        drop(kernel);
        Ok(())
    }
    fn kernel_launch<Modules>(
        driver, stream: &D::Stream, kernel: &D::Kernel, shape: In<'_, sys::dtl_launch_t>,
        values: Address<*const *const c_void>, sizes: Address<*const u64>, count: u64,
    ) {
        // SAFETY: the library passes `count` addresses and sizes, valid during the call.
        let arguments = unsafe { Arguments::new(values.0, sizes.0, size(count)) };
        driver.launch(stream, kernel, shape.0, arguments)
    }
}

impl<D: Driver> Table<D> {
    fn exec(&mut self) -> &mut sys::dtl_exec_vtable_t {
        self.tables.exec.get_or_insert(sys::DTL_EXEC_VTABLE_INIT)
    }
}

impl<D: Streams> Table<D> {
    /// Adds the streams.
    #[must_use]
    pub fn streams(mut self) -> Self {
        let table = self.exec();
        table.stream_create = Some(stream_create::<D>);
        table.stream_destroy = Some(stream_destroy::<D>);
        table.stream_synchronize = Some(stream_synchronize::<D>);
        table.stream_query = present(D::QUERY, stream_query::<D>);
        table.stream_host_callback = present(D::HOST_CALLBACK, stream_host_callback::<D>);
        self
    }
}

impl<D: Events> Table<D> {
    /// Adds the events, with [`Table::streams`].
    #[must_use]
    pub fn events(self) -> Self {
        let mut all = self.streams();
        let table = all.exec();
        table.event_create = Some(event_create::<D>);
        table.event_destroy = Some(event_destroy::<D>);
        table.event_record = Some(event_record::<D>);
        table.event_query = Some(event_query::<D>);
        table.event_sync = present(D::WAIT, event_sync::<D>);
        table.stream_wait_event = present(D::STREAM_WAIT, stream_wait_event::<D>);
        table.event_elapsed = present(D::ELAPSED, event_elapsed::<D>);
        all
    }
}

impl<D: Priorities> Table<D> {
    /// Adds the priorities, with [`Table::streams`].
    #[must_use]
    pub fn priorities(self) -> Self {
        let mut all = self.streams();
        let table = all.exec();
        table.stream_priorities = Some(stream_priorities::<D>);
        table.stream_create_with_priority = Some(stream_create_with_priority::<D>);
        all
    }
}

impl<D: Modules> Table<D> {
    /// Adds the modules, with [`Table::streams`].
    #[must_use]
    pub fn modules(self) -> Self {
        let mut all = self.streams();
        let table = all.exec();
        table.module_compile = Some(module_compile::<D>);
        table.module_destroy = Some(module_destroy::<D>);
        table.kernel_get = Some(kernel_get::<D>);
        table.kernel_destroy = Some(kernel_destroy::<D>);
        table.kernel_launch = Some(kernel_launch::<D>);
        all
    }
}
