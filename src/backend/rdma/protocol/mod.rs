//! Small messages: registered memory slots for eager messages, and a cache of message headers.
//!
//! In reading order:
//! - `eager_slots`: small messages in registered slots
//! - `header_cache`: cache of headers, so that each is sent only once

pub(super) mod eager_slots;
pub(super) mod header_cache;
