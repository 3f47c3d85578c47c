//! A dispatcher's handlers, ready to be asked: made anew whenever one comes or goes, and never changed.

use super::sieve::{self, Marks, Sieve, Slots, Words};
use super::{Query, Registration, Role};
use crate::abi::word::dtl_enum_word_t;
use crate::error::{Result, fail};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A handler at one of its keys.
pub struct Entry {
    /// The key's slots.
    pub key: Slots,
    /// The handler.
    pub registration: Arc<Registration>,
    /// Where the handler is in this chain: its predicate is asked once.
    others: Vec<usize>,
}

/// Handlers with their keys, in the order of the walk.
pub struct Chain {
    sieve: Sieve,
    entries: Vec<Entry>,
}

impl Chain {
    fn new(mut entries: Vec<Entry>) -> Self {
        entries.sort_by_key(|entry| {
            let of = &entry.registration;
            (sieve::rank(&entry.key), entry.key, Reverse(of.priority))
        });
        Chain { sieve: Sieve::new(&[]), entries }
    }

    /// One handler for each key: the latest, which replaces the others.
    fn without_predicates(mut entries: Vec<Entry>) -> Self {
        entries.reverse(); // what is equal stays in order
        let mut chain = Chain::new(entries);
        chain.entries.dedup_by_key(|entry| entry.key);
        chain.finish()
    }

    fn with_predicates(entries: Vec<Entry>) -> Self {
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
        self.sieve = Sieve::new(&keys);
        self
    }

    /// The first that fits.
    #[inline(always)]
    fn first(&self, slots: &Slots) -> Option<&Arc<Registration>> {
        self.entries.get(self.sieve.first(slots)?).map(|entry| &entry.registration)
    }

    /// All that fit, in the order of the walk.
    pub fn fitting(&self, slots: &Slots) -> impl Iterator<Item = (usize, &Entry)> {
        self.sieve.all(slots).filter_map(|at| Some((at, self.entries.get(at)?)))
    }
}

/// The handlers of one operation.
pub struct Operation {
    /// Rule 2.
    pub predicated: Chain,
    /// Rule 3.
    pub plain: Chain,
    /// Rule 4.
    pub default: Option<Arc<Registration>>,
}

impl Operation {
    fn new(word: dtl_enum_word_t, registered: &[Arc<Registration>]) -> Self {
        let of_role = |role: Role| -> Vec<Entry> {
            let entries = |registration: &Arc<Registration>| -> Vec<Entry> {
                let keys = registration.keys.iter().filter(|key| key.operation == word);
                let entry = |key| Entry {
                    key: super::slots_of(key),
                    registration: Arc::clone(registration),
                    others: Vec::new(),
                };
                keys.map(entry).collect()
            };
            registered.iter().filter(|registration| registration.role == role).flat_map(entries).collect()
        };
        Operation {
            predicated: Chain::with_predicates(of_role(Role::Predicated)),
            plain: Chain::without_predicates(of_role(Role::Plain)),
            default: of_role(Role::Default).pop().map(|entry| entry.registration),
        }
    }

    /// Whether predicates have to be asked.
    #[inline(always)]
    #[must_use]
    pub fn asks(&self) -> bool {
        !self.predicated.entries.is_empty()
    }

    /// The handler, if no predicate has to be asked: rules 3 and 4.
    #[inline(always)]
    #[must_use]
    pub fn without_predicates(&self, slots: &Slots) -> Option<&Arc<Registration>> {
        self.plain.first(slots).or(self.default.as_ref())
    }

    /// The handler, by rules 2 to 4.
    pub fn choose(&self, query: &Query, is_strict: bool) -> Result<Option<&Arc<Registration>>> {
        let slots = super::slots(query);
        if self.asks() {
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
        let mut refused = Marks::default();
        let mut first_key = None;
        let mut winner: Option<&Entry> = None;
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
            if refused.has(at) {
                continue;
            }
            match (of.accepts(query)?, winner) {
                (false, _) => entry.others.iter().for_each(|&other| refused.set(other)),
                (true, None) => winner = Some(entry),
                (true, Some(best)) => {
                    return fail!(
                        DTL_ERROR_AMBIGUOUS,
                        "\"{}\" and \"{}\" both take {} at the key {}, with priority {}: give one a higher one",
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

/// The handlers of all operations.
pub struct Tables {
    words: Words,
    operations: Vec<Operation>,
}

impl Tables {
    /// From what is registered, in that order.
    #[must_use]
    pub fn new(registered: &[Arc<Registration>]) -> Self {
        let keys = registered.iter().flat_map(|registration| &registration.keys);
        let mut words: Vec<_> = keys.map(|key| key.operation).collect();
        words.sort_unstable();
        words.dedup();
        let operations = words.iter().map(|&word| Operation::new(word, registered)).collect();
        Tables { words: Words::new(&words), operations }
    }

    /// Those of one.
    #[inline(always)]
    #[must_use]
    pub fn of(&self, operation: dtl_enum_word_t) -> Option<&Operation> {
        self.operations.get(self.words.number(operation).wrapping_sub(1))
    }
}
