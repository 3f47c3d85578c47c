//! Native collectives of transports. Their arguments, and the execution of collectives by the
//! library, are in `runtime::comm::coll`.

use super::{OpId, Transport};
use crate::abi::word::{dtl_dtype_t, dtl_reduce_op_t};
use crate::error::Result;
use crate::runtime::comm::coll::CollArgs;
use crate::sys::memory::buf::Addr;
use std::array::from_fn;

/// Number of dtypes and of operations in [`Reductions`].
const NUMBERS: usize = 16;

/// Native identifiers of a dtype and an operation in a transport's library.
pub type ReductionId = (u64, u64);

/// A transport's native reductions that compute as the library does, by dtype and operation.
pub struct Reductions([[Option<ReductionId>; NUMBERS]; NUMBERS]);

impl Reductions {
    /// Builds the table from `name`, which returns `None` for pairs without a native reduction.
    pub fn named(name: impl Fn(dtl_dtype_t, dtl_reduce_op_t) -> Option<ReductionId>) -> Self {
        Reductions(from_fn(|dtype| from_fn(|op| name(dtype as dtl_dtype_t, op as dtl_reduce_op_t))))
    }

    /// Returns the native identifiers of the reduction of `dtype` by `op`, if it exists.
    pub fn get(&self, dtype: dtl_dtype_t, op: dtl_reduce_op_t) -> Option<ReductionId> {
        *self.0.get(dtype as u32 as usize)?.get(op as u32 as usize)?
    }
}

/// Native collectives and native subcommunicators of a transport; on all ranks or on none.
pub trait NativeCollectives: Send + Sync {
    /// Returns true if the transport executes this collective. The decision depends only on
    /// arguments that are equal on all ranks.
    fn takes(&self, args: &CollArgs) -> bool;
    /// Executes a collective to completion, however long that takes; `None` if `takes` rejects
    /// `args`.
    fn run(&self, args: &CollArgs) -> Option<Result<()>>;
    /// Starts a collective for which `takes` returns true. It completes through [`Transport::test`]
    /// and cannot be canceled.
    fn start(&self, args: &CollArgs) -> Result<OpId>;
    /// Returns the reductions that `allreduce` executes; equal on all ranks.
    fn reductions(&self) -> Option<&'static Reductions>;
    /// Reduces the `count` elements at `from` (null: at `into`) of all ranks by a reduction of
    /// `reductions`, into `into` on all ranks. Blocks until completion, however long that takes.
    fn allreduce(&self, from: Addr, into: Addr, count: i32, by: ReductionId) -> Result<()>;
    /// Opens a transport for a subset of the ranks, which includes this rank, in the given order.
    /// Collective over these ranks, with an equal `number` on all of them. Without this group, the
    /// communicator of the subset shares its parent's transport.
    fn subset(&self, ranks: &[i32], number: u32) -> Result<Box<dyn Transport>>;
}
