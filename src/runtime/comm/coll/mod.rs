//! Collectives. A [`CollArgs`] value describes one call. It is built once, from the C arguments.
//! `coll_start` passes it to several implementations (stages) in order, until one of them handles
//! the call.
//!
//! In reading order:
//! - `algorithms`: arguments, table of collectives, algorithms
//! - `coll_start`: argument checks, and the order of the stages
//! - `device_part`: a communicator's state for collectives on device memory
//! - `coll_device`: stage that runs collectives on device memory with a device library
//! - `coll_staging`: stage that copies device memory to staging buffers in host memory
//! - `coll_native`: stage for native collectives of the transport
//! - `mailboxes`: slots in shared memory for collectives of a few bytes
//! - `small_coll`: collectives of a few bytes over mailboxes in shared memory
//! - `schedule`: rounds of sends, receives and local steps
//! - `schedule_builder`: trait that receives the steps of an algorithm
//! - `coll_exec`: execution of a collective from its start to its completion
//! - `describe`: descriptions of collectives, for the flight recorder and reports

pub(super) mod algorithms;
pub(super) mod coll_device;
pub(super) mod coll_exec;
pub(super) mod coll_native;
pub(super) mod coll_staging;
mod coll_start;
mod describe;
pub(super) mod device_part;
pub(super) mod mailboxes;
pub(super) mod schedule;
pub(super) mod schedule_builder;
pub(super) mod small_coll;

pub use self::algorithms::args::{Buffer, CollArgs, CollCall, Neighbors};
pub(super) use self::algorithms::table::rows;
pub use self::algorithms::table::{CollectiveRow, Extent, Root};
pub use self::coll_exec::{CallMode, StartedColl};
pub use self::coll_native::allreduce as native_allreduce;
pub(super) use self::coll_start::{allgather_words, start_barrier};
pub use self::coll_start::{barrier, begin, wait};
pub use crate::runtime::op_kind::Kind;
