//! MPI's own collectives: the arguments of ours in MPI's terms.
//!
//! Data that is only moved travels as bytes. Blocks of different sizes become counts and
//! displacements from the first of them in memory. What `int` does not count is in `large`.

use super::functions::{Count, Handle};
use super::ids::id_of;
use super::large;
use super::message::{self, Bytes};
use super::odd::Odd;
use super::op;
use super::transport::Endpoint;
use crate::error::{Result, fail};
use crate::runtime::backend::{Collective, OpId};
use crate::runtime::comm::types::Reduction;
use crate::sys::buf::{Addr, Region, Scratch};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

/// Most bytes or elements that MPI's older counts hold.
pub(super) const MOST: usize = c_int::MAX as usize;

/// Whether MPI's counts hold it. Decided from what all ranks pass alike; blocks of different sizes
/// are not known to all, and find a unit in which they fit.
pub(super) fn takes(endpoint: &Endpoint, call: &Collective) -> bool {
    let is_various = matches!(
        call,
        Collective::Gatherv { .. }
            | Collective::Scatterv { .. }
            | Collective::Allgatherv { .. }
            | Collective::Alltoallv { .. }
    );
    let has = is_various || bytes(call, endpoint.size) <= MOST || large::take(endpoint.mpi, call);
    has && !(endpoint.is_intel && has_empty_block(call))
}

/// What this rank has to count up to.
fn bytes(call: &Collective, size: c_int) -> usize {
    let ranks = size.unsigned_abs() as usize;
    let with =
        |own: &Option<Region>, blocks: &[Region]| own.map_or(0, Region::len).max(span(blocks));
    match call {
        Collective::Barrier => 0,
        Collective::Bcast { data, .. } => data.len(),
        Collective::Reduce { send, recv, .. } => send.unwrap_or(*recv).len(),
        Collective::Allreduce { recv, .. } | Collective::Scan { recv, .. } => recv.len(),
        Collective::ReduceScatter { blocks, .. } => blocks.iter().map(|b| b.len()).sum(),
        Collective::Gather { len, .. }
        | Collective::Scatter { len, .. }
        | Collective::Allgather { len, .. }
        | Collective::Alltoall { len, .. } => len.saturating_mul(ranks),
        Collective::Gatherv { send: own, blocks, .. }
        | Collective::Allgatherv { send: own, blocks }
        | Collective::Scatterv { recv: own, blocks, .. } => with(own, blocks),
        Collective::Alltoallv { send, blocks } => span(blocks).max(send.as_deref().map_or(0, span)),
    }
}

/// Bytes from the first to the last.
fn span(blocks: &[Region]) -> usize {
    let used = || blocks.iter().filter(|block| !block.is_empty());
    let first = used().map(|block| block.addr().get()).min().unwrap_or(0);
    used().map(|block| block.addr().get() - first + block.len()).max().unwrap_or(0)
}

/// An allgather with a block of nothing: Intel's takes millions of MPI_Test to end it (200 KB
/// beside it, MPI_Iallgatherv). All ranks pass the same sizes.
fn has_empty_block(call: &Collective) -> bool {
    matches!(call, Collective::Allgatherv { blocks, .. } if blocks
        .iter().any(|block| block.is_empty()))
}

/// Runs one to its end, if it [`takes`] it.
pub(super) fn run(endpoint: &Endpoint, call: &Collective) -> Option<Result<()>> {
    let is_large = bytes(call, endpoint.size) > MOST;
    if (is_large || endpoint.is_intel) && !takes(endpoint, call) {
        return None;
    }
    let _turn = match endpoint.mpi.enter() {
        Ok(turn) => turn,
        Err(error) => return Some(Err(error)),
    };
    let mut kept = Kept::default();
    Some(Call { endpoint, request: None, kept: &mut kept, is_large }.make(call))
}

/// Starts one.
pub(super) fn start(endpoint: &Endpoint, call: &Collective) -> Result<OpId> {
    let _turn = endpoint.mpi.enter()?;
    let (mut request, mut kept) = (0, Kept::default());
    let is_large = bytes(call, endpoint.size) > MOST;
    Call { endpoint, request: Some(&mut request), kept: &mut kept, is_large }.make(call)?;
    if !kept.0.is_empty() {
        endpoint.odd.add(request, Odd::Keeps(kept));
    }
    Ok(id_of(request, false))
}

/// One call of MPI: the form that waits, or the one that gives a request.
pub(super) struct Call<'a> {
    pub(super) endpoint: &'a Endpoint,
    pub(super) request: Option<&'a mut Handle>,
    pub(super) kept: &'a mut Kept,
    /// Whether `int` does not hold its bytes.
    is_large: bool,
}

/// What MPI reads until a collective is over.
#[derive(Default)]
pub(super) struct Kept(Vec<Item>);

#[allow(dead_code, reason = "read by MPI only")]
pub(super) enum Item {
    List(Vec<c_int>),
    Counts(Vec<Count>),
    Places(Vec<isize>),
    Data(Scratch),
}

