//! Placement of a communicator's ranks: whether all of them are on one node, and whether this node
//! has at least as many processors as ranks.
//!
//! The placement is determined once, by a collective call when the communicator is opened.

use super::comm::free;
use super::library::abi::Int;
use super::library::functions::Handle;
use super::library::mpi_library::{Mpi, checked};
use crate::abi::word::DTL_OP_BOR;
use crate::error::{Result, failure};
use crate::sys::os::hwinfo;
use std::ffi::c_int;

/// Number of 64-bit words of the processor mask, which has one bit per processor. On machines with
/// more than 1024 processors, processors share bits.
const WORDS: usize = 16;

/// Placement of a communicator's ranks on nodes and processors.
#[derive(Clone, Copy)]
pub(super) struct Node {
    /// True if all ranks of the communicator are on this node.
    pub(super) has_all: bool,
    /// True if the ranks on this node outnumber the processors in the union of their CPU affinity
    /// masks.
    pub(super) is_oversubscribed: bool,
}

impl Node {
    /// Determines the placement of a communicator's `size` ranks. Requires an `MpiGuard`.
    pub(super) fn of(mpi: &Mpi, comm: Handle, rank: c_int, size: c_int) -> Result<Self> {
        let mut here = 0;
        let (kind, info) = (mpi.abi.int(Int::CommTypeShared), mpi.k.info_null);
        // SAFETY: a communicator of the library, MPI's own constants, and a writable local.
        unsafe { checked!(mpi, MPI_Comm_split_type(comm, kind, rank, info, &raw mut here)) }?;
        let counted = count(mpi, here);
        free(mpi, here)?;
        let (ranks, processors) = counted?;
        Ok(Node {
            has_all: ranks == size,
            is_oversubscribed: i64::from(ranks) > i64::from(processors),
        })
    }
}

/// Returns the number of ranks on a node, and the number of processors in the union of their CPU
/// affinity masks.
fn count(mpi: &Mpi, here: Handle) -> Result<(c_int, u32)> {
    let mut ranks = 0;
    // SAFETY: the communicator has just been created; `ranks` is a writable local.
    unsafe { checked!(mpi, MPI_Comm_size(here, &raw mut ranks)) }?;
    let mut mask = hwinfo::affinity_mask::<WORDS>();
    let or = mpi.k.op(DTL_OP_BOR);
    let or = or.ok_or_else(|| failure!(DTL_ERROR_INTERNAL, "MPI without MPI_BOR"))?;
    let (at, in_place, byte) = (mask.as_mut_ptr().cast(), mpi.k.in_place.ptr(), mpi.k.byte);
    // SAFETY: `mask` is a local of 8 times `WORDS` bytes, reduced in place.
    unsafe { checked!(mpi, MPI_Allreduce(in_place, at, 8 * WORDS as c_int, byte, or, here)) }?;
    Ok((ranks, mask.iter().map(|word| word.count_ones()).sum()))
}
