//! Items that the modelled files use from `crate::backend`.

#[path = "../../../../src/backend/coll_mailbox.rs"]
pub mod coll_mailbox;
pub mod coll_mailbox_model;
pub mod shm;
#[path = "../../../../src/backend/inproc/wakeup.rs"]
mod wakeup;
