//! Backend components. A backend has up to six components, each with a trait of its own. Built-in
//! backends implement the traits in Rust, and registered backends implement them through
//! `backend::vtable_backend`.
//!
//! A method that returns `Option`, alone or within a `Result`, is optional: `None` means that the
//! backend does not implement it.
//! The caller (always in `runtime`) then uses a generic implementation or returns NOT_SUPPORTED.
//!
//! In reading order:
//! - `device_comm`: collectives on device memory, executed by a collective library
//! - `memory`: allocation and copies
//! - `module`: compilation of kernels
//! - `message`: message matching and completion
//! - `open_args`: arguments for opening a transport
//! - `transport`: point-to-point messages
//! - `groups`: optional groups of a transport's methods
//! - `collective`: native collectives of a transport
//! - `window`: native one-sided operations of a transport
//! - `direct`: messages from and to device memory without staging, registration of memory
//! - `shared_memory`: mailboxes and memory regions that ranks share
//! - `mem_export`: export and import of memory between processes
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
pub use self::open_args::{BOOTSTRAP_NS, Exchange, OpenArgs, Watch, all_or_none, failed_elsewhere};
pub use self::pipelined_source::PipelinedSource;
pub use self::shared_memory::{
    CollMailbox, Member, PART_WORDS, PartKey, Post, SharedMemory, SharedOffer, SharedRegion,
    part_is_gone,
};
pub use crate::runtime::memory_place::MemoryPlace;
pub use collective::{BlockingCollectives, NativeCollectives, ReductionId, Reductions, Refusal};
pub use device_comm::{BootstrapId, DeviceComm, DeviceComms};
pub use direct::{
    DataLocation, DeviceBuffer, DeviceMemory, Direct, Hold, HostShadow, MemoryExport, Registration,
};
pub use groups::{
    Diagnostics, ForeignTest, Groups, Liveness, PersistentOps, Pipeline, RecvReduce, ThreadCheck,
    Wakeup,
};
pub use memory::{CopySide, DriverAllocation, Memory, Rows, StagingBuffer, Transfer};
pub use message::{
    Completion, Dest, Matched, OpId, RecvMode, RecvReduction, Selector, SendMode, poll_of,
    recv_info,
};
pub use module::{
    Compiled, FoundKernel, KERNEL_HEADER, KERNEL_HEADER_NAME, KernelFn, KernelQuery, ModuleLaunch,
    Modules, Source, SourceFile,
};
pub use transport::{Grow, PendingRanks, Properties, Transport};
pub use window::{
    Change, CopyOutcome, CrossMemory, FlushScope, Remote, Rma, RmaOp, Swap, TargetRange, Window,
    WindowPart,
};

/// Availability of a backend on this machine: `Ok`, or the reason why the backend cannot run.
pub type Availability = Result<(), String>;

/// Methods of a backend that do not belong to any of its components.
pub trait BackendProbe: Send + Sync {
    /// Returns `Ok` if the backend can run on this machine, otherwise `Err` with the reason. The
    /// call must also work on a machine without the backend's hardware.
    fn available(&self) -> Availability {
        Ok(())
    }
    /// Returns the availability of the backend on this machine. Fails if the backend returns an
    /// invalid value.
    fn query_available(&self) -> Result<Availability> {
        Ok(self.available())
    }
    /// Returns the reason why the automatic backend selection skips this backend although it might
    /// be able to run on this machine; `None` if the selection considers the backend.
    fn passed_over_reason(&self) -> Option<String> {
        None
    }
    /// Returns true if the program has initialized the backend's driver. Called often; must neither
    /// load nor initialize anything.
    fn is_in_use(&self) -> bool {
        false
    }
    /// Returns true if the backend supports `_feature`, a feature other than a component. Returns
    /// `None` if the backend does not recognize the feature.
    fn supports(&self, _feature: &str) -> Option<Result<bool>> {
        None
    }
}

