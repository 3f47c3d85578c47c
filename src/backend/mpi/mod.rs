//! Backend "mpi": communicators for the ranks of an MPI job, over the MPI library that the program
//! uses. No MPI is needed at build time.
//!
//! Messages are passed directly to MPI (`transport`), or sent by the library's own protocol over
//! MPI (`framed`) if the communicator has a time limit.
//!
//! In reading order:
//! - `opener`: the backend, and the opening of transports
//! - `library`: loading of the MPI library
//! - `comm_import`: choice of the MPI communicator
//! - `comm`: communicators that the library creates
//! - `locality`: ranks that share a node
//! - `transport`: messages that are passed directly to MPI
//! - `message`: sends and receives of any size
//! - `ids`: encoding of a request in a 64-bit operation ID
//! - `op_extras`: state of the few operations that need more state than an MPI_Request
//! - `completion`: completion of operations
//! - `status`: decoding of an MPI_Status
//! - `persistent`: persistent requests
//! - `coll`: MPI's own collectives
//! - `window`: MPI's own windows
//! - `framed`: messages of the library's own protocol over MPI

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
mod status;
mod transport;
mod window;

pub use self::comm_import::place_of;
pub use self::opener::backend;
