//! The doers: each implements the component traits of `runtime::backend`.

pub mod host;
pub mod native;
pub mod null;

use crate::runtime::registry::Backend;
use std::sync::Arc;

/// The backends that come with the library, made afresh at each initialisation.
#[must_use]
pub fn builtin() -> Vec<Arc<Backend>> {
    vec![Arc::new(host::backend()), Arc::new(null::backend())]
}
