//! Common code of the backends that use a vendor's driver, `cuda` and `opencl`. A backend
//! implements [`Driver`], [`Queue`] and [`Event`], and has its own code for memory and copies.
//!
//! In reading order:
//! - `blocks`: table of allocations
//! - `stream_callbacks`: record of the failures of queued work, and execution of host callbacks
//! - `stream`: a driver queue that also reports failures of queued work and runs host callbacks
//! - `exec`: handles of streams and events
//! - `device`: current device of a thread
//! - `modules`: handles of modules and kernels

mod blocks;
mod device;
mod exec;
mod modules;
mod stream;
pub mod stream_callbacks;

pub use blocks::{Block, Blocks};
pub use exec::stream_of;
pub use stream::{Command, EventRecord, Stream};

use crate::abi::devices::device::dtl_device_info_t;
use crate::backend::vendor_lib::OnDemand;
use crate::error::{Error, Result, failure};
use crate::runtime::component::{
    BackendProbe, KernelQuery, Memory, ModuleLaunch, Source, Token, Transfer,
};
use crate::runtime::registry::Backend;
use crate::sys::memory::buf::Addr;
use std::cell::Cell;
use std::ffi::CStr;
use std::fmt::Arguments;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::LocalKey;
use stream_callbacks::Hold;

/// Thread-local pair: the number of a backend (`DeviceBackend::generation`), and the device that
/// the thread selected in that backend.
pub type CurrentDevice = LocalKey<Cell<(u64, i32)>>;

/// Vendor driver and its list of devices.
pub trait Driver: Devices + Send + Sync + Sized + 'static {
    /// Name of the backend.
    const NAME: &'static CStr;
    /// Priority of the backend in automatic selection.
    const PRIORITY: i32;
    /// Name of the threads that run host callbacks.
    const CALLBACK_THREAD: &'static str;
    /// Alignment of every allocation, in bytes.
    const ALIGNMENT: u64;
    /// Thread-local pair of the device that the thread selected and the `generation` of the backend
    /// at that time.
    const CHOSEN: &'static CurrentDevice;
    /// Entry of the driver's device list.
    type Card;
    /// Native stream of the driver.
    type Queue: Queue;
    /// Origin of an allocation: determines how the allocation is freed.
    type Origin: Copy + Send + Sync;
    /// Module of kernels.
    type Module: Module<Self>;

    /// Loads the driver and lists its devices. On failure, returns the reason as a string.
    fn find() -> Result<Self, String>;
    /// Returns the list of devices.
    fn cards(&self) -> &[Self::Card];
    /// Returns the least and the greatest priority of streams on `device`.
    fn priorities(&self, _device: i32) -> Result<(i32, i32)> {
        Ok((0, 0))
    }
    /// Creates a stream on `device` with a priority from that range.
    fn create_stream(self: &Arc<Self>, device: i32, priority: i32) -> Result<Arc<Stream<Self>>>;
    /// Wraps `native`, a stream of `device` that the application created.
    fn wrap_stream(self: &Arc<Self>, device: i32, native: Addr) -> Result<Arc<Stream<Self>>>;

    /// Returns the entry with index `device` in the device list, or DTL_ERROR_OUT_OF_BOUNDS if
    /// there is no such device.
    fn card(&self, device: i32) -> Result<&Self::Card> {
        let cards = self.cards();
        usize::try_from(device).ok().and_then(|index| cards.get(index)).ok_or_else(|| {
            failure!(DTL_ERROR_OUT_OF_BOUNDS, "device {device}: there are {}", cards.len())
        })
    }
}

/// Properties of a driver's devices.
pub trait Devices {
    /// Returns the device that a thread uses if it has not selected one.
    fn default_device(&self) -> i32;
    /// Writes the properties of `device` to `out`.
    fn describe(&self, device: i32, out: &mut dtl_device_info_t) -> Result<()>;
    /// Returns the free and the total memory of a device, in bytes; 0 means unknown.
    fn memory_info(&self, device: i32) -> Result<(u64, u64)>;
    /// Waits for work that `device` executes outside the runtime's streams.
    fn synchronize(&self, device: i32) -> Result<()>;
    /// Returns the DLPack device type and device number of `device`.
    fn dlpack(&self, device: i32) -> Result<(i32, i32)>;
}

/// Module of kernels for one device.
pub trait Module<D: Driver>: Sized {
    /// Kernel of the module.
    type Kernel: Kernel<D>;

    /// Compiles or loads a module. The compiler's messages are appended to `log`.
    fn compile(driver: &Arc<D>, device: i32, source: &Source, log: &mut String) -> Result<Self>;
    /// Unloads the module.
    fn unload(self) -> Result<()>;
    /// Returns the kernel that `wanted` describes, and its argument sizes in bytes; `None` if the
    /// sizes are unknown.
    fn kernel(&self, wanted: KernelQuery<'_>) -> Result<(Self::Kernel, Option<Vec<u64>>)>;
}

/// Kernel of a module.
pub trait Kernel<D: Driver> {
    /// Queues a launch of the kernel on `stream`.
    fn launch(&self, stream: &Stream<D>, launch: &ModuleLaunch<'_>) -> Result<()>;
}

/// In-order queue of commands: a native stream of the driver.
pub trait Queue: Send + Sync + Sized + 'static {
    /// Native event of the driver.
    type Event: Event;

