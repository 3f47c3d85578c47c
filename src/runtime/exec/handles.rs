//! Handles of streams, events, executors, kernels and modules; default streams; destruction of all
//! these objects.

use super::event::Event;
use super::executor::Executor;
use super::host::thread_pool;
use super::kernel::Kernel;
use super::module::Module;
use super::stream::Stream;
use crate::abi::handle::*;
use crate::error::{Result, fail, failure};
use crate::runtime::registry::Backend;
use crate::runtime::{device, invalid_handle};
use crate::sys::handles::epoch::{self, Guard};
use crate::sys::handles::handle_table::{HandleTable, HazardRef};
use crate::sys::sync::lock::RwLock;
use std::sync::Arc;

static STREAMS: HandleTable<Stream> = HandleTable::new();
static EVENTS: HandleTable<Event> = HandleTable::new();
static EXECUTORS: HandleTable<Executor> = HandleTable::new();
static KERNELS: HandleTable<Kernel> = HandleTable::new();
static MODULES: HandleTable<Module> = HandleTable::new();

/// Default stream of each device of each backend, created at its first use.
static DEFAULTS: RwLock<Vec<DefaultStream>> = RwLock::new(Vec::new());

struct DefaultStream {
    backend: u64,
    device: i32,
    stream: u64,
}

/// Kind of object that has handles. All kinds share the lookup and removal functions of this
/// module.
pub trait ObjectKind: Send + Sync + Sized + 'static {
    /// Name of the kind of object, for error messages.
    const NOUN: &'static str;
    /// Type byte (most significant byte) of the handles of this kind.
    const TAG: u8;
    /// Returns the handle table for objects of this kind.
    fn table() -> &'static HandleTable<Self>;
}

macro_rules! noun {
    ($type:ty, $name:literal, $tag:literal, $table:ident) => {
        impl ObjectKind for $type {
            const NOUN: &'static str = $name;
            const TAG: u8 = $tag;
            fn table() -> &'static HandleTable<Self> {
                &$table
            }
        }
    };
}
noun!(Stream, "stream", 2, STREAMS);
noun!(Event, "event", 3, EVENTS);
noun!(Executor, "executor", 4, EXECUTORS);
noun!(Kernel, "kernel", 5, KERNELS);
noun!(Module, "module", 11, MODULES);

/// Inserts an object into its table and returns its handle. Fails with LIMIT if no handle is left.
pub fn insert<T: ObjectKind>(object: T) -> Result<u64> {
    T::table()
        .insert(T::TAG, Arc::new(object))
        .ok_or_else(|| failure!(DTL_ERROR_LIMIT, "no {} handle is left; destroy some", T::NOUN))
}

/// Returns true if the handle `id` names a live object of the kind `T`.
pub fn is_live<T: ObjectKind>(id: u64) -> bool {
    T::table().is_live(id)
}

/// Returns the object with the handle `id`, borrowed for the duration of a call.
#[inline]
pub fn find<T: ObjectKind>(inside: &Guard, id: u64) -> Result<&T> {
    T::table().get(inside, id).ok_or_else(|| invalid_handle(T::NOUN, T::TAG, id))
}

/// Returns a reference to the object with the handle `id`; the reference may outlive the epoch
/// guard.
pub fn pin<T: ObjectKind>(inside: &Guard, id: u64) -> Result<Arc<T>> {
    T::table().pin(inside, id).ok_or_else(|| invalid_handle(T::NOUN, T::TAG, id))
}

/// Returns the object with the handle `id`, protected by a hazard pointer, for a call that may
/// block.
pub fn hold<T: ObjectKind>(inside: Guard, id: u64) -> Result<HazardRef<T>> {
    T::table().hold(inside, id).map_err(|_| invalid_handle(T::NOUN, T::TAG, id))
}

/// Invalidates the handle `id` and returns its object; `None` for a null handle.
pub fn remove<T: ObjectKind>(inside: &Guard, id: u64) -> Result<Option<Arc<T>>> {
    if id == 0 {
        return Ok(None);
    }
    T::table().remove(inside, id).map(Some).ok_or_else(|| invalid_handle(T::NOUN, T::TAG, id))
}

/// Returns the backend with the handle `backend`, for a caller that creates an object on it.
/// Initializes the backend if necessary.
pub fn backend_of(inside: &Guard, backend: dtl_backend_t) -> Result<Arc<Backend>> {
    let backend = device::pin_backend(inside, backend)?;
    backend.ready()?;
    Ok(backend)
}

/// Fails unless the backend has the device. A backend without a device component has only device 0.
pub fn check_device(backend: &Backend, device: i32) -> Result<()> {
    if backend.device.is_some() {
        return device::check(backend, device);
    }
    if device == 0 {
        return Ok(());
    }
    fail!(DTL_ERROR_OUT_OF_BOUNDS, "device {device}: backend {} has only device 0", backend.name())
}

