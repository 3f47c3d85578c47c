//! Tests of `transfer_times`, with a scripted clock.

use super::CopyMethod::{Cells, Get};
use super::*;

fn end(
    times: &mut TransferTimes,
    method: CopyMethod,
    (begun_ns, now): (u64, u64),
    is_awaited: bool,
) -> Option<(u64, bool)> {
    times.end(&TransferEnd { method, begun_ns, is_awaited }, || now)
}

/// Else the sender would keep a choice that nobody measures.
#[test]
fn an_exchange_ends_with_many_bytes_in_one_direction() {
    let mut exchange = Exchange::default();
    assert!(!exchange.send(1 << 20));
    for _ in 0..3 {
        exchange.receive(true);
        assert!((0..16).all(|_| exchange.send(1 << 20)));
        assert!(!exchange.send(1 << 20) && !exchange.is_on());
    }
    exchange.receive(true);
    exchange.receive(false);
    assert!(!exchange.send(1 << 20));
}

#[test]
fn a_message_alone_takes_from_its_begin_to_its_end() {
    let mut times = TransferTimes::default();
    for begun in [1_000, 50_000, 51_500] {
        times.begin(begun);
        assert_eq!(end(&mut times, Cells, (begun, begun + 700), false), Some((700, true)));
    }
}

/// Messages that were announced together and end in pairs, and a first one that waits.
#[test]
fn messages_of_a_window_take_the_average() {
    let mut times = TransferTimes::default();
    (0..9).for_each(|_| times.begin(1_000));
    let ends = [9_000, 9_100, 11_000, 11_100, 13_000, 13_100, 15_000, 15_100, 17_000];
    let found = ends.map(|now| end(&mut times, Get, (1_000, now), false));
    assert_eq!(found[..3], [None; 3]);
    assert_eq!(found[3], Some((2_525, false)), "from the begin");
    for time in &found[4..] {
        assert_eq!(*time, Some((1_000, false)));
    }
}

#[test]
fn a_short_window_takes_from_its_begin_to_its_last_end() {
    let mut times = TransferTimes::default();
    times.begin(1_000);
    times.begin(1_000);
    assert_eq!(end(&mut times, Get, (1_000, 20_900), false), None);
    assert_eq!(end(&mut times, Get, (1_000, 21_000), false), Some((10_000, false)));
}

/// The sender fills a cell while the receiver waits, so messages do not overlap.
#[test]
fn the_wait_for_the_next_awaited_message_counts() {
    let mut times = TransferTimes::default();
    let found = [1_000, 1_500, 2_000, 2_500, 3_000].map(|begun| {
        times.begin(begun);
        end(&mut times, Cells, (begun, begun + 200), true)
    });
    assert_eq!(found[..3], [None; 3]);
    assert_eq!(found[4], Some((500, false)));
}

#[test]
fn a_long_wait_or_an_unexpected_message_does_not_count() {
    for (wait, is_awaited) in [(100_000, true), (300, false)] {
        let mut times = TransferTimes::default();
        let mut now = 1_000;
        for _ in 0..6 {
            times.begin(now);
            let time = end(&mut times, Cells, (now, now + 200), is_awaited);
            assert_eq!(time, (!is_awaited).then_some((200, true)));
            now += 200 + wait;
        }
    }
}

/// With one method, messages of both directions advance together; with another one, those of the
/// other direction wait. Each core moves as many messages in the same time.
#[test]
fn messages_of_the_other_direction_count() {
    let mut times = TransferTimes::default();
    (0..12).for_each(|_| times.begin(1_000));
    let found: Vec<_> = (1..=6)
        .map(|at| {
            times.count_sent();
            end(&mut times, Get, (1_000, 1_000 + 2_000 * at), false)
        })
        .collect();
    assert_eq!(found[4..], [Some((1_000, false)); 2]);
    let found: Vec<_> =
        (1..=6).map(|at| end(&mut times, Cells, (1_000, 13_000 + 1_000 * at), false)).collect();
    assert_eq!(found[4..], [Some((1_000, false)); 2]);
}

#[test]
fn another_method_begins_another_average() {
    let mut times = TransferTimes::default();
    (0..12).for_each(|_| times.begin(1_000));
    let slow = (1..=6).map(|at| (Get, 1_000 + 900 * at));
    let fast = (1..=6).map(|at| (Cells, 6_400 + 100 * at));
    let found: Vec<_> = slow
        .chain(fast)
        .map(|(method, now)| end(&mut times, method, (1_000, now), false))
        .collect();
    assert_eq!(found[5], Some((900, false)));
    assert_eq!(found[6..9], [None; 3]);
    assert_eq!(found[9..], [Some((100, false)); 3]);
}

/// Only some messages are timed: the first of these has no known begin.
#[test]
fn times_begin_again_after_a_message_that_is_not_timed() {
    let mut times = TransferTimes::default();
    times.begin(0);
    (0..8).for_each(|_| times.begin(1_000));
    assert_eq!(end(&mut times, Get, (0, 0), false), None);
    let found: Vec<_> =
        (2..=8).map(|at| end(&mut times, Get, (1_000, 1_000 * at), false)).collect();
    assert_eq!(found[..4], [None; 4]);
    assert_eq!(found[4..], [Some((1_000, false)); 3]);
    times.break_off();
    assert_eq!(times.in_progress(), 0);
    times.begin(20_000);
    assert_eq!(end(&mut times, Get, (20_000, 20_400), false), Some((400, true)));
}
