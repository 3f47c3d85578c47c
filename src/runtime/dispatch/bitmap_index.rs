//! Bitmap index, which finds the keys that match a query. It need not test each key. Keys and
//! queries have three slots (source, destination and schedule), each with a 64-bit enumeration
//! word. For each slot and each word in it, a row of bits marks the keys that match the word. A key
//! matches a query if its bit is set in the rows of all three slots. The bits are in the order of
//! rule 1 of `dtl_dispatch_key_t` (from specific to general keys), so the first bit set in all
//! three rows is the result. The index is immutable. A query takes three hash table lookups and
//! reads three 64-bit words for every 64 keys.
//!
//! Source of the method: T. V. Lakshman, D. Stiliadis, "High-speed policy-based packet forwarding
//! using efficient multi-dimensional range matching", SIGCOMM 1998.

use crate::abi::devices::dispatch::DTL_DISPATCH_ANY;
use crate::abi::word::dtl_enum_word_t;

/// Enumeration words in the three slots of a key or query: source, destination, schedule.
pub type Slots = [dtl_enum_word_t; 3];

/// Maximum number of keys in one index.
pub const MOST: usize = 1024;
/// Number of 64-bit words in a row of bits.
const WORDS: usize = MOST / 64;

/// Returns the template of an enumeration word: the word with its instance number (lower 32 bits)
/// cleared.
pub const fn template(word: dtl_enum_word_t) -> dtl_enum_word_t {
    word & 0xFFFF_FFFF_0000_0000
}

/// Returns true if an enumeration word denotes an instance: its instance number (lower 32 bits) is
/// not 0.
pub const fn is_instance(word: dtl_enum_word_t) -> bool {
    word as u32 != 0
}

/// Returns the sort rank of a key by rule 1 of `dtl_dispatch_key_t`; keys with smaller ranks come
/// first. The rank depends first on which slots contain DTL_DISPATCH_ANY, then on which slots
/// contain a word whose instance number (lower 32 bits) is 0.
pub fn rank(key: &Slots) -> u32 {
    let fold = |bits: u32, more: bool| bits << 1 | u32::from(more);
    let form = key.iter().fold(0, |bits, &word| fold(bits, word == DTL_DISPATCH_ANY));
    key.iter().fold(form, |bits, &word| fold(bits, !is_instance(word)))
}

/// Returns true if each slot of the key contains DTL_DISPATCH_ANY, the word in the same slot of the
/// query, or the template of that word (the word with its lower 32 bits cleared). [`BitmapIndex`]
/// is the fast implementation of this test.
pub fn fits(key: &Slots, query: &Slots) -> bool {
    key.iter()
        .zip(query)
        .all(|(key, &queried)| [DTL_DISPATCH_ANY, queried, template(queried)].contains(key))
}

/// Returns true if the key would match the query after each slot of the query that contains
/// DTL_DISPATCH_ANY is replaced with the key's slot.
pub fn may_fit(key: &Slots, queried: &Slots) -> bool {
    let mut filled = *queried;
    let open = filled.iter_mut().zip(key).filter(|(filled, _)| **filled == DTL_DISPATCH_ANY);
    open.for_each(|(filled, wanted)| *filled = *wanted);
    fits(key, &filled)
}

/// Hash table that maps enumeration words to values, with linear probing. `new` searches for a
/// multiplier with which every word is in its first cell, the cell to which it hashes. If it finds
/// one, a lookup is one comparison.
pub struct Map<V> {
    /// Cells of the table; their number is a power of two. At least half of the cells are empty: an
    /// empty cell contains the word 0 and the value that a lookup returns for a word that is not in
    /// the table.
    cells: Box<[(dtl_enum_word_t, V)]>,
    factor: u64,
}

impl<V: Copy> Map<V> {
    /// Creates a table with the entries `words`. `other` is the value for all words that are not in
    /// the table.
    pub fn new(words: impl ExactSizeIterator<Item = (dtl_enum_word_t, V)>, other: V) -> Self {
        let words: Vec<_> = words.collect();
        let tries = if words.len() <= 64 { 64_u64 } else { 1 };
        let count = (4 * words.len()).max(4).next_power_of_two();
        // Candidate multipliers: odd multiples of 2^64 divided by the golden ratio, which are far
        // apart (Knuth, TAOCP vol. 3, 6.4).
        let factors = (1..=tries).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let mut made = Map::closed();
        for factor in factors {
            made = Map { cells: vec![(0, other); count].into_boxed_slice(), factor };
            // The cell of word 0 must stay empty: it is looked up most often, as "any".
            let moved = words
                .iter()
                .filter(|(word, value)| !made.put(*word, *value) || made.begin(*word) == 0);
            if moved.count() == 0 {
                break;
            }
        }
        made
    }

    /// Creates a table without cells, in which no lookup succeeds.
    fn closed() -> Self {
        Map { cells: Box::new([]), factor: 1 }
    }

