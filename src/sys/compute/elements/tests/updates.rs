//! Tests that compare the updates of every dtype and operation with the kernels for private memory,
//! and tests in which several threads update the same elements concurrently.

use super::kernels_tests::{pairs, region, without_padding};
use super::*;
use proptest::prelude::*;
use std::sync::{Mutex, PoisonError};

#[repr(align(16))]
struct Lines([u8; 256]);

#[test]
fn the_pairs_are_those_of_reduce() {
    for (dtype, op) in (-1..40).flat_map(|dtype| (-1..20).map(move |op| (dtype, op))) {
        assert_eq!(update(dtype, op).is_some(), kernel(dtype, op).is_some(), "{dtype} {op}");
    }
    assert_eq!(
        (DTYPES.len(), OP_NAMES.len()),
        (DTL_DTYPE_INT64_INT64 as usize + 1, DTL_OP_NO_OP as usize + 1)
    );
    assert!(dtype_size(DTYPES.len() as i32).is_none() && op_name(OP_NAMES.len() as i32).is_none());
}

#[test]
fn what_needs_a_lock() {
    let mut bytes = Lines([0; 256]);
    let all = region(&mut bytes.0);
    for (size, offset, is_free) in [
        (1, 3, false),
        (2, 2, false),
        (4, 4, true),
        (4, 2, false),
        (8, 8, true),
        (8, 4, false),
        (16, 0, false),
        (3, 3, false),
    ] {
        assert_eq!(is_lock_free(all.part(offset, size), size), is_free, "{size} at {offset}");
    }
    let on = |dtype| update(dtype, DTL_OP_SUM).expect("goes together");
    // A run of any length, including a single element: see the head of `elements`.
    let words = [DTL_DTYPE_INT32, DTL_DTYPE_UINT32, DTL_DTYPE_INT64, DTL_DTYPE_UINT64];
    for dtype in 0..DTYPES.len() as dtl_dtype_t {
        let update = update(dtype, DTL_OP_NO_OP).expect("goes with every dtype");
        for elements in 1..4 {
            let run = all.part(16, elements * update.size());
            assert_eq!(
                update.is_lock_free(run),
                words.contains(&dtype),
                "dtype {dtype}, {elements} elements"
            );
        }
    }
    assert!(!on(DTL_DTYPE_INT64).is_lock_free(all.part(4, 8)));
}

proptest! {
    #[test]
    fn elements_become_what_the_kernels_make_of_them(
        left in proptest::collection::vec(any::<u8>(), 256),
            right in proptest::collection::vec(any::<u8>(), 256),
        is_same in any::<bool>(), odd in 0..2_usize,
    ) {
        let right = if is_same { left.clone() } else { right };
        for (dtype, op) in pairs() {
            let Some(update) = update(dtype, op) else { continue };
            let kernel = kernel(dtype, op).expect("the same pairs");
            let (mut expected, mut operand) = (left.clone(), right.clone());
            let into = region(&mut expected);
            kernel(into, into, region(&mut operand));
            let mut target = Lines([0; 256]);
            target.0.copy_from_slice(&left);
            let mut shifted = vec![0; 257];
            shifted[odd..odd + 256].copy_from_slice(&right);
            let (mut old, mut whole) = (vec![0; 256], region(&mut target.0));
            let operand = region(&mut shifted).part(odd, 256);
            if update.is_lock_free(whole) {
                update.apply(whole, operand, region(&mut old));
            } else {
                update.apply_locked(whole, operand, region(&mut old));
            }
            prop_assert_eq!(&old, &left, "what was there");
            let [made, wanted] =
                [&target.0[..], &expected[..]].map(|bytes| without_padding(dtype, bytes));
            prop_assert_eq!(made, wanted, "dtype {}, op {}", dtype, op);
            // No old values are requested, and fewer than all elements are changed.
            target.0.copy_from_slice(&left);
            whole = whole.part(0, 32);
            if update.is_lock_free(whole) {
                update.apply(whole, operand, Region::EMPTY);
                let [made, wanted] =
                    [&target.0[..32], &expected[..32]].map(|bytes| without_padding(dtype, bytes));
                prop_assert_eq!(made, wanted);
                prop_assert_eq!(&target.0[32..], &left[32..]);
            }
        }
    }

    #[test]
    fn swaps_compare_every_bit(value in any::<u64>(), held in any::<u64>(), bit in 0..64_u32,
        size in 0..4_u32) {
        let size = 1 << size;
        for expected in [held, held ^ 1 << bit] {
            for locked in [false, true] {
                let (mut held, mut value, mut expected) = (held.to_ne_bytes(), value.to_ne_bytes(),
                    expected.to_ne_bytes());
                let before = held;
                let mut result = [0; 8];
                let swap = Swap {
                    value: region(&mut value).part(0, size),
                    expected: region(&mut expected).part(0, size),
                    result: region(&mut result).part(0, size),
                };
                let mut place = u64::from_ne_bytes(held);
                let target = region_of(&mut place).part(0, size);
                if locked || !is_lock_free(target, size) {
                    compare_and_swap_locked(target, swap);
                } else {
                    compare_and_swap(target, swap);
                }
                held = place.to_ne_bytes();
                prop_assert_eq!(&result[..size], &before[..size]);
                let is_swapped = before[..size] == expected[..size];
                let expected = if is_swapped { &value[..size] } else { &before[..size] };
                prop_assert_eq!(&held[..size], expected);
                prop_assert_eq!((&held[size..], &result[size..]), (&before[size..],
                    &[0; 8][size..]));
            }
        }
    }
}

