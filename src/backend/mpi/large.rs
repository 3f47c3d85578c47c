//! MPI's own collectives with counts that `int` does not hold (more than 2 GiB), by the _c
//! functions of MPI 4.
//!
//! As `collective`, which has the others and what the two share. Where these functions cannot be
//! used, the library's algorithms do it, or a larger unit for blocks of various sizes.

use super::collective::{Call, Item, MOST, at};
use super::functions::{Count, Handle};
use super::op;
use super::session::Mpi;
use crate::error::{Result, fail};
use crate::runtime::backend::Collective;
use crate::sys::buf::{Addr, Region};
use std::ffi::c_void;

/// Whether this MPI has them, and they are known to work: MPICH from 5 on. In MPICH 4.0
/// MPI_Ibcast_c of 2.2 GiB fails, which nobody can know of those made from it.
pub(super) fn can_be_used(mpi: &Mpi) -> bool {
    let has_all = mpi.call.MPI_Bcast_c.is_some() && mpi.call.MPI_Ibcast_c.is_some();
    has_all && is_known_to_work(&mpi.version)
}

fn is_known_to_work(version: &str) -> bool {
    let number = version.strip_prefix("MPICH Version: ").and_then(|text| text.split('.').next());
    number.and_then(|major| major.parse::<u32>().ok()).is_some_and(|major| major >= 5)
}

/// Whether they hold this one. MPI counts in `int` what it hands to an operation of ours.
pub(super) fn take(mpi: &Mpi, call: &Collective) -> bool {
    let (by, bytes) = match call {
        Collective::Reduce { send, recv, by, .. } => (by, send.unwrap_or(*recv).len()),
        Collective::Allreduce { recv, by, .. } | Collective::Scan { recv, by, .. } => {
            (by, recv.len())
        }
        Collective::ReduceScatter { blocks, by, .. } => (by, blocks.iter().map(|b| b.len()).sum()),
        _ => return can_be_used(mpi),
    };
    can_be_used(mpi) && (bytes / by.element.max(1) <= MOST || op::is_mpis(mpi, by))
}

/// Calls one of the two forms; the communicator, and the request, are the last arguments of all of
/// them.
macro_rules! large {
    ($self:ident, $now:ident, $later:ident $(, $arg:expr)*) => {{
        let (mpi, comm) = ($self.endpoint.mpi, $self.endpoint.user);
        let code = match ($self.request.as_deref_mut(), mpi.call.$now, mpi.call.$later) {
            // SAFETY: the regions are valid until the collective is over, by `Transport`; the lists
            // are kept as long.
            (None, Some(call), _) => unsafe { call($($arg,)* comm) },
            // SAFETY: as above.
            (Some(request), _, Some(call)) => unsafe { call($($arg,)* comm, request) },
            _ => return fail!(
                DTL_ERROR_UNAVAILABLE,
                "{} has MPI_Bcast_c, but lacks {} or {}",
                mpi.version,
                stringify!($now),
                stringify!($later)
            ),
        };
        mpi.check(stringify!($now), code)
    }};
}

/// Blocks of memory as counts and displacements in bytes.
struct Spread {
    base: *mut c_void,
    counts: *const Count,
    places: *const isize,
}

