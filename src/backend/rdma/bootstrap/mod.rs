//! Connections over TCP by which ranks find each other and notice deaths.
//!
//! In reading order:
//! - `address`: where a rank listens
//! - `tcp_frames`: short frames over TCP
//! - `meet`: out-of-band allgather
//! - `oob`: control sockets and liveness

pub(super) mod address;
pub mod meet;
pub mod oob;
pub(super) mod tcp_frames;
