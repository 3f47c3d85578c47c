//! Handlers that plugins register with the default dispatcher, for the life of their backends.

use super::{STATE, loading, registered};
use crate::abi::handle::{dtl_backend_t, dtl_registration_t};
use crate::error::Result;
use crate::runtime::dispatch::{self, Action};
use crate::runtime::registry;
use crate::sys::handles::epoch::{self, Guard};

/// Calls `make` and records the handler that it registers for the plugin that this thread is
/// loading (`dispatch_register` of the host table).
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

/// Unregisters handlers; ignores handlers that are already unregistered.
pub(super) fn end(inside: &Guard, handlers: &[dtl_registration_t]) {
    for &handler in handlers.iter().rev() {
        let _ = dispatch::find(inside, dispatch::DEFAULT)
            .and_then(|default| default.unregister(inside, dispatch::DEFAULT, handler));
    }
}

/// Unregisters a backend (`dtl_backend_unregister`), together with the handlers of its plugin that
/// name the backend. With the plugin's last backend, all handlers of the plugin are unregistered.
pub fn unregister(inside: &Guard, backend: dtl_backend_t) -> Result<()> {
    with_handlers(inside, backend, |others| {
        registry::remove(inside, backend, others).map(|()| true)
    })
    .map(drop)
}

/// Unregisters a backend that was replaced, together with the handlers that name it, once the
/// backend is not in use. Returns true if no work is left to do.
pub fn end_replaced(backend: dtl_backend_t) -> bool {
    let inside = epoch::enter();
    if !registry::is_replaced(&inside, backend) {
        return true; // unregistered, or its name was restored
    }
    // An error means that another thread has unregistered the backend first.
    with_handlers(&inside, backend, |others| registry::remove_unused(&inside, backend, others))
        .unwrap_or(true)
}

/// Removes a backend by `remove`, whose argument is the number of handlers of the backend's plugin
/// that name the backend. These handlers are unregistered with the backend.
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
