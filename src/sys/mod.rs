//! The operating system and raw memory: safe faces on small unsafe. Knows nothing of backends.

pub mod args;
pub mod buf;
pub mod callback;
pub mod child;
pub mod clock;
pub mod dl;
pub mod epoch;
pub mod futex;
pub mod gate;
pub mod heap;
pub mod lock;
pub mod machine;
pub mod mem;
pub mod park;
pub mod pool;
pub mod process;
pub mod reduce;
pub mod share;
pub mod shared;
pub mod slab;
pub mod socket;
pub mod spin;
pub mod sync;
pub mod team;
pub mod tls;
pub mod trust;
