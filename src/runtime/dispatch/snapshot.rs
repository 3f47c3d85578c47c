//! Immutable snapshot of a dispatcher's handlers, indexed by key. A new snapshot is created
//! whenever a handler is registered or unregistered.

use super::bitmap_index::{self, BitmapIndex, Map, PositionSet, Slots};
use super::{Action, Query, Registration, Role};
use crate::abi::devices::dispatch::DTL_DISPATCH_ANY;
use crate::abi::enums::*;
use crate::abi::word::*;
use crate::error::{Result, fail};
use crate::runtime::enums;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Key of a registered handler, and the handler. A handler with several keys has one entry for each
/// key.
pub struct ChainEntry {
    /// Slots of the key.
    pub key: Slots,
    /// Registered handler.
    pub registration: Arc<Registration>,
    /// Indices of all entries of this handler in the [`Chain`]. They are used to call the handler's
    /// predicate at most once for a query.
    others: Vec<usize>,
}

/// Handlers with their keys, in the order of rule 1 of `dtl_dispatch_key_t` (from specific to
/// general keys).
pub struct Chain {
    sieve: BitmapIndex,
    pub(super) entries: Vec<ChainEntry>,
    /// Registration handle of each entry, for callers that need only the handle; 0 if the entry
    /// declares the operation illegal.
    handles: Vec<u64>,
}

impl Chain {
    /// Sorts the entries into the order of rule 1 of `dtl_dispatch_key_t`, and those of equal keys
    /// by descending priority.
    fn new(mut entries: Vec<ChainEntry>) -> Self {
        entries.sort_by_key(|entry| {
            let of = &entry.registration;
            (bitmap_index::rank(&entry.key), entry.key, Reverse(of.priority))
        });
        Chain { sieve: BitmapIndex::new(&[]), entries, handles: Vec::new() }
    }

    /// Creates a chain with one handler for each key: the handler registered last, which replaces
    /// earlier ones.
    fn without_predicates(mut entries: Vec<ChainEntry>) -> Self {
        entries.reverse(); // the stable sort then puts the latest of equal keys first
        let mut chain = Chain::new(entries);
        chain.entries.dedup_by_key(|entry| entry.key);
        chain.finish()
    }

    fn with_predicates(entries: Vec<ChainEntry>) -> Self {
        let mut chain = Chain::new(entries);
        let mut places: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (at, entry) in chain.entries.iter().enumerate() {
            places.entry(entry.registration.number).or_default().push(at);
        }
        for entry in &mut chain.entries {
            entry.others = places.get(&entry.registration.number).cloned().unwrap_or_default();
        }
        chain.finish()
    }

    fn finish(mut self) -> Self {
        let keys: Vec<_> = self.entries.iter().map(|entry| entry.key).collect();
        self.sieve = BitmapIndex::new(&keys);
        self.handles = self.entries.iter().map(|entry| quick_handle(&entry.registration)).collect();
        self
    }

    /// Returns the first handler whose key matches the query `slots`.
    fn first(&self, slots: &Slots) -> Option<&Arc<Registration>> {
        self.entries.get(self.sieve.first(slots)?).map(|entry| &entry.registration)
    }

    /// Returns all entries whose keys match the query `slots`, with their indices, in the order of
    /// rule 1 of `dtl_dispatch_key_t`.
    #[inline]
    pub fn fitting(&self, slots: &Slots) -> impl Iterator<Item = (usize, &ChainEntry)> {
        self.sieve.all(slots).filter_map(|at| Some((at, self.entries.get(at)?)))
    }
}

/// Returns the handle of a handler; 0 if the handler is registered as illegal, so that a query that
/// selects it fails.
fn quick_handle(registration: &Registration) -> u64 {
    if matches!(registration.action, Action::Illegal(_)) { 0 } else { registration.handle().id }
}

/// Outcome of a fast-path lookup of the handler for an operation.
pub enum FastLookup {
    /// Handle of the handler.
    Found(u64),
    /// A full search is needed, because there are many handlers or because a key may match a word
    /// of the query after the word's instance number (lower 32 bits) is cleared. The full search
    /// does not call any user callbacks.
    Search,
    /// Predicates must be called, no handler matches, or the handler is registered as illegal.
    Ask,
}

/// Handlers of one operation.
pub struct OperationHandlers {
    has_predicates: bool,
    /// Handle of the default handler; 0 if there is none, or if the default is registered as
    /// illegal (a call without a matching handler then fails).
    default_handle: u64,
    /// Handlers with a predicate (rule 2 of `dtl_dispatch_key_t`).
    pub predicated: Chain,
    /// Handlers without a predicate (rule 3 of `dtl_dispatch_key_t`).
    pub plain: Chain,
    /// Default handler (rule 4 of `dtl_dispatch_key_t`).
    pub default: Option<Arc<Registration>>,
}

