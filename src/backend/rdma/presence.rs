//! The backend named "rdma": whether it can run here, and what opens its communicators.

use super::config::Config;
use super::find::{self, Verbs};
use crate::backend::library::Found;
use crate::error::{Result, fail};
use crate::runtime::backend::{Availability, Comm, OpenArgs, Presence, Transport};
use crate::runtime::registry::Backend;
use std::sync::Arc;

/// What it stands on.
struct Opener {
    verbs: Found<Verbs>,
}

/// The backend named "rdma". "auto" never takes it.
#[must_use]
pub fn backend() -> Backend {
    let opener = Arc::new(Opener { verbs: Found::new(find::find) });
    let mut backend = Backend::new(c"rdma", i32::MIN, true, Box::new(Arc::clone(&opener)));
    backend.comm = Some(Box::new(opener));
    backend
}

impl Presence for Arc<Opener> {
    fn available(&self) -> Availability {
        self.verbs.look().map(drop)
    }
}

impl Comm for Arc<Opener> {
    fn takes_native(&self) -> bool {
        true
    }

    fn open(&self, args: &OpenArgs) -> Result<Box<dyn Transport>> {
        let _config = Config::resolve(args.native)?;
        let _verbs = self.verbs.get()?;
        fail!(DTL_ERROR_NOT_SUPPORTED, "kind \"rdma\" opens no communicators yet")
    }
}
