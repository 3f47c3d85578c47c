//! Collectives. One value, [`CollArgs`], describes a call; it is built once, from what C passes,
//! and goes through the stages until one of them handles it.
//!
//! In reading order: `algorithms::args` is that value, and `algorithms::table` has a row for each
//! collective; `call` describes it to records. `start` has the stages and what a call waits for.
//! The stages: `device` (a library of the devices' own), `staging` (host memory that stands for
//! device memory), `native` (collectives of the transport), and last the steps of `algorithms`, or
//! the board (`flat`). `exec` brings a collective to its end.

mod call;
pub(super) mod device;
pub(super) mod exec;
pub(super) mod native;
pub(super) mod staging;
mod start;

pub use super::algorithms::args::{Buffer, CollArgs, Neighbors};
pub(super) use super::algorithms::table::rows;
pub use super::algorithms::table::{Extent, Root, Row};
pub use super::kind::Kind;
pub use native::allreduce as native_allreduce;
pub(super) use start::meet;
pub use start::{Begun, CallMode, begin, wait};
