//! What the modelled files find under `crate::backend`.

#[path = "../../../../src/backend/local/bell.rs"]
mod bell;
#[path = "../../../../src/backend/board.rs"]
pub mod board;
pub mod board_model;
pub mod shm;
