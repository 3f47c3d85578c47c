//! Names of events as numbers, so that a record has room for them. There are few, and they live for ever.

use crate::runtime::for_ever;
use crate::sys::lock::RwLock;
use std::ffi::{CStr, CString};

/// The number of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Name(pub(super) u32);

static NAMES: RwLock<Vec<&'static CStr>> = RwLock::new(Vec::new());

impl Name {
    /// The text.
    pub(super) fn text(self) -> &'static CStr {
        NAMES.read().get(self.0 as usize).copied().unwrap_or(c"?")
    }

    fn of(text: &str) -> (Name, &'static CStr) {
        let text = for_ever(&CString::new(text).unwrap_or_default());
        let mut names = NAMES.write();
        let known = names.iter().position(|known| *known == text);
        let number = known.unwrap_or_else(|| {
            names.push(text);
            names.len() - 1
        });
        (Name(number as u32), text)
    }
}

/// The names that a thread has used: those are found without a lock. By address, as names are parts of the program.
pub(super) struct Known([Option<(usize, usize, Name, &'static CStr)>; 64]);

impl Known {
    pub(super) const NONE: Known = Known([None; 64]);

    pub(super) fn name(&mut self, text: &'static str) -> (Name, &'static CStr) {
        let (at, len) = (text.as_ptr().addr(), text.len());
        let Some(place) = self.0.get_mut((at ^ at >> 6) % 64) else { return Name::of(text) };
        match place {
            Some((known_at, known_len, name, text)) if (*known_at, *known_len) == (at, len) => (*name, text),
            _ => {
                let (name, text) = Name::of(text);
                *place = Some((at, len, name, text));
                (name, text)
            }
        }
    }
}