impl OperationHandlers {
    fn new(word: dtl_enum_word_t, registered: &[Arc<Registration>]) -> Self {
        let of_role = |role: Role| -> Vec<ChainEntry> {
            let entries = |registration: &Arc<Registration>| -> Vec<ChainEntry> {
                let keys = registration.keys.iter().filter(|key| key.operation == word);
                let entry = |key| ChainEntry {
                    key: super::slots_of(key),
                    registration: Arc::clone(registration),
                    others: Vec::new(),
                };
                keys.map(entry).collect()
            };
            registered
                .iter()
                .filter(|registration| registration.role == role)
                .flat_map(entries)
                .collect()
        };
        let predicated = Chain::with_predicates(of_role(Role::Predicated));
        let default = of_role(Role::Default).pop().map(|entry| entry.registration);
        OperationHandlers {
            has_predicates: !predicated.entries.is_empty(),
            default_handle: default.as_deref().map_or(0, quick_handle),
            predicated,
            plain: Chain::without_predicates(of_role(Role::Plain)),
            default,
        }
    }

    /// Finds the handle of the handler for `slots` without a full search, if that is possible.
    #[inline]
    fn quick_handle(&self, slots: &Slots) -> FastLookup {
        if self.has_predicates {
            return FastLookup::Ask;
        }
        match self.plain.sieve.first_at_once(slots) {
            Some(first) => self.handle_at(first),
            None => FastLookup::Search,
        }
    }

    /// Finds the handle of the handler for `slots` with a full search. Never returns `Search`.
    fn searched_handle(&self, slots: &Slots) -> FastLookup {
        if self.has_predicates {
            FastLookup::Ask
        } else {
            self.handle_at(self.plain.sieve.first(slots))
        }
    }

    #[inline]
    fn handle_at(&self, first: Option<usize>) -> FastLookup {
        let id = match first {
            Some(at) => self.plain.handles.get(at).copied().unwrap_or(0),
            None => self.default_handle,
        };
        if id == 0 { FastLookup::Ask } else { FastLookup::Found(id) }
    }

    /// Finds the handler for `slots` by rules 3 and 4 of `dtl_dispatch_key_t`, which do not involve
    /// predicates.
    pub fn without_predicates(&self, slots: &Slots) -> Option<&Arc<Registration>> {
        self.plain.first(slots).or(self.default.as_ref())
    }

    /// Finds the handler for a query by rules 2 to 4 of `dtl_dispatch_key_t`.
    pub fn choose(&self, query: &Query, is_strict: bool) -> Result<Option<&Arc<Registration>>> {
        let slots = super::slots(query);
        if self.has_predicates {
            if let Some(chosen) = self.by_predicate(&slots, query, is_strict)? {
                return Ok(Some(chosen));
            }
        }
        Ok(self.without_predicates(&slots))
    }

    fn by_predicate(
        &self,
        slots: &Slots,
        query: &Query,
        is_strict: bool,
    ) -> Result<Option<&Arc<Registration>>> {
        // Created when the predicate of a handler with several keys is false: most queries never
        // need these 128 bytes.
        let mut refused: Option<PositionSet> = None;
        let mut first_key = None;
        let mut winner: Option<&ChainEntry> = None;
        for (at, entry) in self.predicated.fitting(slots) {
            let of = &entry.registration;
            if let Some(best) = winner {
                if entry.key != best.key || of.priority < best.registration.priority {
                    break;
                }
            }
            if is_strict && *first_key.get_or_insert(entry.key) != entry.key {
                break;
            }
            if refused.as_ref().is_some_and(|refused| refused.has(at)) {
                continue;
            }
            match (of.accepts(query)?, winner) {
                (false, _) if entry.others.len() > 1 => {
                    let refused = refused.get_or_insert_default();
                    entry.others.iter().for_each(|&other| refused.set(other));
                }
                (false, _) => {}
                (true, None) => winner = Some(entry),
                (true, Some(best)) => {
                    return fail!(
                        DTL_ERROR_AMBIGUOUS,
                        "\"{}\" and \"{}\" both take {} at the key {}, with priority {}: give one \
                         a higher one",
                        best.registration.name,
                        of.name,
                        super::text::of_query(query),
                        super::text::of_key(&entry.key),
                        of.priority
                    );
                }
            }
        }
        Ok(winner.map(|entry| &entry.registration))
    }
}

/// Handlers of all operations.
pub struct Tables {
    /// Map from the enumeration word of an operation to its index in `operations`.
    places: Map<u32>,
    operations: Vec<OperationHandlers>,
}

impl Tables {
    /// Creates the lookup tables for the handlers `registered`, which must be in the order of
    /// registration.
    pub fn new(registered: &[Arc<Registration>]) -> Self {
        let keys = registered.iter().flat_map(|registration| &registration.keys);
        let mut words: Vec<_> = keys.map(|key| key.operation).collect();
        words.sort_unstable();
        words.dedup();
        let operations =
            words.iter().map(|&word| OperationHandlers::new(word, registered)).collect();
        let places = words.iter().enumerate().map(|(place, &word)| (word, place as u32));
        Tables { places: Map::new(places, u32::MAX), operations }
    }

    /// Returns the handlers of an operation; `None` if the operation has no handlers.
    #[inline]
    pub fn of(&self, operation: dtl_enum_word_t) -> Option<&OperationHandlers> {
        self.operations.get(self.places.get(operation)? as usize)
    }

