//! Handlers of the default dispatcher that plugins bring: they go with the backends of their
//! plugin.

use super::{STATE, loading, registered};
use crate::abi::handle::{dtl_backend_t, dtl_registration_t};
use crate::error::Result;
use crate::runtime::dispatch::{self, Action};
use crate::runtime::registry;
use crate::sys::handles::epoch::{self, Guard};

/// For the host's dispatch_register: keeps what `make` has registered for the plugin that this
/// thread is loading.
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

/// Takes handlers out; some may be gone already.
pub(super) fn end(inside: &Guard, handlers: &[dtl_registration_t]) {
    for &handler in handlers.iter().rev() {
        let _ = dispatch::find(inside, dispatch::DEFAULT)
            .and_then(|default| default.unregister(inside, dispatch::DEFAULT, handler));
    }
}

/// Unregisters a backend (`dtl_backend_unregister`), with its plugin's handlers that name it. The
/// plugin's last backend takes all of the plugin's handlers with it.
pub fn unregister(inside: &Guard, backend: dtl_backend_t) -> Result<()> {
    with_handlers(inside, backend, |others| {
        registry::remove(inside, backend, others).map(|()| true)
    })
    .map(drop)
}

/// Unregisters a backend that was replaced, with the handlers that name it, once nothing uses it.
/// Returns true if nothing is left to do.
pub fn end_replaced(backend: dtl_backend_t) -> bool {
    let inside = epoch::enter();
    if !registry::is_replaced(&inside, backend) {
        return true; // unregistered, or it has its name again
    }
    // An error: another thread was faster.
    with_handlers(&inside, backend, |others| registry::remove_unused(&inside, backend, others))
        .unwrap_or(true)
}

/// Removes a backend by `remove`, which gets the number of its plugin's handlers that name it; they
/// end with it.
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
