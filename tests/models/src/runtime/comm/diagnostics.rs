//! The flight recorder.

#[path = "../../../../../src/runtime/comm/diagnostics/flight_recorder.rs"]
pub mod flight_recorder;
#[path = "../../../../../src/runtime/comm/diagnostics/op_desc.rs"]
pub mod op_desc;
#[path = "../../../../../src/runtime/comm/diagnostics/op_kind.rs"]
pub mod op_kind;
