//! Names of events as numbers, which fit into a record. Names are few and never freed.
//!
//! Reading takes no lock, for two reasons: the thread that writes the file reads names, and a
//! forked child, which has a copy of everything but that thread, must not find a lock held by it.

use crate::runtime::append_only_table::AppendOnlyTable;
use crate::runtime::for_ever;
use crate::sys::sync::lock::Mutex;
use std::ffi::{CStr, CString};

/// Number of an event name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Name(pub(super) u32);

static NAMES: AppendOnlyTable<&'static CStr, 64> = AppendOnlyTable::new();
/// Number of names. Adding a name takes the lock.
static COUNT: Mutex<usize> = Mutex::new(0);

impl Name {
    /// Returns the text of the name.
    pub(super) fn text(self) -> &'static CStr {
        NAMES.get(self.0 as usize).copied().unwrap_or(c"?")
    }

    fn of(text: &str) -> Name {
        let text = for_ever(&CString::new(text).unwrap_or_default());
        let mut count = COUNT.lock();
        let known =
            (0..*count).find(|number| NAMES.get(*number).is_some_and(|known| *known == text));
        let number = known.unwrap_or_else(|| {
            let number = *count;
            *count += usize::from(NAMES.set(number, text).is_some());
            number
        });
        Name(number as u32)
    }
}

/// Cache of the names that a thread has used, which finds a name without a lock. Keyed by address,
/// because names are constants of the program.
pub(super) struct NameCache([Option<(usize, usize, Name)>; 64]);

impl NameCache {
    pub(super) const NONE: NameCache = NameCache([None; 64]);

    pub(super) fn name(&mut self, text: &'static str) -> Name {
        let (at, len) = (text.as_ptr().addr(), text.len());
        let Some(place) = self.0.get_mut((at ^ at >> 6) % 64) else { return Name::of(text) };
        match place {
            Some((known_at, known_len, name)) if (*known_at, *known_len) == (at, len) => *name,
            _ => place.insert((at, len, Name::of(text))).2,
        }
    }
}
