//! Messages of any size over MPI, even if the MPI library has only functions with `int` counts. The
//! module also queries MPI's tag limit and its support for device memory.

use super::library::abi::Int;
use super::library::functions::{Count, Handle, Status};
use super::library::mpi_library::{Mpi, checked};
use crate::error::{Result, fail};
use crate::runtime::component::SendMode;
use crate::sys::memory::buf::Region;
use std::ffi::c_int;

/// Maximum message size in bytes that a count argument of type `int` can represent.
pub(super) const LARGE: usize = c_int::MAX as usize;

/// Envelope of a message: peer rank, tag and communicator, as passed to MPI.
#[derive(Clone, Copy)]
pub(super) struct Envelope {
    pub(super) peer: c_int,
    pub(super) tag: c_int,
    pub(super) comm: Handle,
}

/// Sends a region of at most `LARGE` bytes. Requires an `MpiGuard`.
pub(super) fn send(mpi: &Mpi, to: Envelope, data: Region, mode: SendMode) -> Result<()> {
    let Envelope { peer, tag, comm } = to;
    let (at, count) = (data.addr().ptr().cast_const(), data.len() as c_int);
    let send = if mode == SendMode::Synchronous { mpi.call.MPI_Ssend } else { mpi.call.MPI_Send };
    // SAFETY: the region is valid during the call; its length fits, by this function's contract.
    let code = unsafe { send(at, count, mpi.byte, peer, tag, comm) };
    mpi.check("MPI_Send", code)
}

/// Receives at most `LARGE` bytes; returns MPI's error code. Requires an `MpiGuard`.
pub(super) fn recv(mpi: &Mpi, from: Envelope, data: Region, status: &mut Status) -> c_int {
    let Envelope { peer, tag, comm } = from;
    let (at, count) = (data.addr().ptr(), data.len() as c_int);
    // SAFETY: the region is valid during the call; its length fits, by this function's contract.
    unsafe { (mpi.call.MPI_Recv)(at, count, mpi.byte, peer, tag, comm, status) }
}

/// Starts a send. `data` must stay valid until the send completes. Requires an `MpiGuard`.
#[inline]
pub(super) fn start_send(mpi: &Mpi, to: Envelope, data: Region, mode: SendMode) -> Result<Handle> {
    if data.len() > LARGE {
        return start_large_send(mpi, to, data, mode);
    }
    let Envelope { peer, tag, comm } = to;
    let (at, count, mut request) = (data.addr().ptr().cast_const(), data.len() as c_int, 0);
    let start = match mode {
        SendMode::Synchronous => mpi.call.MPI_Issend,
        SendMode::Standard | SendMode::Notice => mpi.call.MPI_Isend,
    };
    // SAFETY: the region stays valid until the request completes, by this function's contract.
    let code = unsafe { start(at, count, mpi.byte, peer, tag, comm, &raw mut request) };
    mpi.check("MPI_Isend", code).map(|()| request)
}

#[cold]
fn start_large_send(mpi: &Mpi, to: Envelope, data: Region, mode: SendMode) -> Result<Handle> {
    let Envelope { peer, tag, comm } = to;
    let (at, mut request) = (data.addr().ptr().cast_const(), 0);
    let (start, start_large) = match mode {
        SendMode::Synchronous => (mpi.call.MPI_Issend, mpi.call.MPI_Issend_c),
        SendMode::Standard | SendMode::Notice => (mpi.call.MPI_Isend, mpi.call.MPI_Isend_c),
    };
    if let Some(start) = start_large {
        // SAFETY: the region stays valid until the request completes, per `start_send`.
        let code = unsafe {
            start(at, data.len() as Count, mpi.k.byte, peer, tag, comm, &raw mut request)
        };
        return mpi.check("MPI_Isend_c", code).map(|()| request);
    }
    let (count, datatype) = typed_count(mpi, data.len())?;
    // SAFETY: the region stays valid until the request completes, per `start_send`.
    let code = unsafe { start(at, count, datatype.1, peer, tag, comm, &raw mut request) };
    mpi.check("MPI_Isend", code).map(|()| request)
}

/// Starts a receive. `data` must stay valid until the receive completes. Requires an `MpiGuard`.
#[inline]
pub(super) fn start_recv(mpi: &Mpi, from: Envelope, data: Region) -> Result<Handle> {
    if data.len() > LARGE {
        return start_large_recv(mpi, from, data);
    }
    let Envelope { peer, tag, comm } = from;
    let (at, count, mut request) = (data.addr().ptr(), data.len() as c_int, 0);
    // SAFETY: the region stays valid until the request completes, by this function's contract.
    unsafe { checked!(mpi, MPI_Irecv(at, count, mpi.byte, peer, tag, comm, &raw mut request)) }?;
    Ok(request)
}

