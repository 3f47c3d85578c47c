//! What the modelled files find under `crate::backend`.

pub mod shm;
