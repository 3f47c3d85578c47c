//! Registered memory.
//!
//! In reading order:
//! - `reg_cache`: registrations of host memory
//! - `device_mr`: registrations of device memory

pub(super) mod device_mr;
pub(super) mod reg_cache;
