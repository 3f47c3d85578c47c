//! Native collectives of MPI: conversion of the library's arguments to MPI's.
//!
//! Data that is moved but not reduced is sent as bytes. Blocks of different sizes are described by
//! counts and by displacements relative to the block with the lowest address. `large_count` handles
//! counts that exceed INT_MAX.

use super::{large_count, reduce_op};
use crate::backend::mpi::ids::id_of;
use crate::backend::mpi::library::functions::{Count, Handle};
use crate::backend::mpi::message::{self, Datatype};
use crate::backend::mpi::op_extras::{OpExtra, RetainedArg};
use crate::backend::mpi::transport::MpiTransport;
use crate::error::{Result, fail, failure};
use crate::runtime::comm::coll::{Buffer, CollArgs, CollCall, Extent, Kind};
use crate::runtime::component::{
    BlockingCollectives, NativeCollectives, OpId, ReductionId, Reductions, Refusal, Transport,
};
use crate::runtime::types::Reduction;
use crate::sys::memory::buf::{Addr, Region, Scratch};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

/// Maximum number of bytes or elements that a count argument of type `int` can represent.
pub(crate) const MOST: usize = c_int::MAX as usize;

/// Returns the number of bytes that this rank's counts must be able to represent: the larger of its
/// send and receive sizes.
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
/// complete it (observed with an MPI_Iallgatherv in which another block has 200 KB). All ranks pass
/// the same sizes, so all ranks get the same result.
fn has_empty_block(args: &CollArgs) -> bool {
    args.kind == Kind::Allgatherv && args.recv.ranges().iter().any(|block| block.is_empty())
}

impl NativeCollectives for MpiTransport {
    fn refuses(&self, call: &CollCall<'_>) -> Result<Option<Refusal>> {
        Ok((!self.has(call.args)).then_some("MPI has no equal collective".into()))
    }

    fn start(&self, call: &CollCall<'_>) -> Result<OpId> {
        let args = call.args;
        let _turn = self.mpi.enter()?;
        let is_large = bytes(args, self.size) > MOST && large_count::can_be_used(self.mpi);
        let (mut request, kept) = (0, Vec::new());
        let mut call = MpiCall { endpoint: self, request: Some(&mut request), kept, is_large };
        call.make(args)?;
        let kept = call.kept;
        if !kept.is_empty() {
            self.extras.add(request, OpExtra::Keeps(kept));
        }
        Ok(id_of(request, false))
    }

    fn can_cancel(&self) -> bool {
        false
    }

    fn blocking(&self) -> Option<&dyn BlockingCollectives> {
        Some(self)
    }

    fn note_revoked(&self) {
        self.is_revoked.store(true, Ordering::Relaxed);
    }

    fn subset(&self, ranks: &[i32], number: u32) -> Result<Option<Box<dyn Transport>>> {
        self.of_some(ranks, number).map(|endpoint| Some(Box::new(endpoint) as Box<dyn Transport>))
    }
}

impl MpiTransport {
    /// Returns true if MPI can execute this collective with its counts. All ranks must make the
    /// same decision, so it depends only on arguments that are equal on all ranks. If blocks differ
    /// in size, the sizes of all blocks are not known on every rank. Such a collective is therefore
    /// accepted whatever its sizes (except an allgather with an empty block in Intel MPI): its
    /// counts are in units that are large enough for the counts to fit an `int`.
    fn has(&self, args: &CollArgs) -> bool {
        let is_various = args.row.is_varied() && !args.row.reduces;
        let has = is_various || bytes(args, self.size) <= MOST || large_count::take(self, args);
        has && !(self.is_intel && has_empty_block(args))
    }
}

impl BlockingCollectives for MpiTransport {
    fn run(&self, args: &CollArgs) -> Option<Result<()>> {
        let is_large = bytes(args, self.size) > MOST;
        if (is_large || self.is_intel) && !self.has(args) {
            return None;
        }
        let _turn = match self.mpi.enter() {
            Ok(turn) => turn,
            Err(error) => return Some(Err(error)),
        };
        let is_large = is_large && large_count::can_be_used(self.mpi);
        Some(MpiCall { endpoint: self, request: None, kept: Vec::new(), is_large }.make(args))
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
}

/// One call to an MPI collective: to the blocking function, or to the nonblocking one if `request`
/// is set.
struct MpiCall<'a> {
    endpoint: &'a MpiTransport,
    request: Option<&'a mut Handle>,
    kept: Vec<RetainedArg>,
    /// True if the _c functions are called, because a count argument of type `int` cannot represent
    /// the number of bytes.
    is_large: bool,
}

