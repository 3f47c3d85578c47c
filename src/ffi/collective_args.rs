//! The arguments of collectives, checked and turned into regions, for both forms of each.
#![allow(clippy::too_many_arguments, reason = "each mirrors its C function")]

use super::args::is_in_place;
use super::blocks::{Blocks, array, check_all_apart, check_own};
use super::elements::{data, elements, usual_data};
use crate::abi::word::{dtl_dtype_t, dtl_reduce_op_t};
use crate::error::{Result, fail};
use crate::runtime::comm::begun::{Begun, Caller};
use crate::runtime::comm::collective::{BlockKind, By, Neighbors, Of, Sent};
use crate::runtime::comm::p2p::Data;
use crate::runtime::comm::staged as collective;
use crate::runtime::comm::types::{builtin, element_size, reduction};
use crate::runtime::comm::{Comm, whole};
use crate::sys::buf::Region;
use crate::sys::handle_ref::HazardRef;
use std::ffi::c_void;

/// A buffer that may be DTL_IN_PLACE.
///
/// # Safety
/// As [`elements`].
unsafe fn sent(pointer: *const c_void, count: u64, dtype: dtl_dtype_t, name: &str) -> Result<Sent> {
    if is_in_place(pointer) {
        element_size(dtype)?;
        return Ok(None);
    }
    // SAFETY: passed on.
    unsafe { elements(pointer, count, dtype, name) }.map(Some)
}

/// A buffer that only the root has.
///
/// # Safety
/// As [`elements`], at the root.
unsafe fn at_root(
    comm: Caller<'_>,
    root: i32,
    pointer: *const c_void,
    count: u64,
    dtype: dtl_dtype_t,
    name: &str,
) -> Result<Region> {
    if comm.rank() != root {
        element_size(dtype)?;
        return Ok(Region::EMPTY);
    }
    // SAFETY: passed on.
    unsafe { elements(pointer, count, dtype, name) }
}

/// Elements in one block for each rank.
fn for_all(comm: Caller<'_>, name: &str, per_rank: u64) -> Result<u64> {
    match per_rank.checked_mul(u64::from(comm.size().unsigned_abs())) {
        Some(all) => Ok(all),
        None => fail!(DTL_ERROR_INVALID_ARGUMENT, "{name} {per_rank} is more than memory can hold"),
    }
}

fn of(count: u64, dtype: dtl_dtype_t) -> Result<Of> {
    let size = element_size(dtype)?;
    match usize::try_from(count).ok().and_then(|count| count.checked_mul(size)) {
        Some(bytes) => Ok(Of { count, dtype, bytes }),
        None => {
            fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "{count} elements of {size} bytes are more than memory can hold"
            )
        }
    }
}

fn by(dtype: dtl_dtype_t, op: dtl_reduce_op_t) -> Result<By> {
    Ok(By { reduction: reduction(dtype, op)?, op })
}

fn ranks(comm: Caller<'_>) -> usize {
    comm.size().unsigned_abs() as usize
}

pub(super) fn barrier(comm: Caller<'_>) -> Result<Begun> {
    collective::barrier(comm)
}

// SAFETY of all below: the buffers are the caller's, who keeps them until the collective is over;
// the arrays are read before the function returns.

pub(super) unsafe fn bcast(
    comm: Caller<'_>,
    buf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    root: i32,
) -> Result<Begun> {
    // SAFETY: passed on.
    collective::bcast(comm, unsafe { data(buf, count, dtype, "buf") }?, root)
}

pub(super) unsafe fn reduce(
    comm: Caller<'_>,
    sbuf: *const c_void,
    rbuf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    op: dtl_reduce_op_t,
    root: i32,
) -> Result<Begun> {
    let by = by(dtype, op)?;
    // SAFETY: passed on.
    let send = unsafe { sent(sbuf, count, dtype, "sbuf") }?;
    // SAFETY: passed on.
    let bytes = unsafe { at_root(comm, root, rbuf, count, dtype, "rbuf") }?;
    collective::reduce(comm, send, Data { bytes, count, dtype }, by, root)
}

/// The usual one, run to its end. `None`: it is not that.
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
    whole::allreduce(comm, send, recv, op)
}