#[cold]
fn start_large_recv(mpi: &Mpi, from: Envelope, data: Region) -> Result<Handle> {
    let Envelope { peer, tag, comm } = from;
    let (at, mut request) = (data.addr().ptr(), 0);
    if let Some(start) = mpi.call.MPI_Irecv_c {
        let count = data.len() as Count;
        // SAFETY: the region stays valid until the request completes, per `start_recv`.
        let code = unsafe { start(at, count, mpi.byte, peer, tag, comm, &raw mut request) };
        return mpi.check("MPI_Irecv_c", code).map(|()| request);
    }
    let (count, datatype) = typed_count(mpi, data.len())?;
    // SAFETY: the region stays valid until the request completes, per `start_recv`.
    let code =
        unsafe { (mpi.call.MPI_Irecv)(at, count, datatype.1, peer, tag, comm, &raw mut request) };
    mpi.check("MPI_Irecv", code).map(|()| request)
}

/// Waits for a request that has completed or will complete soon.
pub(super) fn wait(mpi: &Mpi, mut request: Handle) -> Result<()> {
    // SAFETY: the library created the request, and no other caller tests it; the status is MPI's
    // constant for an ignored status.
    unsafe { checked!(mpi, MPI_Wait(&raw mut request, mpi.status_ignore.ptr().cast())) }
}

/// Returns the request that this MPI library returns for every send that is complete when it
/// starts, or `None` if this MPI library has no such request. A send for which MPI returns this
/// request does not have to be tested for completion.
///
/// The function starts two empty messages from this rank to itself, over a communicator that has
/// not been used yet. If both sends have the same request before either of them is completed, the
/// request does not identify one send: it only indicates completion. In this case the function does
/// not complete one of the two sends, so that the request stays valid; the caller completes that
/// send. Requires an `MpiGuard`.
pub(super) fn over_at_once(mpi: &Mpi, comm: Handle, rank: c_int) -> Result<Option<Handle>> {
    let own = Envelope { peer: rank, tag: 0, comm };
    let recv = || start_recv(mpi, own, Region::EMPTY);
    let send = || start_send(mpi, own, Region::EMPTY, SendMode::Standard);
    let received = [recv()?, recv()?];
    let [kept, other] = [send()?, send()?];
    received.into_iter().chain([other]).try_for_each(|request| wait(mpi, request))?;
    if kept == other {
        return Ok(Some(kept));
    }
    wait(mpi, kept).map(|()| None)
}

/// Probes for a message (MPI_Iprobe) and writes its status; returns false if there is none.
/// Requires an `MpiGuard`.
pub(super) fn probe(mpi: &Mpi, from: Envelope, status: &mut Status) -> Result<bool> {
    let (Envelope { peer, tag, comm }, mut found) = (from, 0);
    // SAFETY: the library uses this communicator; the other arguments are writable.
    unsafe { checked!(mpi, MPI_Iprobe(peer, tag, comm, &raw mut found, status)) }
        .map(|()| found != 0)
}

/// Performs a matched probe (MPI_Improbe) and writes the status of the message; returns `None` if
/// there is no message. Requires an `MpiGuard`.
pub(super) fn take(mpi: &Mpi, from: Envelope, status: &mut Status) -> Result<Option<Handle>> {
    let Envelope { peer, tag, comm } = from;
    let (mut found, mut message) = (0, 0);
    // SAFETY: the library uses this communicator; the other arguments are writable.
    unsafe { checked!(mpi, MPI_Improbe(peer, tag, comm, &raw mut found, &raw mut message, status)) }
        .map(|()| (found != 0).then_some(message))
}

/// Returns true if the completed operation that has the status `status` was canceled.
pub(super) fn is_canceled(mpi: &Mpi, status: &Status) -> Result<bool> {
    let mut canceled = 0;
    // SAFETY: `status` is the status of a completed request; `canceled` is a writable local.
    unsafe { checked!(mpi, MPI_Test_cancelled(status, &raw mut canceled)) }.map(|()| canceled != 0)
}

/// Starts the receive of a matched message. `data` must stay valid until the request completes.
pub(super) fn start_matched(mpi: &Mpi, mut message: Handle, data: Region) -> Result<Handle> {
    let (at, mut request, byte) = (data.addr().ptr(), 0, mpi.k.byte);
    if let Some(start) = mpi.call.MPI_Imrecv_c.filter(|_| data.len() > LARGE) {
        // SAFETY: a matched message is received once; the region stays valid.
        let code =
            unsafe { start(at, data.len() as Count, byte, &raw mut message, &raw mut request) };
        return mpi.check("MPI_Imrecv_c", code).map(|()| request);
    }
    let (count, datatype) = typed_count(mpi, data.len())?;
    // SAFETY: a matched message is received once; the region stays valid.
    let code =
        unsafe { (mpi.call.MPI_Imrecv)(at, count, datatype.1, &raw mut message, &raw mut request) };
    mpi.check("MPI_Imrecv", code).map(|()| request)
}

