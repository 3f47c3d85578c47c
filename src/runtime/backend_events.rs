//! What the rest of the runtime does when a backend comes, goes or is not found. The registry and
//! the environments name none of the parts that are built over them: they call these functions.

use super::memory::{drivers, host_alloc};
use super::registry::Backend;
use super::{dispatch, exec, plugins};
use crate::abi::handle::dtl_backend_t;
use crate::sys::handles::epoch::{self, Guard};
use std::sync::Arc;

/// A backend has its handle and is about to be listed, after which others can find it.
pub(super) fn adding(backend: &Backend) {
    if backend.plain_memory {
        host_alloc::settle(backend.handle());
    }
}

/// A backend of a program or plugin lost its name to another one: it is unregistered once nothing
/// uses it.
pub(super) fn replaced(old: dtl_backend_t) {
    epoch::until_done(Box::new(move || plugins::end_replaced(old)));
}

/// A backend can run on this machine.
pub(super) fn available(backend: &Backend) {
    drivers::add(backend);
}

/// Shares of a backend that belong to its default streams: they do not count as uses.
pub(super) fn default_shares(inside: &Guard, backend: &Arc<Backend>) -> usize {
    exec::handles::default_shares(inside, backend)
}

/// A backend is about to be destroyed, and nothing uses it.
pub(super) fn removed(inside: &Guard, backend: &Arc<Backend>) {
    drivers::remove(backend.handle());
    exec::handles::drop_defaults(inside, backend);
}

/// All backends are about to be destroyed.
pub(super) fn all_removed() {
    drivers::forget_all();
}

/// Name of a handler of a dispatcher that uses a backend.
pub(super) fn handler_of(inside: &Guard, backend: &Arc<Backend>) -> Option<String> {
    dispatch::text::handler_of(inside, backend)
}

/// A name is not known: loads the plugins, once.
pub(super) fn search_plugins() {
    plugins::search();
}

/// Text to append to NOT_FOUND: where a backend of this name can come from.
pub(super) fn advice(name: &str) -> String {
    plugins::advice(name)
}
