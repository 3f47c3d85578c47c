//! Tests of the whole allocator. The process has one allocator, which other tests use at the same
//! time. So every test in this file uses tags that no other test uses, and checks only blocks that
//! it has allocated.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn label(tag: u8) -> Label {
    Label::new(1, tag)
}

fn fill(at: Addr, size: u64, value: u8) {
    // SAFETY: a live block of at least that size.
    unsafe { std::ptr::write_bytes(at.ptr().cast::<u8>(), value, size as usize) };
}

fn holds(at: Addr, size: u64, value: u8) -> bool {
    // SAFETY: a live block of at least that size, written before.
    unsafe { std::slice::from_raw_parts(at.ptr().cast::<u8>(), size as usize) }
        .iter()
        .all(|&b| b == value)
}

#[test]
fn blocks_are_aligned_and_found() {
    for bits in (0..=24).step_by(if cfg!(miri) { 8 } else { 1 }) {
        for size in [1, 63, 64, 65, 4095, 70_000, 600_000, 3 << 20] {
            let align = 1_u64 << bits;
            let at = alloc(size, align, label(60)).expect("memory");
            assert_eq!(at.get() as u64 % align.max(ALIGNMENT), 0, "{size} {align}");
            fill(at, size.min(5000), 7);
            let found = LiveBlock { base: at.get(), size, kind: 1, tag: 60 };
            assert_eq!((find(at), find(at.offset(size as usize - 1))), (Some(found), Some(found)));
            // Memory outside this block may be a block of another test.
            let is_ours = |at| find(at).is_some_and(|found| found.tag == 60);
            assert!(!is_ours(at.offset(size as usize)));
            assert_eq!(free(at, label(60)), FreeOutcome::Done);
            assert!(!is_ours(at));
        }
    }
}

#[test]
fn bad_frees_are_told_apart() {
    let stack = 0_u64;
    for addr in [0, 1, 64, usize::MAX, 1 << 47, 1 << 48, 1 << 63, std::ptr::from_ref(&stack).addr()]
    {
        assert_eq!(
            free(Addr::new(std::ptr::without_provenance_mut(addr)), label(61)),
            FreeOutcome::Foreign
        );
        assert_eq!(find(Addr::new(std::ptr::without_provenance_mut(addr))), None);
    }
    // The longest block is too large for Miri.
    for size in
        [64, 100, 5000, 100_000, 3 << 20, 2 << 30].into_iter().take(if cfg!(miri) { 5 } else { 6 })
    {
        let at = alloc(size, 1, label(61)).expect("memory");
        for offset in [1, 8, 32, 63] {
            assert_eq!(free(at.offset(offset), label(61)), FreeOutcome::Inside);
        }
        assert_eq!(free(at, label(62)), FreeOutcome::Tagged(61));
        if size == 3 << 20 {
            // The memory that follows in the same 2 MiB is not the allocator's.
            assert_eq!(free(at.offset(3 << 20), label(61)), FreeOutcome::Foreign);
            assert_eq!(find(at.offset(3 << 20)), None);
        }
        assert_eq!(free(at, label(61)), FreeOutcome::Done);
        let again = free(at, label(61));
        // The addresses of a block with a mapping of its own may belong to another test meanwhile.
        assert!(
            again == FreeOutcome::Dead || (size > 1 << 30 && again != FreeOutcome::Done),
            "{size}: {again:?}"
        );
    }
}

/// Checks that `slab_of` returns a slab of the segment even if the address is outside the segment.
/// Such a call occurs if the segment's descriptor is reused for other memory after the segment was
/// looked up.
#[test]
fn a_description_that_serves_other_memory_by_now_gives_a_slab_of_its_own() {
    for size in [64, 5000, 100_000, 3 << 20] {
        let at = alloc(size, 1, label(52)).expect("memory");
        let segment = page_map::find(at.get()).expect("of the allocator");
        for distance in [1, 5 << 21, 3 << 30] {
            let slab = segment.slab_of(at.get().wrapping_sub(distance));
            assert!(
                (0..segment.slab_count()).any(|own| std::ptr::eq(segment.slab(own), slab)),
                "{size} {distance}"
            );
        }
        assert_eq!(free(at, label(52)), FreeOutcome::Done);
    }
}

