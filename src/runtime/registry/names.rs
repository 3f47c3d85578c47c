//! The names that backends, plugins and environments may have, and names that go back to a backend
//! that had them.

use super::{Backend, NAMED, Replaced, TABLE, choose_again, pin};
use crate::error::{Result, fail};
use crate::runtime::{check_name, settings};
use crate::sys::handles::epoch::Guard;
use std::sync::Arc;

/// The rule for a backend to be added: a lookup of an alias leads to another backend, so no backend
/// with that name would ever be found.
pub(super) fn check_backend_name(name: &str) -> Result<()> {
    check_name("backend", name)?;
    let meant = settings::alias(name);
    if meant != name {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "backend name \"{name}\" is an alias of \"{meant}\" in dtl_backend_get: choose a name \
             other than \"cpu\", \
             \"CPU\" and \"GPU\""
        );
    }
    Ok(())
}

/// Gives a replaced backend its name back, unless another registered one has it by now or the
/// backend is gone.
pub fn put_back(inside: &Guard, replaced: Replaced) {
    let Replaced { place, backend } = replaced;
    let mut named = NAMED.write();
    if pin(inside, backend.handle()).is_ok() {
        match named.iter_mut().find(|known| known.name == backend.name) {
            None => {
                let place = place.min(named.len());
                named.insert(place, backend);
            }
            Some(known) if known.builtin => *known = backend, // which got it from `take_out`
            Some(_) => {}
        }
    }
    drop(named);
    choose_again();
}

/// Takes a backend out of the list of names. If it had replaced a built-in one, that gets its name
/// back.
pub(super) fn take_out(
    inside: &Guard,
    named: &mut Vec<Arc<Backend>>,
    default: &mut Option<Arc<Backend>>,
    gone: &Arc<Backend>,
) {
    let Some(place) = named.iter().position(|known| Arc::ptr_eq(known, gone)) else { return };
    named.remove(place);
    // Looked at without shares, which would be in the way of others' removal; a built-in one stays.
    let is_before =
        |id: &u64| TABLE.get(inside, *id).is_some_and(|b| b.builtin && b.name == gone.name);
    let before = TABLE.handles().into_iter().find(is_before).and_then(|id| TABLE.pin(inside, id));
    if let Some(before) = before {
        named.insert(place, before);
        *default = None; // there is another candidate
    }
}