impl Kept {
    /// Its memory does not move with it.
    pub(super) fn push(&mut self, item: Item) {
        self.0.push(item);
    }
}

/// Calls one of the two forms; the communicator, and the request, are the last arguments of all of
/// them.
macro_rules! mpi {
    ($self:ident, $now:ident, $later:ident $(, $arg:expr)*) => {{
        let (mpi, comm) = ($self.endpoint.mpi, $self.endpoint.user);
        let code = match $self.request.as_deref_mut() {
            // SAFETY: the regions are valid until the collective is over, by `Transport`; the lists
            // are kept as long; counts fit, by `takes`.
            None => unsafe { (mpi.call.$now)($($arg,)* comm) },
            // SAFETY: as above.
            Some(request) => unsafe { (mpi.call.$later)($($arg,)* comm, request) },
        };
        mpi.check(stringify!($now), code)
    }};
}

/// Blocks of memory as counts and displacements, in a unit.
struct Spread {
    base: *mut c_void,
    counts: *const c_int,
    places: *const c_int,
    unit: Handle,
    is_made: bool,
}

impl Call<'_> {
    fn make(&mut self, call: &Collective) -> Result<()> {
        if self.is_large && large::can_be_used(self.endpoint.mpi) {
            return self.make_large(call);
        }
        match call {
            Collective::Barrier => mpi!(self, MPI_Barrier, MPI_Ibarrier),
            Collective::Bcast { data, root } => {
                let (at, count, byte) = (at(*data), count(data.len()), self.byte());
                mpi!(self, MPI_Bcast, MPI_Ibcast, at, count, byte, *root)
            }
            Collective::Reduce { by, .. }
            | Collective::Allreduce { by, .. }
            | Collective::ReduceScatter { by, .. }
            | Collective::Scan { by, .. } => self.reduction(call, by),
            Collective::Gather { .. }
            | Collective::Scatter { .. }
            | Collective::Allgather { .. }
            | Collective::Alltoall { .. } => self.equal_blocks(call),
            _ => self.various_blocks(call),
        }
    }

    pub(super) fn byte(&self) -> Handle {
        self.endpoint.mpi.k.byte
    }

    /// A rank's own part; in place if it has none.
    pub(super) fn own(&self, part: Option<Region>) -> *mut c_void {
        part.map_or(self.endpoint.mpi.k.in_place.ptr(), at)
    }

    fn reduction(&mut self, call: &Collective, by: &Reduction) -> Result<()> {
        let (datatype, op) = op::pair(self.endpoint.mpi, by)?;
        let elements = |bytes: Region| count(bytes.len() / by.element.max(1));
        match call {
            Collective::Reduce { send, recv, root, .. } => {
                let (n, from) =
                    (elements(send.unwrap_or(*recv)), self.reduced_from(*send, *recv, *root)?);
                mpi!(self, MPI_Reduce, MPI_Ireduce, from, at(*recv), n, datatype, op, *root)
            }
            Collective::Allreduce { send, recv, .. } => {
                let (n, from) = (elements(*recv), self.own(*send));
                mpi!(self, MPI_Allreduce, MPI_Iallreduce, from, at(*recv), n, datatype, op)
            }
            Collective::Scan { send, recv, exclusive, .. } => {
                let (n, from) = (elements(*recv), self.own(*send));
                if *exclusive {
                    mpi!(self, MPI_Exscan, MPI_Iexscan, from, at(*recv), n, datatype, op)
                } else {
                    mpi!(self, MPI_Scan, MPI_Iscan, from, at(*recv), n, datatype, op)
                }
            }
            Collective::ReduceScatter { send, blocks, recv, .. } => {
                let counts: Vec<c_int> = blocks.iter().map(|block| elements(*block)).collect();
                let counts = self.keep(counts);
                let (from, into) = match send {
                    Some(_) => (self.own(*send), at(*recv)),
                    None => self.scattered_in_place(blocks)?,
                };
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
            _ => fail!(DTL_ERROR_INTERNAL, "no reduction"),
        }
    }

    /// What a reduce takes. MPICH 4 takes MPI_IN_PLACE for an address at roots other than 0 (more
    /// than 2 KiB).
    pub(super) fn reduced_from(
        &mut self,
        send: Option<Region>,
        recv: Region,
        root: i32,
    ) -> Result<*mut c_void> {
        let hides = send.is_none() && root != 0 && !self.endpoint.mpi.is_open_mpi();
        if hides { self.copied(recv) } else { Ok(self.own(send)) }
    }

    /// The two buffers of a reduce_scatter in place. Its data begins where the first block that has
    /// any does, whoever's that is. MPICH copies a rank's own block to there, and ends the process
    /// if the two overlap: those are passed as a copy.
    pub(super) fn scattered_in_place(
        &mut self,
        blocks: &[Region],
    ) -> Result<(*mut c_void, *mut c_void)> {
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

    /// A copy of data that this MPI does not reduce in place, kept until the collective is over.
    fn copied(&mut self, data: Region) -> Result<*mut c_void> {
        let Some(copy) = Scratch::new(data.len()) else {
            return fail!(
                DTL_ERROR_OUT_OF_MEMORY,
                "no {} bytes for a reduction in place",
                data.len()
            );
        };
        copy.region().copy_from(data);
        let from = copy.region().addr().ptr();
        self.kept.push(Item::Data(copy));
        Ok(from)
    }

    fn equal_blocks(&mut self, call: &Collective) -> Result<()> {
        let byte = self.byte();
        match call {
            Collective::Gather { send, recv, len, root } => {
                let (from, n) = (self.own(*send), count(*len));
                mpi!(self, MPI_Gather, MPI_Igather, from, n, byte, at(*recv), n, byte, *root)
            }
            Collective::Scatter { send, recv, len, root } => {
                let (into, n) = (self.own(*recv), count(*len));
                mpi!(self, MPI_Scatter, MPI_Iscatter, at(*send), n, byte, into, n, byte, *root)
            }
            Collective::Allgather { send, recv, len } => {
                let (from, n) = (self.own(*send), count(*len));
                mpi!(self, MPI_Allgather, MPI_Iallgather, from, n, byte, at(*recv), n, byte)
            }
            Collective::Alltoall { send, recv, len } => {
                let (from, n) = (self.own(*send), count(*len));
                mpi!(self, MPI_Alltoall, MPI_Ialltoall, from, n, byte, at(*recv), n, byte)
            }
            _ => fail!(DTL_ERROR_INTERNAL, "no blocks of one size"),
        }
    }

    fn various_blocks(&mut self, call: &Collective) -> Result<()> {
        match call {
            Collective::Gatherv { send: own, blocks, .. }
            | Collective::Allgatherv { send: own, blocks }
            | Collective::Scatterv { recv: own, blocks, .. } => {
                self.blocks_and_own(call, blocks, *own)
            }
            Collective::Alltoallv { send, blocks } => self.alltoallv(send.as_deref(), blocks),
            _ => fail!(DTL_ERROR_INTERNAL, "no blocks of several sizes"),
        }
    }

    /// Those with a block for each rank on one side and this rank's own part on the other.
    fn blocks_and_own(
        &mut self,
        call: &Collective,
        blocks: &[Region],
        own: Option<Region>,
    ) -> Result<()> {
        let all = self.spread(blocks)?;
        let (base, counts, places, unit) = (all.base, all.counts, all.places, all.unit);
        let bytes = Bytes::of(self.endpoint.mpi, own.map_or(0, Region::len))?;
        let (at, n, kind) = (self.own(own), bytes.count, bytes.datatype);
        let ended = match call {
            Collective::Gatherv { root, .. } => {
                mpi!(
                    self,
                    MPI_Gatherv,
                    MPI_Igatherv,
                    at,
                    n,
                    kind,
                    base,
                    counts,
                    places,
                    unit,
                    *root
                )
            }
            Collective::Scatterv { root, .. } => {
                mpi!(
                    self,
                    MPI_Scatterv,
                    MPI_Iscatterv,
                    base,
                    counts,
                    places,
                    unit,
                    at,
                    n,
                    kind,
                    *root
                )
            }
            _ => {
                mpi!(self, MPI_Allgatherv, MPI_Iallgatherv, at, n, kind, base, counts, places, unit)
            }
        };
        bytes.release(self.endpoint.mpi)?;
        self.end(&all)?;
        ended
    }

    fn alltoallv(&mut self, send: Option<&[Region]>, recv: &[Region]) -> Result<()> {
        let into = self.spread(recv)?;
        let from = send.map(|send| self.spread(send)).transpose()?;
        let (base, counts, places, unit) = match &from {
            Some(from) => (from.base, from.counts, from.places, from.unit),
            None => (self.endpoint.mpi.k.in_place.ptr(), into.counts, into.places, into.unit),
        };
        let (room, takes, gaps, kind) = (into.base, into.counts, into.places, into.unit);
        let ended = mpi!(
            self,
            MPI_Alltoallv,
            MPI_Ialltoallv,
            base,
            counts,
            places,
            unit,
            room,
            takes,
            gaps,
            kind
        );
        self.end(&into)?;
        from.map_or(Ok(()), |from| self.end(&from))?;
        ended
    }

    /// Keeps a list; its address.
    fn keep(&mut self, list: Vec<c_int>) -> *const c_int {
        let at = list.as_ptr();
        self.kept.push(Item::List(list));
        at
    }

    fn spread(&mut self, blocks: &[Region]) -> Result<Spread> {
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

    /// Frees a unit that was made; what was started with it goes on.
    fn end(&self, spread: &Spread) -> Result<()> {
        if spread.is_made { message::free(self.endpoint.mpi, spread.unit) } else { Ok(()) }
    }
}

/// The smallest power of two of bytes in which everything up to `end` can be counted.
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

pub(super) fn at(region: Region) -> *mut c_void {
    if region.is_empty() { null_mut() } else { region.addr().ptr() }
}

/// A number that `takes` or `unit_of` has made fit.
fn count(number: usize) -> c_int {
    c_int::try_from(number).unwrap_or(c_int::MAX)
}
