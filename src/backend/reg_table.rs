//! Table of the memory registrations that a transport keeps for later messages.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Registrations of type `R`, by a key that the transport chooses. The least recently used
/// registration that no operation uses can be removed.
pub struct RegTable<R> {
    entries: BTreeMap<u64, RegEntry<R>>,
    bytes: u64,
    clock: u64,
}

/// Registration in a [`RegTable`].
pub struct RegEntry<R> {
    /// Registration. Each operation that uses it has a clone of this reference.
    pub registered: Arc<R>,
    bytes: u64,
    /// Logical time (`clock`) of the last lookup that returned this entry, for LRU eviction.
    used: u64,
}

/// An empty table.
impl<R> Default for RegTable<R> {
    fn default() -> Self {
        RegTable { entries: BTreeMap::new(), bytes: 0, clock: 0 }
    }
}

impl<R> RegTable<R> {
    /// Returns the number of registered bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the registration that `select` chooses, and records its use.
    pub fn find(
        &mut self,
        select: impl FnOnce(&mut BTreeMap<u64, RegEntry<R>>) -> Option<&mut RegEntry<R>>,
    ) -> Option<Arc<R>> {
        self.clock += 1;
        let entry = select(&mut self.entries)?;
        entry.used = self.clock;
        Some(Arc::clone(&entry.registered))
    }

    /// Adds a registration of `bytes` bytes under `key`, which must not be in the table yet.
    pub fn add(&mut self, key: u64, registered: &Arc<R>, bytes: u64) {
        self.bytes += bytes;
        let entry = RegEntry { registered: Arc::clone(registered), bytes, used: self.clock };
        self.entries.insert(key, entry);
    }

    /// Removes the registration with the key `key`; returns `None` if there is none.
    pub fn remove(&mut self, key: u64) -> Option<Arc<R>> {
        let entry = self.entries.remove(&key)?;
        self.bytes -= entry.bytes;
        Some(entry.registered)
    }

    /// Removes the least recently used idle registration; returns `None` if there is none.
    pub fn remove_oldest(&mut self) -> Option<Arc<R>> {
        let all = self.entries.iter();
        let idle = all.filter(|(_, entry)| Arc::strong_count(&entry.registered) == 1);
        let oldest = *idle.min_by_key(|(_, entry)| entry.used)?.0;
        self.remove(oldest)
    }

    /// Removes and returns all registrations.
    pub fn drain(&mut self) -> Vec<Arc<R>> {
        self.bytes = 0;
        std::mem::take(&mut self.entries).into_values().map(|entry| entry.registered).collect()
    }

    /// Returns the keys of the registrations for which `is_wanted` returns true.
    pub fn keys(&self, is_wanted: impl Fn(&R) -> bool) -> Vec<u64> {
        let wanted = |(key, entry): (&u64, &RegEntry<R>)| {
            if is_wanted(&entry.registered) { Some(*key) } else { None }
        };
        self.entries.iter().filter_map(wanted).collect()
    }
}
