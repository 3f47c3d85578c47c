//! Entries that choose where an operation runs: selection policies and dispatchers.
//!
//! In reading order:
//! - `policy`: selection policies and their resources
//! - `policy_submit`: submit tasks to a policy and wait
//! - `library_ops`: dispatchers: register and call operations
//! - `handler`: read and check handlers and their keys; exports no symbol
//! - `builtin_ops`: adapters of the library's own operations for handlers; exports no symbol
//! - `query`: convert queries of dispatchers

pub mod policy;

pub mod policy_submit;

pub mod library_ops;

pub(super) mod handler;

pub(super) mod builtin_ops;

pub(super) mod query;
