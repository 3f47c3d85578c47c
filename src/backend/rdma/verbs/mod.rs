//! libibverbs: its functions and types, and the objects made with them.
//!
//! In reading order:
//! - `types`: types of libibverbs
//! - `functions`: functions of libibverbs
//! - `errors`: its failures
//! - `discovery`: which library, which devices
//! - `port_select`: which ports and addresses
//! - `rail`: an open port
//! - `qp`: queue pairs

pub mod discovery;
pub(super) mod errors;
pub mod functions;
pub mod port_select;
pub(super) mod qp;
pub(super) mod rail;
pub mod types;
