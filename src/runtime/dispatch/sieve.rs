//! Which keys fit a query, found without walking them: for each slot a row of bits tells which keys a word fits, and
//! where the rows of all three slots have a bit, the key fits. The bits are in the order of rule 1, so the first one
//! left is the answer. Made once, for keys that do not change; a query costs three look-ups and three words for 64 keys.
//!
//! Source of the method: T. V. Lakshman, D. Stiliadis, "High-speed policy-based packet forwarding using efficient
//! multi-dimensional range matching", SIGCOMM 1998.

use crate::abi::dispatch::DTL_DISPATCH_ANY;
use crate::abi::word::dtl_enum_word_t;

/// Source, destination, schedule.
pub type Slots = [dtl_enum_word_t; 3];

/// Most keys of one sieve.
pub const MOST: usize = 1024;
/// Words of a row of bits.
const WORDS: usize = MOST / 64;

/// A word without its instance.
#[inline(always)]
#[must_use]
pub const fn template(word: dtl_enum_word_t) -> dtl_enum_word_t {
    word & 0xFFFF_FFFF_0000_0000
}

/// Whether a word is an instance of a template.
#[inline(always)]
#[must_use]
pub const fn is_instance(word: dtl_enum_word_t) -> bool {
    word as u32 != 0
}

/// Where a key stands in rule 1: smaller comes first. Its form counts, then where it has templates.
#[must_use]
pub fn rank(key: &Slots) -> u32 {
    let fold = |bits: u32, more: bool| bits << 1 | u32::from(more);
    let form = key.iter().fold(0, |bits, &word| fold(bits, word == DTL_DISPATCH_ANY));
    key.iter().fold(form, |bits, &word| fold(bits, !is_instance(word)))
}

/// Small numbers under words.
pub struct Words {
    /// Half of them at least are 0 = none. As many as a power of two.
    cells: Box<[(dtl_enum_word_t, u32)]>,
    /// Bits of a hash that are not used.
    shift: u32,
}

impl Words {
    /// The n-th word has number n + 1.
    #[must_use]
    pub fn new(words: &[dtl_enum_word_t]) -> Self {
        let bits = (2 * words.len()).max(2).next_power_of_two().ilog2();
        let mut made = Words { cells: vec![(0, 0); 1 << bits].into_boxed_slice(), shift: 64 - bits };
        for (&word, number) in words.iter().zip(1..) {
            let mut at = made.begin(word);
            while made.cells.get(at).is_some_and(|cell| cell.0 != 0) {
                at = (at + 1) % made.cells.len();
            }
            if let Some(cell) = made.cells.get_mut(at) {
                *cell = (word, number);
            }
        }
        made
    }

    #[inline(always)]
    fn begin(&self, word: dtl_enum_word_t) -> usize {
        (word.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize
    }

    /// A word's number; 0 if it is none of them.
    #[inline(always)]
    #[must_use]
    pub fn number(&self, word: dtl_enum_word_t) -> usize {
        let mut at = self.begin(word);
        loop {
            match self.cells.get(at) {
                Some(cell) if cell.0 == word => return cell.1 as usize,
                Some(cell) if cell.0 != 0 => at = (at + 1) & (self.cells.len() - 1),
                _ => return 0,
            }
        }
    }
}

/// One slot's rows: the first for words that no key names.
struct Slot {
    words: Words,
    rows: Box<[u64]>,
}

impl Slot {
    fn new(keys: &[dtl_enum_word_t], width: usize) -> Self {
        let mut named: Vec<_> = keys.iter().copied().filter(|&word| word != DTL_DISPATCH_ANY).collect();
        named.sort_unstable();
        named.dedup();
        let mut rows = vec![0; (named.len() + 1) * width].into_boxed_slice();
        let asked = std::iter::once(DTL_DISPATCH_ANY).chain(named.iter().copied());
        for (row, asked) in rows.chunks_mut(width).zip(asked) {
            for (index, &key) in keys.iter().enumerate() {
                let fits = key == DTL_DISPATCH_ANY || key == asked || key == template(asked);
                if let Some(word) = row.get_mut(index / 64).filter(|_| fits) {
                    *word |= 1 << (index % 64);
                }
            }
        }
        Slot { words: Words::new(&named), rows }
    }

