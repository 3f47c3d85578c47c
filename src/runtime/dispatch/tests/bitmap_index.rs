//! Tests of `bitmap_index`.

use super::*;

const A: u64 = 0x0001_0001_0000_0000;
const B: u64 = 0x0001_0002_0000_0000;

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
    // A part of all keys in no regular pattern, then all keys.
    for step in [31, 7, 1] {
        for n in (0..words.len().pow(3)).step_by(step) {
            keys.push([words[n % 7], words[n / 7 % 7], words[n / 49]]);
        }
        keys.sort_by_key(|key| (rank(key), *key));
        keys.dedup();
        let sieve = BitmapIndex::new(&keys);
        for n in 0..words.len().pow(3) {
            let query = [words[n % 7], words[n / 7 % 7], words[n / 49]];
            let walk: Vec<usize> = (0..keys.len()).filter(|&at| fits(&keys[at], &query)).collect();
            assert_eq!(sieve.all(&query).collect::<Vec<_>>(), walk);
            assert_eq!(sieve.first(&query), walk.first().copied());
            assert!(sieve.first_at_once(&query).is_none_or(|first| first == walk.first().copied()));
        }
    }
    assert_eq!(BitmapIndex::new(&[]).first(&[A, A, A]), None);
}
