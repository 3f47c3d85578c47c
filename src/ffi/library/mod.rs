//! Entries for the library as a whole: its life cycle, backends and devices.
//!
//! In reading order:
//! - `runtime`: init, finalize, versions, texts, log
//! - `trace`: trace files and trace callbacks
//! - `enums`: extensible enumerations
//! - `backend`: register, find and describe backends
//! - `environment`: environments that modules and backends require
//! - `plugin`: load backends from plugin files
//! - `device`: count, choose and describe devices

pub mod runtime;

pub mod trace;

pub mod enums;

pub mod backend;

pub mod environment;

pub mod plugin;

pub mod device;
