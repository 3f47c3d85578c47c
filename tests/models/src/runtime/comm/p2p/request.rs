//! Requests.

#[path = "../../../../../../src/runtime/comm/p2p/request/state.rs"]
pub mod state;
