//! Tables that registered backends and plugins fill in.
//!
//! In reading order:
//! - `vtable_coll`: arguments of collectives of the table of communication
//! - `vtable_comm`: tables of communication
//! - `vtable_memory`: tables of devices, memory and transfers
//! - `vtable`: table of execution, and the table of tables
//! - `environment`: environments
//! - `plugin`: plugin files

pub mod vtable_coll;

pub mod vtable_comm;

pub mod vtable_memory;

pub mod vtable;

pub mod environment;

pub mod plugin;
