//! Backends: a name and up to five components, each a trait that built-in backends implement in
//! Rust and registered ones through `backend::vtable_backend`.
//!
//! A method that returns `Option` is an optional slot: `None` means "not provided", and the caller
//! (always in `runtime`) uses its generic version or returns NOT_SUPPORTED.
//!
//! In reading order:
//! - `device_comm`: collectives of device memory by a library of their own
//! - `memory`: allocation and copies
//! - `module`: compilation of kernels
//! - `message`: matching and completion
//! - `open_args`: arguments of opening a transport
//! - `transport`: the transport: point-to-point messages
//! - `groups`: optional groups of a transport's methods
//! - `collective`: collectives of the transport's own
//! - `window`: one-sided operations of the transport's own
//! - `direct`: messages of device memory
//! - `shared_memory`: mailboxes and regions that ranks share
//! - `mem_export`: memory that crosses processes
//! - `pipelined_source`: a send whose bytes are still being written

use crate::abi::comm::communicator::DTL_COMM_DETERMINISTIC;
use crate::abi::devices::device::*;
use crate::abi::devices::exec::{dtl_kernel_fn_t, dtl_launch_t, dtl_range_fn_t};
use crate::abi::runtime::dtl_task_fn_t;
use crate::error::Result;
use crate::sys::memory::buf::Addr;

mod collective;
mod device_comm;
mod direct;
mod groups;
mod mem_export;
mod memory;
mod message;
mod module;
mod open_args;
mod pipelined_source;
mod shared_memory;
mod transport;
mod window;

pub use self::mem_export::{Exports, Extent, Ticket};
pub use self::open_args::{BOOTSTRAP_NS, Exchange, OpenArgs, all_or_none, failed_elsewhere};
pub use self::pipelined_source::PipelinedSource;
pub use self::shared_memory::{
    CollMailbox, Member, PART_WORDS, PartKey, Post, SharedMemory, SharedOffer, SharedRegion,
};
pub use collective::{NativeCollectives, ReductionId, Reductions};
pub use device_comm::{BootstrapId, DeviceComm, DeviceComms};
pub use direct::{DataLocation, DeviceMemory, Direct, Hold, HostShadow};
pub use groups::{
    Diagnostics, ForeignTest, Groups, Liveness, PersistentOps, Pipeline, ThreadCheck, Wakeup,
};
pub use memory::{CopySide, DriverAllocation, Memory, StagingBuffer, Transfer};
pub use message::{Completion, Matched, OpId, RecvMode, Selector, SendMode, poll_of, recv_info};
pub use module::{Compiled, KernelFn, KernelQuery, ModuleLaunch, Modules, Source, SourceFile};
pub use transport::{Properties, Transport};
pub use window::{
    CopyOutcome, CrossMemory, FlushScope, Remote, Rma, Swap, TargetRange, Window, WindowPart,
};

/// A backend's answer to "can you run here?": yes, or why not.
pub type Availability = std::result::Result<(), String>;

/// The component-independent part of a backend.
pub trait BackendProbe: Send + Sync {
    /// Returns whether it can run here. Must not fail on a machine without the hardware.
    fn available(&self) -> Availability {
        Ok(())
    }
    /// Returns whether it can run here. Fails if the backend's own answer is invalid.
    fn query_available(&self) -> Result<Availability> {
        Ok(self.available())
    }
    /// Why the automatic choice passes it over, although it might be able to run here.
    fn passed_over_reason(&self) -> Option<String> {
        None
    }
    /// Returns true if the program has initialised the backend's driver. Called often; must neither
    /// load nor initialise anything.
    fn is_in_use(&self) -> bool {
        false
    }
    /// Returns whether it has a feature beyond its components; `None` = unknown.
    fn supports(&self, _feature: &str) -> Option<Result<bool>> {
        None
    }
}

/// Devices.
pub trait Device: Send + Sync {
    /// Number of devices.
    fn count(&self) -> Result<i32>;
    /// Makes a device the calling thread's current one.
    fn set(&self, device: i32) -> Result<()>;
    /// Returns the calling thread's current device. Called only on a thread that never set one.
    fn get(&self) -> Result<i32>;
    /// Fills in what is known of a device.
    fn info(&self, _device: i32, _out: &mut dtl_device_info_t) -> Option<Result<()>> {
        None
    }
    /// Free and total bytes, 0 = unknown.
    fn memory_info(&self, _device: i32) -> Option<Result<(u64, u64)>> {
        None
    }
    /// Waits for all work on a device.
    fn synchronize(&self, _device: i32) -> Option<Result<()>> {
        None
    }
    /// DLPack's device type and id.
    fn dlpack(&self, _device: i32) -> Option<Result<(i32, i32)>> {
        None
    }
}

/// A backend's own pointer for a stream or event. Means nothing to anyone else.
pub type Token = Addr;

/// Which groups of slots an exec component provides; the library's own stand in for the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExecGroups {
    /// Streams of its own.
    pub streams: bool,
    /// Events of its own (only with streams).
    pub events: bool,
}