    /// Inserts a word. Returns true if the word is now in its first cell, the cell to which it
    /// hashes.
    fn put(&mut self, word: dtl_enum_word_t, value: V) -> bool {
        let first = self.begin(word);
        let mut at = first;
        while self.cells.get(at).is_some_and(|cell| cell.0 != 0) {
            at = self.next(at);
        }
        if let Some(cell) = self.cells.get_mut(at) {
            *cell = (word, value);
        }
        at == first
    }

    /// Returns the index of the first cell of a word, the cell to which it hashes: the middle bits
    /// of the product of the word and `factor`. These bits depend on all bits in which words differ
    /// (bits 32 to 47, and the bits of the instance number, from bit 0 on).
    fn begin(&self, word: dtl_enum_word_t) -> usize {
        (word.wrapping_mul(self.factor) >> 32) as usize & self.cells.len().wrapping_sub(1)
    }

    fn next(&self, at: usize) -> usize {
        (at + 1) & self.cells.len().wrapping_sub(1)
    }

    /// Looks up a word. Returns `Ok` with the value of the word, `Err` with the value for all words
    /// that are not in the table, or `None` for a table without cells.
    #[inline]
    fn find(&self, word: dtl_enum_word_t) -> Option<Result<V, V>> {
        let mut at = self.begin(word);
        loop {
            let cell = *self.cells.get(at)?;
            if cell.0 == word {
                return Some(Ok(cell.1));
            }
            if cell.0 == 0 {
                return Some(Err(cell.1));
            }
            at = self.next(at);
        }
    }

    /// Returns the value for an enumeration word if the cell to which the word hashes is sufficient
    /// to determine the value; otherwise `None`.
    #[inline]
    pub fn at_once(&self, word: dtl_enum_word_t) -> Option<V> {
        let cell = *self.cells.get(self.begin(word))?;
        (cell.0 == word || (cell.0 == 0 && !is_instance(word))).then_some(cell.1)
    }

    /// Returns the value of a word; `None` for a table without cells.
    pub fn get(&self, word: dtl_enum_word_t) -> Option<V> {
        self.find(word).map(|found| found.unwrap_or_else(|other| other))
    }

    /// Returns the value of a word or, if the word is an instance that is not in the table, the
    /// value of its template (the word with its lower 32 bits cleared).
    fn get_or_template(&self, word: dtl_enum_word_t) -> Option<V> {
        match self.find(word)? {
            Err(_) if is_instance(word) => self.get(template(word)),
            Ok(value) | Err(value) => Some(value),
        }
    }
}

/// Bitmap rows for one slot of the keys. Each row marks the keys that match one enumeration word in
/// this slot; the first row is for words that occur in no key.
struct SlotRows {
    named: Map<u32>,
    rows: Box<[u64]>,
}

impl SlotRows {
    fn new(keys: &[dtl_enum_word_t], width: usize) -> (Self, Map<u64>) {
        let mut named: Vec<_> =
            keys.iter().copied().filter(|&word| word != DTL_DISPATCH_ANY).collect();
        named.sort_unstable();
        named.dedup();
        let mut rows = vec![0; (named.len() + 1) * width].into_boxed_slice();
        let queried = std::iter::once(DTL_DISPATCH_ANY).chain(named.iter().copied());
        for (row, queried) in rows.chunks_mut(width).zip(queried) {
            for (index, &key) in keys.iter().enumerate() {
                let fits = key == DTL_DISPATCH_ANY || key == queried || key == template(queried);
                if let Some(word) = row.get_mut(index / 64).filter(|_| fits) {
                    *word |= 1 << (index % 64);
                }
            }
        }
        let narrow = |number: usize| rows.get(number * width).copied().unwrap_or(0);
        let words = || named.iter().copied().enumerate();
        let bits = Map::new(words().map(|(at, word)| (word, narrow(at + 1))), narrow(0));
        (
            SlotRows { named: Map::new(words().map(|(at, word)| (word, at as u32 + 1)), 0), rows },
            bits,
        )
    }

    fn row(&self, word: dtl_enum_word_t, width: usize) -> &[u64] {
        let number = self.named.get_or_template(word).unwrap_or(0) as usize;
        self.rows.get(number * width..(number + 1) * width).unwrap_or_default()
    }
}

/// Index of dispatch keys. It finds the keys that match a query, in the order of rule 1 of
/// `dtl_dispatch_key_t` (from specific to general).
pub struct BitmapIndex {
    width: usize,
    /// Row of each enumeration word in each slot, as a 64-bit mask, for an index of up to 64 keys
    /// (sufficient for most dispatchers). In a larger index the first table has no cells, so that
    /// no lookup in `narrow` succeeds.
    narrow: [Map<u64>; 3],
    /// True if any key has a schedule other than DTL_DISPATCH_ANY.
    by_schedule: bool,
    slots: [SlotRows; 3],
}

