//! Communicators: implements the C calls on a communicator by the operations of its transport.
//!
//! In reading order:
//! - `shared_transport`: an open transport and the contexts on it
//! - `rank_map`: the transport's ranks that a communicator consists of
//! - `comm_state`: state (open, closed, revoked) and size, in one word
//! - `biased_trylock`: the lock of a communicator's collectives
//! - `communicator`: the communicator itself, [`Comm`]
//! - `comm_handles`: handle table of communicators
//! - `op_desc`: descriptions of operations, for the recorder and for comparison between ranks
//! - `flight_recorder`: the last operations of each rank
//! - `absence`: live ranks that take no part
//! - `peer_close`: ranks that destroyed a communicator that other ranks still use
//! - `rma_path`: interface of the paths of one-sided operations
//! - `progress`: progress of all communicators while a call waits
//! - `p2p`: messages and requests
//! - `diagnostics`: hang report, dry run
//! - `coll`: collectives
//! - `rma`: windows
//! - `open`: opening communicators, groups, attributes

mod absence;
pub mod biased_trylock;
pub mod coll;
mod comm_handles;
mod comm_state;
mod communicator;
pub mod diagnostics;
mod flight_recorder;
mod op_desc;
pub mod open;
pub mod p2p;
mod peer_close;
mod progress;
mod rank_map;
pub mod rma;
mod rma_path;
mod shared_transport;
pub use self::comm_handles::{
    TAG, destroy, destroy_all, forget_all, get, hold, insert, is_live, keep, pin, pin_to_destroy,
    visit,
};
pub use self::communicator::{Comm, abort, info};
