//! Where a communicator's ranks run: whether one node has them all, and whether they have a
//! processor each there.
//!
//! Asked once, at the opening; collective.

use super::comm::free;
use super::library::functions::Handle;
use super::library::mpi_library::Mpi;
use crate::abi::word::DTL_OP_BOR;
use crate::error::{Result, fail};
use crate::sys::os::hwinfo;
use std::ffi::c_int;

/// Bytes of the mask of processors, one bit each; processors of larger machines share bits.
const BYTES: usize = 128;

/// Placement of a communicator's ranks on nodes and processors.
#[derive(Clone, Copy)]
pub(super) struct Node {
    /// All ranks of the communicator are on it.
    pub(super) has_all: bool,
    /// Its ranks are more than the processors that they may run on, all together.
    pub(super) is_oversubscribed: bool,
}

impl Node {
    /// This rank's, of a communicator with `size` ranks. In a turn.
    pub(super) fn of(mpi: &Mpi, comm: Handle, rank: c_int, size: c_int) -> Result<Self> {
        let mut here = 0;
        let (kind, info) = (mpi.k.comm_type_shared, mpi.k.info_null);
        // SAFETY: a communicator of ours, MPI's own constants, a writable local.
        let code = unsafe { (mpi.call.MPI_Comm_split_type)(comm, kind, rank, info, &raw mut here) };
        mpi.check("MPI_Comm_split_type", code)?;
        let told = count(mpi, here);
        free(mpi, here)?;
        let (ranks, processors) = told?;
        Ok(Node {
            has_all: ranks == size,
            is_oversubscribed: i64::from(ranks) > i64::from(processors),
        })
    }
}

/// Ranks of a node, and the processors that any of them may use.
fn count(mpi: &Mpi, here: Handle) -> Result<(c_int, u32)> {
    let mut ranks = 0;
    // SAFETY: a communicator that was just made; a writable local.
    let code = unsafe { (mpi.call.MPI_Comm_size)(here, &raw mut ranks) };
    mpi.check("MPI_Comm_size", code)?;
    let mut bits = [0_u8; BYTES];
    for processor in hwinfo::affinity() {
        if let Some(byte) = bits.get_mut(processor / 8 % BYTES) {
            *byte |= 1 << (processor % 8);
        }
    }
    let Some(or) = mpi.k.op(DTL_OP_BOR) else {
        return fail!(DTL_ERROR_INTERNAL, "MPI without MPI_BOR");
    };
    let (at, in_place, byte) = (bits.as_mut_ptr().cast(), mpi.k.in_place.ptr(), mpi.k.byte);
    // SAFETY: so many bytes of a local, in place.
    let code = unsafe { (mpi.call.MPI_Allreduce)(in_place, at, BYTES as c_int, byte, or, here) };
    mpi.check("MPI_Allreduce", code)?;
    Ok((ranks, bits.iter().map(|byte| byte.count_ones()).sum()))
}
