//! MPI's own collectives with counts that exceed `int` (more than 2 GiB), by the _c functions of
//! MPI 4.
//!
//! `collective` prepares the arguments of these collectives like those of all others. Where the _c
//! functions cannot be used, the library's own algorithms run instead; blocks of different sizes
//! get a larger unit.

use super::collective::{MOST, MpiCall, at, bytes};
use super::reduce_op;
use crate::backend::mpi::library::functions::{Count, Handle};
use crate::backend::mpi::library::mpi_library::Mpi;
use crate::backend::mpi::op_extras::Item;
use crate::backend::mpi::transport::MpiTransport;
use crate::error::{Result, fail};
use crate::runtime::comm::coll::{Buffer, CollArgs, Kind};
use crate::sys::memory::buf::{Addr, Region};
use std::ffi::c_void;

/// Returns true if this MPI has the _c functions and they are proven to work: MPICH from version 5
/// on. In MPICH 4.0 an MPI_Ibcast_c of 2.2 GiB fails, and it is unknown which of the libraries
/// derived from MPICH 4.0 have that fault.
pub(crate) fn can_be_used(mpi: &Mpi) -> bool {
    let has_all = mpi.call.MPI_Bcast_c.is_some() && mpi.call.MPI_Ibcast_c.is_some();
    has_all && is_known_to_work(&mpi.version)
}

fn is_known_to_work(version: &str) -> bool {
    let number = version.strip_prefix("MPICH Version: ").and_then(|text| text.split('.').next());
    number.and_then(|major| major.parse::<u32>().ok()).is_some_and(|major| major >= 5)
}

/// Returns true if the _c functions can execute this collective. MPI passes an `int` count to
/// reduction operations that this library defines.
pub(crate) fn take(endpoint: &MpiTransport, args: &CollArgs) -> bool {
    let mpi = endpoint.mpi;
    let is_countable = args.reduction.is_none_or(|by| {
        bytes(args, endpoint.size) / args.element() <= MOST || reduce_op::is_mpis(mpi, &by)
    });
    can_be_used(mpi) && is_countable
}

