//! Code that the backends of vendors' drivers share.

pub mod stream_callbacks;
