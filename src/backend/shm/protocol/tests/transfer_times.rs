//! Tests of `transfer_times`, with a scripted clock.

use super::CopyMethod::{Cells, Get};
use super::*;

fn end(
    times: &mut TransferTimes,
    method: CopyMethod,
    (begun_ns, now): (u64, u64),
    is_awaited: bool,
) -> Option<(u64, u32)> {
    times.end(&TransferEnd { len: 0, method, begun_ns, is_awaited }, false, || now)
}

fn window(times: &mut TransferTimes, begun_ns: u64, ends: &[u64]) -> Vec<Option<(u64, u32)>> {
    ends.iter().for_each(|_| times.begin(begun_ns, 0));
    ends.iter().map(|&now| end(times, Get, (begun_ns, now), false)).collect()
}

/// The first message gives no time, because it may follow another message.
#[test]
fn a_message_alone_takes_from_its_begin_to_its_end() {
    let mut times = TransferTimes::default();
    for (begun, time) in [(1_000, None), (50_000, Some((700, 1))), (90_000, Some((700, 1)))] {
        times.begin(begun, 0);
        assert_eq!(end(&mut times, Cells, (begun, begun + 700), false), time);
    }
    times.begin(0, 0);
    assert_eq!(end(&mut times, Cells, (0, 0), false), None, "not timed");
    times.begin(120_000, 0);
    assert_eq!(end(&mut times, Cells, (120_000, 120_700), false), None);
}

/// As in a window of messages both ways, each message counts.
#[test]
fn a_message_alone_in_an_exchange_takes_half_of_the_time() {
    let mut times = TransferTimes::default();
    window(&mut times, 100, &[200]);
    // The wait for the other message counts, except after a pause.
    for (started_ns, begun_ns, ns) in [(0, 1_000, 450), (3_800, 4_000, 550), (6_000, 9_000, 450)] {
        times.begin(begun_ns, started_ns);
        (0..started_ns % 3).for_each(|_| times.count_sent());
        let ended = TransferEnd { len: 0, method: Get, begun_ns, is_awaited: false };
        assert!(times.is_last(&ended));
        assert_eq!(times.end(&ended, true, || begun_ns + 900), Some((ns, 1)));
    }
}

/// Messages that were announced together and end in groups. Nothing is known before the last one,
/// because the ones in progress may have been copied in part.
#[test]
fn messages_of_a_window_take_the_average() {
    let mut times = TransferTimes::default();
    let found = window(&mut times, 1_000, &[9_000, 9_100, 9_200, 18_800, 18_900, 19_000]);
    assert_eq!(found[..5], [None; 5]);
    assert_eq!(found[5], Some((3_000, 6)));
    // A long window, in which the time of the last messages is not known.
    let ends: Vec<_> = (1..=100).map(|at| 100_000 + 50 * at).collect();
    let found = window(&mut times, 100_000, &ends);
    assert_eq!(found.iter().flatten().collect::<Vec<_>>(), [&(50, 64)]);
}

/// Of a window that is timed from its middle on, the begin is not known.
#[test]
fn a_part_of_a_window_has_no_time() {
    let mut times = TransferTimes::default();
    (0..4).for_each(|_| times.begin(0, 0));
    (0..12).for_each(|_| times.begin(1_000, 0));
    (0..4).for_each(|_| assert_eq!(end(&mut times, Get, (0, 0), false), None));
    (0..12).for_each(|at| assert_eq!(end(&mut times, Get, (1_000, 2_000 + at), false), None));
    assert_eq!(window(&mut times, 50_000, &[50_400]), [Some((400, 1))]);
    (0..2).for_each(|_| times.begin(60_000, 0));
    times.break_off();
    assert_eq!(end(&mut times, Get, (60_000, 61_000), false), None);
    assert_eq!(window(&mut times, 90_000, &[90_400]), [Some((400, 1))]);
}

/// The first message of a burst decides; in a burst without an end, every 1024th message.
#[test]
fn a_burst_is_timed_as_a_whole() {
    let mut times = TransferTimes::default();
    assert!(!times.is_timed(1, false));
    times.begin(0, 0);
    assert!(!times.is_timed(2, true) && times.is_timed(1024, true) && times.is_timed(3, false));
    end(&mut times, Get, (0, 0), false);
    assert!(!times.is_timed(4, false) && times.is_timed(5, true));
}

/// The sender fills a cell while the receiver waits, so messages do not overlap. They count in
/// groups of eight. So do messages that a receiver awaits one after the other.
#[test]
fn the_wait_for_the_next_awaited_message_counts() {
    for is_awaited in [true, false] {
        let mut times = TransferTimes::default();
        window(&mut times, 100, &[200]);
        let found = [1_000; 17].map(|_| {
            let begun = times.last.ns + 300;
            times.begin(begun, 0);
            end(&mut times, Cells, (begun, begun + 200), is_awaited)
        });
        let known: Vec<_> = found.into_iter().flatten().collect();
        if is_awaited {
            assert_eq!(known, [(500, 8); 2]);
        } else {
            assert_eq!(known, [(500, 1); 17]);
        }
    }
}

#[test]
fn a_long_wait_or_an_answer_does_not_count() {
    for (wait, is_answer) in [(100_000, false), (300, true)] {
        let mut times = TransferTimes::default();
        window(&mut times, 100, &[200]);
        let mut now = 1_000;
        for _ in 0..6 {
            (0..u8::from(is_answer)).for_each(|_| times.count_sent());
            times.begin(now, 0);
            let time = end(&mut times, Cells, (now, now + 200), false);
            assert_eq!(time, Some((200, 1)));
            now += 200 + wait;
        }
    }
}

/// With one method, messages of both directions advance together; with another one, those of the
/// other direction wait. Each core moves as many messages in the same time.
#[test]
fn messages_of_the_other_direction_count() {
    let mut times = TransferTimes::default();
    (0..6).for_each(|_| times.begin(1_000, 0));
    let found = [1, 2, 3, 4, 5, 6].map(|at| {
        let time = end(&mut times, Get, (1_000, 1_000 + 2_000 * at), false);
        times.count_sent();
        time
    });
    // The last message of the other direction is sent after the measurement.
    assert_eq!(found[5], Some((12_000 / 11, 6)));
    assert_eq!(window(&mut times, 20_000, &[21_000, 22_000, 23_000])[2], Some((1_000, 3)));
}

#[test]
fn another_method_begins_another_average() {
    let mut times = TransferTimes::default();
    window(&mut times, 100, &[200]);
    let slow = (1..=3).map(|at| (Get, 1_000 + 900 * at));
    let fast = (1..=8).map(|at| (Cells, 3_700 + 100 * at));
    let found: Vec<_> = slow
        .chain(fast)
        .flat_map(|(method, now)| {
            times.begin(now - 50, 0);
            end(&mut times, method, (now - 50, now), true)
        })
        .collect();
    assert_eq!(found, [(100, 8)]);
}
