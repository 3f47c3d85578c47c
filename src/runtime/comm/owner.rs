//! Whose a request is: a communicator that it does not keep alive.

use super::Comm;
use crate::sys::epoch::Guard;
use crate::sys::spot::Spot;
use std::num::NonZero;
use std::ptr::NonNull;
use std::sync::Arc;

/// The communicator of a request: where it stands, and its address, by which it is known: at its end it takes its requests with it,
/// before another one can be there.
#[derive(Clone, Copy)]
pub(super) struct Owner {
    spot: Spot<Comm>,
    address: NonZero<usize>,
}

impl Owner {
    pub(super) fn of(comm: &Comm) -> Owner {
        Owner::at(comm.spot.get(), comm)
    }

    /// The same where it is known where that stands.
    #[inline(always)]
    pub(super) fn at(spot: Spot<Comm>, comm: &Comm) -> Owner {
        Owner { spot, address: NonNull::from(comm).addr() }
    }

    /// `None`: it is being destroyed, which takes its requests back.
    #[inline(always)]
    pub(super) fn get(self, inside: &Guard) -> Option<&Comm> {
        self.spot.get(inside, self.address)
    }

    /// A share of it.
    pub(super) fn pin(self, inside: &Guard) -> Option<Arc<Comm>> {
        self.spot.pin(inside, self.address)
    }

    /// Whether it is this one.
    pub(super) fn is(self, comm: &Comm) -> bool {
        self.address == NonNull::from(comm).addr()
    }
}
