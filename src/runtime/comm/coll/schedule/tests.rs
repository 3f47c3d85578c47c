//! Tests of `schedule`.

use super::*;

fn get(s: &mut Schedule, sizes: &[usize]) {
    s.reset(None);
    sizes.iter().for_each(|size| assert_eq!(s.scratch(*size).unwrap().len(), *size));
}

/// Returns the addresses of the retained scratch buffers.
fn kept(s: &mut Schedule) -> Vec<usize> {
    s.reset(None);
    let mut places: Vec<_> = s.spare.iter().map(|scratch| scratch.region().addr().get()).collect();
    places.sort_unstable();
    places
}

#[test]
fn what_is_repeated_takes_no_new_memory() {
    let mut s = Schedule::default();
    for size in [8, 64, 512, 4096, 1 << 15, 1 << 20] {
        get(&mut s, &[size, size]);
    }
    let first = kept(&mut s);
    for _ in 0..3 {
        get(&mut s, &[64]);
        get(&mut s, &[100, 1 << 19, 1 << 20]);
        assert_eq!(kept(&mut s), first);
    }
}

#[test]
fn what_is_kept_is_bounded() {
    let mut s = Schedule::default();
    get(&mut s, &[KEPT_BYTES + 1, 100, KEPT_BYTES / 2, 7]);
    get(&mut s, &[10; 100]);
    s.reset(None);
    let kept = || s.spare.iter().map(|scratch| scratch.region().len());
    assert!(kept().count() <= KEPT_BUFFERS && kept().sum::<usize>() <= KEPT_BYTES);
    assert_eq!(kept().max(), Some(KEPT_BYTES / 2), "the largest that may be kept");
}