/// Device component of a backend.
pub trait Device: Send + Sync {
    /// Returns the number of devices.
    fn count(&self) -> Result<i32> {
        Ok(1)
    }
    /// Makes `device` the calling thread's current device.
    fn set(&self, _device: i32) -> Result<()> {
        Ok(())
    }
    /// Returns the calling thread's current device. Called only on a thread that has never called
    /// `set`.
    fn get(&self) -> Result<i32> {
        Ok(0)
    }
    /// Fills in the known properties of `device`.
    fn info(&self, _device: i32, _out: &mut dtl_device_info_t) -> Result<()> {
        Ok(())
    }
    /// Returns the free and the total memory of the device in bytes, where 0 means unknown; `None`
    /// if the backend does not provide this function.
    fn memory_info(&self, _device: i32) -> Result<Option<(u64, u64)>> {
        Ok(None)
    }
    /// Waits until all work on the device is complete.
    fn synchronize(&self, _device: i32) -> Result<()> {
        Ok(())
    }
    /// Returns the DLPack device type and device id of the device; `None` if the backend does not
    /// provide this function.
    fn dlpack(&self, _device: i32) -> Result<Option<(i32, i32)>> {
        Ok(None)
    }
}

/// Backend-private pointer for a stream, event, module or kernel, opaque to all other code.
pub type Token = Addr;

/// C function of a task, and the user pointer that is passed to it.
pub type TaskCall = (dtl_task_fn_t, Addr);
/// C function of a loop body, and the user pointer that is passed to it.
pub type RangeCall = (dtl_range_fn_t, Addr);

/// Groups of methods that the exec component of a backend provides. The library uses generic
/// implementations in place of the groups that the component does not provide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExecGroups {
    /// True if the backend has native streams.
    pub streams: bool,
    /// True if the backend has native events (requires `streams`).
    pub events: bool,
}

/// Exec component of a backend: streams, events, launches. A method that belongs to a group is
/// called only if [`Exec::groups`] reports the group.
pub trait Exec: Send + Sync {
    /// Returns the groups of methods that the component provides.
    fn groups(&self) -> ExecGroups;

    /// Returns the least and the greatest priority of streams on `device`; lower numbers are higher
    /// priorities. Called only if the backend has [`ExecGroups::streams`].
    fn stream_priorities(&self, _device: i32) -> Result<(i32, i32)> {
        Ok((0, 0))
    }
    /// Creates a stream on `device`, with a priority from the range of the device. Called only if
    /// the backend has [`ExecGroups::streams`].
    fn stream_create(&self, device: i32, flags: u64, priority: i32) -> Result<Token>;
    /// Wraps a native stream that the program created and still owns. Called only if the backend
    /// has [`ExecGroups::streams`].
    fn stream_wrap(&self, _device: i32, native: Addr) -> Result<Token> {
        Ok(native)
    }
    /// Returns the stream's handle in the vendor's own interface, for example a cudaStream_t.
    /// Called only if the backend has [`ExecGroups::streams`].
    fn stream_native(&self, stream: Token) -> Addr {
        stream
    }
    /// Destroys a stream. Called only if the backend has [`ExecGroups::streams`].
    fn stream_destroy(&self, stream: Token) -> Result<()>;
    /// Releases a wrapped stream in two steps. With `is_native_valid`, the handle has been
    /// destroyed: this is the last use of the native stream. Without it, the last call that uses
    /// the stream has returned. Called only if the backend has [`ExecGroups::streams`].
    fn stream_unwrap(&self, _stream: Token, _is_native_valid: bool) {}
    /// Waits until all work in the stream is complete. Called only if the backend has
    /// [`ExecGroups::streams`].
    fn stream_synchronize(&self, stream: Token) -> Result<()>;
    /// Returns true if all work in the stream is complete.
    fn stream_query(&self, _stream: Token) -> Result<Option<bool>> {
        Ok(None)
    }
    /// Makes all work that is queued on the stream after this call wait for the event.
    fn stream_wait_event(&self, _stream: Token, _event: Token) -> Result<Option<()>> {
        Ok(None)
    }
    /// Queues a host callback on the stream: a host thread calls `_task`.
    fn stream_host_callback(&self, _stream: Token, _task: TaskCall) -> Result<Option<()>> {
        Ok(None)
    }

