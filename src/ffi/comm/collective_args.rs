//! Arguments of collectives, for both forms of each: as C passes them, and checked.

use crate::abi::word::{dtl_dtype_t, dtl_reduce_op_t};
use crate::error::{Result, fail, failure};
use crate::ffi::args::{self, array, check_place, is_in_place};
use crate::ffi::elements::{elements, fast_data};
use crate::runtime::comm::Comm;
use crate::runtime::comm::coll::{self, Buffer, CollArgs, Extent, Kind, Neighbors, Root};
use crate::runtime::types::{builtin, element_size, reduction};
use crate::sys::{handles::handle_table::HazardRef, memory::buf::Region};
use std::ffi::c_void;
use std::ptr;

/// One of the two buffers, as C describes it.
#[derive(Clone, Copy)]
pub(crate) struct BufferArgs {
    buf: *const c_void,
    /// Elements of a rank's part, or of one block; of a neighborhood collective: blocks.
    count: u64,
    /// Sizes and places of blocks that have their own.
    counts: *const u64,
    displs: *const u64,
    /// Ranks of the blocks, of a neighborhood collective.
    ranks: *const i32,
}

impl BufferArgs {
    /// One with `count` elements, or with so many for each rank.
    pub(crate) const fn new(buf: *const c_void, count: u64) -> BufferArgs {
        BufferArgs { buf, count, counts: ptr::null(), displs: ptr::null(), ranks: ptr::null() }
    }

    /// One of blocks with their own sizes and places.
    pub(crate) fn blocks(buf: *const c_void, counts: *const u64, displs: *const u64) -> BufferArgs {
        BufferArgs { counts, displs, ..BufferArgs::new(buf, 0) }
    }

    /// One of blocks for chosen ranks.
    pub(crate) fn of(self, count: u64, ranks: *const i32) -> BufferArgs {
        BufferArgs { count, ranks, ..self }
    }

    /// Returns the regions of `blocks` blocks, and the number of elements in all of them. Returns
    /// an error if a block does not fit into memory or, for receiving, if two blocks overlap.
    ///
    /// # Safety
    /// `counts`, and `displs` unless NULL, have `blocks` values. The caller must keep the blocks
    /// valid until the collective has completed.
    unsafe fn regions(
        &self,
        blocks: usize,
        dtype: dtl_dtype_t,
        for_receiving: bool,
    ) -> Result<(Vec<Region>, u64)> {
        let [name, counts_name, displs_name] = match for_receiving {
            true => ["rbuf", "rcounts", "rdispls"],
            false => ["sbuf", "scounts", "sdispls"],
        };
        if blocks > 0 {
            check_place(self.buf, name)?;
        }
        // SAFETY: the caller guarantees that `counts` has `blocks` values.
        let counts = unsafe { array(self.counts, blocks, counts_name) }?;
        let given = if self.displs.is_null() { 0 } else { blocks };
        // SAFETY: the caller guarantees that `displs` has `blocks` values unless it is null.
        let displs = unsafe { array(self.displs, given, displs_name) }?;
        let size = element_size(dtype)? as u64;
        let mut regions = Vec::new();
        if regions.try_reserve_exact(counts.len()).is_err() {
            return fail!(
                DTL_ERROR_OUT_OF_MEMORY,
                "no memory for a list of {} blocks",
                counts.len()
            );
        }
        let mut next = 0_u64;
        for (rank, count) in counts.iter().enumerate() {
            // Blocks without displacements are contiguous.
            let begin = displs.get(rank).copied().unwrap_or(next);
            let end = begin.checked_add(*count).filter(|end| *end <= isize::MAX as u64 / size);
            let Some(end) = end else {
                return fail!(
                    DTL_ERROR_INVALID_ARGUMENT,
                    "{name}: block {rank} ({count} elements from {begin} on) is more than memory \
                     can hold"
                );
            };
            let place = self.buf.wrapping_byte_add((begin * size) as usize);
            let pointer = if self.buf.is_null() { self.buf } else { place };
            // SAFETY: the caller guarantees that the blocks stay valid until the collective has
            // completed.
            regions.push(unsafe { args::region(pointer, count * size, name) }?);
            next = end;
        }
        if for_receiving {
            check_apart(&regions, name)?;
        }
        Ok((regions, counts.iter().fold(0, |sum, count| sum.saturating_add(*count))))
    }
}

