//! What the modelled files find under `crate::sys`: the library's table and epoch, on loom's atomics.

pub mod buf;
#[path = "../../../../src/sys/epoch.rs"]
pub mod epoch;
pub mod heap;
pub mod lock;
pub mod model;
#[path = "../../../../src/sys/pool.rs"]
pub mod pool;
pub mod shared;
#[path = "../../../../src/sys/slab.rs"]
pub mod slab;
pub mod sync;
pub mod tls;
