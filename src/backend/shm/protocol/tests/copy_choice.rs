//! Tests of `copy_choice`, with scripted times.

use super::MessageSize as Size;
use super::*;
use crate::backend::shm::memory::segment::TIMES_BYTES;
use crate::backend::shm::protocol::pipeline::FRAGMENT;
use crate::sys::os::shm_segment::SharedMapping;

/// Transfers `count` messages of `len` bytes one after the other. `time` returns the duration of a
/// transfer in nanoseconds. Returns the total time and the number of messages per method.
fn transfer(
    times: &mut CopyTimes,
    len: usize,
    count: u64,
    time: impl Fn(CopyMethod, u64) -> u64,
) -> (u64, [u64; 4]) {
    let (mut total, mut used) = (0, [0; 4]);
    for number in 0..count {
        let method = times.choices.method(len, true);
        let ns = time(method, number);
        (total, used[method as usize]) = (total + ns, used[method as usize] + 1);
        let is_timed = times.choices.is_timed(len, number as u16);
        times.count(Size::large(len), 1);
        if is_timed {
            times.record(Size::large(len), method, (ns, 1));
        }
    }
    (total, used)
}

#[test]
fn the_first_hundred_messages_take_at_most_a_sixth_more() {
    for fastest in METHODS {
        let time = |method, _| if method == fastest { 10_000 } else { 24_000 };
        let (total, used) = transfer(&mut CopyTimes::new((None, false)), 1 << 20, 100, time);
        assert!(total <= 116 * 10_000, "{fastest:?}: {total} ns, {used:?}");
    }
}

/// Smaller messages use all cells for the first time only after more messages.
#[test]
fn the_first_hundred_messages_of_each_size_waste_at_most_half_a_millisecond() {
    for (class, len) in (0..CLASSES).map(|class| (class, FRAGMENT << class)) {
        let best = 2_000 << class;
        let time = |method, _| if method == Cells { best * 5 / 2 } else { best };
        let (total, used) = transfer(&mut CopyTimes::new((None, false)), len, 100, time);
        assert!(total <= 110 * best + 500_000, "{len} bytes: {total} ns, {used:?}");
    }
}

#[test]
fn a_method_is_measured_when_its_memory_is_in_the_cache() {
    let mut times = CopyTimes::new((None, false));
    // The first time around all cells is slow.
    let cold = |method, number| match method {
        Cells if number < u64::from(FIRST_CELLS) / 4 => 100_000,
        Cells => 5_000,
        _ => 12_000,
    };
    let (_, used) = transfer(&mut times, 1 << 16, 200, cold);
    assert!(used[Cells as usize] > 175, "{used:?}");
}

#[test]
fn later_messages_rarely_try_a_slower_method() {
    for slow in [11_000, 15_000, 40_000] {
        let mut times = CopyTimes::new((None, false));
        let time = |method, _| if method == Split { 10_000 } else { slow };
        transfer(&mut times, 1 << 16, 1000, time);
        let (total, used) = transfer(&mut times, 1 << 16, 40_000, time);
        assert!(total <= 103 * 4_000_000, "{slow}: {total} ns, {used:?}");
        assert!(used.iter().all(|&count| count > 0), "{slow}: {used:?}");
    }
}

/// Windows of 64 messages have one time each. Their trials take as small a part of the time.
#[test]
fn a_window_that_tries_a_slower_method_is_rare() {
    let (mut times, len) = (CopyTimes::new((None, false)), 1 << 17);
    let mut windows = |count: u64| {
        let mut used = [0; 4];
        for _ in 0..count {
            let method = times.choices.method(len, true);
            used[method as usize] += 1;
            times.count(Size::large(len), 64);
            times.record(
                Size::large(len),
                method,
                (if method == Get { 10_000 } else { 20_000 }, 64),
            );
        }
        used
    };
    assert_eq!(windows(4), [1; 4]);
    let used = windows(1_000);
    assert!(used[Get as usize] >= 970 && used.iter().all(|&count| count > 0), "{used:?}");
}

/// A few long delays, as for memory that has no pages yet, do not postpone the next trial.
#[test]
fn a_method_that_was_delayed_is_soon_tried_again() {
    let mut times = CopyTimes::new((None, false));
    let first = |method, number| match method {
        Cells if number < 4 => 400_000,
        Cells => 30_000,
        _ => 10_000,
    };
    let later = |method, _| if method == Cells { 5_000 } else { 10_000 };
    transfer(&mut times, 1 << 20, 100, first);
    let (_, used) = transfer(&mut times, 1 << 20, 6_000, later);
    assert!(used[Cells as usize] > 3_000, "{used:?}");
}

