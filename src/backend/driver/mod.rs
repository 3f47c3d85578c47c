//! Backends over a vendor's driver: code that `cuda` and `opencl` share. A backend implements
//! [`Driver`], [`Queue`] and [`Event`], and its own memory and copies.
//!
//! In reading order:
//! - `try_once`: a value made at its first use
//! - `blocks`: list of allocations
//! - `stream_callbacks`: failures of queued work, host callbacks
//! - `stream`: a queue with both
//! - `exec`: handles of streams and events
//! - `device`: devices of a thread
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

/// Device that a thread chose, and the generation of the driver that it belongs to.
pub type CurrentDevice = LocalKey<Cell<(u64, i32)>>;

/// A vendor's driver with its devices.
pub trait Driver: Devices + Send + Sync + Sized + 'static {
    /// Name of the backend.
    const NAME: &'static CStr;
    /// Priority of the backend in automatic choices.
    const PRIORITY: i32;
    /// Name of the threads that run host callbacks.
    const CALLBACK_THREAD: &'static str;
    /// Alignment of every allocation.
    const ALIGNMENT: u64;
    /// Devices that threads chose.
    const CHOSEN: &'static CurrentDevice;
    /// A device in the list.
    type Card;
    /// The driver's own stream.
    type Queue: Queue;
    /// How an allocation was made, so that it can be freed.
    type Origin: Copy + Send + Sync;
    /// A module of kernels.
    type Module: Module<Self>;

    /// Loads the driver and lists its devices; the error text gives the reason for a failure.
    fn find() -> std::result::Result<Self, String>;
    /// Number of this initialisation of the driver in the process.
    fn generation(&self) -> u64;
    /// The devices.
    fn cards(&self) -> &[Self::Card];
    /// Creates a stream on a device.
    fn create_stream(self: &Arc<Self>, device: i32) -> Result<Arc<Stream<Self>>>;
    /// Wraps a native stream of the program.
    fn wrap_stream(self: &Arc<Self>, device: i32, native: Addr) -> Result<Arc<Stream<Self>>>;

    /// A device in the list, by its index.
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
    /// Current device of a thread that chose none.
    fn default_device(&self) -> i32;
    /// Fills in the properties of a device.
    fn describe(&self, device: i32, out: &mut dtl_device_info_t) -> Result<()>;
    /// Free and total bytes of a device; 0 = unknown.
    fn memory_info(&self, device: i32) -> Result<(u64, u64)>;
    /// Waits for the work of a device that is not in streams of the runtime.
    fn synchronize(&self, device: i32) -> Result<()>;
    /// DLPack's type and number of a device.
    fn dlpack(&self, device: i32) -> Result<(i32, i32)>;
}

/// A module of kernels for one device.
pub trait Module<D: Driver>: Sized {
    /// A kernel of the module.
    type Kernel: Kernel<D>;

    /// Compiles or loads a module; messages of the compiler are added to `log`.
    fn compile(driver: &Arc<D>, device: i32, source: &Source, log: &mut String) -> Result<Self>;
    /// Unloads the module.
    fn unload(self) -> Result<()>;
    /// Finds a kernel and the sizes of its arguments, if they are known.
    fn kernel(&self, wanted: KernelQuery<'_>) -> Result<(Self::Kernel, Option<Vec<u64>>)>;
}

/// A kernel of a module.
pub trait Kernel<D: Driver> {
    /// Queues the kernel.
    fn launch(&self, stream: &Stream<D>, launch: &ModuleLaunch<'_>) -> Result<()>;
}

/// An in-order queue of commands: the driver's own stream.
pub trait Queue: Send + Sync + Sized + 'static {
    /// The driver's own event.
    type Event: Event;

    /// The driver's handle of the queue.
    fn native(&self) -> Addr;
    /// Whether the program owns the queue.
    fn is_wrapped(&self) -> bool;
    /// Creates an event at the present end of the queue.
    fn record(&self, is_timed: bool) -> Result<Self::Event>;
    /// Moves an event to the present end of the queue. False if the driver cannot do that with this
    /// event, which is left as it was.
    fn record_again(&self, event: &Self::Event) -> Result<bool>;
    /// Whether commands of this queue can wait for events of the other one.
    fn can_wait_for(&self, other: &Self) -> bool;
    /// Lets later commands wait for an event. Returns the event of the wait itself, if it has one.
    fn wait_event(&self, event: &Self::Event) -> Result<Option<Self::Event>>;
    /// Submits the queued commands to the device.
    fn flush(&self) -> Result<()>;
    /// Prepares `hold`: the steps that may wait for the device. False if the driver has no way to
    /// hold a queue.
    fn prepare_hold(&self) -> Result<bool>;
    /// Stops the queue at its present end until the hold is released. `None` if the device has no
    /// way to do that.
    fn hold(&self) -> Result<Option<Box<dyn Hold>>>;
    /// Waits for the queued commands.
    fn synchronize(&self) -> Result<()>;
    /// Whether the queued commands have ended. `last` is the number of the latest command that the
    /// stream recorded; `ended` is that of the latest command whose end was observed.
    fn is_idle(&self, last: u64, ended: u64) -> Result<bool>;
}

/// A point in a queue.
pub trait Event: Send + Sync + Sized + 'static {
    /// Whether the commands before it have ended; a fault of the device is an error.
    fn is_reached(&self) -> Result<bool>;
    /// Waits until the commands before it have ended.
    fn wait(&self) -> Result<()>;
    /// Failure of the event's own command, which has ended; `what` is the command.
    fn failure(&self, what: Arguments<'_>) -> Option<Error>;
    /// Nanoseconds from this event to another one; `None` if one of them was not reached yet.
    fn nanoseconds_to(&self, stop: &Self) -> Result<Option<i64>>;
}

/// A backend over a driver: state that its components share.
pub struct DeviceBackend<D: Driver> {
    /// The driver, which is loaded at its first use.
    pub driver: OnDemand<D>,
    /// Live allocations.
    pub blocks: Blocks<D::Origin>,
}

impl<D: Driver> Default for DeviceBackend<D> {
    fn default() -> Self {
        DeviceBackend { driver: OnDemand::new(D::find), blocks: Blocks::default() }
    }
}

impl<D: Driver> DeviceBackend<D> {
    /// The driver, if it is loaded or can be.
    pub fn availability(&self) -> Availability {
        self.driver.look().map(|_| ())
    }

    /// The calling thread's current device.
    pub fn current(&self, driver: &D) -> i32 {
        let (generation, device) = D::CHOSEN.get();
        if generation == driver.generation() { device } else { driver.default_device() }
    }

    /// Takes an allocation out of the list to free it.
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

/// Bytes to allocate for an allocation of a size and an alignment: beyond the driver's alignment
/// there is room to align in.
#[must_use]
pub fn room_for<D: Driver>(size: u64, align: u64) -> usize {
    (if align > D::ALIGNMENT { size.saturating_add(align) } else { size }) as usize
}

/// Makes the backend of a driver.
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

/// Moves an object behind a token.
fn token<T>(object: T) -> Token {
    Addr::new(Box::into_raw(Box::new(object)).cast())
}
