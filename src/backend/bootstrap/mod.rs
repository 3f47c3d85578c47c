//! Bootstrap: exchanges the data that the ranks of a communicator need before they can communicate,
//! and detects failed ranks without using the data network. The exchange is an out-of-band
//! allgather of one record per rank, with a timeout; it succeeds on all ranks or fails on all
//! ranks. It returns the records of all ranks, or an error that names the absent ranks or the first
//! failed rank.
//!
//! In reading order:
//! - `absence`: timeouts, and the errors for late and absent ranks
//! - `records`: encoding of records and outcomes
//! - `job_id`: pairing of the calls that open communicators of a job; names of the job's UNIX
//!   sockets
//! - `socket_frames`: frames on a socket
//! - `root`: exchange over a socket on which rank 0 listens
//! - `uds`: UNIX sockets for `root`; transfer of a file descriptor (backend shm)
//! - `tcp`: TCP sockets for `root`
//! - `folder`: exchange through files
//! - `over_comm`: exchange over a transport that is already open (backend hier)
//! - `oob_exchange`: selection of the exchange method (backend rdma)
//! - `liveness`: control sockets between ranks, which detect failures after the bootstrap
//!
//! The exchange over a communicator of the library is in `runtime::comm::open::open_over`; backend
//! nccl sends its unique ID with it. Both that exchange and hier use
//! `runtime::component::all_or_none`, which makes a failure of one rank a failure of all.

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
