//! Collectives. One value, [`CollArgs`], describes a call; it is built once, from the C arguments,
//! and goes through the stages of `coll_start` until one of them handles it.
//!
//! In reading order:
//! - `algorithms`: the arguments, the table of collectives, the algorithms
//! - `coll_start`: checks, and the stages
//! - `coll_device`: stage: a library for device memory
//! - `coll_staging`: stage: host copies of device memory
//! - `coll_native`: stage: the transport's own collectives
//! - `small_coll`: a few bytes over mailboxes in shared memory
//! - `schedule`: rounds of sends, receives and local steps
//! - `schedule_builder`: receiver of an algorithm's steps
//! - `coll_exec`: a collective in progress, to its end
//! - `describe`: records of collectives

pub(super) mod algorithms;
pub(super) mod coll_device;
pub(super) mod coll_exec;
pub(super) mod coll_native;
pub(super) mod coll_staging;
mod coll_start;
mod describe;
pub(super) mod schedule;
pub(super) mod schedule_builder;
pub(super) mod small_coll;

pub use self::algorithms::args::{Buffer, CollArgs, Neighbors};
pub(super) use self::algorithms::table::rows;
pub use self::algorithms::table::{CollectiveRow, Extent, Root};
pub use self::coll_native::allreduce as native_allreduce;
pub use self::coll_start::{CallMode, StartedColl, begin, wait};
pub(super) use self::coll_start::{allgather_words, meet};
pub use crate::runtime::op_kind::Kind;
