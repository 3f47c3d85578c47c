//! Names of trace events, represented by numbers that fit into a fixed-size event record. Names are
//! few and never freed.
//!
//! The lookup of a name by its number does not take a lock, because the thread that writes the
//! trace file makes such lookups. In a forked child this thread does not exist, so a lock that the
//! thread held at the fork would stay locked.

use crate::runtime::append_only_table::AppendOnlyTable;
use crate::runtime::for_ever;
use crate::sys::sync::lock::Mutex;
use std::ffi::{CStr, CString};

/// Number of an event name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Name(pub(super) u32);

static NAMES: AppendOnlyTable<&'static CStr, 64> = AppendOnlyTable::new();
/// Number of names in [`NAMES`]. A thread must lock this mutex to add a name.
static COUNT: Mutex<usize> = Mutex::new(0);

impl Name {
    /// Returns the name as a C string.
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

/// Cache of the names that a thread has used, for lookups without a lock. The key is the address
/// and the length of the string, because every name is a string constant, which stays at its
/// address.
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