#[test]
fn a_look_needs_no_operand() {
    let mut place = 7_u32;
    let mut old = 0_u32;
    update(DTL_DTYPE_UINT32, DTL_OP_NO_OP).expect("goes").apply(
        region_of(&mut place),
        Region::EMPTY,
        region_of(&mut old),
    );
    assert_eq!((place, old), (7, 7));
    let mut pair = [1_u64, 2];
    let mut was = [0_u64; 2];
    let look = update(DTL_DTYPE_COMPLEX128, DTL_OP_NO_OP).expect("goes");
    look.apply_locked(region_of(&mut pair), Region::EMPTY, region_of(&mut was));
    assert_eq!((pair, was), ([1, 2], [1, 2]));
}

/// Updates elements as every caller must: with `apply` if the elements can be updated without a
/// lock, otherwise with `apply_locked` while holding the lock.
fn change(update: &Update, lock: &Mutex<()>, regions: [Region; 3]) {
    let [target, operand, old] = regions;
    if update.is_lock_free(target) {
        return update.apply(target, operand, old);
    }
    let _locked = lock.lock().unwrap_or_else(PoisonError::into_inner);
    update.apply_locked(target, operand, old);
}

/// Makes four threads change one element, both alone and together with the adjacent elements. No
/// change may be lost, so each change must return a different old value. The test fails if short
/// operations on small elements omit the lock that long operations take.
#[test]
fn nothing_is_lost_between_short_and_long_operations() {
    const TIMES: usize = if cfg!(miri) { 10 } else { 5000 };
    const RUN: usize = 64;
    const AT: usize = 5;
    for dtype in [
        DTL_DTYPE_UINT16,
        DTL_DTYPE_INT32,
        DTL_DTYPE_UINT64,
        DTL_DTYPE_FLOAT32,
        DTL_DTYPE_FLOAT64,
        DTL_DTYPE_COMPLEX64,
    ] {
        let size = dtype_size(dtype).expect("built in");
        // The first member of each element is one, or counts as one.
        let one: u64 = match dtype {
            DTL_DTYPE_FLOAT32 | DTL_DTYPE_COMPLEX64 => u64::from(1_f32.to_bits()),
            DTL_DTYPE_FLOAT64 => 1_f64.to_bits(),
            _ => 1,
        };
        let ones: Vec<u8> = (0..RUN).flat_map(|_| one.to_le_bytes()[..size].to_vec()).collect();
        let place: Vec<AtomicU64> = (0..RUN).map(|_| AtomicU64::new(0)).collect();
        let lock = Mutex::new(());
        // SAFETY: the memory outlives the threads, which change it by `change` alone.
        let target = unsafe { Region::new(place.as_ptr().cast_mut().cast(), RUN * size) };
        let mut seen: Vec<u64> = std::thread::scope(|scope| {
            let work = || {
                let (mut ones, mut old) = (ones.clone(), vec![0; RUN * size]);
                let sum = update(dtype, DTL_OP_SUM).expect("goes");
                let mut fetch = |number| {
                    let (at, len) =
                        if number % 2 == 0 { (AT * size, size) } else { (0, RUN * size) };
                    let regions =
                        [target, region(&mut ones), region(&mut old)].map(|all| all.part(at, len));
                    change(sum, &lock, regions);
                    let mut found = [0; 8];
                    found[..size].copy_from_slice(&old[AT * size..][..size]);
                    u64::from_le_bytes(found)
                };
                (0..TIMES).map(&mut fetch).collect::<Vec<u64>>()
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("ends")).collect()
        });
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 4 * TIMES, "dtype {dtype}: each value was found once");
    }
}
