//! Whose a request is: a communicator that it does not keep alive.

use super::{Comm, TABLE};
use crate::abi::handle::dtl_comm_t;
use crate::sys::epoch::Guard;

/// The communicator of a request: its handle, and its address, as predefined ones are opened again under the
/// same handle.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) handle: dtl_comm_t,
    address: usize,
}

impl Owner {
    #[inline]
    pub(super) fn of(comm: &Comm) -> Owner {
        Owner { handle: comm.handle(), address: std::ptr::from_ref(comm).addr() }
    }

    /// `None`: it is being destroyed, which takes its requests back.
    #[inline]
    pub(super) fn get(self, inside: &Guard) -> Option<&Comm> {
        TABLE.get(inside, self.handle.id).filter(|comm| Owner::of(comm) == self)
    }
}
