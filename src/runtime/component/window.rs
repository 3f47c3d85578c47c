//! Native one-sided operations of a transport, executed by the network or by the communication
//! library that the transport uses (for example MPI). Used by `runtime::comm::rma`, which checks
//! bounds and access epochs and acquires locks with messages.

use super::OpId;
use crate::abi::word::{dtl_dtype_t, dtl_reduce_op_t};
use crate::error::Result;
use crate::sys::compute::elements::Update;
use crate::sys::memory::buf::Region;
use std::sync::Arc;

/// Native one-sided operations of a transport.
pub trait Rma: Send + Sync {
    /// Returns true if the transport can allocate the memory of a window, and false if it needs
    /// existing memory.
    fn allocates(&self) -> bool;
    /// Creates a window. Collective over all ranks.
    fn window(&self, part: WindowPart<'_>) -> Result<Box<dyn Window>>;
}

/// This rank's part of a window that is being created.
#[derive(Clone, Copy, Debug)]
pub struct WindowPart<'a> {
    /// Memory that stays valid until the window is closed. `None` on every rank if the transport
    /// allocates the memory, aligned to 64 bytes and initialized to 0.
    pub memory: Option<Region>,
    /// Size of each rank's part in bytes, in rank order.
    pub sizes: &'a [u64],
    /// Number of the window: equal on all ranks, and unique among the transport's open windows.
    pub number: u32,
}

/// Range of bytes within a target's part of the window.
#[derive(Clone, Copy, Debug)]
pub struct TargetRange {
    /// Target rank; may be the calling rank.
    pub target: i32,
    /// Offset in bytes from the start of the target's memory.
    pub offset: usize,
    /// Length in bytes.
    pub len: usize,
}

/// Buffers of a compare-and-swap, one element each.
#[derive(Clone, Copy)]
pub struct Swap {
    /// Value to store if the target element equals `expected`.
    pub value: Region,
    /// Value that the target element must have for the exchange to occur.
    pub expected: Region,
    /// Buffer for the previous value of the target element.
    pub result: Region,
    /// Datatype of the elements: an integer dtype, BYTE or BOOL.
    pub dtype: dtl_dtype_t,
}

/// Update of elements: a built-in dtype and a reduction operation that supports it.
#[derive(Clone, Copy)]
pub struct Change {
    /// Datatype of the elements.
    pub dtype: dtl_dtype_t,
    /// Reduction operation.
    pub op: dtl_reduce_op_t,
    /// Method that the CPU uses to apply `op` atomically to elements of `dtype`.
    pub update: &'static Update,
}

/// One-sided operation, with the caller's buffers.
#[derive(Clone, Copy)]
pub enum RmaOp {
    /// Copies this buffer to the target.
    Put(Region),
    /// Copies from the target to this buffer.
    Get(Region),
    /// Computes `target = target op from`, element by element, and stores the previous values of
    /// the elements in `result`, unless `result` is empty. For the operation NO_OP, `from` may be
    /// empty.
    Accumulate {
        /// Operands.
        from: Region,
        /// Buffer that receives the previous values of the target's elements.
        result: Region,
        /// Operation.
        by: Change,
    },
    /// Compares and swaps one element of 1, 2, 4 or 8 bytes.
    CompareAndSwap(Swap),
}

impl RmaOp {
    /// Returns the buffers of the result, of the operand, and of the expected value, in this order.
    /// If the operation has no such buffer, the region is empty.
    pub(crate) fn buffers(&self) -> [Region; 3] {
        match *self {
            RmaOp::Put(from) => [Region::EMPTY, from, Region::EMPTY],
            RmaOp::Get(into) => [into, Region::EMPTY, Region::EMPTY],
            RmaOp::Accumulate { from, result, .. } => [result, from, Region::EMPTY],
            RmaOp::CompareAndSwap(swap) => [swap.result, swap.value, swap.expected],
        }
    }
}

/// Completion level of a flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlushScope {
    /// Local completion: the caller's buffers may be reused.
    Local,
    /// Remote completion: the target's memory is updated too.
    Target,
}