/// Returns an error if two regions overlap. Blocks are usually in the order of their displacements,
/// which a linear check detects.
fn check_apart(regions: &[Region], name: &str) -> Result<()> {
    // Empty regions are skipped, because an empty region may lie between two overlapping regions.
    let used = || regions.iter().enumerate().filter(|(_, region)| !region.is_empty());
    if used().is_sorted_by(|(_, a), (_, b)| a.addr().get() + a.len() <= b.addr().get()) {
        return Ok(());
    }
    let mut sorted: Vec<_> = used().collect();
    sorted.sort_unstable_by_key(|(_, region)| region.addr().get());
    for pair in sorted.windows(2) {
        if let [(a, first), (b, second)] = pair {
            if first.overlaps(**second) {
                return fail!(DTL_ERROR_INVALID_ARGUMENT, "{name}: blocks {a} and {b} overlap");
            }
        }
    }
    Ok(())
}

/// Arguments of a collective as C passes them.
#[derive(Clone, Copy)]
pub(crate) struct CArgs {
    pub(crate) kind: Kind,
    pub(crate) send: BufferArgs,
    pub(crate) recv: BufferArgs,
    pub(crate) dtype: dtl_dtype_t,
    pub(crate) op: dtl_reduce_op_t,
    pub(crate) root: i32,
}

impl CArgs {
    /// Arguments with `count` elements in both buffers, or with so many for each rank. A buffer
    /// that the collective does not have is null.
    pub(crate) const fn new(
        kind: Kind,
        (sbuf, rbuf): (*const c_void, *mut c_void),
        count: u64,
        dtype: dtl_dtype_t,
    ) -> CArgs {
        CArgs::varied(kind, BufferArgs::new(sbuf, count), BufferArgs::new(rbuf, count), dtype)
    }

    /// Arguments of a collective whose buffers differ in their counts.
    pub(crate) const fn varied(
        kind: Kind,
        send: BufferArgs,
        recv: BufferArgs,
        dtype: dtl_dtype_t,
    ) -> CArgs {
        CArgs { kind, send, recv, dtype, op: -1, root: -1 }
    }
}

/// Checks the arguments of a collective; `args` has its kind, and gets all else.
///
/// # Safety
/// The buffers stay valid until the collective is over; the lists are read before this returns.
#[inline(always)] // row: bcast_8
pub(crate) unsafe fn set(args: &mut CollArgs, comm: &Comm, c: &CArgs) -> Result<()> {
    let row = args.row;
    if row.recv == Extent::Nothing {
        return Ok(());
    }
    (args.root, args.dtype) = (c.root, c.dtype);
    if row.reduces {
        args.reduction = match builtin(c.dtype, c.op) {
            Some(reduction) => Some(reduction),
            None => Some(reduction(c.dtype, c.op)?),
        };
    }
    let place = if row.root == Root::Send { c.recv.buf } else { c.send.buf };
    args.in_place = is_in_place(place);
    let is_pair = (row.send, row.recv, row.root) == (Extent::Own, Extent::Own, Root::None);
    if is_pair || row.root == Root::Everywhere {
        // SAFETY: passed on.
        unsafe { set_pair(args, c, is_pair) }
    } else if row.is_varied() {
        // SAFETY: passed on.
        unsafe { set_varied(comm, args, c) }
    } else {
        // SAFETY: passed on.
        unsafe { set_even(comm, args, c) }
    }
}

