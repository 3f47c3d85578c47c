//! Interface to the native collectives of a transport. The arguments of collectives, and the
//! library's own implementation of collectives, are in `runtime::comm::coll`.

use super::{OpId, Transport};
use crate::abi::word::{dtl_dtype_t, dtl_reduce_op_t};
use crate::error::Result;
use crate::runtime::comm::coll::{CollArgs, CollCall};
use crate::sys::memory::buf::Addr;
use std::array::from_fn;
use std::borrow::Cow;

/// Number of rows (dtypes) and of columns (operations) of [`Reductions`].
const NUMBERS: usize = 16;

/// Identifiers of a datatype and a reduction operation in the transport's communication library
/// (for example MPI).
pub type ReductionId = (u64, u64);

/// Table of a transport's native reductions, indexed by dtype and operation. It contains only
/// reductions that compute the same result as the reductions of this library.
pub struct Reductions([[Option<ReductionId>; NUMBERS]; NUMBERS]);

impl Reductions {
    /// Builds the table by calling `name` for each dtype and operation. `name` returns `None` if
    /// there is no native reduction.
    pub fn named(name: impl Fn(dtl_dtype_t, dtl_reduce_op_t) -> Option<ReductionId>) -> Self {
        Reductions(from_fn(|dtype| from_fn(|op| name(dtype as dtl_dtype_t, op as dtl_reduce_op_t))))
    }

    /// Returns the native identifiers of the reduction with the operation `op` on elements of
    /// `dtype`; `None` if there is no such native reduction.
    pub fn get(&self, dtype: dtl_dtype_t, op: dtl_reduce_op_t) -> Option<ReductionId> {
        *self.0.get(dtype as u32 as usize)?.get(op as u32 as usize)?
    }
}

/// Reason why a collective is not executed.
pub type Refusal = Cow<'static, str>;

/// Native collectives of a transport, or of a device communicator ([`super::DeviceComm`]). Either
/// all ranks provide them, or none does.
pub trait NativeCollectives: Send + Sync {
    /// Returns the reason why the collective is not executed; `None` if it is. The decision depends
    /// only on arguments that are equal on all ranks.
    fn refuses(&self, call: &CollCall<'_>) -> Result<Option<Refusal>>;
    /// Starts a collective for which `refuses` returns `None`. The operation completes through
    /// [`Transport::test`] or [`super::DeviceComm::test`].
    fn start(&self, call: &CollCall<'_>) -> Result<OpId>;
    /// Returns true if an operation that `start` returned can be canceled ([`Transport::cancel`]).
    fn can_cancel(&self) -> bool {
        true
    }
    /// Returns the blocking forms; `None` if a caller starts each collective and waits for it.
    fn blocking(&self) -> Option<&dyn BlockingCollectives> {
        None
    }
    /// Opens a transport for a subset of the ranks, in the order of `ranks`. The subset includes
    /// the calling rank. Collective over the subset. All ranks of the subset pass the same
    /// `number`, which distinguishes this call from concurrent calls for other subsets. `None`: the
    /// communicator of a subset shares this transport.
    fn subset(&self, _ranks: &[i32], _number: u32) -> Result<Option<Box<dyn Transport>>> {
        Ok(None)
    }
    /// Reports that the communicator is revoked. Messages may arrive after this rank has closed the
    /// transport: a later transport must not receive them.
    fn note_revoked(&self) {}
}

/// Blocking native collectives. They return when the collective is complete, however long that
/// takes.
pub trait BlockingCollectives: Send + Sync {
    /// Executes a collective. Returns `None` if `refuses` returns a reason.
    fn run(&self, args: &CollArgs) -> Option<Result<()>>;
    /// Returns the table of the reductions that `allreduce` executes. The table is equal on all
    /// ranks.
    fn reductions(&self) -> Option<&'static Reductions>;
    /// Reduces the `count` elements at `from` (at `into` if `from` is null) across all ranks and
    /// stores the result at `into` on all ranks. `by` is a reduction that `reductions` contains.
    /// Blocks until completion, however long that takes.
    fn allreduce(&self, from: Addr, into: Addr, count: i32, by: ReductionId) -> Result<()>;
}