#[test]
fn other_threads_free_and_the_owner_gets_it_back() {
    for size in [64_u64, 3000, 90_000, 700_000, 5 << 20] {
        let blocks: Vec<Addr> =
            (0..40).map(|_| alloc(size, 1, label(59)).expect("memory")).collect();
        let mut seen: Vec<usize> = blocks.iter().map(|at| at.get()).collect();
        let theirs = blocks.clone();
        std::thread::spawn(move || {
            for at in theirs {
                assert_eq!(free(at, label(59)), FreeOutcome::Done);
                // Mostly Dead; the memory of a long block may belong to another test meanwhile.
                assert_ne!(free(at, label(59)), FreeOutcome::Done);
            }
        })
        .join()
        .expect("no panic");
        assert!(blocks.iter().all(|at| free(*at, label(59)) != FreeOutcome::Done));
        if size <= 90_000 {
            // All blocks come back: as many new blocks are identical, except those cached already.
            let again: Vec<Addr> =
                (0..40).map(|_| alloc(size, 1, label(59)).expect("memory")).collect();
            seen.sort_unstable();
            let same = again.iter().filter(|at| seen.binary_search(&at.get()).is_ok()).count();
            assert!(same >= 8, "{size}: {same} of 40");
            assert!(again.iter().all(|at| free(*at, label(59)) == FreeOutcome::Done));
        }
    }
    let now = stats(59);
    assert_eq!((now.live_bytes, now.live_count, now.total_count), (0, 0, 40 * 5 + 40 * 3));
}

#[test]
fn a_race_of_frees_has_one_winner_among_other_threads() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let blocks: Vec<Addr> = (0..if cfg!(miri) { 60 } else { 2000 })
        .map(|n| alloc(64 + n, 1, label(58)).expect("memory"))
        .collect();
    let won = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mine =
                    blocks.iter().filter(|at| free(**at, label(58)) == FreeOutcome::Done).count();
                won.fetch_add(mine, Ordering::Relaxed);
            });
        }
    });
    assert_eq!(won.into_inner(), blocks.len());
    assert_eq!(stats(58).live_count, 0);
}

#[test]
fn many_threads_allocate_pass_on_and_end() {
    const ROUNDS: u64 = if cfg!(miri) { 30 } else { 2000 };
    const LONGEST: u64 = if cfg!(miri) { 9000 } else { 900_000 };
    let (send, receive) = std::sync::mpsc::sync_channel::<(Addr, u64, u8)>(64);
    let receive = std::sync::Mutex::new(receive);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let send = send.clone();
            scope.spawn(move || {
                let mut seed = thread + 1;
                for round in 0..ROUNDS {
                    seed = seed
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let size = 1 + (seed >> 33) % if round % 50 == 0 { LONGEST } else { 3000 };
                    let at = alloc(size, 1, label(57)).expect("memory");
                    fill(at, size, seed as u8);
                    if seed >> 63 == 0 {
                        send.send((at, size, seed as u8)).expect("receiver");
                    } else {
                        assert_eq!(free(at, label(57)), FreeOutcome::Done);
                    }
                }
            });
        }
        drop(send);
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let next = receive.lock().expect("no panic").recv();
                    let Ok((at, size, value)) = next else { return };
                    assert!(holds(at, size, value));
                    assert_eq!(free(at, label(57)), FreeOutcome::Done);
                }
            });
        }
    });
    let now = stats(57);
    assert_eq!((now.live_bytes, now.live_count, now.total_count), (0, 0, 4 * ROUNDS));
}

