//! Tables that registered backends and plugins fill in.
//!
//! In reading order:
//! - `vtable_comm`: tables of communication
//! - `vtable`: all other tables
//! - `environment`: environments
//! - `plugin`: plugin files

pub mod vtable_comm;

pub mod vtable;

pub mod environment;

pub mod plugin;