/// Calls an MPI function: the nonblocking one if the call has a request, otherwise the blocking
/// one. The brackets contain both names, optionally followed by the names of their _c variants,
/// which are called if `is_large` is true. The macro appends the communicator and, for a
/// nonblocking function, the request to the arguments. The conversions of counts (`as _`) and lists
/// (`cast`) infer the parameter types of the called function.
macro_rules! mpi {
    ($self:ident, [$now:ident $later:ident] $(, $arg:expr)*) => {{
        let (mpi, comm) = ($self.endpoint.mpi, $self.endpoint.user);
        let code = match $self.request.as_deref_mut() {
            // SAFETY: the regions are valid until the collective completes, per `Transport`; the
            // lists are retained as long; the counts fit, by `refuses`.
            None => unsafe { (mpi.call.$now)($($arg,)* comm) },
            // SAFETY: the regions are valid until the collective completes, per `Transport`; the
            // lists are retained as long; counts fit, by `refuses`; the request is writable.
            Some(request) => unsafe { (mpi.call.$later)($($arg,)* comm, request) },
        };
        mpi.check(stringify!($now), code)
    }};
    (
        $self:ident, [$now:ident $later:ident $large_now:ident $large_later:ident]
        $(, $arg:expr)*
    ) => {
        if $self.is_large {
            let (mpi, comm) = ($self.endpoint.mpi, $self.endpoint.user);
            let request = $self.request.as_deref_mut();
            let code = match (request, mpi.call.$large_now, mpi.call.$large_later) {
                // SAFETY: the regions are valid until the collective completes, per `Transport`;
                // the lists are retained as long.
                (None, Some(call), _) => unsafe { call($($arg,)* comm) },
                // SAFETY: the regions are valid until the collective completes, per `Transport`;
                // the lists are retained as long; the request is a writable word.
                (Some(request), _, Some(call)) => unsafe { call($($arg,)* comm, request) },
                _ => return fail!(
                    DTL_ERROR_UNAVAILABLE,
                    "{} has MPI_Bcast_c, but lacks {} or {}",
                    mpi.version,
                    stringify!($large_now),
                    stringify!($large_later)
                ),
            };
            mpi.check(stringify!($large_now), code)
        } else {
            mpi!($self, [$now $later] $(, $arg)*)
        }
    };
}

/// Blocks of memory as lists of counts and displacements in multiples of a unit datatype: MPI_BYTE
/// or a derived datatype.
struct Spread {
    base: *mut c_void,
    counts: *const c_void,
    places: *const c_void,
    unit: Datatype<'static>,
}

