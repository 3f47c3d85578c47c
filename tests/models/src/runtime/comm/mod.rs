//! The library's flight recorder and the state of its requests.

#[path = "../../../../../src/runtime/comm/flight_recorder.rs"]
pub mod flight_recorder;
pub mod model;
#[path = "../../../../../src/runtime/comm/op_desc.rs"]
pub mod op_desc;
pub mod p2p;