#[inline(always)]
pub(super) unsafe fn allreduce(
    comm: Caller<'_>,
    sbuf: *const c_void,
    rbuf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    op: dtl_reduce_op_t,
) -> Result<Begun> {
    // SAFETY: passed on.
    let send = unsafe { usual_data(sbuf, count, dtype) };
    // SAFETY: passed on.
    let recv = unsafe { usual_data(rbuf, count, dtype) };
    match (builtin(dtype, op), send, recv) {
        (Some(reduction), Some(send), Some(recv)) => {
            collective::allreduce(comm, Some(send.bytes), recv, By { reduction, op })
        }
        // SAFETY: passed on.
        _ => unsafe { allreduce_any(comm, sbuf, rbuf, count, dtype, op) },
    }
}

/// The same of any arguments: what is checked in one piece needs no memory for its pieces.
#[inline(never)]
unsafe fn allreduce_any(
    comm: Caller<'_>,
    sbuf: *const c_void,
    rbuf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    op: dtl_reduce_op_t,
) -> Result<Begun> {
    let by = by(dtype, op)?;
    // SAFETY: passed on.
    let send = unsafe { sent(sbuf, count, dtype, "sbuf") }?;
    // SAFETY: passed on.
    collective::allreduce(comm, send, unsafe { data(rbuf, count, dtype, "rbuf") }?, by)
}

pub(super) unsafe fn reduce_scatter_block(
    comm: Caller<'_>,
    sbuf: *const c_void,
    rbuf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    op: dtl_reduce_op_t,
) -> Result<Begun> {
    let (by, all, len) = (by(dtype, op)?, for_all(comm, "count", count)?, of(count, dtype)?.bytes);
    let in_place = is_in_place(sbuf);
    let from = if in_place { rbuf.cast_const() } else { sbuf };
    // SAFETY: passed on.
    let whole = unsafe { elements(from, all, dtype, if in_place { "rbuf" } else { "sbuf" }) }?;
    let blocks: Vec<_> = (0..ranks(comm)).map(|rank| whole.part(rank * len, len)).collect();
    // SAFETY: passed on.
    let recv = unsafe { data(rbuf, count, dtype, "rbuf") }?;
    collective::reduce_scatter(comm, BlockKind::Equal, &blocks, in_place, recv, by)
}

pub(super) unsafe fn reduce_scatter(
    comm: Caller<'_>,
    sbuf: *const c_void,
    rbuf: *mut c_void,
    rcounts: *const u64,
    dtype: dtl_dtype_t,
    op: dtl_reduce_op_t,
) -> Result<Begun> {
    let by = by(dtype, op)?;
    let in_place = is_in_place(sbuf);
    let from = if in_place { rbuf.cast_const() } else { sbuf };
    // SAFETY: passed on.
    unsafe { array(rcounts, ranks(comm), "rcounts") }?;
    // SAFETY: passed on.
    let parts =
        unsafe { Blocks::new(from, rcounts, std::ptr::null(), ranks(comm), dtype, "sbuf") }?;
    let own = parts.counts.get(comm.rank().unsigned_abs() as usize).copied().unwrap_or(0);
    // SAFETY: passed on.
    let blocks = unsafe { parts.regions(false) }?;
    // SAFETY: passed on.
    let recv = unsafe { data(rbuf, own, dtype, "rbuf") }?;
    collective::reduce_scatter(comm, BlockKind::Various, &blocks, in_place, recv, by)
}

pub(super) unsafe fn scan(
    comm: Caller<'_>,
    sbuf: *const c_void,
    rbuf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    op: dtl_reduce_op_t,
) -> Result<Begun> {
    // SAFETY: passed on.
    unsafe { prefix(comm, (sbuf, rbuf), count, dtype, op, false) }
}

pub(super) unsafe fn exscan(
    comm: Caller<'_>,
    sbuf: *const c_void,
    rbuf: *mut c_void,
    count: u64,
    dtype: dtl_dtype_t,
    op: dtl_reduce_op_t,
) -> Result<Begun> {
    // SAFETY: passed on.
    unsafe { prefix(comm, (sbuf, rbuf), count, dtype, op, true) }
}

unsafe fn prefix(
    comm: Caller<'_>,
    (sbuf, rbuf): (*const c_void, *mut c_void),
    count: u64,
    dtype: dtl_dtype_t,
    op: dtl_reduce_op_t,
    exclusive: bool,
) -> Result<Begun> {
    let by = by(dtype, op)?;
    // SAFETY: passed on.
    let send = unsafe { sent(sbuf, count, dtype, "sbuf") }?;
    // SAFETY: passed on.
    collective::scan(comm, send, unsafe { data(rbuf, count, dtype, "rbuf") }?, by, exclusive)
}