/// One-sided operations on the memory of each rank of a transport. Several threads may call the
/// methods concurrently, at any time from creation to close, for any target.
///
/// Put, get and accumulate operations are nonblocking: the caller must keep their buffers valid,
/// and must not modify them, until a later flush of their target is complete. The operations make
/// progress, locally and at the target, while a thread calls the transport's `progress`, `test`,
/// `probe` or `take`. The failure of an operation is returned either by the call that starts the
/// operation, or by the flush or test that detects the failure. Only flushes order puts and gets.
pub trait Window: Send + Sync {
    /// Returns a human-readable description of the data path (63 bytes at most).
    fn describe(&self) -> &'static str;
    /// Returns this rank's memory in the window.
    fn memory(&self) -> Region;
    /// Returns the 64-bit words (for example addresses and keys) that the other ranks need to
    /// access this rank's memory. Every rank returns the same number of words.
    fn local_record(&self) -> Result<Vec<u64>> {
        Ok(Vec::new())
    }
    /// Stores the words that `local_record` returned on all ranks, in rank order. Called before the
    /// first operation, but only if `local_record` returns any words.
    fn set_records(&self, _said: &[u64]) -> Result<()> {
        Ok(())
    }
    /// Returns true if calls may block until their operation is complete, and false if all calls
    /// are nonblocking.
    fn blocks(&self) -> bool {
        false
    }
    /// Starts an operation on the target range `at`, which is not empty. Each nonempty buffer of
    /// the operation has as many bytes as `at`. Accumulate operations and compare-and-swaps are
    /// started only on dtypes for which `has_atomics` returns true. `wants_op` must be true if the
    /// caller will poll the operation, a put or get, with `test`. Returns `None` if the buffer of a
    /// put may already be reused, or the data of a get has arrived.
    fn start(&self, at: TargetRange, op: &RmaOp, wants_op: bool) -> Result<Option<OpId>>;
    /// Returns true if the put, get or flush with id `op` is complete (locally, for a put). After
    /// this function has returned true or an error, the id is invalid.
    fn test(&self, op: OpId) -> Result<bool>;
    /// Starts a flush of this rank's operations on `target` (`None`: on all targets) to the
    /// completion level `reach`. Returns `None` if the operations are already complete; otherwise
    /// the caller must poll the returned id with `test`.
    fn flush(&self, target: Option<i32>, reach: FlushScope) -> Result<Option<OpId>>;
    /// Returns true if this transport executes all accumulate operations on elements of this dtype
    /// whose offsets are multiples of the element size. The operations must be atomic with respect
    /// to each other and compute as the library's reductions do (`sys::compute::elements`).
    /// Operations of one origin on one element must be applied in the order of their calls. All
    /// ranks return the same value. If the result is false, the origin sends the accumulate
    /// operations on this dtype as messages, and the target applies them.
    fn has_atomics(&self, _dtype: dtl_dtype_t) -> bool {
        false
    }
    /// Closes the window. Afterwards, the caller must not use the window, and the window no longer
    /// accesses any buffer. If `together` is true, all ranks close the window now, each after its
    /// last flush of all operations. If it is false, no rank waits for another rank, and resources
    /// that can only be freed collectively are not freed.
    fn close(&self, together: bool);
}

/// Copies between the memory of processes on one node, executed by the operating system's kernel
/// (for example process_vm_readv).
pub trait CrossMemory: Send + Sync {
    /// Opens the memory of `rank`. Returns `None` if the rank is not another process of this node,
    /// and RANK_FAILURE if that process has ended or has executed another program (exec). Any other
    /// error is the reason why the operating system's kernel does not copy the memory of that
    /// process.
    fn remote(&self, rank: i32) -> Option<Result<Arc<dyn Remote>>>;
}

/// Outcome of a copy by the operating system's kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyOutcome {
    /// All bytes were copied.
    All,
    /// The remote process has ended or has executed another program (exec). The memory of the new
    /// program was not written.
    Gone,
    /// The operating system's kernel refused to copy the bytes, or copied only some of them. The
    /// caller must send the bytes in a message.
    Refused,
}

/// Memory of another process on this node. The operating system's kernel copies from and to this
/// memory without the participation of that process. Several threads may call the methods at once.
pub trait Remote: Send + Sync {
    /// Copies from `address` in the remote process to `into`.
    fn read(&self, address: u64, into: Region) -> CopyOutcome;
    /// Copies `from` to `address` in the remote process.
    fn write(&self, address: u64, from: Region) -> CopyOutcome;
}