/// The messages travel in another way, in which a method that was much slower is the fastest one.
#[test]
fn a_change_of_the_fastest_time_renews_the_trials_early() {
    let after = |slower: u64| {
        let (mut times, mut retries, mut count) = (CopyTimes::new((None, false)), 0, 0);
        // Trials of Cells in windows of 64 messages are expensive.
        let window = |times: &mut CopyTimes, ns: [u64; 2]| {
            let method = times.choices.method(1 << 17, true);
            times.count(Size::large(1 << 17), 64);
            times.record(Size::large(1 << 17), method, (ns[usize::from(method == Cells)], 64));
            method
        };
        while retries < 100 || times.choices.method(1 << 17, true) == Cells {
            retries += u32::from(window(&mut times, [10_000, 19_000]) == Cells);
        }
        while window(&mut times, [10_000 + slower, 8_000]) != Cells {
            count += 1;
        }
        count
    };
    let (same, changed) = (after(0), after(6_000));
    assert!(changed > 0 && changed <= same / 3, "{changed} and {same} windows");
}

/// One window that is slower than usual does not end a trial of a known method.
#[test]
fn a_disturbed_window_does_not_end_a_trial() {
    let (mut times, len) = (CopyTimes::new((None, false)), 1 << 17);
    let mut window = |ns: u64| {
        let method = times.choices.method(len, true);
        times.count(Size::large(len), 64);
        times.record(Size::large(len), method, (if method == Cells { ns } else { 20_000 }, 64));
        method
    };
    while window(30_000) != Cells {}
    while window(30_000) == Cells {}
    while window(30_000) != Cells {}
    assert_eq!(window(10_000), Cells, "the second window of the trial");
    let used = (0..20).filter(|_| window(10_000) == Cells).count();
    assert!(used > 10, "{used} of 20 windows");
}

/// The messages of the two parts of an allreduce have one size, and those that are reduced take
/// longer. The shortest time of a trial says nothing about the average of the fastest method.
#[test]
fn a_trial_of_messages_with_two_durations_compares_averages() {
    let mut times = CopyTimes::new((None, false));
    let time = |method, number| {
        let part = if number % 2 == 0 { 3 } else { 1 };
        part * if method == Cells { 10_000 } else { 14_000 }
    };
    transfer(&mut times, 1 << 18, 1_000, time);
    let (_, used) = transfer(&mut times, 1 << 18, 10_000, time);
    assert!(used[Cells as usize] > 9_000, "{used:?}");
}

/// Cells are far slower than kernel copies if the cores share no cache.
#[test]
fn a_first_trial_of_a_much_slower_method_takes_few_messages() {
    for len in [1 << 20, 8 << 20] {
        let time = |method, _| if method == Cells { 500_000 } else { 60_000 };
        let (_, used) = transfer(&mut CopyTimes::new((None, false)), len, 100, time);
        assert!(used[Cells as usize] <= 2, "{used:?}");
    }
}

#[test]
fn the_choice_follows_a_rank_that_moves() {
    let mut times = CopyTimes::new((None, false));
    let near = |method, _| if method == Cells { 5_000 } else { 12_000 };
    let far = |method, _| if method == Cells { 30_000 } else { 12_000 };
    transfer(&mut times, 100_000, 500, near);
    assert_eq!(times.choices.method(100_000, true), Cells);
    let (_, used) = transfer(&mut times, 100_000, 500, far);
    assert!(used[Cells as usize] < 200, "{used:?}");
    let (_, used) = transfer(&mut times, 100_000, 20_000, near);
    assert!(used[Cells as usize] > 10_000, "{used:?}");
}

#[test]
fn a_change_for_one_size_renews_the_trials_for_others() {
    let mut times = CopyTimes::new((None, false));
    let far = |method, _| if method == Cells { 60_000 } else { 20_000 };
    let near = |method, _| if method == Cells { 10_000 } else { 20_000 };
    transfer(&mut times, 1 << 18, 2_000, far);
    transfer(&mut times, 1 << 20, 2_000, far);
    transfer(&mut times, 1 << 18, 5_000, near);
    let (_, used) = transfer(&mut times, 1 << 20, 100, near);
    assert!(used[Cells as usize] > 80, "{used:?}");
}

#[test]
fn single_delays_do_not_change_the_choice() {
    let mut times = CopyTimes::new((None, false));
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
    let mut times = CopyTimes::new((None, false));
    for _ in 0..100 {
        let method = times.choices.method(20_000, true);
        match method {
            Cells => times.record(Size::large(20_000), method, (9_000, 1)),
            failing => times.fail(Size::large(20_000), failing),
        };
    }
    let (_, used) = transfer(&mut times, 20_000, 1000, |_, _| 9_000);
    assert!(used[Cells as usize] > 980, "{used:?}");
}

