//! Objects that threads share by handle, and the reclamation of their memory. In reading order:
//!
//! - `epoch`: epoch-based reclamation; an object is freed when no thread can use it.
//! - `handle_table`: generational handles for objects that are read concurrently, references to
//!   such objects and to their parts, and a value that is read without a lock and replaced as a
//!   whole.
//! - `slot_map`: generational handles for objects that one thread at a time uses.

pub mod epoch;
pub mod handle_table;
pub mod slot_map;
