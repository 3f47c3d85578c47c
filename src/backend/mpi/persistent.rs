//! Sends and receives that are started repeatedly: MPI's persistent requests.
//!
//! MPI does not free such a request when its operation completes. But Open MPI frees a persistent
//! request that has failed (because a message was too long). Therefore the library keeps the
//! arguments too, and creates the request again after a failure.
//!
//! `transport` waits for persistent requests and cancels them like all other requests.

use super::ids;
use super::library::functions::{Count, Handle};
use super::library::mpi_library::{Mpi, PendingFree, checked};
use super::message::{Envelope, LARGE};
use super::transport::MpiTransport;
use crate::error::Result;
use crate::runtime::component::{OpId, PersistentOps, Selector};
use crate::sys::memory::buf::Region;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

/// Persistent request with its arguments.
pub(super) struct PersistentRequest {
    /// MPI's request, or MPI_REQUEST_NULL if none exists now. Only one thread at a time accesses
    /// this struct (the library's request object has a lock), so relaxed loads and stores are
    /// sufficient.
    request: AtomicU64,
    pub(super) is_send: bool,
    data: Region,
    envelope: Envelope,
}

impl PersistentRequest {
    pub(super) fn request(&self) -> Handle {
        self.request.load(Ordering::Relaxed)
    }

    /// Records that the operation has failed and that MPI's request does not exist any more.
    pub(super) fn forget(&self, mpi: &Mpi) {
        self.request.store(mpi.k.request_null, Ordering::Relaxed);
    }

    /// Creates the persistent MPI request. Requires an `MpiGuard`.
    fn make(&self, mpi: &Mpi) -> Result<()> {
        let (at, len, byte, mut request) = (self.data.addr().ptr(), self.data.len(), mpi.k.byte, 0);
        let (Envelope { peer, tag, comm }, call) = (self.envelope, &mpi.call);
        let large = len > LARGE;
        let code = match (self.is_send, call.MPI_Send_init_c, call.MPI_Recv_init_c) {
            // SAFETY: the region stays valid until the operation is freed, per `Transport`.
            (true, Some(make), _) if large => unsafe {
                make(at.cast_const(), len as Count, byte, peer, tag, comm, &raw mut request)
            },
            // SAFETY: the region stays valid until the operation is freed, per `Transport`.
            (false, _, Some(make)) if large => unsafe {
                make(at, len as Count, byte, peer, tag, comm, &raw mut request)
            },
            // SAFETY: the region stays valid until the operation is freed, per `Transport`; the
            // length fits, by `fits`.
            (true, ..) => unsafe {
                (call.MPI_Send_init)(
                    at.cast_const(),
                    len as c_int,
                    byte,
                    peer,
                    tag,
                    comm,
                    &raw mut request,
                )
            },
            // SAFETY: the region stays valid until the operation is freed, per `Transport`; the
            // length fits, by `fits`.
            (false, ..) => unsafe {
                (call.MPI_Recv_init)(at, len as c_int, byte, peer, tag, comm, &raw mut request)
            },
        };
        let name = if self.is_send { "MPI_Send_init" } else { "MPI_Recv_init" };
        mpi.check(name, code).map(|()| self.request.store(request, Ordering::Relaxed))
    }
}

/// Returns true if this MPI can create a persistent request for the size of `data`. Otherwise, each
/// start is a nonpersistent operation with a derived datatype.
fn fits(mpi: &Mpi, data: Region) -> bool {
    data.len() <= LARGE
        || (mpi.call.MPI_Send_init_c.is_some() && mpi.call.MPI_Recv_init_c.is_some())
}

/// Creates a persistent send or receive; returns `None` if this MPI cannot create a persistent
/// request for the size of `data`.
fn make(
    mpi: &Mpi,
    is_send: bool,
    data: Region,
    envelope: Result<Envelope>,
) -> Option<Result<OpId>> {
    fits(mpi, data).then(|| {
        let (request, envelope) = (AtomicU64::new(0), envelope?);
        let kept = PersistentRequest { request, is_send, data, envelope };
        let _turn = mpi.enter()?;
        kept.make(mpi).map(|()| ids::lend(Box::new(kept)))
    })
}

impl PersistentOps for MpiTransport {
    fn make_send(&self, data: Region, dest: i32, word: u64) -> Option<Result<OpId>> {
        make(self.mpi, true, data, self.envelope(dest, word))
    }

    fn make_recv(&self, data: Region, select: Selector) -> Option<Result<OpId>> {
        make(self.mpi, false, data, self.wanted(select))
    }

    fn start(&self, op: OpId) -> Result<()> {
        let (mpi, _turn) = (self.mpi, self.mpi.enter()?);
        let Some(kept) = ids::kept(op) else { return Ok(()) };
        if kept.request() == mpi.k.request_null {
            kept.make(mpi)?;
        }
        let mut request = kept.request();
        // SAFETY: the library created the persistent request, which is not active.
        unsafe { checked!(mpi, MPI_Start(&raw mut request)) }
    }

    fn end(&self, op: OpId) -> Result<()> {
        let mpi = self.mpi;
        let request = ids::end(op).map_or(mpi.k.request_null, |kept| kept.request());
        if request == mpi.k.request_null {
            Ok(())
        } else {
            mpi.free_soon(PendingFree::Request(request))
        }
    }
}
