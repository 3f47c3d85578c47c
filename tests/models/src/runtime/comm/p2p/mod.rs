//! Point-to-point messages.

pub mod request;