impl Call<'_> {
    /// As `make`.
    pub(super) fn make_large(&mut self, call: &Collective) -> Result<()> {
        match call {
            Collective::Barrier => fail!(DTL_ERROR_INTERNAL, "a barrier has no count"),
            Collective::Bcast { data, root } => {
                let byte = self.byte();
                large!(self, MPI_Bcast_c, MPI_Ibcast_c, at(*data), count(*data), byte, *root)
            }
            Collective::Reduce { by, .. }
            | Collective::Allreduce { by, .. }
            | Collective::ReduceScatter { by, .. }
            | Collective::Scan { by, .. } => {
                let pair = op::pair(self.endpoint.mpi, by)?;
                self.large_reduction(call, by.element.max(1), pair)
            }
            Collective::Gather { .. }
            | Collective::Scatter { .. }
            | Collective::Allgather { .. }
            | Collective::Alltoall { .. } => self.large_equal_blocks(call),
            _ => self.large_various_blocks(call),
        }
    }

    fn large_reduction(
        &mut self,
        call: &Collective,
        element: usize,
        (datatype, op): (Handle, Handle),
    ) -> Result<()> {
        let elements = |bytes: Region| (bytes.len() / element) as Count;
        match call {
            Collective::Reduce { send, recv, root, .. } => {
                let (n, from) =
                    (elements(send.unwrap_or(*recv)), self.reduced_from(*send, *recv, *root)?);
                large!(self, MPI_Reduce_c, MPI_Ireduce_c, from, at(*recv), n, datatype, op, *root)
            }
            Collective::Allreduce { send, recv, .. } => {
                let (n, from) = (elements(*recv), self.own(*send));
                large!(self, MPI_Allreduce_c, MPI_Iallreduce_c, from, at(*recv), n, datatype, op)
            }
            Collective::Scan { send, recv, exclusive, .. } => {
                let (n, from) = (elements(*recv), self.own(*send));
                if *exclusive {
                    large!(self, MPI_Exscan_c, MPI_Iexscan_c, from, at(*recv), n, datatype, op)
                } else {
                    large!(self, MPI_Scan_c, MPI_Iscan_c, from, at(*recv), n, datatype, op)
                }
            }
            Collective::ReduceScatter { send, blocks, recv, .. } => {
                let counts =
                    self.keep_counts(blocks.iter().map(|block| elements(*block)).collect());
                let (from, into) = match send {
                    Some(_) => (self.own(*send), at(*recv)),
                    None => self.scattered_in_place(blocks)?,
                };
                large!(
                    self,
                    MPI_Reduce_scatter_c,
                    MPI_Ireduce_scatter_c,
                    from,
                    into,
                    counts,
                    datatype,
                    op
                )
            }
            _ => fail!(DTL_ERROR_INTERNAL, "no reduction"),
        }
    }

    fn large_equal_blocks(&mut self, call: &Collective) -> Result<()> {
        let byte = self.byte();
        match call {
            Collective::Gather { send, recv, len, root } => {
                let (from, n) = (self.own(*send), *len as Count);
                large!(self, MPI_Gather_c, MPI_Igather_c, from, n, byte, at(*recv), n, byte, *root)
            }
            Collective::Scatter { send, recv, len, root } => {
                let (into, n) = (self.own(*recv), *len as Count);
                large!(
                    self,
                    MPI_Scatter_c,
                    MPI_Iscatter_c,
                    at(*send),
                    n,
                    byte,
                    into,
                    n,
                    byte,
                    *root
                )
            }
            Collective::Allgather { send, recv, len } => {
                let (from, n) = (self.own(*send), *len as Count);
                large!(self, MPI_Allgather_c, MPI_Iallgather_c, from, n, byte, at(*recv), n, byte)
            }
            Collective::Alltoall { send, recv, len } => {
                let (from, n) = (self.own(*send), *len as Count);
                large!(self, MPI_Alltoall_c, MPI_Ialltoall_c, from, n, byte, at(*recv), n, byte)
            }
            _ => fail!(DTL_ERROR_INTERNAL, "no blocks of one size"),
        }
    }

    fn large_various_blocks(&mut self, call: &Collective) -> Result<()> {
        let byte = self.byte();
        let own = |own: Option<Region>| own.map_or(0, count);
        match call {
            Collective::Gatherv { send, blocks, root } => {
                let Spread { base, counts, places } = self.spread_far(blocks);
                let (from, n) = (self.own(*send), own(*send));
                large! {
                    self, MPI_Gatherv_c, MPI_Igatherv_c,
                    from, n, byte, base, counts, places, byte, *root
                }
            }
            Collective::Scatterv { blocks, recv, root } => {
                let Spread { base, counts, places } = self.spread_far(blocks);
                let (into, n) = (self.own(*recv), own(*recv));
                large! {
                    self, MPI_Scatterv_c, MPI_Iscatterv_c,
                    base, counts, places, byte, into, n, byte, *root
                }
            }
            Collective::Allgatherv { send, blocks } => {
                let Spread { base, counts, places } = self.spread_far(blocks);
                let (from, n) = (self.own(*send), own(*send));
                large! {
                    self, MPI_Allgatherv_c, MPI_Iallgatherv_c,
                    from, n, byte, base, counts, places, byte
                }
            }
            Collective::Alltoallv { send, blocks } => {
                let Spread { base, counts, places } = self.spread_far(blocks);
                let (from, takes, gaps) = match send {
                    Some(send) => {
                        let from = self.spread_far(send);
                        (from.base, from.counts, from.places)
                    }
                    None => (self.own(None), counts, places),
                };
                large! {
                    self, MPI_Alltoallv_c, MPI_Ialltoallv_c,
                    from, takes, gaps, byte, base, counts, places, byte
                }
            }
            _ => fail!(DTL_ERROR_INTERNAL, "no blocks of several sizes"),
        }
    }

    fn keep_counts(&mut self, counts: Vec<Count>) -> *const Count {
        let at = counts.as_ptr();
        // The list's memory does not move with it.
        self.kept.push(Item::Counts(counts));
        at
    }

    fn spread_far(&mut self, blocks: &[Region]) -> Spread {
        let used = blocks.iter().filter(|block| !block.is_empty());
        let base = used.map(|block| block.addr()).min().unwrap_or(Addr::NULL);
        let place =
            |block: &Region| if block.is_empty() { 0 } else { block.addr().get() - base.get() };
        let places: Vec<isize> = blocks.iter().map(|block| place(block) as isize).collect();
        let counts = self.keep_counts(blocks.iter().map(|block| count(*block)).collect());
        let at = places.as_ptr();
        self.kept.push(Item::Places(places));
        Spread { base: base.ptr(), counts, places: at }
    }
}

fn count(bytes: Region) -> Count {
    bytes.len() as Count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_tried_is_used() {
        assert!(
            is_known_to_work("MPICH Version: 5.0.2") && is_known_to_work("MPICH Version: 12.1")
        );
        for version in [
            "MPICH Version: 4.3.1",
            "Intel(R) MPI Library 2021.19",
            "CRAY MPICH version 9",
            "MPICH Version: x",
            "",
        ] {
            assert!(!is_known_to_work(version), "{version}");
        }
    }
}
