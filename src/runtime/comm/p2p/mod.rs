//! Point-to-point messages.
//!
//! In reading order:
//! - `op_handle`: handle of a started operation
//! - `send_recv`: blocking send, receive and exchange
//! - `request`: operations in flight
//! - `persistent`: persistent operations of the transport
//! - `probe`: probing
//! - `matched_message`: messages returned by a matched probe
//! - `cancel`: cancellation
//! - `staging_memory`: host memory of a staged message
//! - `p2p_staging`: messages staged through host memory
//! - `gpu_direct`: messages in device memory that the transport transfers without staging

pub(super) mod cancel;
pub(super) mod gpu_direct;
pub mod matched_message;
pub(super) mod op_handle;
pub(super) mod p2p_staging;
pub(super) mod persistent;
pub mod probe;
pub mod request;
pub mod send_recv;
pub(super) mod staging_memory;
