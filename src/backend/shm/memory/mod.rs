//! Shared memory of a communicator: its layout and the objects in it.
//!
//! In reading order:
//! - `segment`: layout of the shared memory
//! - `ring`: ring of records from one rank to another
//! - `cells`: buffers for large messages
//! - `rndv_claims`: ownership of rendezvous requests
//! - `coll_mailbox`: mailboxes of small collectives
//! - `shared_region`: shared memory of windows
//! - `cma_copies`: copies of application-allocated memory by the OS kernel

pub(super) mod cells;
pub(super) mod cma_copies;
pub(super) mod coll_mailbox;
pub(super) mod ring;
pub(super) mod rndv_claims;
pub(super) mod segment;
pub(super) mod shared_region;
