//! Tests of `atomic_op`.

use super::*;
use crate::abi::word::*;
use crate::sys::compute::elements;
use crate::sys::memory::buf::Scratch;

const AT: Remote = Remote { addr: 4096, rkey: 7 };

fn atomic(how: AtomicKind, from: &Scratch) -> Atomic {
    let (from, result) = (from.region(), Region::EMPTY);
    Atomic { target: 0, window: 1, at: AT, how, from, result, count: 1, begun: 0, over: 0 }
}

/// Emulates a network card: executes `work` on `element` and returns the previous value.
fn card(element: &mut u64, work: WorkRequest) -> u64 {
    let was = *element;
    match work {
        WorkRequest::FetchAdd(_, add) => *element = was.wrapping_add(add),
        WorkRequest::CompareSwap(_, expected, made) if was == expected => *element = made,
        _ => {}
    }
    was
}

#[test]
fn loops_end_with_what_the_library_computes() {
    let bits = f64::to_bits;
    let values = [0, 1, 5, u64::MAX, bits(1.5), bits(-0.0), bits(f64::NAN), 3 << 32 | 9];
    for dtype in DTL_DTYPE_INT8..=DTL_DTYPE_INT64_INT64 {
        for op in DTL_OP_SUM..=DTL_OP_NO_OP {
            let (Some(update), true) =
                (elements::update(dtype, op), elements::dtype_size(dtype) == Some(8))
            else {
                assert!(AtomicKind::of(dtype, op).is_err());
                continue;
            };
            let how = AtomicKind::of(dtype, op).expect("a way");
            assert_eq!(
                matches!(how, AtomicKind::Add | AtomicKind::Look),
                op == DTL_OP_NO_OP || elements::is_counter(dtype, op)
            );
            for (before, operand) in
                values.iter().flat_map(|a| values.iter().map(move |b| (*a, *b)))
            {
                let from = Scratch::of_words(&[operand]).expect("memory");
                let atomic = atomic(how, &from);
                // Another rank changes the element in the first rounds.
                let (mut element, mut others) = (before, values.into_iter().take(3));
                let mut work = atomic.first(0, (AT.addr, operand));
                let found = loop {
                    element =
                        if atomic.is_loop() { others.next().unwrap_or(element) } else { element };
                    let found = card(&mut element, work);
                    match atomic.next(0, work, found) {
                        Some(next) => work = next,
                        None => break found,
                    }
                };
                assert_eq!(
                    element,
                    update.made(found, from.region()),
                    "{dtype} {op} {found:x} {operand:x}"
                );
            }
        }
    }
}

#[test]
fn a_guess_that_is_right_needs_one_round() {
    let from = Scratch::of_words(&[5]).expect("memory");
    let how = AtomicKind::of(DTL_DTYPE_UINT64, DTL_OP_PROD).expect("a way");
    let (mut element, atomic, mut results) = (3, atomic(how, &from), Results::default());
    let work = atomic.first(0, (AT.addr, 3));
    let found = card(&mut element, work);
    assert!(atomic.next(0, work, found).is_none());
    results.end(0, true, work, found);
    assert_eq!((found, element, results.known), (3, 15, (AT.addr, 15)));
    // An unchanged value becomes the next guess too. No guess exists for other elements.
    let WorkRequest::CompareSwap(_, guess, _) = atomic.first(1, results.known) else {
        panic!("no loop")
    };
    assert_eq!(guess, 0);
    results.end(0, true, work, 77);
    assert_eq!(results.known, (AT.addr, 77));
}

#[test]
fn who_swaps_tries_once() {
    let (from, expected) =
        (Scratch::of_words(&[5]).expect("memory"), Scratch::of_words(&[2]).expect("memory"));
    let atomic = atomic(AtomicKind::Swap(expected.region()), &from);
    for (before, after) in [(2, 5), (3, 3)] {
        let (mut element, work) = (before, atomic.first(0, (AT.addr, before)));
        let found = card(&mut element, work);
        assert!(atomic.next(0, work, found).is_none());
        assert_eq!((found, element), (before, after));
    }
}

#[test]
fn elements_are_held_and_places_are_few() {
    let mut results = Results::default();
    results.held.push((OpId(1), 64..80));
    results.held.push((OpId(2), 96..104));
    assert!(results.admits(&(56..64)) && results.admits(&(80..96)) && results.admits(&(104..112)));
    assert!(![56..72, 72..80, 0..200, 96..104].iter().any(|elements| results.admits(elements)));
    results.release(OpId(1));
    results.release(OpId(3));
    assert!(results.admits(&(56..96)) && !results.admits(&(56..97)));
    let one = Try { op: OpId(2), index: 0, work: WorkRequest::FetchAdd(AT, 1) };
    for slot in 0..RESULTS {
        assert_eq!(results.add(one), Some(slot));
    }
    assert!(results.add(one).is_none() && !results.admits(&(0..8)));
    results.end(9, false, one.work, 0);
    assert_eq!((results.add(one), results.known), (Some(9), (0, 0)));
}