/// Returns the handle of the default stream of a device; creates the stream at its first use.
pub fn default_stream(inside: &Guard, backend: &Arc<Backend>, device: i32) -> Result<u64> {
    let key = backend.handle().id;
    if let Some(stream) = default_in(&DEFAULTS.read(), inside, key, device) {
        return Ok(stream);
    }
    check_device(backend, device)?;
    // calls the backend, so no lock may be held
    let made = Stream::create(backend.clone(), device, 0)?;
    let mut defaults = DEFAULTS.write();
    if let Some(stream) = default_in(&defaults, inside, key, device) {
        return Ok(stream); // another thread was faster: the new stream is dropped
    }
    let stream = insert(made)?;
    defaults.push(DefaultStream { backend: key, device, stream });
    Ok(stream)
}

fn default_in(defaults: &[DefaultStream], inside: &Guard, key: u64, device: i32) -> Option<u64> {
    let found = defaults.iter().find(|known| known.backend == key && known.device == device)?;
    STREAMS.get(inside, found.stream).map(|_| found.stream)
}

/// Returns the id of the stream that a handle passed by the program denotes. A null handle denotes
/// the default stream of the calling thread's current device.
#[inline]
pub fn stream_id(stream: dtl_stream_t) -> Result<u64> {
    if stream.id != 0 { Ok(stream.id) } else { current_default() }
}

/// Returns the id of the default stream of the calling thread's current device. Enters the epoch
/// itself: a caller that passed its guard would have to keep it in memory.
#[cold]
pub fn current_default() -> Result<u64> {
    let inside = &epoch::enter();
    let backend = backend_of(inside, dtl_backend_t { id: 0 })?;
    let device = device::get_or_first(&backend)?;
    default_stream(inside, &backend, device)
}

/// Removes the stream `id` and returns it. Default streams are not removed; returns `None` for
/// them.
pub fn remove_stream(inside: &Guard, id: u64) -> Result<Option<Arc<Stream>>> {
    if DEFAULTS.read().iter().any(|known| known.stream == id) {
        return Ok(None);
    }
    remove(inside, id)
}

/// Returns references to all streams of a device, for a caller that waits for all of them.
pub fn streams_of(inside: &Guard, backend: &Backend, device: i32) -> Vec<Arc<Stream>> {
    let ours = |stream: &Arc<Stream>| {
        stream.device() == device && std::ptr::addr_eq(Arc::as_ptr(stream.backend()), backend)
    };
    STREAMS.handles().into_iter().filter_map(|id| STREAMS.pin(inside, id)).filter(ours).collect()
}

/// Returns the number of references to a backend that its default streams hold. These references do
/// not keep the backend from being unregistered.
pub fn default_shares(inside: &Guard, backend: &Backend) -> usize {
    let key = backend.handle().id;
    let defaults = DEFAULTS.read();
    let ours = defaults.iter().filter(|known| known.backend == key);
    ours.filter_map(|known| STREAMS.get(inside, known.stream)).map(Stream::home_shares).sum()
}

/// Destroys the default streams of a backend that is about to be unregistered. The library owns
/// these streams, so they must not keep the backend in use.
pub fn drop_defaults(inside: &Guard, backend: &Backend) {
    let key = backend.handle().id;
    let mut dropped = Vec::new();
    DEFAULTS.write().retain(|known| {
        if known.backend == key {
            dropped.push(known.stream);
        }
        known.backend != key
    });
    for id in dropped {
        if let Some(stream) = STREAMS.remove(inside, id) {
            stream.close();
        }
    }
}

/// Finishes all work and ends all threads at finalize. Executors and streams are closed first,
/// because both complete events. The thread pool of kernel launches is closed after the streams
/// that use it.
pub fn destroy_all() {
    let inside = epoch::enter();
    EXECUTORS.drain(&inside).for_each(|executor| executor.close());
    DEFAULTS.write().clear();
    STREAMS.drain(&inside).for_each(|stream| stream.close());
    thread_pool::close_machine();
    EVENTS.drain(&inside).for_each(|event| event.cancel_waiters());
    KERNELS.drain(&inside).for_each(drop);
    MODULES.drain(&inside).for_each(drop);
}

/// Removes the handles of all streams, events, executors, kernels and modules in a forked child.
/// Does not drop the objects, because the threads that they use do not exist in the child.
pub fn forget_all() {
    let inside = epoch::enter();
    std::mem::take(&mut *DEFAULTS.write());
    EXECUTORS.drain(&inside).for_each(std::mem::forget);
    STREAMS.drain(&inside).for_each(std::mem::forget);
    EVENTS.drain(&inside).for_each(std::mem::forget);
    KERNELS.drain(&inside).for_each(std::mem::forget);
    MODULES.drain(&inside).for_each(std::mem::forget);
    thread_pool::forget_machine();
}