#[test]
fn the_peak_of_one_thread_is_exact() {
    let sizes = [10, 5000, 1 << 20, 64, 300_000];
    let blocks: Vec<Addr> =
        sizes.iter().map(|size| alloc(*size, 1, label(56)).expect("memory")).collect();
    assert!(blocks.iter().all(|at| free(*at, label(56)) == FreeOutcome::Done));
    const ROUNDS: u64 = if cfg!(miri) { 20 } else { 1000 };
    for _ in 0..ROUNDS {
        let at = alloc(777, 1, label(56)).expect("memory");
        assert_eq!(free(at, label(56)), FreeOutcome::Done);
    }
    let now = stats(56);
    assert_eq!(
        (now.peak_bytes, now.live_bytes, now.total_count),
        (sizes.iter().sum(), 0, 5 + ROUNDS)
    );
}

#[test]
fn a_block_that_no_address_space_holds_is_refused() {
    for size in [1 << 46, 1 << 60, isize::MAX as u64] {
        assert_eq!(alloc(size, 1, label(55)), None);
    }
    assert_eq!(alloc(u64::MAX, 1, label(55)), None);
}

#[test]
fn what_is_kept_stays_within_the_budget() {
    // More than the budget of large blocks, all freed: what stays mapped beyond the use of other
    // tests is within the budget.
    std::thread::spawn(|| {
        let blocks: Vec<Addr> =
            (0..100).map(|_| alloc(8 << 20, 1, label(54)).expect("memory")).collect();
        let high = mapped();
        assert!(high >= 800 << 20);
        assert!(blocks.iter().all(|at| free(*at, label(54)) == FreeOutcome::Done));
        assert!(mapped() <= high - (800 << 20) + budget() + (64 << 20), "{} of {high}", mapped());
        trim();
    })
    .join()
    .expect("no panic");
}

/// Upper bounds (exclusive) of the block size in bytes (`MOST`) and of the number of steps, each an
/// allocation or a free (`STEPS`), in the test `blocks_are_apart`.
const MOST: u64 = if cfg!(miri) { 900 } else { 80_000 };
const STEPS: usize = if cfg!(miri) { 40 } else { 300 };

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 32 },
        ..ProptestConfig::default() })]

    /// Checks that allocated blocks never overlap, that their contents do not change, and that they
    /// are found by the address of any of their bytes.
    #[test]
    fn blocks_are_apart(steps in proptest::collection::vec((0_usize..24, 1..MOST, 0_u32..14,
        any::<u8>()), 1..STEPS)) {
        let mut slots = [None; 24];
        let mut live = BTreeMap::new();
        for (slot, size, align, value) in steps {
            if let Some((at, size, value)) = slots[slot].take() {
                prop_assert!(holds(at, size, value));
                prop_assert_eq!(free(at, label(53)), FreeOutcome::Done);
                live.remove(&at.get());
                continue;
            }
            let at = alloc(size, 1 << align, label(53)).expect("memory");
            prop_assert_eq!(at.get() % (1 << align), 0);
            let before = live.range(..=at.get()).next_back();
            prop_assert!(before.is_none_or(|(base, bytes)| base + *bytes as usize <= at.get()));
            prop_assert!(live.range(at.get()..).next().is_none_or(|(base,
                _)| at.get() + size as usize <= *base));
            fill(at, size, value);
            live.insert(at.get(), size);
            slots[slot] = Some((at, size, value));
            let middle = at.offset(size as usize / 2);
            prop_assert_eq!(find(middle).map(|found| (found.base, found.size)), Some((at.get(),
                size)));
        }
        for (at, size, value) in slots.into_iter().flatten() {
            prop_assert!(holds(at, size, value));
            prop_assert_eq!(free(at, label(53)), FreeOutcome::Done);
        }
        prop_assert_eq!(stats(53).live_count, 0);
    }
}
