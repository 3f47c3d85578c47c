//! MPI's own collectives: conversion of the library's arguments to those of MPI.
//!
//! Data that is only moved is sent as bytes. Blocks of different sizes become counts and
//! displacements from the block with the lowest address. `large_count` handles counts that exceed
//! `int`.

use super::{large_count, reduce_op};
use crate::backend::mpi::ids::id_of;
use crate::backend::mpi::library::functions::Handle;
use crate::backend::mpi::message::{self, TypedCount};
use crate::backend::mpi::op_extras::{Item, OpExtra, RetainedArgs};
use crate::backend::mpi::transport::MpiTransport;
use crate::error::{Result, fail, failure};
use crate::runtime::comm::coll::{Buffer, CollArgs, Extent, Kind};
use crate::runtime::component::{NativeCollectives, OpId, ReductionId, Reductions, Transport};
use crate::runtime::types::Reduction;
use crate::sys::memory::buf::{Addr, Region, Scratch};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

/// Maximum number of bytes or elements that MPI's `int` counts can hold.
pub(crate) const MOST: usize = c_int::MAX as usize;

/// Returns true if MPI can execute this collective with its counts. All ranks must decide alike, so
/// the decision depends only on arguments that are equal on all ranks. Not every rank knows the
/// sizes of blocks that differ, so a collective with such blocks is always accepted: it uses a unit
/// in which its counts fit an `int`.
fn takes(endpoint: &MpiTransport, args: &CollArgs) -> bool {
    let is_various = args.row.is_varied() && !args.row.reduces;
    let has = is_various || bytes(args, endpoint.size) <= MOST || large_count::take(endpoint, args);
    has && !(endpoint.is_intel && has_empty_block(args))
}

/// Returns the number of bytes that this rank's counts must represent.
pub(crate) fn bytes(args: &CollArgs, size: c_int) -> usize {
    let ranks = size.unsigned_abs() as usize;
    let counted = |extent, buffer: &Buffer| match extent {
        Extent::Nothing => 0,
        // If block sizes differ, this rank's own part may be in place and then does not count.
        _ if args.row.is_varied() => buffer.span(),
        Extent::All => args.bytes.saturating_mul(ranks),
        _ => args.bytes,
    };
    counted(args.row.send, &args.send).max(counted(args.row.recv, &args.recv))
}

/// Returns true for an allgather with an empty block: Intel MPI needs millions of MPI_Test calls to
/// complete it (MPI_Iallgatherv with another block of 200 KB). All ranks pass the same sizes.
fn has_empty_block(args: &CollArgs) -> bool {
    args.kind == Kind::Allgatherv && args.recv.ranges().iter().any(|block| block.is_empty())
}

impl NativeCollectives for MpiTransport {
    fn takes(&self, args: &CollArgs) -> bool {
        takes(self, args)
    }

    fn run(&self, args: &CollArgs) -> Option<Result<()>> {
        let is_large = bytes(args, self.size) > MOST;
        if (is_large || self.is_intel) && !takes(self, args) {
            return None;
        }
        let _turn = match self.mpi.enter() {
            Ok(turn) => turn,
            Err(error) => return Some(Err(error)),
        };
        let mut kept = RetainedArgs::default();
        Some(MpiCall { endpoint: self, request: None, kept: &mut kept, is_large }.make(args))
    }

    fn start(&self, args: &CollArgs) -> Result<OpId> {
        let _turn = self.mpi.enter()?;
        let (mut request, mut kept) = (0, RetainedArgs::default());
        let is_large = bytes(args, self.size) > MOST;
        let mut call =
            MpiCall { endpoint: self, request: Some(&mut request), kept: &mut kept, is_large };
        call.make(args)?;
        if !kept.is_empty() {
            self.extras.add(request, OpExtra::Keeps(kept));
        }
        Ok(id_of(request, false))
    }

    fn reductions(&self) -> Option<&'static Reductions> {
        Some(reduce_op::mpis_own(self.mpi))
    }

    #[unsafe(link_section = ".text.hot.dtl")]
    fn allreduce(&self, from: Addr, into: Addr, count: i32, by: ReductionId) -> Result<()> {
        let (_turn, (datatype, op)) = (self.mpi.enter()?, by);
        let from = if from == Addr::NULL { self.mpi.k.in_place } else { from }.ptr();
        // SAFETY: both addresses have `count` elements of the datatype, valid during the call.
        let code = unsafe {
            (self.mpi.call.MPI_Allreduce)(from, into.ptr(), count, datatype, op, self.user)
        };
        self.mpi.check("MPI_Allreduce", code)
    }

    fn subset(&self, ranks: &[i32], number: u32) -> Result<Box<dyn Transport>> {
        self.of_some(ranks, number).map(|endpoint| Box::new(endpoint) as Box<dyn Transport>)
    }
}

