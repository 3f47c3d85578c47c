//! Flight recorder, request state and locks of the library.

#[path = "../../../../../src/runtime/comm/biased_trylock.rs"]
pub mod biased_trylock;
#[path = "../../../../../src/runtime/comm/flight_recorder.rs"]
pub mod flight_recorder;
pub mod model;
#[path = "../../../../../src/runtime/comm/op_desc.rs"]
pub mod op_desc;
pub mod p2p;
pub mod rma;
