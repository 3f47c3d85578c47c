//! Communicators: implementation of the C functions that operate on a communicator. These functions
//! use the operations of the communicator's transport.
//!
//! In reading order:
//! - `shared_transport`: an open transport and the contexts on it
//! - `rank_map`: the transport's ranks that a communicator consists of
//! - `posted`: buffer that the library owns, together with the operation that uses it
//! - `comm_state`: state (open, closed, revoked) and size, in one word
//! - `biased_trylock`: the lock of a communicator's collectives
//! - `communicator`: the communicator itself, [`Comm`]
//! - `comm_table`: tables of communicators
//! - `comm_handles`: use of communicators by handle, and their destruction
//! - `op_desc`: descriptions of operations, for the flight recorder and for comparison between
//!   ranks
//! - `flight_recorder`: the last operations of each rank
//! - `failure`: members that died or do not participate
//! - `rma_path`: interface of the implementations of one-sided operations
//! - `progress_list`: list of objects that need progress
//! - `progress_count`: number of objects that need progress
//! - `progress`: progress of all communicators while a call waits
//! - `p2p`: messages and requests
//! - `diagnostics`: hang report, dry run
//! - `coll`: collectives
//! - `rma`: windows
//! - `open`: opening communicators, groups, attributes

pub mod biased_trylock;
pub mod coll;
mod comm_handles;
mod comm_state;
mod comm_table;
mod communicator;
pub mod diagnostics;
mod failure;
mod flight_recorder;
mod op_desc;
pub mod open;
pub mod p2p;
mod posted;
mod progress;
mod progress_count;
mod progress_list;
mod rank_map;
pub mod rma;
mod rma_path;
mod shared_transport;
pub use self::comm_handles::{
    delete_attributes, destroy, destroy_all, forget_all, get, hold, pin, pin_to_destroy,
};
pub use self::comm_table::{is_live, keep, visit};
pub use self::communicator::{Comm, abort, info, revoke};