impl BitmapIndex {
    /// Creates the index of at most [`MOST`] keys, which must be in the order of rule 1 of
    /// `dtl_dispatch_key_t`.
    pub fn new(keys: &[Slots]) -> Self {
        let width = keys.len().min(MOST).div_ceil(64).max(1);
        let column = |slot: usize| -> Vec<_> {
            keys.iter().filter_map(|key| key.get(slot).copied()).collect()
        };
        let [s, d, h] = [0, 1, 2].map(|slot| SlotRows::new(&column(slot), width));
        let first = if width > 1 { Map::closed() } else { s.1 };
        let by_schedule = keys.iter().any(|key| key[2] != DTL_DISPATCH_ANY);
        BitmapIndex { width, narrow: [first, d.1, h.1], by_schedule, slots: [s.0, d.0, h.0] }
    }

    /// Finds the first key that matches the query `slots`, if one comparison for each slot is
    /// enough. Returns `None` if the caller must use [`BitmapIndex::first`].
    #[inline]
    pub fn first_at_once(&self, slots: &Slots) -> Option<Option<usize>> {
        let bits = self.bits_at_once(slots)?;
        Some((bits != 0).then_some(bits.trailing_zeros() as usize))
    }

    /// Returns the index of the first key that matches the query `slots`.
    pub fn first(&self, slots: &Slots) -> Option<usize> {
        self.all(slots).next()
    }

    /// Returns a bit mask of the keys that match the query `slots`, for an index of up to 64 keys.
    #[inline]
    fn bits(&self, slots: &Slots) -> u64 {
        self.bits_at_once(slots).unwrap_or_else(|| self.search_bits(slots))
    }

    #[inline]
    fn bits_at_once(&self, &[s, d, h]: &Slots) -> Option<u64> {
        let [of_s, of_d, of_h] = &self.narrow;
        let bits = of_s.at_once(s)? & of_d.at_once(d)?;
        if self.by_schedule { Some(bits & of_h.at_once(h)?) } else { Some(bits) }
    }

    #[cold]
    #[inline(never)]
    fn search_bits(&self, slots: &Slots) -> u64 {
        let of = |(map, &word): (&Map<u64>, &u64)| map.get_or_template(word).unwrap_or(0);
        self.narrow.iter().zip(slots).map(of).fold(u64::MAX, |bits, fit| bits & fit)
    }

    /// Returns an iterator over the indices of all keys that match the query, in ascending order.
    #[inline(always)] // row: dispatch_predicate
    pub fn all(&self, query: &Slots) -> MatchingPositions<'_> {
        if self.width > 1 {
            return self.all_of_many(query);
        }
        MatchingPositions { bits: self.bits(query), before: 0, rows: [&[]; 3] }
    }

    #[cold]
    #[inline(never)]
    fn all_of_many(&self, query: &Slots) -> MatchingPositions<'_> {
        let [s, d, h] = &self.slots;
        let rows =
            [s.row(query[0], self.width), d.row(query[1], self.width), h.row(query[2], self.width)];
        MatchingPositions::begin(rows)
    }
}

/// Iterator over the indices of matching keys, in ascending order.
pub struct MatchingPositions<'a> {
    /// Bit mask of the matching keys in the current group of 64 keys. The bits of keys that the
    /// iterator has already returned are cleared.
    bits: u64,
    /// Number of keys before the current group of 64 keys.
    before: usize,
    /// Unread 64-bit words of the bitmap rows of the three slots.
    rows: [&'a [u64]; 3],
}

impl<'a> MatchingPositions<'a> {
    fn begin(rows: [&'a [u64]; 3]) -> Self {
        let mut begun = MatchingPositions { bits: 0, before: 0, rows };
        begun.step();
        begun
    }

    /// Advances to the next group of 64 keys. Returns false after the last group.
    fn step(&mut self) -> bool {
        let [Some((s, more_s)), Some((d, more_d)), Some((h, more_h))] =
            self.rows.map(<[u64]>::split_first)
        else {
            return false;
        };
        self.bits = s & d & h;
        self.rows = [more_s, more_d, more_h];
        true
    }
}

impl Iterator for MatchingPositions<'_> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        while self.bits == 0 {
            if self.rows[0].is_empty() || !self.step() {
                return None;
            }
            self.before += 64;
        }
        let at = self.before + self.bits.trailing_zeros() as usize;
        self.bits &= self.bits - 1;
        Some(at)
    }
}

/// Set of key indices of a `BitmapIndex`, stored as a fixed-size bitmap without heap allocation.
#[derive(Default)]
pub struct PositionSet([u64; WORDS]);

impl PositionSet {
    /// Inserts the index `at` into the set.
    pub fn set(&mut self, at: usize) {
        if let Some(word) = self.0.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
    }

    /// Returns true if the set contains the index `at`.
    pub fn has(&self, at: usize) -> bool {
        self.0.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }
}

#[cfg(test)]
#[path = "tests/bitmap_index.rs"]
mod tests;
