//! One-sided operations by the network card.
//!
//! In reading order:
//! - `window`: put and get
//! - `atomics`: accumulate, compare-and-swap

pub(super) mod atomics;
pub(super) mod window;
