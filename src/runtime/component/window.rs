//! One-sided operations that a transport does itself: by its network, or by the library under it.
//! Used by `runtime::comm::rma`, which checks bounds and epochs, and takes locks by messages.

use super::OpId;
use crate::abi::word::dtl_dtype_t;
use crate::error::{Result, fail};
use crate::runtime::types::Reduction;
use crate::sys::memory::buf::Region;
use std::sync::Arc;

/// One-sided operations of a transport's own.
pub trait Rma: Send + Sync {
    /// Returns true if it also allocates the memory of a window; else it takes existing memory.
    fn allocates(&self) -> bool;
    /// Makes a window; collective over all ranks.
    fn window(&self, part: WindowPart<'_>) -> Result<Box<dyn Window>>;
}

/// This rank's part of a window to be made.
#[derive(Clone, Copy, Debug)]
pub struct WindowPart<'a> {
    /// Memory that stays valid until the window is closed. `None`, on all ranks alike: the
    /// transport allocates it, 64-byte aligned and all 0.
    pub memory: Option<Region>,
    /// Bytes of each rank's part, by rank.
    pub sizes: &'a [u64],
    /// Number of the window: equal on all ranks, and used by no other window of this transport
    /// while this one is open.
    pub number: u32,
}

/// Bytes at a target, inside of its part of the window.
#[derive(Clone, Copy, Debug)]
pub struct TargetRange {
    /// A rank, this one included.
    pub target: i32,
    /// From the beginning of its memory.
    pub offset: usize,
    /// How many.
    pub len: usize,
}

/// The buffers of a compare_and_swap, of one element each.
#[derive(Clone, Copy)]
pub struct Swap {
    /// Value to store if the target holds `expected`.
    pub value: Region,
    /// Value that the target must hold.
    pub expected: Region,
    /// Gets what the target held.
    pub result: Region,
    /// An integer dtype, BYTE or BOOL.
    pub dtype: dtl_dtype_t,
}

/// Extent of a flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlushScope {
    /// The caller's buffers.
    Local,
    /// The target's memory too.
    Target,
}

/// One-sided operations on the memory of each rank of a transport. Called by several threads at
/// once, at any time from its making to its end, on any target.
///
/// Put, get and the accumulating operations only begin: their buffers stay valid and unchanged
/// until a flush of their target that is called later is over. They make progress, here and at the
/// target, while a thread calls the transport: its `progress`, `test`, `probe` or `take`. An
/// operation fails at once, or with the flush or test that detects the failure. Puts and gets have
/// no order but that of flushes.
pub trait Window: Send + Sync {
    /// How, for people (63 bytes at most).
    fn describe(&self) -> &'static str;
    /// This rank's memory.
    fn memory(&self) -> Region;
    /// Returns the words that the other ranks need: the same number on every rank.
    fn local_record(&self) -> Result<Vec<u64>> {
        Ok(Vec::new())
    }
    /// Takes the words of all ranks, by rank. Called before the first operation, if there are any
    /// words.
    fn set_records(&self, _said: &[u64]) -> Result<()> {
        Ok(())
    }
    /// Returns true if calls may block until their operation is done, however long that takes.
    /// Otherwise no call waits.
    fn blocks(&self) -> bool {
        false
    }
    /// Copies to the target; `from` has `to.len` bytes (more than none). The caller polls it by
    /// `test` only if `asked` is set. `None`: the caller may reuse `from`.
    fn put(&self, to: TargetRange, from: Region, asked: bool) -> Result<Option<OpId>>;
    /// Copies from the target into `into`. The caller polls it by `test` only if `asked` is set.
    /// `None`: the caller may use `into`.
    fn get(&self, into: Region, from: TargetRange, asked: bool) -> Result<Option<OpId>>;
    /// Returns true if the put, get or flush of that id is over (locally, for a put). After true or
    /// an error the id is invalid.
    fn test(&self, op: OpId) -> Result<bool>;
    /// Waits until this rank's operations on a target (`None`: on all) are over. `None`: they are;
    /// else poll the id by `test`.
    fn flush(&self, target: Option<i32>, reach: FlushScope) -> Result<Option<OpId>>;
    /// Returns true if all accumulating operations on elements of this dtype, at multiples of its
    /// size, are done here: atomic among themselves, those of one origin on one element in its
    /// order, as the library's reductions are (`sys::compute::reduce`). The same on all ranks; else
    /// the target applies all of this dtype's by messages.
    fn has_atomics(&self, _dtype: dtl_dtype_t) -> bool {
        false
    }
    /// `target = target op from`, element by element, a built-in dtype and operation; what was
    /// there before goes to `result`, if there is such. With a result and NO_OP, `from` may be
    /// empty.
    fn accumulate(
        &self,
        _to: TargetRange,
        _from: Region,
        _result: Option<Region>,
        _by: &Reduction,
    ) -> Result<()> {
        fail!(DTL_ERROR_NOT_SUPPORTED, "the transport's windows do not accumulate")
    }
    /// One element of 1, 2, 4 or 8 bytes.
    fn compare_and_swap(&self, _to: TargetRange, _swap: Swap) -> Result<()> {
        fail!(DTL_ERROR_NOT_SUPPORTED, "the transport's windows do not compare and swap")
    }
    /// No call follows, and no buffer is touched any more. `together`: all ranks close it now, each
    /// after its last flush of everything; else no rank waits for another, and resources that
    /// cannot be freed without the others stay.
    fn close(&self, together: bool);
}

/// Copies between the memory of processes of one node, by the kernel.
pub trait CrossMemory: Send + Sync {
    /// Opens a rank's memory. `None`: the rank is not another process of this node. RANK_FAILURE:
    /// that process has ended or runs another program. Any other error: the reason why the kernel
    /// does not copy its memory.
    fn remote(&self, rank: i32) -> Option<Result<Arc<dyn Remote>>>;
}

/// Outcome of a copy by the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyOutcome {
    /// All bytes were copied.
    All,
    /// The process has ended or runs another program. Nothing else was written to.
    Gone,
    /// The kernel does not copy these bytes; some may have been copied. A message must do it.
    Refused,
}

/// Memory of another process of this node, which the kernel copies without that process' help.
/// Several threads may call it at once.
pub trait Remote: Send + Sync {
    /// Copies from an address of that process.
    fn read(&self, address: u64, into: Region) -> CopyOutcome;
    /// Copies to an address of that process.
    fn write(&self, address: u64, from: Region) -> CopyOutcome;
}