/// Calls the blocking or the nonblocking function. The last arguments of all these functions are
/// the communicator and, if nonblocking, the request.
macro_rules! large {
    ($self:ident, $now:ident, $later:ident $(, $arg:expr)*) => {{
        let (mpi, comm) = ($self.endpoint.mpi, $self.endpoint.user);
        let code = match ($self.request.as_deref_mut(), mpi.call.$now, mpi.call.$later) {
            // SAFETY: the regions are valid until the collective completes, per `Transport`; the
            // lists are retained as long.
            (None, Some(call), _) => unsafe { call($($arg,)* comm) },
            // SAFETY: the regions are valid until the collective completes, per `Transport`; the
            // lists are retained as long; the request is a writable word.
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

impl MpiCall<'_> {
    /// Calls the _c function of a collective.
    pub(crate) fn make_large(&mut self, args: &CollArgs) -> Result<()> {
        match (args.kind, &args.reduction) {
            (Kind::Barrier, _) => fail!(DTL_ERROR_INTERNAL, "a barrier has no count"),
            (Kind::Bcast, _) => {
                let (data, byte) = (args.recv.whole(), self.byte());
                large!(self, MPI_Bcast_c, MPI_Ibcast_c, at(data), count(data), byte, args.root)
            }
            (_, Some(by)) => {
                let pair = reduce_op::pair(self.endpoint.mpi, by)?;
                self.large_reduction(args, pair)
            }
            _ if args.row.is_varied() => self.large_various_blocks(args),
            _ => self.large_equal_blocks(args),
        }
    }

    fn large_reduction(&mut self, args: &CollArgs, (datatype, op): (Handle, Handle)) -> Result<()> {
        let elements = |bytes: usize| (bytes / args.element()) as Count;
        let (n, into) = (elements(args.bytes), at(args.recv.whole()));
        let from = self.own(args, &args.send);
        match args.kind {
            Kind::Reduce => {
                let (from, root) = (self.reduced_from(args)?, args.root);
                large!(self, MPI_Reduce_c, MPI_Ireduce_c, from, into, n, datatype, op, root)
            }
            Kind::Allreduce => {
                large!(self, MPI_Allreduce_c, MPI_Iallreduce_c, from, into, n, datatype, op)
            }
            Kind::Scan => large!(self, MPI_Scan_c, MPI_Iscan_c, from, into, n, datatype, op),
            Kind::Exscan => {
                large!(self, MPI_Exscan_c, MPI_Iexscan_c, from, into, n, datatype, op)
            }
            _ => {
                let blocks = self.blocks_of(args);
                let counts = blocks.iter().map(|block| elements(block.len())).collect();
                let counts = self.keep_counts(counts);
                let (from, into) = self.scattered_from(args, &blocks)?;
                large! {
                    self, MPI_Reduce_scatter_c, MPI_Ireduce_scatter_c,
                    from, into, counts, datatype, op
                }
            }
        }
    }

    fn large_equal_blocks(&mut self, args: &CollArgs) -> Result<()> {
        let (byte, n, root) = (self.byte(), args.bytes as Count, args.root);
        let (from, into) = (self.own(args, &args.send), at(args.recv.whole()));
        match args.kind {
            Kind::Gather => {
                large!(self, MPI_Gather_c, MPI_Igather_c, from, n, byte, into, n, byte, root)
            }
            Kind::Scatter => {
                let (from, into) = (at(args.send.whole()), self.own(args, &args.recv));
                large!(self, MPI_Scatter_c, MPI_Iscatter_c, from, n, byte, into, n, byte, root)
            }
            Kind::Allgather => {
                large!(self, MPI_Allgather_c, MPI_Iallgather_c, from, n, byte, into, n, byte)
            }
            Kind::Alltoall => {
                large!(self, MPI_Alltoall_c, MPI_Ialltoall_c, from, n, byte, into, n, byte)
            }
            other => fail!(DTL_ERROR_INTERNAL, "{other:?} has no blocks of one size"),
        }
    }

    fn large_various_blocks(&mut self, args: &CollArgs) -> Result<()> {
        let (byte, root) = (self.byte(), args.root);
        let own = |buffer: &Buffer| if args.in_place { 0 } else { count(buffer.whole()) };
        match args.kind {
            Kind::Gatherv | Kind::Allgatherv => {
                let Spread { base, counts, places } = self.spread_far(&args.recv);
                let (from, n) = (self.own(args, &args.send), own(&args.send));
                if args.kind == Kind::Gatherv {
                    large! {
                        self, MPI_Gatherv_c, MPI_Igatherv_c,
                        from, n, byte, base, counts, places, byte, root
                    }
                } else {
                    large! {
                        self, MPI_Allgatherv_c, MPI_Iallgatherv_c,
                        from, n, byte, base, counts, places, byte
                    }
                }
            }
            Kind::Scatterv => {
                let Spread { base, counts, places } = self.spread_far(&args.send);
                let (into, n) = (self.own(args, &args.recv), own(&args.recv));
                large! {
                    self, MPI_Scatterv_c, MPI_Iscatterv_c,
                    base, counts, places, byte, into, n, byte, root
                }
            }
            Kind::Alltoallv => {
                let Spread { base, counts, places } = self.spread_far(&args.recv);
                let (from, takes, gaps) = if args.in_place {
                    (self.own(args, &args.send), counts, places)
                } else {
                    let from = self.spread_far(&args.send);
                    (from.base, from.counts, from.places)
                };
                large! {
                    self, MPI_Alltoallv_c, MPI_Ialltoallv_c,
                    from, takes, gaps, byte, base, counts, places, byte
                }
            }
            other => fail!(DTL_ERROR_INTERNAL, "{other:?} has no blocks of several sizes"),
        }
    }

    fn keep_counts(&mut self, counts: Vec<Count>) -> *const Count {
        let at = counts.as_ptr();
        // The memory of the list does not move when the list is moved.
        self.kept.push(Item::Counts(counts));
        at
    }

    fn spread_far(&mut self, blocks: &Buffer) -> Spread {
        let blocks = self.ranges(blocks);
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
#[path = "tests/large_count.rs"]
mod tests;
