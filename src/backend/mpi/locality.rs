//! Placement of a communicator's ranks: whether all of them are on one node, and whether this node
//! has at least as many processors as ranks.
//!
//! The placement is determined once, by a collective call when the communicator is opened. The
//! nodes are distinguished by their boot IDs, not by MPI_Comm_split_type, which in Open MPI 4.1
//! fails if some ranks were started by MPI_Comm_spawn.

use super::comm::free;
use super::library::functions::Handle;
use super::library::mpi_library::{Mpi, checked};
use crate::abi::word::DTL_OP_BOR;
use crate::error::{Result, failure};
use crate::sys::os::{hwinfo, process};
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
        // A rank that cannot determine its node shares it with no other rank.
        let node = process::node_id().unwrap_or(process::own_pid().unsigned_abs().into());
        let color = (node & 0x7FFF_FFFF) as c_int;
        // SAFETY: a communicator of the library, and a writable local.
        unsafe { checked!(mpi, MPI_Comm_split(comm, color, rank, &raw mut here)) }?;
        let counted = count(mpi, here, node);
        free(mpi, here)?;
        let (ranks, processors, is_one) = counted?;
        Ok(Node {
            has_all: ranks == size && is_one,
            is_oversubscribed: i64::from(ranks) > i64::from(processors),
        })
    }
}

/// Returns the number of ranks of a communicator, the number of processors in the union of their
/// CPU affinity masks, and true if all ranks pass the same `node`.
fn count(mpi: &Mpi, here: Handle, node: u64) -> Result<(c_int, u32, bool)> {
    let mut ranks = 0;
    // SAFETY: the communicator has just been created; `ranks` is a writable local.
    unsafe { checked!(mpi, MPI_Comm_size(here, &raw mut ranks)) }?;
    let mut words = [0; WORDS + 2];
    let [set, unset, mask @ ..] = &mut words;
    (*set, *unset, *mask) = (node, !node, hwinfo::affinity_mask::<WORDS>());
    let or = mpi.k.op(DTL_OP_BOR);
    let or = or.ok_or_else(|| failure!(DTL_ERROR_INTERNAL, "MPI without MPI_BOR"))?;
    let (at, in_place, byte) = (words.as_mut_ptr().cast(), mpi.k.in_place.ptr(), mpi.k.byte);
    let bytes = size_of::<[u64; WORDS + 2]>() as c_int;
    // SAFETY: `words` is a local of that number of bytes, reduced in place.
    unsafe { checked!(mpi, MPI_Allreduce(in_place, at, bytes, byte, or, here)) }?;
    let [set, unset, mask @ ..] = words;
    let processors = mask.iter().map(|word| word.count_ones()).sum();
    Ok((ranks, processors, set == node && unset == !node))
}
