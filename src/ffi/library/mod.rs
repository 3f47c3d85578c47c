//! Entries about the library as a whole: its life, backends and devices.
//!
//! In reading order:
//! - `runtime`: init, finalize, versions, texts, log
//! - `enums`: extensible enumerations
//! - `backend`: register, find and describe backends
//! - `environment`: environments that modules and backends require
//! - `plugin`: load backends from plugin files
//! - `device`: count, choose and describe devices
//! - `trace`: trace files and trace callbacks

pub mod runtime;

pub mod enums;

pub mod backend;

pub mod environment;

pub mod plugin;

pub mod device;

pub mod trace;