/// MPI_BYTE, or a datatype that the library created. Drop frees such a datatype, which requires an
/// `MpiGuard`; operations started with it are not affected.
pub(super) struct Datatype<'m>(pub(super) &'m Mpi, pub(super) Handle);

impl Drop for Datatype<'_> {
    fn drop(&mut self) {
        if self.1 != self.0.k.byte {
            // The result of the operation itself is reported, not that of the cleanup.
            let _ = free(self.0, self.1);
        }
    }
}

/// Expresses `len` bytes as a count of a datatype: MPI_BYTE, or a new datatype if `len` exceeds the
/// range of `int`. Requires an `MpiGuard`.
pub(super) fn typed_count(mpi: &Mpi, len: usize) -> Result<(c_int, Datatype<'_>)> {
    let (count, datatype) = match c_int::try_from(len) {
        Ok(count) => (count, mpi.k.byte),
        Err(_) => (1, make_bytes(mpi, len)?),
    };
    Ok((count, Datatype(mpi, datatype)))
}

/// Frees a datatype that the library created.
pub(super) fn free(mpi: &Mpi, mut datatype: Handle) -> Result<()> {
    // SAFETY: a call of this library created the datatype, which is freed once.
    unsafe { checked!(mpi, MPI_Type_free(&raw mut datatype)) }
}

/// Creates a datatype of `len` contiguous bytes.
pub(super) fn make_unit(mpi: &Mpi, len: c_int) -> Result<Handle> {
    let mut unit = 0;
    // SAFETY: MPI is initialized; `unit` is a writable local.
    unsafe { checked!(mpi, MPI_Type_contiguous(len, mpi.k.byte, &raw mut unit)) }?;
    commit(mpi, unit)
}

fn commit(mpi: &Mpi, mut datatype: Handle) -> Result<Handle> {
    // SAFETY: a call of this library created the datatype.
    let committed = unsafe { checked!(mpi, MPI_Type_commit(&raw mut datatype)) };
    committed.map(|()| datatype).inspect_err(|_| drop(free(mpi, datatype)))
}

/// Creates a datatype of exactly `len` elements of MPI_BYTE: blocks of 1 MiB and the remaining
/// bytes. The peer can use any datatype of the same number of MPI_BYTE elements.
fn make_bytes(mpi: &Mpi, len: usize) -> Result<Handle> {
    const BLOCK: usize = 1 << 20;
    let (Ok(blocks), Ok(rest)) = (c_int::try_from(len / BLOCK), c_int::try_from(len % BLOCK))
    else {
        return fail!(DTL_ERROR_LIMIT, "a message of {len} bytes: MPI takes up to 2^51");
    };
    let block = Datatype(mpi, make_unit(mpi, BLOCK as c_int)?);
    let (counts, places) = ([blocks, rest], [0, (len - len % BLOCK) as isize]);
    let (types, mut whole) = (mpi.abi.pair(block.1, mpi.k.byte), 0);
    // SAFETY: each of the three arrays has two elements and is read during the call.
    unsafe {
        checked!(
            mpi,
            MPI_Type_create_struct(
                2,
                counts.as_ptr(),
                places.as_ptr(),
                types.as_ptr(),
                &raw mut whole
            )
        )
    }?;
    commit(mpi, whole)
}

/// Returns true if MPI reports that it accepts pointers to CUDA device memory (Open MPI, the MPICH
/// family). The caller must hold an `MpiGuard`: the query is valid only while MPI is initialized.
pub(super) fn takes_cuda(mpi: &Mpi) -> bool {
    // SAFETY: MPI is initialized; the function has no parameters.
    mpi.call.MPIX_Query_cuda_support.is_some_and(|query| unsafe { query() } == 1)
}

/// Returns MPI_TAG_UB, the highest tag that the loaded MPI library supports.
pub(super) fn tag_limit(mpi: &Mpi) -> Result<c_int> {
    let get = ("MPI_Comm_get_attr", mpi.call.MPI_Comm_get_attr);
    match mpi.attribute(get, mpi.k.comm_world, Int::TagUb)? {
        Some(limit) => Ok(limit),
        None => fail!(DTL_ERROR_MPI, "MPI does not tell its highest tag (MPI_TAG_UB)"),
    }
}
