//! Collectives. One value, [`CollArgs`], describes a call; it is built once, from what C passes, and
//! goes through the stages until one of them handles it.
//!
//! In reading order: `args` is that value, `table` has a row for each collective, `start` has the
//! stages and what a call waits for. The stages: `device` (a library of the devices' own),
//! `staging` (host memory that stands for device memory), `native` (collectives of the transport),
//! and last the steps of `algorithms`, or the board (`flat`). `run` brings a collective to its end.

mod args;
pub(super) mod device;
pub(super) mod native;
pub(super) mod staging;
mod start;
mod table;

pub use super::call::Kind;
pub use args::{Buffer, CollArgs, Neighbors};
pub use native::allreduce as native_allreduce;
pub(super) use start::meet;
pub use start::{Begun, CallMode, begin, wait};
pub(super) use table::rows;
pub use table::{Extent, Root, Row};