pub(super) unsafe fn gather(
    comm: Caller<'_>,
    sbuf: *const c_void,
    count_per_rank: u64,
    rbuf: *mut c_void,
    dtype: dtl_dtype_t,
    root: i32,
) -> Result<Begun> {
    let (all, per_rank) =
        (for_all(comm, "count_per_rank", count_per_rank)?, of(count_per_rank, dtype)?);
    // SAFETY: passed on.
    let send = unsafe { sent(sbuf, count_per_rank, dtype, "sbuf") }?;
    // SAFETY: passed on.
    let recv = unsafe { at_root(comm, root, rbuf, all, dtype, "rbuf") }?;
    collective::gather(comm, send, per_rank, recv, root)
}

pub(super) unsafe fn gatherv(
    comm: Caller<'_>,
    sbuf: *const c_void,
    scount: u64,
    rbuf: *mut c_void,
    rcounts: *const u64,
    rdispls: *const u64,
    dtype: dtl_dtype_t,
    root: i32,
) -> Result<Begun> {
    // SAFETY: passed on.
    let send = unsafe { sent(sbuf, scount, dtype, "sbuf") }?;
    let at_root = if comm.rank() == root { ranks(comm) } else { 0 };
    // SAFETY: passed on.
    let blocks = unsafe { Blocks::new(rbuf, rcounts, rdispls, at_root, dtype, "rbuf") }?;
    // SAFETY: passed on.
    let blocks = unsafe { blocks.regions(true) }?;
    check_own(send, &blocks, comm.rank(), comm.rank() == root, ("scount", "rcounts"))?;
    collective::gatherv(comm, send, of(scount, dtype)?, &blocks, root)
}

pub(super) unsafe fn scatter(
    comm: Caller<'_>,
    sbuf: *const c_void,
    count_per_rank: u64,
    rbuf: *mut c_void,
    dtype: dtl_dtype_t,
    root: i32,
) -> Result<Begun> {
    let (all, per_rank) =
        (for_all(comm, "count_per_rank", count_per_rank)?, of(count_per_rank, dtype)?);
    // SAFETY: passed on.
    let send = unsafe { at_root(comm, root, sbuf, all, dtype, "sbuf") }?;
    // SAFETY: passed on.
    let recv = unsafe { sent(rbuf, count_per_rank, dtype, "rbuf") }?;
    collective::scatter(comm, send, recv, per_rank, root)
}

pub(super) unsafe fn scatterv(
    comm: Caller<'_>,
    sbuf: *const c_void,
    scounts: *const u64,
    sdispls: *const u64,
    rbuf: *mut c_void,
    rcount: u64,
    dtype: dtl_dtype_t,
    root: i32,
) -> Result<Begun> {
    // SAFETY: passed on.
    let recv = unsafe { sent(rbuf, rcount, dtype, "rbuf") }?;
    let at_root = if comm.rank() == root { ranks(comm) } else { 0 };
    // SAFETY: passed on.
    let blocks = unsafe { Blocks::new(sbuf, scounts, sdispls, at_root, dtype, "sbuf") }?;
    // SAFETY: passed on.
    let blocks = unsafe { blocks.regions(false) }?;
    check_own(recv, &blocks, comm.rank(), comm.rank() == root, ("rcount", "scounts"))?;
    collective::scatterv(comm, &blocks, recv, of(rcount, dtype)?, root)
}

pub(super) unsafe fn allgather(
    comm: Caller<'_>,
    sbuf: *const c_void,
    count_per_rank: u64,
    rbuf: *mut c_void,
    dtype: dtl_dtype_t,
) -> Result<Begun> {
    let (all, per_rank) =
        (for_all(comm, "count_per_rank", count_per_rank)?, of(count_per_rank, dtype)?);
    // SAFETY: passed on.
    let send = unsafe { sent(sbuf, count_per_rank, dtype, "sbuf") }?;
    // SAFETY: passed on.
    let recv = unsafe { elements(rbuf, all, dtype, "rbuf") }?;
    collective::allgather(comm, send, per_rank, recv)
}

