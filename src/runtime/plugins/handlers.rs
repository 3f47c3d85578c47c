//! Dispatch handlers that plugins register with the default dispatcher. The handlers stay
//! registered at most as long as the plugin's backends.

use super::{STATE, loading, registered};
use crate::abi::handle::{dtl_backend_t, dtl_registration_t};
use crate::error::Result;
use crate::runtime::dispatch::{self, Action};
use crate::runtime::registry;
use crate::sys::handles::epoch::{self, Guard};

/// Calls `make`, which registers a dispatch handler, and adds the handler to the registrations of
/// the plugin that this thread is loading. Implements `dispatch_register` in the function table
/// that the library passes to plugins.
pub fn register_handler(
    make: impl FnOnce() -> Result<dtl_registration_t>,
) -> Result<dtl_registration_t> {
    loading("dispatch_register")?;
    let made = make()?;
    if let Some(current) = &mut STATE.lock().current {
        current.handlers.push(made);
    }
    Ok(made)
}

/// Unregisters dispatch handlers; ignores handlers that are already unregistered.
pub(super) fn end(inside: &Guard, handlers: &[dtl_registration_t]) {
    for &handler in handlers.iter().rev() {
        let _ = dispatch::find(inside, dispatch::DEFAULT)
            .and_then(|default| default.unregister(inside, dispatch::DEFAULT, handler));
    }
}

/// Implements `dtl_backend_unregister`: unregisters a backend and those dispatch handlers of its
/// plugin that dispatch to the backend. If no other backend of the plugin is registered,
/// unregisters all handlers of the plugin.
pub fn unregister(inside: &Guard, backend: dtl_backend_t) -> Result<()> {
    with_handlers(inside, backend, |others| {
        registry::remove(inside, backend, others).map(|()| true)
    })
    .map(drop)
}

/// Unregisters `backend`, which another backend of the same name has replaced, and those dispatch
/// handlers of its plugin that dispatch to it. Returns false without unregistering if the backend
/// is still in use; the caller must then retry.
pub fn end_replaced(backend: dtl_backend_t) -> bool {
    let inside = epoch::enter();
    if !registry::is_replaced(&inside, backend) {
        return true; // unregistered, or its name was restored
    }
    // An error means that another thread has unregistered the backend first.
    with_handlers(&inside, backend, |others| registry::remove_unused(&inside, backend, others))
        .unwrap_or(true)
}

/// Removes a backend by calling `remove` with the number of dispatch handlers of the backend's
/// plugin that dispatch to the backend. If `remove` returns true (the backend was removed),
/// unregisters these handlers, or all handlers of the plugin if the plugin has no other registered
/// backend.
fn with_handlers(
    inside: &Guard,
    backend: dtl_backend_t,
    remove: impl FnOnce(usize) -> Result<bool>,
) -> Result<bool> {
    let state = STATE.lock();
    let owner = state.records.iter().find(|record| record.backends.contains(&backend));
    let (backends, handlers) =
        owner.map(|owner| (owner.backends.clone(), owner.handlers.clone())).unwrap_or_default();
    drop(state);
    let names = |handler: &dtl_registration_t| {
        let found = dispatch::pin(inside, *handler);
        found.is_some_and(
            |found| matches!(&found.action, Action::Backend(named) if named.handle() == backend),
        )
    };
    let naming: Vec<_> = handlers.iter().copied().filter(names).collect();
    let is_gone = remove(naming.len())?;
    if is_gone {
        end(inside, if registered(&backends).is_empty() { &handlers } else { &naming });
    }
    Ok(is_gone)
}
