//! Tests of `copy_choice`, with scripted times.

use super::*;

/// Transfers `count` messages of `len` bytes one after the other. `time` returns the duration of a
/// transfer in nanoseconds. Returns the total time and the number of messages per method.
fn transfer(
    times: &mut CopyTimes,
    len: usize,
    count: u64,
    time: impl Fn(CopyMethod, u64) -> u64,
) -> (u64, [u64; 3]) {
    let (mut total, mut used) = (0, [0; 3]);
    for number in 0..count {
        let method = times.method(len);
        let ns = time(method, number);
        (total, used[method as usize]) = (total + ns, used[method as usize] + 1);
        if times.count_message(len) {
            times.record(len, method, ns);
        }
    }
    (total, used)
}

#[test]
fn the_first_hundred_messages_take_at_most_a_tenth_more() {
    for fastest in METHODS {
        let time = |method, _| if method == fastest { 10_000 } else { 24_000 };
        let (total, used) = transfer(&mut CopyTimes::default(), 1 << 20, 100, time);
        assert!(total <= 110 * 10_000, "{fastest:?}: {total} ns, {used:?}");
    }
}

#[test]
fn later_messages_rarely_try_a_slower_method() {
    for slow in [11_000, 15_000, 40_000] {
        let mut times = CopyTimes::default();
        let time = |method, _| if method == Split { 10_000 } else { slow };
        transfer(&mut times, 1 << 16, 1000, time);
        let (total, used) = transfer(&mut times, 1 << 16, 10_000, time);
        assert!(total <= 101 * 1_000_000, "{slow}: {total} ns, {used:?}");
        assert!(used.iter().all(|&count| count > 0), "{slow}: {used:?}");
    }
}

#[test]
fn the_choice_follows_a_rank_that_moves() {
    let mut times = CopyTimes::default();
    let near = |method, _| if method == Cells { 5_000 } else { 12_000 };
    let far = |method, _| if method == Cells { 30_000 } else { 12_000 };
    transfer(&mut times, 100_000, 500, near);
    assert_eq!(times.method(100_000), Cells);
    let (_, used) = transfer(&mut times, 100_000, 500, far);
    assert!(used[Cells as usize] < 200, "{used:?}");
    let (_, used) = transfer(&mut times, 100_000, 20_000, near);
    assert!(used[Cells as usize] > 10_000, "{used:?}");
}

#[test]
fn single_delays_do_not_change_the_choice() {
    let mut times = CopyTimes::default();
    let time = |method, number| match method {
        Get if number % 50 == 0 => 900_000,
        Get => 10_000,
        _ => 14_000,
    };
    transfer(&mut times, 1 << 18, 200, time);
    let (_, used) = transfer(&mut times, 1 << 18, 5_000, time);
    assert!(used[Get as usize] > 4_700, "{used:?}");
}

#[test]
fn a_method_that_fails_is_rarely_chosen() {
    let mut times = CopyTimes::default();
    for _ in 0..100 {
        let method = times.method(20_000);
        match method {
            Cells => times.record(20_000, method, 9_000),
            failing => times.fail(20_000, failing),
        };
    }
    let (_, used) = transfer(&mut times, 20_000, 1000, |_, _| 9_000);
    assert!(used[Cells as usize] > 980, "{used:?}");
}

#[test]
fn each_size_class_has_its_own_choice() {
    let lens = [0, 16 << 10, 32 << 10, 64 << 10, 4 << 20, usize::MAX];
    assert_eq!(lens.map(class_of), [0, 0, 1, 2, 8, 8]);
    assert_eq!([(32 << 10) - 1, (64 << 10) - 1, (4 << 20) - 1].map(class_of), [0, 1, 7]);
    let mut choices = CopyChoices::default();
    choices.set(1, Split);
    choices.set(8, Get);
    choices.set(1, Get);
    assert_eq!(lens.map(|len| choices.method(len)), [Cells, Cells, Get, Cells, Get, Get]);
}
