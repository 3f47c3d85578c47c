//! Names of trace events, represented by numbers that fit into a fixed-size event record. Names are
//! few and never freed.
//!
//! The lookup of a name by its number does not take a lock, because the thread that writes the
//! trace file makes such lookups. In a forked child this thread does not exist, so a lock that the
//! thread held at the fork would stay locked.

use crate::error::{Result, fail, failure};
use crate::runtime::append_only_table::{AppendOnlyTable, CHUNK};
use crate::runtime::for_ever;
use crate::sys::sync::lock::Mutex;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};

/// Chunks of the table of names.
const CHUNKS: usize = 64;
/// Number of names at which names of plugins are refused, so that the library's own still fit.
const MOST: usize = (CHUNKS - 8) * CHUNK;
/// Bytes of a plugin's name that are kept.
const LENGTH: usize = 255;

/// Number of an event name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Name(pub(super) u32);

static NAMES: AppendOnlyTable<&'static CStr, CHUNKS> = AppendOnlyTable::new();
/// Number of each name in [`NAMES`]. A thread must lock this mutex to add a name.
static NUMBERS: Mutex<BTreeMap<&'static CStr, u32>> = Mutex::new(BTreeMap::new());

impl Name {
    /// Returns the name as a C string.
    pub(super) fn text(self) -> &'static CStr {
        NAMES.get(self.0 as usize).copied().unwrap_or(c"?")
    }

    /// Returns the name with a number, if there is one.
    pub(super) fn find(number: u32) -> Option<Name> {
        NAMES.get(number as usize).map(|_| Name(number))
    }

    fn of(text: &str) -> Name {
        Name::number(text, CHUNKS * CHUNK).unwrap_or(Name((CHUNKS * CHUNK) as u32))
    }

    /// Returns the number of a name, which is added if there are fewer than `most` names.
    fn number(text: &str, most: usize) -> Option<Name> {
        let text = CString::new(text).unwrap_or_default();
        let mut numbers = NUMBERS.lock();
        if let Some(number) = numbers.get(text.as_c_str()) {
            return Some(Name(*number));
        }
        let (number, text) = (numbers.len(), Some(&*text).filter(|_| numbers.len() < most)?);
        let text = for_ever(text);
        NAMES.set(number, text)?;
        numbers.insert(text, number as u32);
        Some(Name(number as u32))
    }

    /// Returns the number of a plugin's name, of which the first 255 bytes are copied. `role` is
    /// the name of the parameter, for the error text.
    pub(super) fn copied(text: &str, role: &str) -> Result<Name> {
        if text.is_empty() {
            return fail!(DTL_ERROR_INVALID_ARGUMENT, "{role} is empty; name it");
        }
        Name::number(kept(text), MOST).ok_or_else(|| {
            failure!(
                DTL_ERROR_LIMIT,
                "{role} \"{}\" would be the name number {MOST} of trace events: put what differs \
                 from event to event into what",
                kept(text)
            )
        })
    }
}

/// Returns the first bytes of a name, at most [`LENGTH`], as whole characters.
fn kept(text: &str) -> &str {
    let end = (0..=text.len().min(LENGTH)).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or(0)).unwrap_or(text)
}

/// Cache of the names that a thread has used, for lookups without a lock.
pub(super) struct NameCache {
    /// Names of the library. The key is the address and the length of the string, because each is
    /// a string constant, which stays at its address.
    constants: [Option<(usize, usize, Name)>; 64],
    /// Names of plugins, found by a hash of their text, because their memory may be used again.
    copies: [Option<Name>; 64],
}

impl NameCache {
    pub(super) const NONE: NameCache = NameCache { constants: [None; 64], copies: [None; 64] };

    pub(super) fn name(&mut self, text: &'static str) -> Name {
        let (at, len) = (text.as_ptr().addr(), text.len());
        let place = self.constants.get_mut((at ^ at >> 6) % 64);
        let Some(place) = place else { return Name::of(text) };
        match place {
            Some((known_at, known_len, name)) if (*known_at, *known_len) == (at, len) => *name,
            _ => place.insert((at, len, Name::of(text))).2,
        }
    }

    /// Returns the numbers of a plugin's names (see [`Name::copied`]).
    pub(super) fn copied(&mut self, category: &str, name: &str) -> Result<(Name, Name)> {
        let mut number = |text: &str, role: &str| {
            let text = kept(text);
            // FNV-1a.
            let mix = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(16_777_619);
            let hash = text.bytes().fold(2_166_136_261, mix);
            let place = self.copies.get_mut((hash ^ hash >> 16) as usize % 64);
            let Some(place) = place else { return Name::copied(text, role) };
            match place {
                Some(name) if name.text().to_bytes() == text.as_bytes() => Ok(*name),
                _ => Ok(*place.insert(Name::copied(text, role)?)),
            }
        };
        Ok((number(category, "category")?, number(name, "name")?))
    }
}