pub(super) unsafe fn allgatherv(
    comm: Caller<'_>,
    sbuf: *const c_void,
    scount: u64,
    rbuf: *mut c_void,
    rcounts: *const u64,
    rdispls: *const u64,
    dtype: dtl_dtype_t,
) -> Result<Begun> {
    // SAFETY: passed on.
    let send = unsafe { sent(sbuf, scount, dtype, "sbuf") }?;
    // SAFETY: passed on.
    let blocks = unsafe { Blocks::new(rbuf, rcounts, rdispls, ranks(comm), dtype, "rbuf") }?;
    // SAFETY: passed on.
    let blocks = unsafe { blocks.regions(true) }?;
    check_own(send, &blocks, comm.rank(), true, ("scount", "rcounts"))?;
    collective::allgatherv(comm, send, of(scount, dtype)?, &blocks)
}

pub(super) unsafe fn alltoall(
    comm: Caller<'_>,
    sbuf: *const c_void,
    count_per_rank: u64,
    rbuf: *mut c_void,
    dtype: dtl_dtype_t,
) -> Result<Begun> {
    let (all, per_rank) =
        (for_all(comm, "count_per_rank", count_per_rank)?, of(count_per_rank, dtype)?);
    // SAFETY: passed on.
    let send = unsafe { sent(sbuf, all, dtype, "sbuf") }?;
    // SAFETY: passed on.
    let recv = unsafe { elements(rbuf, all, dtype, "rbuf") }?;
    collective::alltoall(comm, send, per_rank, recv)
}

pub(super) unsafe fn alltoallv(
    comm: Caller<'_>,
    sbuf: *const c_void,
    scounts: *const u64,
    sdispls: *const u64,
    rbuf: *mut c_void,
    rcounts: *const u64,
    rdispls: *const u64,
    dtype: dtl_dtype_t,
) -> Result<Begun> {
    // SAFETY: passed on.
    let into = unsafe { Blocks::new(rbuf, rcounts, rdispls, ranks(comm), dtype, "rbuf") }?;
    // SAFETY: passed on.
    let recv = unsafe { into.regions(true) }?;
    if is_in_place(sbuf) {
        return collective::alltoallv(comm, None, &recv, of(into.total(), dtype)?);
    }
    // SAFETY: passed on.
    let out = unsafe { Blocks::new(sbuf, scounts, sdispls, ranks(comm), dtype, "sbuf") }?;
    // SAFETY: passed on.
    let send = unsafe { out.regions(false) }?;
    check_all_apart(&send, &recv)?;
    let own = send.get(comm.rank().unsigned_abs() as usize).copied();
    check_own(own, &recv, comm.rank(), true, ("the block to this rank itself", "rcounts"))?;
    collective::alltoallv(comm, Some(&send), &recv, of(out.total(), dtype)?)
}

pub(super) unsafe fn neighbor_alltoallv(
    comm: Caller<'_>,
    dest_count: u64,
    dests: *const i32,
    sbuf: *const c_void,
    scounts: *const u64,
    sdispls: *const u64,
    source_count: u64,
    sources: *const i32,
    rbuf: *mut c_void,
    rcounts: *const u64,
    rdispls: *const u64,
    dtype: dtl_dtype_t,
) -> Result<Begun> {
    let (outs, ins) =
        (neighbors("dest_count", dest_count)?, neighbors("source_count", source_count)?);
    // SAFETY: passed on.
    let dests = unsafe { array(dests, outs, "dests") }?;
    // SAFETY: passed on.
    let sources = unsafe { array(sources, ins, "sources") }?;
    // SAFETY: passed on.
    let out = unsafe { Blocks::new(sbuf, scounts, sdispls, outs, dtype, "sbuf") }?;
    // SAFETY: passed on.
    let into = unsafe { Blocks::new(rbuf, rcounts, rdispls, ins, dtype, "rbuf") }?;
    // SAFETY: passed on.
    let send = unsafe { out.regions(false) }?;
    // SAFETY: passed on.
    let recv = unsafe { into.regions(true) }?;
    check_all_apart(&send, &recv)?;
    collective::neighbor_alltoallv(
        comm,
        &Neighbors { ranks: dests, blocks: &send },
        &Neighbors { ranks: sources, blocks: &recv },
        of(out.total(), dtype)?,
    )
}

fn neighbors(name: &str, count: u64) -> Result<usize> {
    match usize::try_from(count) {
        Ok(count) if count <= 1 << 20 => Ok(count),
        _ => fail!(DTL_ERROR_INVALID_ARGUMENT, "{name} is {count}: at most {} neighbours", 1 << 20),
    }
}
