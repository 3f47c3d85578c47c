//! libibverbs: its functions, types and objects.
//!
//! In reading order:
//! - `types`: types of libibverbs
//! - `functions`: functions of libibverbs
//! - `errors`: errors of libibverbs
//! - `discovery`: the library and its devices
//! - `port_select`: choice of ports and addresses
//! - `rail`: an open port
//! - `qp`: queue pairs

pub mod discovery;
pub(super) mod errors;
pub mod functions;
pub mod port_select;
pub(super) mod qp;
pub(super) mod rail;
pub mod types;
