//! Entries about windows (one-sided communication).
//!
//! In reading order:
//! - `window`: create, describe, synchronize
//! - `window_access`: put, get, accumulate, atomics

pub mod window;

pub mod window_access;