    /// Returns the native handle of the queue.
    fn native(&self) -> Addr;
    /// Returns true if the application created the queue.
    fn is_wrapped(&self) -> bool;
    /// Records a new event after all commands queued so far, with a timestamp if `is_timed`.
    fn record(&self, is_timed: bool) -> Result<Self::Event>;
    /// Records `event` again, after all commands queued so far. Returns false and leaves `event`
    /// unchanged if the driver cannot record it again.
    fn record_again(&self, event: &Self::Event) -> Result<bool>;
    /// Returns true if commands on this queue can wait for events recorded on the queue `other`.
    fn can_wait_for(&self, other: &Self) -> bool;
    /// Makes commands queued later wait for `event`. Returns the event of the wait command, or
    /// `None` if the driver does not create an event for this command.
    fn wait_event(&self, event: &Self::Event) -> Result<Option<Self::Event>>;
    /// Submits the queued commands to the device.
    fn flush(&self) -> Result<()>;
    /// Performs the part of `hold` that may wait for the device. Returns false if the driver cannot
    /// block a queue.
    fn prepare_hold(&self) -> Result<bool>;
    /// Blocks commands queued later until the returned `Hold` is released. Returns `None` if the
    /// device cannot block a queue.
    fn hold(&self) -> Result<Option<Box<dyn Hold>>>;
    /// Waits until all queued commands have completed.
    fn synchronize(&self) -> Result<()>;
    /// Returns true if all queued commands have ended. `last` is the number of the command that was
    /// queued last; `ended` is the number up to which commands are known to have ended.
    fn is_idle(&self, last: u64, ended: u64) -> Result<bool>;
}

/// Native event. It completes when the command that it tracks, or all work before it, has ended.
pub trait Event: Send + Sync + Sized + 'static {
    /// Returns true if the event has completed. Returns an error if the device has faulted.
    fn is_reached(&self) -> Result<bool>;
    /// Waits until the event has completed. Returns an error if the device has faulted.
    fn wait(&self) -> Result<()>;
    /// Returns the error that the driver reports for the command that the event tracks; `None` if
    /// the driver does not report an error. The command must have ended. `what` names the command
    /// in the error message.
    fn failure(&self, what: Arguments<'_>) -> Option<Error>;
    /// Returns the time from this event to `stop` in nanoseconds, or `None` if one of the two
    /// events has not completed yet.
    fn nanoseconds_to(&self, stop: &Self) -> Result<Option<i64>>;
}

/// State that all components of a driver backend share.
pub struct DeviceBackend<D: Driver> {
    /// Driver, loaded at its first use.
    pub driver: OnDemand<D>,
    /// Live allocations of the backend, keyed by address.
    pub blocks: Blocks<D::Origin>,
    /// Unique number of this object. Each initialization of the library creates a new object.
    generation: u64,
}

/// Number of objects of type [`DeviceBackend`] created so far.
static GENERATIONS: AtomicU64 = AtomicU64::new(0);

impl<D: Driver> Default for DeviceBackend<D> {
    fn default() -> Self {
        let generation = GENERATIONS.fetch_add(1, Ordering::Relaxed) + 1;
        DeviceBackend { driver: OnDemand::new(D::find), blocks: Blocks::default(), generation }
    }
}

impl<D: Driver> DeviceBackend<D> {
    /// Returns the device that the calling thread selected, else the driver's default device.
    pub fn current(&self, driver: &D) -> i32 {
        let (generation, device) = D::CHOSEN.get();
        if generation == self.generation { device } else { driver.default_device() }
    }

    /// Removes the allocation at `addr` from the table and returns it for the caller to free.
    /// Returns DTL_ERROR_INTERNAL if the table has no allocation at `addr`.
    pub fn remove_block(&self, addr: Addr) -> Result<Block<D::Origin>> {
        self.blocks.remove(addr).ok_or_else(|| {
            failure!(
                DTL_ERROR_INTERNAL,
                "{addr:?} is no allocation of backend {}",
                D::NAME.to_string_lossy()
            )
        })
    }
}

/// Returns the number of bytes to request from the driver for an allocation of `size` bytes. If
/// `align` exceeds the driver's alignment, `align` extra bytes are requested to align the result.
pub fn room_for<D: Driver>(size: u64, align: u64) -> usize {
    (if align > D::ALIGNMENT { size.saturating_add(align) } else { size }) as usize
}

/// Creates the `Backend` of driver `D`. Its components (such as memory and transfer) share the
/// state `shared`.
pub fn backend<D: Driver>(shared: Arc<DeviceBackend<D>>) -> Backend
where
    Arc<DeviceBackend<D>>: BackendProbe + Memory + Transfer,
{
    let mut backend = Backend::new(D::NAME, D::PRIORITY, true, Box::new(Arc::clone(&shared)));
    backend.device = Some(Box::new(Arc::clone(&shared)));
    backend.memory = Some(Box::new(Arc::clone(&shared)));
    backend.transfer = Some(Box::new(Arc::clone(&shared)));
    backend.modules = Some(Box::new(Arc::clone(&shared)));
    backend.exec = Some(Box::new(shared));
    backend
}

/// Moves `object` to the heap and returns its address as a token.
fn token<T>(object: T) -> Token {
    Addr::new(Box::into_raw(Box::new(object)).cast())
}
