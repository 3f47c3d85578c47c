//! Entries about work on devices and on the host: streams, events, executors, kernels.
//!
//! In reading order:
//! - `stream`: streams: in-order queues of work
//! - `transfer_async`: copies and fills in stream order
//! - `event`: events and their times
//! - `executor`: functions and loops on the host
//! - `module`: kernels from source
//! - `kernel`: launch a kernel over a grid

pub mod stream;

pub mod transfer_async;

pub mod event;

pub mod executor;

pub mod module;

pub mod kernel;
