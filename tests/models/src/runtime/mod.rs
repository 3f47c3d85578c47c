//! What the modelled files find under `crate::runtime`.

pub mod comm;
