//! Eager and rendezvous messages over the rings of a segment.
//!
//! In reading order:
//! - `engine`: the rings as the link of `backend::p2p`: sends and receives become records
//! - `tx`: writing of queued sends to rings
//! - `rx`: records read from rings
//! - `recv_fast`: fast path for receives, without an operation object
//! - `pipeline`: large messages in fragments
//! - `cma`: fragments that the receiver reads from the sender's memory
//! - `copy_method`: methods by which large messages are copied
//! - `exchange`: numbers and directions of large messages
//! - `link_times`: measurement of the messages from a rank
//! - `transfer_times`: time per message of large messages
//! - `copy_choice`: choice of the copy method from measured times

pub(super) mod cma;
pub(super) mod copy_choice;
pub(super) mod copy_method;
pub(super) mod engine;
pub(super) mod exchange;
pub(super) mod link_times;
pub(super) mod pipeline;
pub(super) mod recv_fast;
pub(super) mod rx;
pub(super) mod transfer_times;
pub(super) mod tx;
