//! Collectives in one piece, of transports that run them themselves. Not here: the arguments, and
//! how the library runs one (`runtime::comm::coll`).

use super::{OpId, Transport};
use crate::abi::word::{dtl_dtype_t, dtl_reduce_op_t};
use crate::error::Result;
use crate::runtime::comm::coll::CollArgs;
use crate::sys::memory::buf::Addr;
use std::array::from_fn;

/// Numbers of dtypes and operations that [`Reductions`] have.
const NUMBERS: usize = 16;

/// A dtype and an operation as a transport calls them.
pub type ReductionId = (u64, u64);

/// The reductions of a transport's own that fold as the library does, by dtype and operation.
pub struct Reductions([[Option<ReductionId>; NUMBERS]; NUMBERS]);

impl Reductions {
    /// Those that have a name.
    pub fn named(name: impl Fn(dtl_dtype_t, dtl_reduce_op_t) -> Option<ReductionId>) -> Self {
        Reductions(from_fn(|dtype| from_fn(|op| name(dtype as dtl_dtype_t, op as dtl_reduce_op_t))))
    }

    /// One's name.
    #[must_use]
    pub fn get(&self, dtype: dtl_dtype_t, op: dtl_reduce_op_t) -> Option<ReductionId> {
        *self.0.get(dtype as u32 as usize)?.get(op as u32 as usize)?
    }
}

/// Collectives of a transport's own, and communicators of its own for them. All ranks have the
/// group or none has it.
pub trait NativeCollectives: Send + Sync {
    /// Returns true if it runs this one. Decided from arguments that are equal on all ranks.
    fn takes(&self, args: &CollArgs) -> bool;
    /// Runs one to its end, however long that takes. `None`: `takes` is false for this one.
    fn run(&self, args: &CollArgs) -> Option<Result<()>>;
    /// Starts one that it takes; it ends through [`Transport::test`] and cannot be cancelled.
    fn start(&self, args: &CollArgs) -> Result<OpId>;
    /// The reductions that `allreduce` runs; the same on all ranks.
    fn reductions(&self) -> Option<&'static Reductions>;
    /// Reduces the `count` elements at `from` (null: at `into`) of all ranks by one of
    /// `reductions`, into `into` on all ranks, however long that takes.
    fn allreduce(&self, from: Addr, into: Addr, count: i32, by: ReductionId) -> Result<()>;
    /// Opens a transport for some ranks, which include this one, in this order. Collective over
    /// these ranks, with the same number on all of them. Without the group they share their
    /// parent's transport.
    fn subset(&self, ranks: &[i32], number: u32) -> Result<Box<dyn Transport>>;
}
