//! Checks of the names of backends, plugins and environments, and restoration of the name of a
//! replaced backend.

use super::{Backend, NAMED, Replaced, TABLE, choose_again, pin};
use crate::error::{Result, fail};
use crate::runtime::{check_name, settings};
use crate::sys::handles::epoch::Guard;
use std::sync::Arc;

/// Checks the name of a backend that is being registered. Rejects an alias: a lookup of an alias
/// returns another backend, so a backend with that name could never be found.
pub(super) fn check_backend_name(name: &str) -> Result<()> {
    check_name("backend", name)?;
    let meant = settings::alias(name);
    if meant != name {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "backend name \"{name}\" is an alias of \"{meant}\" in dtl_backend_get: choose a name \
             other than \"cpu\", \"CPU\" and \"GPU\""
        );
    }
    Ok(())
}

/// Restores the name of a replaced backend, unless a backend that is not built in has taken the
/// name in the meantime or the replaced backend no longer exists.
pub fn put_back(inside: &Guard, replaced: Replaced) {
    let Replaced { place, backend } = replaced;
    let mut named = NAMED.write();
    if pin(inside, backend.handle()).is_ok() {
        match named.iter_mut().find(|known| known.name == backend.name) {
            None => {
                let place = place.min(named.len());
                named.insert(place, backend);
            }
            Some(known) if known.builtin => *known = backend, // `take_out` had restored it
            Some(_) => {}
        }
    }
    drop(named);
    choose_again();
}

/// Removes the backend `gone` from the list that lookups by name search. If `gone` had replaced a
/// built-in backend, puts the built-in backend back into the list.
pub(super) fn take_out(inside: &Guard, named: &mut Vec<Arc<Backend>>, gone: &Arc<Backend>) {
    let Some(place) = named.iter().position(|known| Arc::ptr_eq(known, gone)) else { return };
    named.remove(place);
    // Inspected without reference counts, which would make a concurrent removal fail; a built-in
    // backend is never removed.
    let is_before =
        |id: &u64| TABLE.get(inside, *id).is_some_and(|b| b.builtin && b.name == gone.name);
    let before = TABLE.handles().into_iter().find(is_before).and_then(|id| TABLE.pin(inside, id));
    if let Some(before) = before {
        named.insert(place, before);
        choose_again(); // the candidates have changed
    }
}
