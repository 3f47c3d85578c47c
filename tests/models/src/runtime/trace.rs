//! The queue of the trace records.

#[path = "../../../../src/runtime/trace/spsc_queue.rs"]
pub mod spsc_queue;