    /// Finds the handle of the handler for a query without a full search, if that is possible. Does
    /// not fail, and does not call any user callbacks.
    #[inline]
    pub fn look_quickly(&self, query: &Query) -> FastLookup {
        let place = self.places.at_once(query.operation);
        match place.and_then(|place| self.operations.get(place as usize)) {
            Some(operation) => operation.quick_handle(&super::slots(query)),
            None => FastLookup::Search,
        }
    }

    /// Finds the handle of the handler for a query with a full search. Never returns `Search`.
    pub fn search_quickly(&self, query: &Query) -> FastLookup {
        match self.of(bitmap_index::template(query.operation)) {
            Some(operation) => operation.searched_handle(&super::slots(query)),
            None => FastLookup::Ask,
        }
    }
}

/// Enumeration to which the word in each slot must belong, for each of the library's own
/// operations. The documentation of `dtl_dispatch_query_t` lists these enumerations. 0 = a word of
/// any enumeration is accepted, because the library does not use the slot.
pub(super) const LIBRARYS: [(dtl_enum_word_t, [dtl_enum_t; 3]); 7] = [
    (DTL_OPERATION_ALLOC, [0, DTL_ENUM_MEMORY, DTL_ENUM_SCHEDULE]),
    (DTL_OPERATION_COPY, [DTL_ENUM_MEMORY, DTL_ENUM_MEMORY, DTL_ENUM_SCHEDULE]),
    (DTL_OPERATION_LAUNCH, [0, 0, DTL_ENUM_SCHEDULE]),
    (DTL_OPERATION_COMPILE, [DTL_ENUM_LANGUAGE, 0, DTL_ENUM_SCHEDULE]),
    (DTL_OPERATION_FREE, [DTL_ENUM_MEMORY, 0, DTL_ENUM_SCHEDULE]),
    (DTL_OPERATION_INSTRUMENT, [DTL_ENUM_INSTRUMENTATION, 0, DTL_ENUM_SCHEDULE]),
    (DTL_OPERATION_INSTRUMENT_DATA, [DTL_ENUM_DATA_INSTRUMENTATION, 0, DTL_ENUM_SCHEDULE]),
];

/// Fails if a key of one of the library's operations has a word of the wrong enumeration in a slot,
/// because no query could match such a key.
pub fn check_enumerations(operation: dtl_enum_word_t, slots: Slots) -> Result<()> {
    let Some((_, wanted)) = LIBRARYS.iter().find(|(known, _)| *known == operation) else {
        return Ok(());
    };
    for ((name, word), number) in SLOT_NAMES.into_iter().zip(slots).zip(*wanted) {
        if number != 0 && word != DTL_DISPATCH_ANY {
            let within = || format!("{name} of operation {}", enums::describe(operation));
            enums::check(word, number).map_err(|error| error.within(&within()))?;
        }
    }
    Ok(())
}

const SLOT_NAMES: [&str; 3] = ["source", "destination", "schedule"];

/// Fails unless `operation` is a registered operation and each slot contains a registered
/// enumeration word or DTL_DISPATCH_ANY.
pub fn check_words(operation: dtl_enum_word_t, slots: Slots) -> Result<()> {
    enums::check(operation, DTL_ENUM_OPERATION).map_err(|error| error.within("operation"))?;
    let named = SLOT_NAMES.into_iter().zip(slots);
    let mut named = named.filter(|(_, word)| *word != DTL_DISPATCH_ANY);
    named.try_for_each(|(name, word)| enums::check_given(word).map_err(|error| error.within(name)))
}

/// Bitmap of the library's operations for which the default dispatcher has a handler other than the
/// library's own. After a thread has registered a handler, its own later loads return the updated
/// bitmap. The bitmap does not order any other memory accesses, so relaxed accesses suffice.
static TAKEN: AtomicU32 = AtomicU32::new(0);

const fn bit(operation: dtl_enum_word_t) -> u32 {
    if operation >> 48 == DTL_OPERATION_ALLOC >> 48 {
        1_u32.wrapping_shl((operation >> 32) as u32)
    } else {
        0
    }
}

/// Returns true if the default dispatcher has a handler for `operation` (an operation of the
/// library) other than the library's own handler. Called whenever the library executes such an
/// operation.
pub fn is_taken(operation: dtl_enum_word_t) -> bool {
    TAKEN.load(Ordering::Relaxed) & bit(operation) != 0
}

/// Records in the bitmap `TAKEN` which operations have handlers other than the library's own.
/// `registered` yields the handlers of the default dispatcher.
pub(super) fn note<'a>(registered: impl Iterator<Item = &'a Registration>) {
    let theirs = registered.filter(|registration| !matches!(registration.action, Action::Own));
    let keys = theirs.flat_map(|registration| &registration.keys);
    TAKEN.store(keys.fold(0, |bits, key| bits | bit(key.operation)), Ordering::Relaxed);
}

pub(super) fn forget() {
    TAKEN.store(0, Ordering::Relaxed);
}
