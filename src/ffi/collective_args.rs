//! Arguments of collectives, for both forms of each: as C passes them, and checked.

use super::args::is_in_place;
use super::blocks::{Blocks, array};
use super::elements::{elements, usual_data};
use crate::abi::word::{dtl_dtype_t, dtl_reduce_op_t};
use crate::error::{Result, fail};
use crate::runtime::comm::Comm;
use crate::runtime::comm::coll::{self, Buffer, CollArgs, Extent, Kind, Neighbors, Root};
use crate::runtime::comm::types::{element_size, reduction};
use crate::sys::buf::Region;
use crate::sys::handle_ref::HazardRef;
use std::ffi::c_void;
use std::ptr;

/// One of the two buffers, as C describes it.
#[derive(Clone, Copy)]
pub(super) struct Side {
    name: &'static str,
    buf: *const c_void,
    /// Elements of a rank's part, or of one block; of blocks with their own sizes: NULL, or where
    /// their sizes and places are.
    count: u64,
    counts: *const u64,
    displs: *const u64,
    /// Ranks of the blocks, of a neighborhood collective.
    neighbors: Option<(&'static str, u64, *const i32)>,
}

impl Side {
    /// A buffer that the collective does not have.
    pub(super) const NONE: Side = Side::new("", ptr::null(), 0);

    /// One with `count` elements, or with so many for each rank.
    #[inline(always)]
    pub(super) const fn new(name: &'static str, buf: *const c_void, count: u64) -> Side {
        Side { name, buf, count, counts: ptr::null(), displs: ptr::null(), neighbors: None }
    }

    /// One of blocks with their own sizes and places.
    #[inline(always)]
    pub(super) fn blocks(
        name: &'static str,
        buf: *const c_void,
        counts: *const u64,
        displs: *const u64,
    ) -> Side {
        Side { counts, displs, ..Side::new(name, buf, 0) }
    }

    /// The same for chosen ranks; `noun` is the name of their list.
    #[inline(always)]
    pub(super) fn of(self, noun: &'static str, count: u64, ranks: *const i32) -> Side {
        Side { neighbors: Some((noun, count, ranks)), ..self }
    }
}

/// Arguments of a collective as C passes them.
#[derive(Clone, Copy)]
pub(super) struct CArgs {
    pub(super) kind: Kind,
    pub(super) send: Side,
    pub(super) recv: Side,
    pub(super) dtype: dtl_dtype_t,
    pub(super) op: dtl_reduce_op_t,
    pub(super) root: i32,
}

impl CArgs {
    #[inline(always)]
    pub(super) const fn new(kind: Kind, send: Side, recv: Side, dtype: dtl_dtype_t) -> CArgs {
        CArgs { kind, send, recv, dtype, op: -1, root: -1 }
    }
}

/// Checks the arguments of a collective.
///
/// # Safety
/// The buffers stay valid until the collective is over; the lists are read before this returns.
pub(super) unsafe fn build(comm: &Comm, c: &CArgs) -> Result<CollArgs> {
    let row = c.kind.row();
    let mut args = CollArgs { root: c.root, ..CollArgs::new(c.kind) };
    if row.recv == Extent::Nothing {
        return Ok(args);
    }
    args.dtype = c.dtype;
    if row.reduces {
        args.reduction = Some(reduction(c.dtype, c.op)?);
    }
    let place = if row.root == Root::Send { c.recv.buf } else { c.send.buf };
    // Where a neighborhood collective has DTL_IN_PLACE, its blocks refuse it.
    args.in_place = is_in_place(place) && c.send.neighbors.is_none();
    if row.is_varied() {
        // SAFETY: passed on.
        return unsafe { build_varied(comm, c, args) };
    }
    args.count = c.recv.count;
    let has_blocks = row.send == Extent::All || row.recv == Extent::All;
    let all = if has_blocks {
        let all = for_all(comm, row.reduces, args.count)?;
        args.bytes = bytes_of(args.count, c.dtype)?;
        all
    } else {
        0
    };
    let elements_of = |extent| if extent == Extent::All { all } else { args.count };
    let is_root = comm.rank() == c.root;
    let (mut send, mut recv) = (Region::EMPTY, Region::EMPTY);
    if row.send != Extent::Nothing && (row.root != Root::Send || is_root) {
        // The data of a reduction in place whose result is a block lie where that goes.
        let is_within = args.in_place && row.reduces && has_blocks;
        let from = if is_within { &c.recv } else { &c.send };
        if is_within || !args.in_place || row.root == Root::Send {
            // SAFETY: passed on.
            send = unsafe { elements(from.buf, elements_of(row.send), c.dtype, from.name) }?;
        }
    }
    if (row.root != Root::Recv || is_root) && !(args.in_place && row.root == Root::Send) {
        // SAFETY: passed on.
        recv = unsafe { elements(c.recv.buf, elements_of(row.recv), c.dtype, c.recv.name) }?;
    }
    if !has_blocks {
        args.bytes = bytes_of(args.count, c.dtype)?;
    }
    (args.send, args.recv) = (Buffer::Whole(send), Buffer::Whole(recv));
    if args.in_place {
        args.set_place(comm.rank());
    }
    Ok(args)
}

/// Those with blocks of their own sizes and places.
///
/// # Safety
/// As [`build`].
#[inline(never)]
unsafe fn build_varied(comm: &Comm, c: &CArgs, mut args: CollArgs) -> Result<CollArgs> {
    let (row, rank) = (c.kind.row(), comm.rank());
    let (mut out, mut into) = (c.send, c.recv);
    if row.reduces {
        // SAFETY: passed on.
        let counts = unsafe { array(out.counts, ranks(comm), "rcounts") }?;
        into.count = counts.get(rank.unsigned_abs() as usize).copied().unwrap_or(0);
        if args.in_place {
            out.buf = into.buf;
        }
    }
    if let (Some(dests), Some(sources)) = (out.neighbors, into.neighbors) {
        // SAFETY: passed on.
        let dests = unsafe { neighbors("dest_count", dests) }?;
        // SAFETY: passed on.
        let sources = unsafe { neighbors("source_count", sources) }?;
        args.neighbors = Some(Box::new(Neighbors { dests, sources }));
    }
    let is_root = rank == c.root;
    let sends = match row.root {
        Root::Send => is_root,
        _ => !args.in_place || row.reduces,
    };
    let receives = match row.root {
        Root::Recv => is_root,
        Root::Send => !args.in_place,
        _ => true,
    };
    // SAFETY: passed on.
    let (send, sent) = unsafe { buffer(comm, &out, (row.send, c.dtype), sends, false) }?;
    // SAFETY: passed on.
    let (recv, received) = unsafe { buffer(comm, &into, (row.recv, c.dtype), receives, true) }?;
    (args.send, args.recv) = (send, recv);
    args.count = match (row.send, row.recv) {
        (Extent::Own, _) => out.count,
        (_, Extent::Own) => into.count,
        _ if args.in_place => received,
        _ => sent,
    };
    args.bytes = bytes_of(args.count, c.dtype)?;
    if args.in_place {
        args.set_place(rank);
    } else if args.neighbors.is_none() {
        check_own(&args, rank)?;
    }
    Ok(args)
}

/// A buffer of a collective with blocks, and how many elements it has.
///
/// # Safety
/// As [`build`].
unsafe fn buffer(
    comm: &Comm,
    side: &Side,
    (extent, dtype): (Extent, dtl_dtype_t),
    is_passed: bool,
    receives: bool,
) -> Result<(Buffer, u64)> {
    if !is_passed {
        element_size(dtype)?;
        return Ok((Buffer::NONE, 0));
    }
    if extent == Extent::Own {
        // SAFETY: passed on.
        let own = unsafe { elements(side.buf, side.count, dtype, side.name) }?;
        return Ok((Buffer::Whole(own), side.count));
    }
    let count = side.neighbors.map_or(ranks(comm), |(_, count, _)| count as usize);
    // SAFETY: passed on.
    let blocks =
        unsafe { Blocks::new(side.buf, side.counts, side.displs, count, dtype, side.name) }?;
    // SAFETY: passed on.
    Ok((Buffer::Blocks(unsafe { blocks.regions(receives) }?), blocks.total()))
}

/// Elements in one block for each rank.
fn for_all(comm: &Comm, reduces: bool, count: u64) -> Result<u64> {
    match count.checked_mul(u64::from(comm.size().unsigned_abs())) {
        Some(all) => Ok(all),
        None => {
            let name = if reduces { "count" } else { "count_per_rank" };
            fail!(DTL_ERROR_INVALID_ARGUMENT, "{name} {count} is more than memory can hold")
        }
    }
}

#[inline]
fn bytes_of(count: u64, dtype: dtl_dtype_t) -> Result<usize> {
    let size = element_size(dtype)?;
    match usize::try_from(count).ok().and_then(|count| count.checked_mul(size)) {
        Some(bytes) => Ok(bytes),
        None => {
            fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "{count} elements of {size} bytes are more than memory can hold"
            )
        }
    }
}

