//! Bootstrap: how the ranks of a communicator exchange what they need before they can communicate,
//! and how they detect deaths without their data network. The exchange is an out-of-band allgather
//! of one record per rank, with a time limit, on all ranks or on none. Its outcome is the records
//! of all ranks, or an error that names the absent ranks or the first that failed.
//!
//! In reading order:
//! - `absence`: time limits, and the errors of late and absent ranks
//! - `records`: encoding of records and outcomes
//! - `job_id`: which opens of a job belong together; names of its UNIX sockets
//! - `socket_frames`: frames on a socket
//! - `root`: exchange at a socket where rank 0 listens
//! - `uds`: UNIX sockets for that; passes a descriptor (backend shm)
//! - `tcp`: TCP sockets for that
//! - `folder`: exchange through files
//! - `over_comm`: exchange over a transport that is open (backend hier)
//! - `oob_exchange`: any of these, as a text names it (backend rdma)
//! - `liveness`: control sockets, by which ranks reach each other and detect deaths later on
//!
//! Not here: the exchange over a communicator of the library (`runtime::comm::open::open_over`).
//! Backend nccl passes its unique id there. The rule that a failure of one rank is everybody's is
//! `runtime::component::all_or_none`, there and in hier.

pub(super) mod absence;
mod folder;
pub(super) mod job_id;
pub mod liveness;
pub mod oob_exchange;
pub(super) mod over_comm;
pub mod records;
mod root;
mod socket_frames;
mod tcp;
pub(super) mod uds;