impl MpiCall<'_> {
    fn make(&mut self, args: &CollArgs) -> Result<()> {
        match (args.kind, &args.reduction) {
            (Kind::Barrier, _) => mpi!(self, [MPI_Barrier MPI_Ibarrier]),
            (Kind::Bcast, _) => {
                let (at, n, byte) = (at(args.recv.whole()), args.bytes, self.byte());
                mpi! {
                    self, [MPI_Bcast MPI_Ibcast MPI_Bcast_c MPI_Ibcast_c],
                    at, n as _, byte, args.root
                }
            }
            (_, Some(by)) => self.reduction(args, by),
            _ if args.row.is_varied() => self.various_blocks(args),
            _ => self.equal_blocks(args),
        }
    }

    fn byte(&self) -> Handle {
        self.endpoint.mpi.k.byte
    }

    /// Returns MPI_IN_PLACE if the collective is in place, else the address of `buffer`.
    fn own(&self, args: &CollArgs, buffer: &Buffer) -> *mut c_void {
        if args.in_place { self.endpoint.mpi.k.in_place.ptr() } else { at(buffer.whole()) }
    }

    fn reduction(&mut self, args: &CollArgs, by: &Reduction) -> Result<()> {
        let (datatype, op) = reduce_op::pair(self.endpoint.mpi, by)?;
        let elements = |bytes: usize| bytes / args.element();
        let (n, into) = (elements(args.bytes), at(args.recv.whole()));
        let from = self.own(args, &args.send);
        match args.kind {
            Kind::Reduce => {
                // For data larger than 2 KiB, MPICH 4 treats MPI_IN_PLACE as an address if the root
                // is not rank 0. An in-place reduce with such a root therefore uses a copy of the
                // data, except with Open MPI.
                let (root, is_open_mpi) = (args.root, self.endpoint.mpi.is_open_mpi());
                let hides = args.in_place && root != 0 && !is_open_mpi;
                let from = if hides { self.copied(args.recv.whole())? } else { from };
                mpi! {
                    self, [MPI_Reduce MPI_Ireduce MPI_Reduce_c MPI_Ireduce_c],
                    from, into, n as _, datatype, op, root
                }
            }
            Kind::Allreduce => mpi! {
                self, [MPI_Allreduce MPI_Iallreduce MPI_Allreduce_c MPI_Iallreduce_c],
                from, into, n as _, datatype, op
            },
            Kind::Scan => mpi! {
                self, [MPI_Scan MPI_Iscan MPI_Scan_c MPI_Iscan_c], from, into, n as _, datatype, op
            },
            Kind::Exscan => mpi! {
                self, [MPI_Exscan MPI_Iexscan MPI_Exscan_c MPI_Iexscan_c],
                from, into, n as _, datatype, op
            },
            _ => {
                let blocks: Vec<Region> =
                    (0..self.endpoint.size).map(|rank| args.send.block(rank, args.bytes)).collect();
                let counts = self.keep(blocks.iter().map(|block| elements(block.len())));
                let (from, into) = self.scattered_from(args, &blocks)?;
                mpi! {
                    self, [MPI_Reduce_scatter MPI_Ireduce_scatter
                        MPI_Reduce_scatter_c MPI_Ireduce_scatter_c],
                    from, into, counts.cast(), datatype, op
                }
            }
        }
    }

    /// Returns the send and the receive buffer of a reduce_scatter.
    fn scattered_from(
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

    /// Returns the send and the receive buffer of an in-place reduce_scatter. The data begins at
    /// the first nonempty block, whichever rank it belongs to. MPICH copies a rank's own block to
    /// that address and aborts the process if source and destination overlap. If they would
    /// overlap, the send buffer is a copy of the data.
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

    /// Copies data that the loaded MPI library cannot reduce in place, and returns the address of
    /// the copy. The copy is retained until the collective completes.
    fn copied(&mut self, data: Region) -> Result<*mut c_void> {
        let copy = Scratch::new(data.len()).ok_or_else(|| {
            failure!(DTL_ERROR_OUT_OF_MEMORY, "no {} bytes for a reduction in place", data.len())
        })?;
        copy.region().copy_from(data);
        let from = copy.region().addr().ptr();
        self.kept.push(RetainedArg::Data(copy));
        Ok(from)
    }

    fn equal_blocks(&mut self, args: &CollArgs) -> Result<()> {
        let (byte, n, root) = (self.byte(), args.bytes, args.root);
        let (from, into) = (self.own(args, &args.send), at(args.recv.whole()));
        match args.kind {
            Kind::Gather => mpi! {
                self, [MPI_Gather MPI_Igather MPI_Gather_c MPI_Igather_c],
                from, n as _, byte, into, n as _, byte, root
            },
            Kind::Scatter => {
                let (from, into) = (at(args.send.whole()), self.own(args, &args.recv));
                mpi! {
                    self, [MPI_Scatter MPI_Iscatter MPI_Scatter_c MPI_Iscatter_c],
                    from, n as _, byte, into, n as _, byte, root
                }
            }
            Kind::Allgather => mpi! {
                self, [MPI_Allgather MPI_Iallgather MPI_Allgather_c MPI_Iallgather_c],
                from, n as _, byte, into, n as _, byte
            },
            Kind::Alltoall => mpi! {
                self, [MPI_Alltoall MPI_Ialltoall MPI_Alltoall_c MPI_Ialltoall_c],
                from, n as _, byte, into, n as _, byte
            },
            other => fail!(DTL_ERROR_INTERNAL, "{other:?} has no blocks of one size"),
        }
    }

    /// Calls a collective with blocks of different sizes. Except in alltoallv, one buffer has the
    /// blocks of all ranks, and the other has the block of this rank.
    fn various_blocks(&mut self, args: &CollArgs) -> Result<()> {
        let (blocks, own) = match args.kind {
            Kind::Gatherv | Kind::Allgatherv => (&args.recv, &args.send),
            Kind::Scatterv => (&args.send, &args.recv),
            Kind::Alltoallv => return self.alltoallv(args),
            other => return fail!(DTL_ERROR_INTERNAL, "{other:?} has no blocks of several sizes"),
        };
        let (mpi, all) = (self.endpoint.mpi, self.spread(blocks)?);
        let (base, counts, places, unit) = (all.base, all.counts, all.places, all.unit.1);
        let own_bytes = if args.in_place { 0 } else { own.whole().len() };
        let (n, own_type) = if self.is_large {
            (own_bytes, Datatype(mpi, self.byte()))
        } else {
            let (count, datatype) = message::typed_count(mpi, own_bytes)?;
            (count as usize, datatype)
        };
        let kind = own_type.1;
        let (at, root) = (self.own(args, own), args.root);
        match args.kind {
            Kind::Gatherv => mpi! {
                self, [MPI_Gatherv MPI_Igatherv MPI_Gatherv_c MPI_Igatherv_c],
                at, n as _, kind, base, counts.cast(), places.cast(), unit, root
            },
            Kind::Scatterv => mpi! {
                self, [MPI_Scatterv MPI_Iscatterv MPI_Scatterv_c MPI_Iscatterv_c],
                base, counts.cast(), places.cast(), unit, at, n as _, kind, root
            },
            _ => mpi! {
                self, [MPI_Allgatherv MPI_Iallgatherv MPI_Allgatherv_c MPI_Iallgatherv_c],
                at, n as _, kind, base, counts.cast(), places.cast(), unit
            },
        }
    }

    fn alltoallv(&mut self, args: &CollArgs) -> Result<()> {
        let into = self.spread(&args.recv)?;
        let from = if args.in_place { None } else { Some(self.spread(&args.send)?) };
        let (base, counts, places, unit) = match &from {
            Some(from) => (from.base, from.counts, from.places, from.unit.1),
            None => (self.endpoint.mpi.k.in_place.ptr(), into.counts, into.places, into.unit.1),
        };
        let (room, takes, gaps, kind) = (into.base, into.counts, into.places, into.unit.1);
        mpi! {
            self, [MPI_Alltoallv MPI_Ialltoallv MPI_Alltoallv_c MPI_Ialltoallv_c],
            base, counts.cast(), places.cast(), unit, room, takes.cast(), gaps.cast(), kind
        }
    }

    /// Returns the blocks of a buffer, or an empty list if the buffer is not significant on this
    /// rank.
    fn ranges<'b>(&self, blocks: &'b Buffer) -> &'b [Region] {
        match blocks {
            Buffer::Blocks(blocks) => blocks,
            Buffer::Whole(_) => &[],
        }
    }

    /// Retains a list of counts or displacements; returns its address. The elements are `int`, or
    /// `MPI_Count` and `MPI_Aint`, which both have 64 bits.
    fn keep(&mut self, numbers: impl Iterator<Item = usize>) -> *const c_void {
        if self.is_large {
            let list: Vec<Count> = numbers.map(|number| number as Count).collect();
            let at = list.as_ptr().cast();
            self.kept.push(RetainedArg::Counts(list));
            at
        } else {
            let list: Vec<c_int> = numbers.map(count).collect();
            let at = list.as_ptr().cast();
            self.kept.push(RetainedArg::List(list));
            at
        }
    }

    fn spread(&mut self, blocks: &Buffer) -> Result<Spread> {
        let blocks = self.ranges(blocks);
        let used = || blocks.iter().filter(|block| !block.is_empty());
        let base = used().map(|block| block.addr()).min().unwrap_or(Addr::NULL);
        let place =
            |block: &Region| if block.is_empty() { 0 } else { block.addr().get() - base.get() };
        let end = used().map(|block| place(block) + block.len()).max().unwrap_or(0);
        let numbers = used().flat_map(|block| [place(block), block.len()]);
        let unit = if self.is_large { 1 } else { unit_of(numbers, end)? };
        let counts = self.keep(blocks.iter().map(|block| block.len() / unit));
        let places = self.keep(blocks.iter().map(|block| place(block) / unit));
        let mpi = self.endpoint.mpi;
        let unit = if unit > 1 { message::make_unit(mpi, count(unit))? } else { self.byte() };
        Ok(Spread { base: base.ptr(), counts, places, unit: Datatype(mpi, unit) })
    }
}

/// Returns the unit, in bytes, of counts and displacements: 1 if `end` (the end of the last block,
/// in bytes) fits an `int`, otherwise the largest power of two, up to 2^30, that divides all
/// `numbers`. Returns an error if `end` does not fit an `int` even in this unit.
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

fn at(region: Region) -> *mut c_void {
    if region.is_empty() { null_mut() } else { region.addr().ptr() }
}

/// Converts a number to `int`. The checks in `refuses` or `unit_of` ensure that the number fits.
fn count(number: usize) -> c_int {
    c_int::try_from(number).unwrap_or(c_int::MAX)
}
