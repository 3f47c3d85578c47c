//! What the modelled files find under `crate::sys`: the library's table and epoch, on loom's atomics.

pub mod buf;
#[path = "../../../../src/sys/epoch.rs"]
pub mod epoch;
pub mod futex;
pub mod heap;
pub mod lock;
pub mod model;
pub mod park;
#[path = "../../../../src/sys/pool.rs"]
pub mod pool;
pub mod rmw;
#[path = "../../../../src/sys/share.rs"]
pub mod share;
pub mod shared;
#[path = "../../../../src/sys/shared_lock.rs"]
pub mod shared_lock;
#[path = "../../../../src/sys/slab.rs"]
pub mod slab;
#[path = "../../../../src/sys/spin.rs"]
pub mod spin;
pub mod sync;
#[path = "../../../../src/sys/team.rs"]
pub mod team;
pub mod team_model;
pub mod tls;
pub mod window_model;