fn ranks(comm: &Comm) -> usize {
    comm.size().unsigned_abs() as usize
}

/// The list of neighbors.
///
/// # Safety
/// As [`array`].
unsafe fn neighbors(
    count_name: &str,
    (noun, count, ranks): (&str, u64, *const i32),
) -> Result<Vec<i32>> {
    match usize::try_from(count) {
        // SAFETY: passed on.
        Ok(count) if count <= 1 << 20 => unsafe { array(ranks, count, noun) }.map(<[i32]>::to_vec),
        _ => fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{count_name} is {count}: at most {} neighbours",
            1 << 20
        ),
    }
}

/// Checks that a rank sends itself as much as it receives from itself.
fn check_own(args: &CollArgs, rank: i32) -> Result<()> {
    let index = rank.unsigned_abs() as usize;
    let (own, blocks, names) = match (&args.send, &args.recv) {
        (Buffer::Whole(own), Buffer::Blocks(blocks)) => (*own, blocks, ("scount", "rcounts")),
        (Buffer::Blocks(blocks), Buffer::Whole(own)) => (*own, blocks, ("rcount", "scounts")),
        (Buffer::Blocks(sent), Buffer::Blocks(blocks)) => {
            let own = sent.get(index).copied().unwrap_or(Region::EMPTY);
            (own, blocks, ("the block to this rank itself", "rcounts"))
        }
        _ => return Ok(()),
    };
    match blocks.get(index) {
        Some(block) if block.len() != own.len() => fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{} is {} bytes, {}[{rank}] is {}: they must be equal",
            names.0,
            own.len(),
            names.1,
            block.len()
        ),
        _ => Ok(()),
    }
}

/// Fast path of a blocking allreduce. `None`: it is not that, and nothing was done.
///
/// # Safety
/// As [`build`].
#[inline(always)]
pub(super) unsafe fn usual_allreduce(
    comm: &HazardRef<Comm>,
    sbuf: *const c_void,
    rbuf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    op: dtl_reduce_op_t,
) -> Option<Result<()>> {
    // SAFETY: passed on.
    let recv = unsafe { usual_data(rbuf, count, dtype) }?;
    let send = if is_in_place(sbuf) {
        None
    } else {
        // SAFETY: passed on.
        Some(unsafe { usual_data(sbuf, count, dtype) }?.bytes)
    };
    coll::native_allreduce(comm, send, recv, op)
}
