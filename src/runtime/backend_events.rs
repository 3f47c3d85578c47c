//! Reactions of the runtime to the registration and removal of a backend, and to a failed lookup.
//! The registry and the environments call these functions and thus need not name higher modules.

use super::memory::{drivers, host_alloc};
use super::registry::Backend;
use super::{dispatch, exec, plugins};
use crate::abi::handle::dtl_backend_t;
use crate::sys::handles::epoch::{self, Guard};
use std::sync::Arc;

/// Handles the registration of a backend, before other threads can find the backend.
pub(super) fn adding(backend: &Backend) {
    if backend.plain_memory {
        host_alloc::settle(backend.handle());
    }
}

/// Unregisters a backend of a program or plugin, whose name another backend has taken over, once
/// the replaced backend is not in use.
pub(super) fn replaced(old: dtl_backend_t) {
    epoch::until_done(Box::new(move || plugins::end_replaced(old)));
}

/// Handles the report of a backend that the backend can run on this machine.
pub(super) fn available(backend: &Backend) {
    drivers::add(backend);
}

/// Returns the number of a backend's references in its default streams, which do not count as uses.
pub(super) fn default_shares(inside: &Guard, backend: &Arc<Backend>) -> usize {
    exec::handles::default_shares(inside, backend)
}

/// Handles the removal of a backend that is not in use, before the backend is destroyed.
pub(super) fn removed(inside: &Guard, backend: &Arc<Backend>) {
    drivers::remove(backend.handle());
    exec::handles::drop_defaults(inside, backend);
}

/// Handles the removal of all backends, before they are destroyed.
pub(super) fn all_removed() {
    drivers::forget_all();
}

/// Returns the name of a dispatcher's handler that uses the backend.
pub(super) fn handler_of(inside: &Guard, backend: &Arc<Backend>) -> Option<String> {
    dispatch::text::handler_of(inside, backend)
}

/// Loads the plugins, once; called when a backend name is unknown.
pub(super) fn search_plugins() {
    plugins::search();
}

/// Returns the text to append to a NOT_FOUND error: possible sources of a backend of this name.
pub(super) fn advice(name: &str) -> String {
    plugins::advice(name)
}
