//! Objects that threads share by handle, and the reclamation of their memory. In reading order:
//!
//! - `epoch`: epoch-based reclamation; an object is freed when no thread can use it.
//! - `rcu`: a value that is read without a lock and replaced as a whole.
//! - `handle_ref`: an object in use, protected by an epoch or by a hazard pointer.
//! - `handle_table`: generational handles for objects that are read concurrently.
//! - `slot_ref`: an object found by its slot, without the table.
//! - `slot_map`: generational handles for objects that one thread at a time uses.
//! - `owning_ref`: a reference to a part of a shared object that keeps the whole object alive.

pub mod epoch;
pub mod handle_ref;
pub mod handle_table;
pub mod owning_ref;
pub mod rcu;
pub mod slot_map;
pub mod slot_ref;