/// A buffer of `count` elements on all ranks, or two.
///
/// # Safety
/// As [`set`].
#[inline(always)] // row: bcast_8
unsafe fn set_pair(args: &mut CollArgs, c: &CArgs, has_send: bool) -> Result<()> {
    let mut send = Region::EMPTY;
    if has_send && !args.in_place {
        // SAFETY: passed on.
        send = unsafe { elements(c.send.buf, c.send.count, c.dtype, "sbuf") }?;
    }
    let name = if has_send { "rbuf" } else { "buf" };
    // SAFETY: passed on.
    let recv = unsafe { elements(c.recv.buf, c.recv.count, c.dtype, name) }?;
    if args.in_place {
        send = recv;
    }
    (args.count, args.bytes) = (c.recv.count, recv.len());
    (args.send, args.recv) = (Buffer::Whole(send), Buffer::Whole(recv));
    Ok(())
}

/// Buffers of `count` elements, or of so many for each rank.
///
/// # Safety
/// As [`set`].
#[inline(never)]
unsafe fn set_even(comm: &Comm, args: &mut CollArgs, c: &CArgs) -> Result<()> {
    let row = args.row;
    let (sends, receives) = passed_buffers(args, comm.rank);
    args.count = c.recv.count;
    let has_blocks = row.send == Extent::All || row.recv == Extent::All;
    let all = if has_blocks { for_all(comm, row.reduces, args.count)? } else { 0 };
    if has_blocks {
        args.bytes = bytes_of(args.count, c.dtype)?;
    }
    let elements_of = |extent| if extent == Extent::All { all } else { args.count };
    let (mut send, mut recv) = (Region::EMPTY, Region::EMPTY);
    if sends {
        let is_within = args.in_place && row.reduces;
        let (from, name) = if is_within { (c.recv.buf, "rbuf") } else { (c.send.buf, "sbuf") };
        // SAFETY: passed on.
        send = unsafe { elements(from, elements_of(row.send), c.dtype, name) }?;
    }
    if receives {
        // SAFETY: passed on.
        recv = unsafe { elements(c.recv.buf, elements_of(row.recv), c.dtype, "rbuf") }?;
    }
    if !has_blocks {
        args.bytes = bytes_of(args.count, c.dtype)?;
    }
    (args.send, args.recv) = (Buffer::Whole(send), Buffer::Whole(recv));
    if args.in_place {
        args.set_place(comm.rank);
    }
    Ok(())
}

/// Whether this rank passes data to send, and a buffer for the result.
fn passed_buffers(args: &CollArgs, rank: i32) -> (bool, bool) {
    let is_root = rank == args.root;
    match args.row.root {
        Root::Recv => (!args.in_place, is_root),
        Root::Send => (is_root, !args.in_place),
        // The data of a reduction in place whose result is a block lie where that goes.
        _ => (!args.in_place || args.row.reduces, true),
    }
}

/// Those with blocks of their own sizes and places.
///
/// # Safety
/// As [`set`].
#[inline(never)]
unsafe fn set_varied(comm: &Comm, args: &mut CollArgs, c: &CArgs) -> Result<()> {
    let (row, rank) = (args.row, comm.rank);
    let (mut out, mut into) = (c.send, c.recv);
    if row.reduces {
        // SAFETY: passed on.
        let counts = unsafe { array(out.counts, ranks(comm), "rcounts") }?;
        into.count = counts.get(rank.unsigned_abs() as usize).copied().unwrap_or(0);
        if args.in_place {
            out.buf = into.buf;
        }
    }
    let is_neighborhood = args.kind == Kind::NeighborAlltoallv;
    if is_neighborhood {
        // Its blocks refuse DTL_IN_PLACE.
        args.in_place = false;
        // SAFETY: passed on.
        let dests = unsafe { neighbors("dests", "dest_count", &out) }?;
        // SAFETY: passed on.
        let sources = unsafe { neighbors("sources", "source_count", &into) }?;
        args.neighbors = Some(Box::new(Neighbors { dests, sources }));
    }
    let (sends, receives) = passed_buffers(args, rank);
    let blocks =
        |side: &BufferArgs| if is_neighborhood { side.count as usize } else { ranks(comm) };
    // SAFETY: passed on.
    let (send, sent) = unsafe { buffer(&out, (row.send, c.dtype), blocks(&out), sends, false) }?;
    // SAFETY: passed on.
    let (recv, received) =
        unsafe { buffer(&into, (row.recv, c.dtype), blocks(&into), receives, true) }?;
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
    } else if !is_neighborhood {
        check_own(args, rank)?;
    }
    Ok(())
}