/// Streams, events, launches. Methods of a group are called only if [`Exec::groups`] reports the
/// group.
pub trait Exec: Send + Sync {
    /// The groups provided.
    fn groups(&self) -> ExecGroups;

    /// streams: creates one on a device.
    fn stream_create(&self, device: i32, flags: u64) -> Result<Token>;
    /// streams: takes in one that the program made and goes on owning, on a device.
    fn stream_wrap(&self, _device: i32, native: Addr) -> Result<Token> {
        Ok(native)
    }
    /// streams: what the backend's own interface calls it.
    fn stream_native(&self, stream: Token) -> Addr {
        stream
    }
    /// streams: destroys one.
    fn stream_destroy(&self, stream: Token) -> Result<()>;
    /// streams: one that the program owns is used no more; its work may still run.
    fn stream_unwrap(&self, _stream: Token) {}
    /// streams: waits for all work in it.
    fn stream_synchronize(&self, stream: Token) -> Result<()>;
    /// Returns true if all work is done.
    fn stream_query(&self, _stream: Token) -> Option<Result<bool>> {
        None
    }
    /// Later work waits for the event.
    fn stream_wait_event(&self, _stream: Token, _event: Token) -> Option<Result<()>> {
        None
    }
    /// Calls a function on a host thread in the stream's order.
    fn stream_host_callback(
        &self,
        _stream: Token,
        _task: dtl_task_fn_t,
        _user: Addr,
    ) -> Option<Result<()>> {
        None
    }

    /// events: creates one.
    fn event_create(&self, flags: u64) -> Result<Token>;
    /// events: destroys one.
    fn event_destroy(&self, event: Token) -> Result<()>;
    /// events: marks the stream's present end.
    fn event_record(&self, event: Token, stream: Token) -> Result<()>;
    /// events: whether the work before the record is done.
    fn event_query(&self, event: Token) -> Result<bool>;
    /// Waits for the event.
    fn event_sync(&self, _event: Token) -> Option<Result<()>> {
        None
    }
    /// Nanoseconds between two completed events.
    fn event_elapsed(&self, _start: Token, _stop: Token) -> Option<Result<u64>> {
        None
    }

    /// Queues a kernel made from a function.
    fn launch(&self, _stream: Token, _launch: &Launch<'_>) -> Option<Result<()>> {
        None
    }

    /// Host execution of its own. `None`: the library's own pool runs functions and loops.
    fn host(&self) -> Option<&dyn HostExec>;
}

/// Host execution: functions and loops on threads of the backend's own.
pub trait HostExec: Send + Sync {
    /// Runs a function and returns when it has run.
    fn execute(&self, task: dtl_task_fn_t, user: Addr) -> Result<()>;
    /// Runs a loop in pieces of at most `grain` and returns when all have run.
    fn parallel_for(
        &self,
        range: (u64, u64),
        grain: u64,
        body: dtl_range_fn_t,
        user: Addr,
    ) -> Result<()>;
    /// Most iterations that ever run at once.
    fn max_parallelism(&self) -> Result<u32>;
    /// Into how many pieces a loop is best cut. `None`: as many as run at once.
    fn suggested_parallelism(&self) -> Option<Result<u32>>;
}

/// A kernel launch as handed to a backend that queues kernels itself.
pub struct Launch<'a> {
    /// Grid and block.
    pub shape: &'a dtl_launch_t,
    /// The kernel.
    pub function: dtl_kernel_fn_t,
    /// Its user pointer.
    pub user: Addr,
    /// Address of each argument.
    pub args: &'a [Addr],
    /// Size of each argument in bytes.
    pub sizes: &'a [u64],
}

/// Communication: opens transports.
pub trait Comm: Send + Sync {
    /// The flags of `dtl_comm_desc_t` that it supports.
    fn flags(&self) -> u32 {
        DTL_COMM_DETERMINISTIC
    }
    /// Returns true if it reads `native`.
    fn takes_native(&self) -> bool {
        false
    }
    /// Opens one; collective over the ranks.
    fn open(&self, args: &OpenArgs) -> Result<Box<dyn Transport>>;
    /// Returns true if `open` must be called also where the backend cannot run. It then fails, and
    /// notifies the other ranks, which would otherwise wait for this one.
    fn open_notifies_peers(&self) -> bool {
        false
    }
    /// Fails if opening one as the environment variables request would fail, as far as can be
    /// checked without opening it.
    fn check_environment(&self) -> Result<()> {
        Ok(())
    }
    /// Returns true if its ranks can meet over another communicator: `OpenArgs::over`.
    fn bootstraps_over(&self) -> bool {
        false
    }
    /// Instead, for a kind that does no more than collectives of device memory, beside a
    /// communicator of another kind.
    fn device_comms(&self) -> Option<&dyn DeviceComms> {
        None
    }
    /// Opens all ranks of a communicator within this process, in the order of their ranks. Such
    /// transports need no progress between calls.
    fn open_ranks(&self, _size: i32) -> Option<Result<Vec<Box<dyn Transport>>>> {
        None
    }
}