    #[inline(always)]
    fn row(&self, word: dtl_enum_word_t, width: usize) -> &[u64] {
        let mut number = self.words.number(word);
        if number == 0 && is_instance(word) {
            number = self.words.number(template(word));
        }
        self.rows.get(number * width..(number + 1) * width).unwrap_or_default()
    }
}

/// Keys in their order, ready to be asked.
pub struct Sieve {
    width: usize,
    slots: [Slot; 3],
}

impl Sieve {
    /// For at most [`MOST`] keys.
    #[must_use]
    pub fn new(keys: &[Slots]) -> Self {
        let width = keys.len().min(MOST).div_ceil(64).max(1);
        let column =
            |slot: usize| -> Vec<_> { keys.iter().filter_map(|key| key.get(slot).copied()).collect() };
        Sieve { width, slots: [0, 1, 2].map(|slot| Slot::new(&column(slot), width)) }
    }

    /// Bits of the keys that fit, 64 at a time.
    #[inline(always)]
    fn fitting(&self, query: &Slots) -> impl Iterator<Item = u64> {
        let [s, d, h] = &self.slots;
        let (s, d, h) =
            (s.row(query[0], self.width), d.row(query[1], self.width), h.row(query[2], self.width));
        s.iter().zip(d).zip(h).map(|((s, d), h)| s & d & h)
    }

    /// The first key that fits.
    #[inline(always)]
    #[must_use]
    pub fn first(&self, query: &Slots) -> Option<usize> {
        let (word, bits) = self.fitting(query).enumerate().find(|(_, bits)| *bits != 0)?;
        Some(word * 64 + bits.trailing_zeros() as usize)
    }

    /// All keys that fit, in their order.
    pub fn all(&self, query: &Slots) -> impl Iterator<Item = usize> {
        self.fitting(query).enumerate().flat_map(|(word, bits)| {
            let rest = std::iter::successors(Some(bits), |bits| Some(bits & bits.wrapping_sub(1)));
            rest.take_while(|bits| *bits != 0).map(move |bits| word * 64 + bits.trailing_zeros() as usize)
        })
    }
}

/// A set of positions in a sieve, without an allocation.
#[derive(Default)]
pub struct Marks([u64; WORDS]);

impl Marks {
    /// Puts one in.
    pub fn set(&mut self, at: usize) {
        if let Some(word) = self.0.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
    }

    /// Whether one is in.
    #[must_use]
    pub fn has(&self, at: usize) -> bool {
        self.0.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: u64 = 0x0001_0001_0000_0000;
    const B: u64 = 0x0001_0002_0000_0000;

    /// What rule 1 says, key by key.
    fn fits(key: &Slots, query: &Slots) -> bool {
        key.iter().zip(query).all(|(&key, &asked)| key == 0 || key == asked || key == template(asked))
    }

    #[test]
    fn rule_1_orders_the_forms() {
        let order = [
            [A + 1, A, A],
            [A, A + 1, A],
            [A, A, A + 1],
            [A, A, A],
            [A, A, 0],
            [A, 0, A],
            [A + 1, 0, 0],
            [A, 0, 0],
            [0, A, A],
            [0, A, 0],
            [0, 0, A],
            [0, 0, 0],
        ];
        assert!(order.is_sorted_by(|a, b| rank(a) < rank(b)));
    }

    #[test]
    fn a_sieve_finds_what_a_walk_finds() {
        let words = [0, A, A + 1, A + 2, B, B + 7, B + (1 << 32)];
        let mut keys: Vec<Slots> = Vec::new();
        // A part of all keys, in no regular pattern, then all of them.
        for step in [31, 7, 1] {
            for n in (0..words.len().pow(3)).step_by(step) {
                keys.push([words[n % 7], words[n / 7 % 7], words[n / 49]]);
            }
            keys.sort_by_key(|key| (rank(key), *key));
            keys.dedup();
            let sieve = Sieve::new(&keys);
            for n in 0..words.len().pow(3) {
                let query = [words[n % 7], words[n / 7 % 7], words[n / 49]];
                let walk: Vec<usize> = (0..keys.len()).filter(|&at| fits(&keys[at], &query)).collect();
                assert_eq!(sieve.all(&query).collect::<Vec<_>>(), walk);
                assert_eq!(sieve.first(&query), walk.first().copied());
            }
        }
        assert_eq!(Sieve::new(&[]).first(&[A, A, A]), None);
    }
}
