//! Handles of the library, on loom's atomics.

#[path = "../../../../../src/sys/handles/epoch.rs"]
pub mod epoch;
#[path = "../../../../../src/sys/handles/handle_table.rs"]
pub mod handle_table;
#[path = "../../../../../src/sys/handles/slot_map.rs"]
pub mod slot_map;
