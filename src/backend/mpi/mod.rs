//! Kind "mpi": ranks of an MPI job, over the MPI library that the program runs with. No MPI is
//! needed at build time.
//!
//! Messages are MPI's own (`transport`), or the library's over MPI (`framed`) for communicators
//! with time limits.
//!
//! In reading order:
//! - `opener`: the backend, and the opening of transports
//! - `library`: the loaded MPI
//! - `comm_import`: choice of the MPI communicator
//! - `comm`: copies of communicators
//! - `locality`: ranks that share a node
//! - `transport`: MPI's own messages
//! - `message`: sends and receives of any size
//! - `ids`: encoding of a request in a word
//! - `op_extras`: state of the few operations that are more than an MPI_Request
//! - `completion`: completion of operations
//! - `status`: contents of a status
//! - `persistent`: persistent requests
//! - `stale_messages`: messages that no rank received
//! - `coll`: MPI's own collectives
//! - `window`: MPI's own windows
//! - `framed`: the library's messages over MPI

pub mod coll;
mod comm;
mod comm_import;
mod completion;
mod framed;
mod ids;
pub mod library;
mod locality;
mod message;
mod op_extras;
mod opener;
mod persistent;
mod stale_messages;
mod status;
mod transport;
mod window;

pub use self::comm_import::place_of;
pub use self::opener::backend;