#[test]
fn a_new_choice_is_described_once() {
    let mut times = CopyTimes::new((None, false));
    let far = |method, _| if method == Split { 10_000 } else { 20_000 };
    for number in 1..7 {
        transfer(&mut times, 1 << 20, 1, far);
        assert_eq!(
            times.new_choice(Size::large(1 << 20)),
            None,
            "message {number} is of the first trials"
        );
    }
    transfer(&mut times, 1 << 20, 1, far);
    let text = "cma_split 104.9 GB/s (cells 52.4 GB/s, cma_get 52.4 GB/s, cells_nt 52.4 GB/s)";
    let sizes = "of 1024 to 2048 KiB";
    assert_eq!(times.new_choice(Size::large(1 << 20)), Some((sizes.to_owned(), text.to_owned())));
    transfer(&mut times, 1 << 20, 1000, far);
    assert_eq!(times.new_choice(Size::large(1 << 20)), None);
    times.fail(Size::large(1 << 20), Split);
    let (_, text) = times.new_choice(Size::large(1 << 20)).expect("a change");
    assert!(text.starts_with("cells ") && text.contains("cma_split failed"), "{text}");
}

#[test]
fn a_choice_is_described_while_a_known_method_is_tried_again() {
    let (mut times, len) = (CopyTimes::new((None, false)), 16 << 10);
    // Another pair has measured one method, whose next trial is due after that of the other one.
    let class = &mut times.classes[Size::eager(len).class];
    class.messages = 1;
    class.set(Cells, MethodTime { ns: 672_000, retry_at: 2, early_at: 2 });
    let described = (0..8).find_map(|_| {
        let (method, _) = times.choices.eager(len, 0);
        let ns = if method == Cells { 10_500 } else { 10_000 };
        record_eager(&mut times, len, method, ns);
        times.new_choice(Size::eager(len))
    });
    let (sizes, text) = described.expect("a choice");
    assert!(sizes == "of 8 to 16 KiB" && text.starts_with("cells_nt "), "{sizes}: {text}");
    assert!(times.classes[Size::eager(len).class].trial.is_some());
}

fn record_eager(times: &mut CopyTimes, len: usize, method: CopyMethod, ns: u64) {
    times.count(Size::eager(len), EAGER_SAMPLE);
    times.record(Size::eager(len), method, (ns, 1));
}

/// Sends `count` eager messages of `len` bytes; see `transfer`.
fn send_eager(
    times: &mut CopyTimes,
    len: usize,
    count: u64,
    time: impl Fn(CopyMethod) -> u64,
) -> (u64, [u64; 4]) {
    let (mut measured, mut used) = (0, [0; 4]);
    for number in 0..count {
        let (method, is_measured) = times.choices.eager(len, number);
        used[method as usize] += 1;
        if is_measured {
            measured += 1;
            record_eager(times, len, method, time(method));
        }
    }
    (measured, used)
}

#[test]
fn eager_messages_use_the_faster_stores() {
    let mut times = CopyTimes::new((None, false));
    let far = |method| if method == CellsNt { 1_900 } else { 2_900 };
    let near = |method| if method == CellsNt { 1_900 } else { 800 };
    let (measured, used) = send_eager(&mut times, 8 << 10, 10_000, far);
    assert!(used[CellsNt as usize] > 9_600 && measured == 323, "{measured}, {used:?}");
    // Messages of other sizes have not been sent.
    assert_eq!(times.choices.eager(3 << 10, 0), (Cells, true));
    assert_eq!(times.choices.method(1 << 20, true), Split);
    let (measured, used) = send_eager(&mut times, 8 << 10, 200_000, near);
    assert!(used[CellsNt as usize] < 140_000 && measured == 6452, "{measured}, {used:?}");
    let (_, used) = send_eager(&mut times, 8 << 10, 10_000, far);
    assert!(used[CellsNt as usize] > 8_000, "{used:?}");
    assert_eq!(used[Get as usize] + used[Split as usize], 0);
}

