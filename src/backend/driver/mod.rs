//! Common code of the backends over a vendor's driver, `cuda` and `opencl`. A backend implements
//! [`Driver`], [`Queue`] and [`Event`], and its own memory and copies.
//!
//! In reading order:
//! - `try_once`: a value created at its first use
//! - `blocks`: table of allocations
//! - `stream_callbacks`: failures of queued work, host callbacks
//! - `stream`: a driver queue with failures and callbacks
//! - `exec`: handles of streams and events
//! - `device`: current device of a thread
//! - `modules`: handles of modules and kernels

mod blocks;
mod device;
mod exec;
mod modules;
mod stream;
pub mod stream_callbacks;
mod try_once;

pub use blocks::{Block, Blocks};
pub use exec::stream_of;
pub use stream::{Command, EventRecord, Stream};
pub use try_once::TryOnce;

use crate::abi::devices::device::dtl_device_info_t;
use crate::backend::vendor_lib::OnDemand;
use crate::error::{Error, Result, fail};
use crate::runtime::component::{
    Availability, BackendProbe, KernelQuery, Memory, ModuleLaunch, Source, Token, Transfer,
};
use crate::runtime::registry::Backend;
use crate::sys::memory::buf::Addr;
use std::cell::Cell;
use std::ffi::CStr;
use std::fmt::Arguments;
use std::sync::Arc;
use std::thread::LocalKey;
use stream_callbacks::Hold;

/// Current device of a thread, with the generation of the driver for which it was set.
pub type CurrentDevice = LocalKey<Cell<(u64, i32)>>;

/// Driver of a vendor, with its devices.
pub trait Driver: Devices + Send + Sync + Sized + 'static {
    /// Name of the backend.
    const NAME: &'static CStr;
    /// Priority of the backend in automatic selection.
    const PRIORITY: i32;
    /// Name of the threads that run host callbacks.
    const CALLBACK_THREAD: &'static str;
    /// Alignment of every allocation, in bytes.
    const ALIGNMENT: u64;
    /// Thread-local current device, for threads that have set a device.
    const CHOSEN: &'static CurrentDevice;
    /// Device in the driver's list.
    type Card;
    /// Native stream of the driver.
    type Queue: Queue;
    /// Origin of an allocation: determines how the allocation is freed.
    type Origin: Copy + Send + Sync;
    /// Module of kernels.
    type Module: Module<Self>;

    /// Loads the driver and lists its devices. On failure, returns the reason as text.
    fn find() -> std::result::Result<Self, String>;
    /// Returns the number of this initialization of the driver in the process.
    fn generation(&self) -> u64;
    /// Returns the list of devices.
    fn cards(&self) -> &[Self::Card];
    /// Creates a stream on `device`.
    fn create_stream(self: &Arc<Self>, device: i32) -> Result<Arc<Stream<Self>>>;
    /// Wraps a native stream of the program on `device`.
    fn wrap_stream(self: &Arc<Self>, device: i32, native: Addr) -> Result<Arc<Stream<Self>>>;

    /// Returns the device with index `device` in the list.
    fn card(&self, device: i32) -> Result<&Self::Card> {
        let cards = self.cards();
        match usize::try_from(device).ok().and_then(|index| cards.get(index)) {
            Some(card) => Ok(card),
            None => {
                fail!(DTL_ERROR_OUT_OF_BOUNDS, "device {device}: there are {}", cards.len())
            }
        }
    }
}

/// Properties of a driver's devices.
pub trait Devices {
    /// Returns the current device of a thread that has set none.
    fn default_device(&self) -> i32;
    /// Writes the properties of `device` to `out`.
    fn describe(&self, device: i32, out: &mut dtl_device_info_t) -> Result<()>;
    /// Returns the free and the total memory of a device, in bytes; 0 means unknown.
    fn memory_info(&self, device: i32) -> Result<(u64, u64)>;
    /// Waits for the work of a device that is not in streams of the runtime.
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
    /// Finds a kernel. Returns the kernel and, if known, the sizes of its arguments in bytes.
    fn kernel(&self, wanted: KernelQuery<'_>) -> Result<(Self::Kernel, Option<Vec<u64>>)>;
}

/// Kernel of a module.
pub trait Kernel<D: Driver> {
    /// Queues the kernel on `stream`.
    fn launch(&self, stream: &Stream<D>, launch: &ModuleLaunch<'_>) -> Result<()>;
}

/// In-order queue of commands: a native stream of the driver.
pub trait Queue: Send + Sync + Sized + 'static {
    /// Native event of the driver.
    type Event: Event;