/// A buffer of a collective with blocks, and how many elements it has.
///
/// # Safety
/// As [`set`].
unsafe fn buffer(
    side: &BufferArgs,
    (extent, dtype): (Extent, dtl_dtype_t),
    blocks: usize,
    is_passed: bool,
    receives: bool,
) -> Result<(Buffer, u64)> {
    if !is_passed {
        element_size(dtype)?;
        return Ok((Buffer::NONE, 0));
    }
    let name = if receives { "rbuf" } else { "sbuf" };
    if extent == Extent::Own {
        // SAFETY: passed on.
        let own = unsafe { elements(side.buf, side.count, dtype, name) }?;
        return Ok((Buffer::Whole(own), side.count));
    }
    // SAFETY: passed on.
    let (blocks, total) = unsafe { side.regions(blocks, dtype, receives) }?;
    Ok((Buffer::Blocks(blocks), total))
}

/// Elements in one block for each rank.
fn for_all(comm: &Comm, reduces: bool, count: u64) -> Result<u64> {
    count.checked_mul(ranks(comm) as u64).ok_or_else(|| {
        let name = if reduces { "count" } else { "count_per_rank" };
        failure!(DTL_ERROR_INVALID_ARGUMENT, "{name} {count} is more than memory can hold")
    })
}

fn bytes_of(count: u64, dtype: dtl_dtype_t) -> Result<usize> {
    let size = element_size(dtype)?;
    usize::try_from(count).ok().and_then(|count| count.checked_mul(size)).ok_or_else(|| {
        failure!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{count} elements of {size} bytes are more than memory can hold"
        )
    })
}

fn ranks(comm: &Comm) -> usize {
    comm.size.unsigned_abs() as usize
}

/// The list of neighbors.
///
/// # Safety
/// As [`array`].
unsafe fn neighbors(noun: &str, count_name: &str, side: &BufferArgs) -> Result<Vec<i32>> {
    let (count, limit) = (side.count, 1 << 20);
    if count > limit {
        return fail!(DTL_ERROR_LIMIT, "{count_name} is {count}: at most {limit} neighbors");
    }
    // SAFETY: passed on.
    unsafe { array(side.ranks, count as usize, noun) }.map(<[i32]>::to_vec)
}

/// Checks that a rank sends itself as much as it receives from itself.
fn check_own(args: &CollArgs, rank: i32) -> Result<()> {
    let index = rank.unsigned_abs() as usize;
    let (own, name, blocks, counts) = match (&args.send, &args.recv) {
        (Buffer::Whole(own), Buffer::Blocks(blocks)) => (*own, "scount", blocks, "rcounts"),
        (Buffer::Blocks(blocks), Buffer::Whole(own)) => (*own, "rcount", blocks, "scounts"),
        (sent @ Buffer::Blocks(_), Buffer::Blocks(blocks)) => {
            (sent.block(rank, 0), "the block to this rank itself", blocks, "rcounts")
        }
        _ => return Ok(()),
    };
    match blocks.get(index) {
        Some(block) if block.len() != own.len() => fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{name} is {} bytes, {counts}[{rank}] is {}: they must be equal",
            own.len(),
            block.len()
        ),
        _ => Ok(()),
    }
}

/// Fast path of a blocking allreduce. `None`: it is not that, and nothing was done.
///
/// # Safety
/// As [`set`].
pub(crate) unsafe fn fast_allreduce(
    comm: &HazardRef<Comm>,
    sbuf: *const c_void,
    rbuf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    op: dtl_reduce_op_t,
) -> Option<Result<()>> {
    // SAFETY: passed on.
    let recv = unsafe { fast_data(rbuf, count, dtype) }?;
    let send = if is_in_place(sbuf) {
        None
    } else {
        // SAFETY: passed on.
        Some(unsafe { fast_data(sbuf, count, dtype) }?.bytes)
    };
    coll::native_allreduce(comm, send, recv, op)
}