    /// Creates an event. Called only if the backend has [`ExecGroups::events`].
    fn event_create(&self, flags: u64) -> Result<Token>;
    /// Destroys an event. Called only if the backend has [`ExecGroups::events`].
    fn event_destroy(&self, event: Token) -> Result<()>;
    /// Records the event after all work that is queued on the stream. Called only if the backend
    /// has [`ExecGroups::events`].
    fn event_record(&self, event: Token, stream: Token) -> Result<()>;
    /// Returns true if all work that was queued before the event was recorded is complete. Called
    /// only if the backend has [`ExecGroups::events`].
    fn event_query(&self, event: Token) -> Result<bool>;
    /// Waits until the event is complete.
    fn event_sync(&self, _event: Token) -> Result<Option<()>> {
        Ok(None)
    }
    /// Returns the time between two completed events in nanoseconds.
    fn event_elapsed(&self, _start: Token, _stop: Token) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Queues a kernel (passed as a function pointer) on the stream.
    fn launch(&self, _stream: Token, _launch: &Launch<'_>) -> Result<Option<()>> {
        Ok(None)
    }

    /// Returns the interface through which the backend runs functions and loops on the host; `None`
    /// if the library's thread pool runs them.
    fn host(&self) -> Option<&dyn HostExec>;
}

/// Host execution of functions and loops on the backend's own threads.
pub trait HostExec: Send + Sync {
    /// Runs `task` and returns after `task` has returned.
    fn execute(&self, task: TaskCall) -> Result<()>;
    /// Runs a loop in chunks of at most `grain` iterations and returns after all chunks have run.
    fn parallel_for(&self, range: (u64, u64), grain: u64, body: RangeCall) -> Result<()>;
    /// Returns the maximum number of iterations that can run concurrently.
    fn max_parallelism(&self) -> Result<u32>;
    /// Returns the number of chunks into which a loop is best split; `None` means
    /// [`HostExec::max_parallelism`] chunks.
    fn suggested_parallelism(&self) -> Result<Option<u32>>;
}

/// Kernel launch that is passed to a backend with its own kernel queues.
pub struct Launch<'a> {
    /// Grid and block dimensions.
    pub shape: &'a dtl_launch_t,
    /// Kernel function.
    pub function: dtl_kernel_fn_t,
    /// User pointer of the kernel function.
    pub user: Addr,
    /// Address of each kernel argument.
    pub args: &'a [Addr],
    /// Size of each kernel argument in bytes.
    pub sizes: &'a [u64],
}

/// Communication component of a backend: opens transports.
pub trait Comm: Send + Sync {
    /// Returns the flags of `dtl_comm_desc_t` that the component supports.
    fn flags(&self) -> u64 {
        DTL_COMM_DETERMINISTIC
    }
    /// Returns the name of the field of `dtl_comm_desc_t` with settings of this component alone.
    fn settings_field(&self) -> Option<&'static str> {
        None
    }
    /// Opens a transport. Collective over the ranks.
    fn open(&self, args: &OpenArgs) -> Result<Box<dyn Transport>>;
    /// Returns true if `open` must be called even on a machine on which the backend cannot run. The
    /// call then fails and notifies the other ranks, which would otherwise wait for this rank.
    fn open_notifies_peers(&self) -> bool {
        false
    }
    /// Checks the settings of the environment variables, as far as possible without opening a
    /// transport. Fails if `open` would fail with these settings.
    fn check_environment(&self) -> Result<()> {
        Ok(())
    }
    /// Returns true if any processes can open a communicator by a job name, a rank and a size
    /// (`OpenArgs`), whenever and however they were started.
    fn opens_by_job(&self) -> bool {
        false
    }
    /// Returns true if the ranks can bootstrap over an existing communicator (`OpenArgs::over`).
    fn bootstraps_over(&self) -> bool {
        false
    }
    /// Returns the factory for device communicators, if the component supports only collectives on
    /// device memory. `open` then fails: these communicators are opened over a communicator of
    /// another backend.
    fn device_comms(&self) -> Option<&dyn DeviceComms> {
        None
    }
    /// Opens one transport for each rank of a communicator, all within this process, and returns
    /// them in rank order. Operations on these transports do not need progress between calls.
    fn open_ranks(&self, _size: i32) -> Option<Result<Vec<Box<dyn Transport>>>> {
        None
    }
}