/// One call of MPI: the blocking function, or the nonblocking one if `request` is set.
pub(crate) struct MpiCall<'a> {
    pub(crate) endpoint: &'a MpiTransport,
    pub(crate) request: Option<&'a mut Handle>,
    pub(crate) kept: &'a mut RetainedArgs,
    /// True if `int` cannot hold the number of bytes.
    is_large: bool,
}

/// Calls the blocking or the nonblocking function. The last arguments of all these functions are
/// the communicator and, if nonblocking, the request.
macro_rules! mpi {
    ($self:ident, $now:ident, $later:ident $(, $arg:expr)*) => {{
        let (mpi, comm) = ($self.endpoint.mpi, $self.endpoint.user);
        let code = match $self.request.as_deref_mut() {
            // SAFETY: the regions are valid until the collective completes, per `Transport`; the
            // lists are retained as long; the counts fit, by `takes`.
            None => unsafe { (mpi.call.$now)($($arg,)* comm) },
            // SAFETY: the regions are valid until the collective completes, per `Transport`; the
            // lists are retained as long; counts fit, by `takes`; the request is writable.
            Some(request) => unsafe { (mpi.call.$later)($($arg,)* comm, request) },
        };
        mpi.check(stringify!($now), code)
    }};
}

/// Blocks of memory as counts and displacements in multiples of a unit datatype.
struct Spread {
    base: *mut c_void,
    counts: *const c_int,
    places: *const c_int,
    unit: Handle,
    is_made: bool,
}

