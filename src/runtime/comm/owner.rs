//! Whose a request is: a communicator that it does not keep alive.

use super::{Comm, TABLE};
use crate::sys::epoch::Guard;
use crate::sys::spot::Spot;
use std::ptr;
use std::sync::Arc;

/// The communicator of a request: where it stands, and its address, as predefined ones are opened again under the
/// same handle.
#[derive(Clone, Copy)]
pub(super) struct Owner {
    spot: Spot<Comm>,
    address: usize,
}

impl Owner {
    #[inline(always)]
    pub(super) fn of(comm: &Comm) -> Owner {
        Owner { spot: comm.spot.get(), address: ptr::from_ref(comm).addr() }
    }

    /// `None`: it is being destroyed, which takes its requests back.
    #[inline(always)]
    pub(super) fn get(self, inside: &Guard) -> Option<&Comm> {
        self.spot.get(inside, self.address)
    }

    /// A share of it.
    pub(super) fn pin(self, inside: &Guard) -> Option<Arc<Comm>> {
        TABLE.pin(inside, self.spot.handle()).filter(|comm| self.is(comm))
    }

    /// Whether it is this one.
    pub(super) fn is(self, comm: &Comm) -> bool {
        (self.address, self.spot.handle()) == (ptr::from_ref(comm).addr(), comm.handle().id)
    }
}