    /// Returns the native handle of the queue.
    fn native(&self) -> Addr;
    /// Returns true if the program owns the queue.
    fn is_wrapped(&self) -> bool;
    /// Creates an event at the current end of the queue.
    fn record(&self, is_timed: bool) -> Result<Self::Event>;
    /// Records `event` again, at the current end of the queue. Returns false, and leaves the event
    /// unchanged, if the driver cannot do that with this event.
    fn record_again(&self, event: &Self::Event) -> Result<bool>;
    /// Returns true if commands of this queue can wait for events of the queue `other`.
    fn can_wait_for(&self, other: &Self) -> bool;
    /// Makes later commands wait for `event`. Returns the event of the wait command itself, if the
    /// driver creates one.
    fn wait_event(&self, event: &Self::Event) -> Result<Option<Self::Event>>;
    /// Submits the queued commands to the device.
    fn flush(&self) -> Result<()>;
    /// Performs the steps of `hold` that may wait for the device. Returns false if the driver
    /// cannot hold a queue.
    fn prepare_hold(&self) -> Result<bool>;
    /// Holds the queue at its current end until the returned hold is released. Returns `None` if
    /// the device cannot hold a queue.
    fn hold(&self) -> Result<Option<Box<dyn Hold>>>;
    /// Waits for all queued commands.
    fn synchronize(&self) -> Result<()>;
    /// Returns true if the queued commands have ended. `last` is the number of the latest command
    /// that the stream recorded; `ended` is that of the latest command whose end was observed.
    fn is_idle(&self, last: u64, ended: u64) -> Result<bool>;
}

/// Position in a queue.
pub trait Event: Send + Sync + Sized + 'static {
    /// Returns true if the commands before the event have ended. A device fault is returned as an
    /// error.
    fn is_reached(&self) -> Result<bool>;
    /// Waits until the commands before the event have ended.
    fn wait(&self) -> Result<()>;
    /// Returns the failure of the event's own command, which has ended. `what` names the command in
    /// the error text.
    fn failure(&self, what: Arguments<'_>) -> Option<Error>;
    /// Returns the nanoseconds from this event to the event `stop`; `None` if one of the two events
    /// has not been reached.
    fn nanoseconds_to(&self, stop: &Self) -> Result<Option<i64>>;
}

/// Backend over a driver: state that its components share.
pub struct DeviceBackend<D: Driver> {
    /// Driver, loaded at its first use.
    pub driver: OnDemand<D>,
    /// Live allocations of the backend, by address.
    pub blocks: Blocks<D::Origin>,
}

impl<D: Driver> Default for DeviceBackend<D> {
    fn default() -> Self {
        DeviceBackend { driver: OnDemand::new(D::find), blocks: Blocks::default() }
    }
}

impl<D: Driver> DeviceBackend<D> {
    /// Returns success if the driver is loaded or can be loaded, else the reason.
    pub fn availability(&self) -> Availability {
        self.driver.look().map(|_| ())
    }

    /// Returns the current device of the calling thread.
    pub fn current(&self, driver: &D) -> i32 {
        let (generation, device) = D::CHOSEN.get();
        if generation == driver.generation() { device } else { driver.default_device() }
    }

    /// Removes the allocation at `addr` from the table, for the caller to free it.
    pub fn remove_block(&self, addr: Addr) -> Result<Block<D::Origin>> {
        match self.blocks.remove(addr) {
            Some(block) => Ok(block),
            None => fail!(
                DTL_ERROR_INTERNAL,
                "{addr:?} is no allocation of backend {}",
                D::NAME.to_string_lossy()
            ),
        }
    }
}

/// Returns the bytes to request from the driver for an allocation of `size` bytes: if `align`
/// exceeds the driver's alignment, the request has `align` extra bytes for aligning the result.
#[must_use]
pub fn room_for<D: Driver>(size: u64, align: u64) -> usize {
    (if align > D::ALIGNMENT { size.saturating_add(align) } else { size }) as usize
}

/// Creates the backend of a driver.
#[must_use]
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
