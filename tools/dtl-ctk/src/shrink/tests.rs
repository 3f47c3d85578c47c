//! Tests of `shrink`.

use super::*;
use crate::case::OPS;
use crate::generate::{Space, case};

#[test]
fn changes_are_read_as_they_are_written() {
    for text in ["d0", "r3", "m12", "e1", "a7", "k", "x", "w", "h", "b", "i", "p", "t", "o"] {
        assert_eq!(text.parse::<Change>().unwrap().to_string(), text);
    }
    for bad in ["", "y", "d", "dx", "hh"] {
        assert!(bad.parse::<Change>().is_err(), "{bad}");
    }
}

#[test]
fn shrinking_ends() {
    let ops = OPS.iter().map(|(op, ..)| *op).collect();
    let space = Space { seed: 7, ranks: 4, max_bytes: 4096, ops };
    for number in 0..200 {
        let mut case = case(&space, number);
        let mut count = 0;
        while let Some(&change) = candidates(&case).first() {
            apply_one(&mut case, change);
            count += 1;
            assert!(count < 200, "case {number} does not end with {change}: {}", case.describe());
        }
    }
}
