//! Transports between ranks of one process: "self" for one rank that sends to itself, and "threads"
//! for several ranks, usually one per thread. For ranks in different processes, see `shm`.
//!
//! In reading order:
//! - `transport`: messages between the ranks
//! - `rank_state`: operations of one rank
//! - `transfer`: large messages, which two ranks copy at the same time
//! - `coll_mailbox`: mailboxes of small collectives
//! - `wakeup`: doorbell for threads that wait for a message in a mailbox
//! - `shared_region`: memory of RMA windows

mod coll_mailbox;
mod rank_state;
mod shared_region;
#[cfg(test)]
mod tests;
mod transfer;
mod transport;
mod wakeup;

use crate::error::{Result, fail};
use crate::runtime::component::{BackendProbe, Comm, OpenArgs, Transport};
use crate::runtime::registry::Backend;
use transport::endpoints;

/// Creates the backends "self" and "threads".
pub fn backends() -> [Backend; 2] {
    let mut alone = Backend::new(c"self", i32::MIN, true, Box::new(SelfComm));
    alone.comm = Some(Box::new(SelfComm));
    let mut threads = Backend::new(c"threads", i32::MIN, true, Box::new(Threads));
    threads.comm = Some(Box::new(Threads));
    [alone, threads]
}

/// Backend "self": opens a communicator with one rank.
struct SelfComm;

impl BackendProbe for SelfComm {}

impl Comm for SelfComm {
    fn open(&self, args: &OpenArgs) -> Result<Box<dyn Transport>> {
        if let Some((rank, size)) = args.named {
            if (rank, size) != (0, 1) {
                return fail!(
                    DTL_ERROR_INVALID_ARGUMENT,
                    "rank {rank} of {size}: kind \"self\" has one rank, 0 of 1; choose kind \
                     \"shm\" or \"auto\""
                );
            }
        }
        match endpoints(1)?.pop() {
            Some(endpoint) => Ok(Box::new(endpoint)),
            None => fail!(DTL_ERROR_INTERNAL, "no endpoint was made"),
        }
    }
}

/// Backend "threads", whose ranks are threads of one process. `open_ranks` opens all ranks of a
/// communicator in one call.
struct Threads;

impl BackendProbe for Threads {}

impl Comm for Threads {
    fn open(&self, _args: &OpenArgs) -> Result<Box<dyn Transport>> {
        fail!(
            DTL_ERROR_NOT_SUPPORTED,
            "kind \"threads\" opens all its ranks at once, in one process: call dtl_comm_threads \
             and give each thread its communicator"
        )
    }

    fn open_ranks(&self, size: i32) -> Option<Result<Vec<Box<dyn Transport>>>> {
        let boxed = |endpoint| -> Box<dyn Transport> { Box::new(endpoint) };
        Some(endpoints(size).map(|ends| ends.into_iter().map(boxed).collect()))
    }
}
