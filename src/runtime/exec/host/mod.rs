//! Work on the library's own host threads: its streams and parallel loops.
//!
//! In reading order:
//! - `thread_pool`: threads that run loops together with the calling thread
//! - `host_stream`: in-order queue with a worker thread
//! - `reduce`: reductions whose result does not depend on the number of threads
//! - `closure_table`: closures that are passed as a C function and a user pointer

pub(super) mod closure_table;
pub mod host_stream;
pub mod reduce;
pub mod thread_pool;