impl MpiCall<'_> {
    fn make(&mut self, args: &CollArgs) -> Result<()> {
        if self.is_large && large_count::can_be_used(self.endpoint.mpi) {
            return self.make_large(args);
        }
        match (args.kind, &args.reduction) {
            (Kind::Barrier, _) => mpi!(self, MPI_Barrier, MPI_Ibarrier),
            (Kind::Bcast, _) => {
                let (at, count, byte) = (at(args.recv.whole()), count(args.bytes), self.byte());
                mpi!(self, MPI_Bcast, MPI_Ibcast, at, count, byte, args.root)
            }
            (_, Some(by)) => self.reduction(args, by),
            _ if args.row.is_varied() => self.various_blocks(args),
            _ => self.equal_blocks(args),
        }
    }

    pub(crate) fn byte(&self) -> Handle {
        self.endpoint.mpi.k.byte
    }

    /// Returns MPI_IN_PLACE if the collective is in place, else the address of `buffer`.
    pub(crate) fn own(&self, args: &CollArgs, buffer: &Buffer) -> *mut c_void {
        if args.in_place { self.endpoint.mpi.k.in_place.ptr() } else { at(buffer.whole()) }
    }

    fn reduction(&mut self, args: &CollArgs, by: &Reduction) -> Result<()> {
        let (datatype, op) = reduce_op::pair(self.endpoint.mpi, by)?;
        let elements = |bytes: usize| count(bytes / args.element());
        let (n, into) = (elements(args.bytes), at(args.recv.whole()));
        let from = self.own(args, &args.send);
        match args.kind {
            Kind::Reduce => {
                let (from, root) = (self.reduced_from(args)?, args.root);
                mpi!(self, MPI_Reduce, MPI_Ireduce, from, into, n, datatype, op, root)
            }
            Kind::Allreduce => {
                mpi!(self, MPI_Allreduce, MPI_Iallreduce, from, into, n, datatype, op)
            }
            Kind::Scan => mpi!(self, MPI_Scan, MPI_Iscan, from, into, n, datatype, op),
            Kind::Exscan => mpi!(self, MPI_Exscan, MPI_Iexscan, from, into, n, datatype, op),
            _ => {
                let blocks = self.blocks_of(args);
                let counts = blocks.iter().map(|block| elements(block.len())).collect();
                let counts = self.keep(counts);
                let (from, into) = self.scattered_from(args, &blocks)?;
                mpi!(
                    self,
                    MPI_Reduce_scatter,
                    MPI_Ireduce_scatter,
                    from,
                    into,
                    counts,
                    datatype,
                    op
                )
            }
        }
    }

    /// Returns the send buffer of a reduce. MPICH 4 treats MPI_IN_PLACE as an address at roots
    /// other than 0 (above 2 KiB), so a copy of the data is passed there.
    pub(crate) fn reduced_from(&mut self, args: &CollArgs) -> Result<*mut c_void> {
        let hides = args.in_place && args.root != 0 && !self.endpoint.mpi.is_open_mpi();
        if hides { self.copied(args.recv.whole()) } else { Ok(self.own(args, &args.send)) }
    }

    /// Returns the blocks of a reduce_scatter, by rank.
    pub(crate) fn blocks_of(&self, args: &CollArgs) -> Vec<Region> {
        (0..self.endpoint.size).map(|rank| args.send.block(rank, args.bytes)).collect()
    }

    /// Returns the send and the receive buffer of a reduce_scatter.
    pub(crate) fn scattered_from(
        &mut self,
        args: &CollArgs,
        blocks: &[Region],
    ) -> Result<(*mut c_void, *mut c_void)> {
        if args.in_place {
            return self.scattered_in_place(blocks);
        }
        // Empty blocks have no address.
        let first = blocks.iter().find(|block| !block.is_empty());
        Ok((first.map_or(null_mut(), |first| at(*first)), at(args.recv.whole())))
    }

    /// Returns the two buffers of a reduce_scatter in place. Its data begins at the first block
    /// that is not empty, of any rank. MPICH copies a rank's own block to that address, and aborts
    /// the process if the two overlap: overlapping data is passed as a copy.
    fn scattered_in_place(&mut self, blocks: &[Region]) -> Result<(*mut c_void, *mut c_void)> {
        let in_place = self.endpoint.mpi.k.in_place.ptr();
        let Some(first) = blocks.iter().find(|block| !block.is_empty()) else {
            return Ok((in_place, null_mut()));
        };
        let rank = self.endpoint.rank.unsigned_abs() as usize;
        let before: usize = blocks.iter().take(rank).map(|block| block.len()).sum();
        let own = blocks.get(rank).map_or(0, |own| own.len());
        if own <= before || rank == 0 || self.endpoint.mpi.is_open_mpi() {
            return Ok((in_place, at(*first)));
        }
        let all = Region::allocated(first.addr(), blocks.iter().map(|block| block.len()).sum());
        Ok((self.copied(all)?, at(*first)))
    }

    /// Copies data that this MPI does not reduce in place; retained until the collective completes.
    fn copied(&mut self, data: Region) -> Result<*mut c_void> {
        let copy = Scratch::new(data.len()).ok_or_else(|| {
            failure!(DTL_ERROR_OUT_OF_MEMORY, "no {} bytes for a reduction in place", data.len())
        })?;
        copy.region().copy_from(data);
        let from = copy.region().addr().ptr();
        self.kept.push(Item::Data(copy));
        Ok(from)
    }

    fn equal_blocks(&mut self, args: &CollArgs) -> Result<()> {
        let (byte, n, root) = (self.byte(), count(args.bytes), args.root);
        let (from, into) = (self.own(args, &args.send), at(args.recv.whole()));
        match args.kind {
            Kind::Gather => mpi!(self, MPI_Gather, MPI_Igather, from, n, byte, into, n, byte, root),
            Kind::Scatter => {
                let (from, into) = (at(args.send.whole()), self.own(args, &args.recv));
                mpi!(self, MPI_Scatter, MPI_Iscatter, from, n, byte, into, n, byte, root)
            }
            Kind::Allgather => {
                mpi!(self, MPI_Allgather, MPI_Iallgather, from, n, byte, into, n, byte)
            }
            Kind::Alltoall => mpi!(self, MPI_Alltoall, MPI_Ialltoall, from, n, byte, into, n, byte),
            other => fail!(DTL_ERROR_INTERNAL, "{other:?} has no blocks of one size"),
        }
    }

    /// Calls a collective with all ranks' blocks on one side and this rank's part on the other.
    fn various_blocks(&mut self, args: &CollArgs) -> Result<()> {
        let (blocks, own) = match args.kind {
            Kind::Gatherv | Kind::Allgatherv => (&args.recv, &args.send),
            Kind::Scatterv => (&args.send, &args.recv),
            Kind::Alltoallv => return self.alltoallv(args),
            other => return fail!(DTL_ERROR_INTERNAL, "{other:?} has no blocks of several sizes"),
        };
        let all = self.spread(blocks)?;
        let (base, counts, places, unit) = (all.base, all.counts, all.places, all.unit);
        let own_bytes = if args.in_place { 0 } else { own.whole().len() };
        let bytes = TypedCount::of(self.endpoint.mpi, own_bytes)?;
        let (at, n, kind, root) = (self.own(args, own), bytes.count, bytes.datatype, args.root);
        let ended = match args.kind {
            Kind::Gatherv => mpi! {
                self, MPI_Gatherv, MPI_Igatherv, at, n, kind, base, counts, places, unit, root
            },
            Kind::Scatterv => mpi! {
                self, MPI_Scatterv, MPI_Iscatterv, base, counts, places, unit, at, n, kind, root
            },
            _ => {
                mpi!(self, MPI_Allgatherv, MPI_Iallgatherv, at, n, kind, base, counts, places, unit)
            }
        };
        bytes.release(self.endpoint.mpi)?;
        self.end(&all)?;
        ended
    }

    fn alltoallv(&mut self, args: &CollArgs) -> Result<()> {
        let into = self.spread(&args.recv)?;
        let from = if args.in_place { None } else { Some(self.spread(&args.send)?) };
        let (base, counts, places, unit) = match &from {
            Some(from) => (from.base, from.counts, from.places, from.unit),
            None => (self.endpoint.mpi.k.in_place.ptr(), into.counts, into.places, into.unit),
        };
        let (room, takes, gaps, kind) = (into.base, into.counts, into.places, into.unit);
        let ended = mpi! {
            self, MPI_Alltoallv, MPI_Ialltoallv,
            base, counts, places, unit, room, takes, gaps, kind
        };
        self.end(&into)?;
        from.map_or(Ok(()), |from| self.end(&from))?;
        ended
    }

    /// Returns the blocks of a buffer; none where it is not significant on this rank.
    pub(crate) fn ranges<'b>(&self, blocks: &'b Buffer) -> &'b [Region] {
        match blocks {
            Buffer::Blocks(blocks) => blocks,
            Buffer::Whole(_) => &[],
        }
    }

    /// Retains a list; returns its address.
    fn keep(&mut self, list: Vec<c_int>) -> *const c_int {
        let at = list.as_ptr();
        self.kept.push(Item::List(list));
        at
    }

    fn spread(&mut self, blocks: &Buffer) -> Result<Spread> {
        let blocks = self.ranges(blocks);
        let used = || blocks.iter().filter(|block| !block.is_empty());
        let base = used().map(|block| block.addr()).min().unwrap_or(Addr::NULL);
        let place =
            |block: &Region| if block.is_empty() { 0 } else { block.addr().get() - base.get() };
        let end = used().map(|block| place(block) + block.len()).max().unwrap_or(0);
        let unit = unit_of(used().flat_map(|block| [place(block), block.len()]), end)?;
        let in_units = |bytes: usize| count(bytes / unit);
        let counts = blocks.iter().map(|block| in_units(block.len())).collect();
        let places = blocks.iter().map(|block| in_units(place(block))).collect();
        let (counts, places) = (self.keep(counts), self.keep(places));
        let made =
            if unit > 1 { Some(message::make_unit(self.endpoint.mpi, count(unit))?) } else { None };
        Ok(Spread {
            base: base.ptr(),
            counts,
            places,
            unit: made.unwrap_or(self.byte()),
            is_made: made.is_some(),
        })
    }

    /// Frees the unit datatype of `spread`; operations started with the datatype are not affected.
    fn end(&self, spread: &Spread) -> Result<()> {
        if spread.is_made { message::free(self.endpoint.mpi, spread.unit) } else { Ok(()) }
    }
}

/// Returns the smallest unit, a power of two in bytes, in which numbers up to `end` fit `int`.
fn unit_of(numbers: impl Iterator<Item = usize>, end: usize) -> Result<usize> {
    if end <= MOST {
        return Ok(1);
    }
    let common = numbers.fold(0, |bits, number| bits | number);
    let most = 1_usize << common.trailing_zeros().min(30);
    if end / most <= MOST {
        return Ok(most);
    }
    fail!(
        DTL_ERROR_LIMIT,
        "blocks over {end} bytes whose places and sizes are multiples of {most} only: MPI counts \
         to 2^31; align them to more bytes"
    )
}

pub(crate) fn at(region: Region) -> *mut c_void {
    if region.is_empty() { null_mut() } else { region.addr().ptr() }
}

/// Converts a number that fits an `int` because of `takes` or `unit_of`.
fn count(number: usize) -> c_int {
    c_int::try_from(number).unwrap_or(c_int::MAX)
}
