//! Eager and rendezvous messages over the rings of a segment.
//!
//! In reading order:
//! - `engine`: sends and receives, from records and to records
//! - `tx`: queued sends, into rings
//! - `rx`: records out of rings
//! - `recv_fast`: receives without an operation
//! - `pipeline`: large messages in pieces
//! - `cma`: pieces that the receiver reads in the sender's memory
//! - `mprobe`: matched probe

pub(super) mod cma;
pub(super) mod engine;
pub(super) mod mprobe;
pub(super) mod pipeline;
pub(super) mod recv_fast;
pub(super) mod rx;
pub(super) mod tx;
