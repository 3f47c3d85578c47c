//! Objects that threads share by handle, and when their memory may be freed. In reading order:
//!
//! - `epoch`: which threads are inside a call; an object is freed when none can use it.
//! - `rcu`: a value that is read without a lock and replaced as a whole.
//! - `handle_ref`: an object in use, by epoch or by hazard pointer.
//! - `handle_table`: generational handles for objects that are read concurrently.
//! - `slot_ref`: an object found by its slot, without the table.
//! - `slot_map`: generational handles for objects that one thread at a time uses.
//! - `owning_ref`: a part of a shared object that keeps the whole.

pub mod epoch;
pub mod handle_ref;
pub mod handle_table;
pub mod owning_ref;
pub mod rcu;
pub mod slot_map;
pub mod slot_ref;
