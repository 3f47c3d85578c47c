//! Devices, memory and work: the structs of C.
//!
//! In reading order:
//! - `device`: backends, devices, memory kinds
//! - `array`: arrays and DLPack
//! - `exec`: streams, events, executors, kernels
//! - `policy`: selection of resources
//! - `dispatch`: dispatchers

pub mod device;

pub mod array;

pub mod exec;

pub mod policy;

pub mod dispatch;