/// Of a pair whose distance has been measured, only the first message may be slower.
#[test]
fn a_pair_starts_with_the_times_of_another_pair() {
    let memory = SharedMapping::create(4096).expect("memory");
    memory.commit(0, 4096).expect("commit");
    const { assert!(CLASSES * METHODS.len() * 8 <= TIMES_BYTES) };
    let pair = || CopyTimes::new((memory.span(0, TIMES_BYTES), false));
    let time = |method, _| if method == Cells { 10_000 } else { 30_000 };
    transfer(&mut pair(), 1 << 20, 1000, time);
    let (_, used) = transfer(&mut pair(), 1 << 20, 100, time);
    assert_eq!(used, [1, 0, 99, 0]);
    // The times of one size are not those of another, and they are tried again later.
    let (_, used) = transfer(&mut pair(), 1 << 16, 100, time);
    assert!(used.iter().all(|&count| count > 0), "{used:?}");
    let moved = |method, _| if method == Get { 5_000 } else { 12_000 };
    let (_, used) = transfer(&mut pair(), 1 << 20, 1000, moved);
    assert!(used[Get as usize] > 600, "{used:?}");
}

/// Messages travel in both directions by turns. Alone, each rank would try all methods.
#[test]
fn the_ranks_of_a_pair_share_their_first_trials() {
    let memory = SharedMapping::create(4096).expect("memory");
    memory.commit(0, 4096).expect("commit");
    let slower = |is_shared: bool| {
        let times = |is_lower| (memory.span(0, 4096).filter(|_| is_shared), is_lower);
        let mut both = [true, false].map(|is_lower| CopyTimes::new(times(is_lower)));
        let time = |method, _| if method == Split { 10_000 } else { 14_000 };
        let one = |times: &mut CopyTimes| transfer(times, 1 << 20, 1, time).1[Split as usize];
        (0..100).map(|_| both.iter_mut().map(one).map(|fast| 1 - fast).sum::<u64>()).sum::<u64>()
    };
    let (alone, shared) = (slower(false), slower(true));
    assert!(shared > 0 && shared <= alone * 3 / 4, "{shared} and {alone} slower messages");
}

#[test]
fn each_size_class_has_its_own_choice() {
    let class_of = |len| Size::large(len).class;
    let lens = [0, 16 << 10, 32 << 10, 64 << 10, 4 << 20, usize::MAX];
    assert_eq!(lens.map(class_of), [0, 0, 1, 2, 8, 8]);
    assert_eq!([(32 << 10) - 1, (64 << 10) - 1, (4 << 20) - 1].map(class_of), [0, 1, 7]);
    let mut choices = CopyChoices::default();
    choices.set(1, Split, Some(Cells));
    choices.set(8, Get, Some(Split));
    choices.set(1, Get, Some(Cells));
    let of = |choices: CopyChoices| lens.map(|len| choices.method(len, true));
    assert_eq!(of(choices), [Split, Split, Cells, Split, Split, Split]);
    choices.set(1, Get, None);
    choices.set(8, Get, None);
    assert_eq!(of(choices), [Split, Split, Get, Split, Get, Get]);
    assert_eq!(choices.eager(16 << 10, 0).0, Cells);
}

#[test]
fn a_message_without_a_choice_waits_only_if_it_is_large() {
    let mut choices = CopyChoices::default();
    choices.set(Size::eager(8 << 10).class, CellsNt, None);
    let of = |choices: CopyChoices, can_read| [LONG, LONG + 1].map(|n| choices.method(n, can_read));
    assert_eq!(of(choices, true), [Cells, Split]);
    assert_eq!(of(choices, false), [Cells, Cells]);
    choices.set(Size::large(1 << 20).class, Cells, Some(Get));
    assert_eq!(of(choices, false), [Split, Split], "the receiver has begun to choose");
}

/// Also those of one size in a regular sequence of several sizes.
#[test]
fn a_third_of_the_messages_of_a_settled_choice_is_timed() {
    let mut choices = CopyChoices::default();
    assert!((0..100).all(|number| choices.is_timed(1 << 20, number)), "nothing is known");
    choices.set(Size::large(1 << 20).class, Get, None);
    assert!(choices.is_timed(1 << 19, 20), "another size");
    let is_timed = |number: &u16| choices.is_timed(1 << 20, *number);
    assert_eq!((0..u16::MAX).filter(is_timed).count() / 1000, 21);
    for period in 1..100 {
        let longest = (0..period).map(|first| {
            let timed: Vec<_> = (first..60_000).step_by(period.into()).filter(is_timed).collect();
            timed.windows(2).map(|pair| (pair[1] - pair[0]) / period).max().unwrap_or(u16::MAX)
        });
        let longest = longest.max();
        assert!(longest < Some(200), "{longest:?}, period {period}");
    }
    choices.set(Size::large(1 << 20).class, Get, Some(Split));
    assert!((0..100).all(|number| choices.is_timed(1 << 20, number)), "a trial");
}
