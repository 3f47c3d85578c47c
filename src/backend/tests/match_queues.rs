//! Tests of `match_queues`.

use super::reference_matcher::ReferenceMatcher;
use super::*;
use proptest::prelude::*;

fn select(source: i32, word: u64, ignore: u64) -> Selector {
    Selector { source, match_bits: word, ignore }
}

#[test]
fn asking_after_a_silent_source_makes_no_queues() {
    let mut matcher = Matcher::<u32, u32>::new(100_000);
    let made = |matcher: &Matcher<u32, u32>| matcher.sources.values().count();
    assert_eq!(matcher.peek(&select(77, 1, 0)), None);
    assert!(!matcher.is_wanted(78, 1) && matcher.take_posted_from(79).is_empty());
    assert!(!matcher.cancel(80, &6));
    assert_eq!(made(&matcher), 0);
    matcher.arrive(77, 1, 5);
    matcher.post(select(78, 1, 0), 6);
    assert_eq!(made(&matcher), 2);
    assert_eq!(matcher.take_unexpected(&select(77, 1, 0)).map(|message| message.what), Some(5));
    assert_eq!(matcher.take_posted(78, 1), Some(6));
    matcher.arrive(77, 1, 7);
    assert_eq!(made(&matcher), 2, "queues are kept");
}

#[test]
fn what_waits_for_a_source_or_came_from_it_keeps_it_from_being_idle() {
    let mut matcher = Matcher::<u32, u32>::new(3);
    assert!(matcher.is_idle(1));
    matcher.post(select(DTL_ANY_SOURCE, 5, 0), 1);
    assert!(!matcher.is_idle(1), "a receive from any rank may take its message");
    assert_eq!(matcher.take_posted(2, 5), Some(1));
    matcher.post(select(1, 5, 0), 2);
    assert!(!matcher.is_idle(1) && matcher.is_idle(2));
    assert_eq!(matcher.take_posted(1, 5), Some(2));
    matcher.arrive(1, 6, 7);
    assert!(!matcher.is_idle(1) && matcher.is_idle(2));
}

#[test]
fn receives_match_in_the_order_posted_across_named_and_any() {
    let mut matcher = Matcher::<u32, ()>::new(2);
    matcher.post(select(DTL_ANY_SOURCE, 5, 0), 1);
    matcher.post(select(1, 5, 0), 2);
    matcher.post(select(DTL_ANY_SOURCE, 5, 0), 3);
    assert_eq!(matcher.take_posted(1, 6), None);
    assert_eq!(matcher.take_posted(1, 5), Some(1));
    assert_eq!(matcher.take_posted(1, 5), Some(2));
    assert_eq!(matcher.take_posted(0, 5), Some(3));
    assert!(!matcher.is_wanted(0, 5));
}

#[test]
fn messages_match_in_the_order_arrived_and_masks_count() {
    let mut matcher = Matcher::<u32, char>::new(3);
    matcher.arrive(2, 0x10, 'a');
    matcher.arrive(1, 0x11, 'b');
    matcher.arrive(2, 0x11, 'c');
    let any = select(DTL_ANY_SOURCE, 0x11, 0);
    assert_eq!(matcher.take_unexpected(&any).map(|m| (m.source, m.what)), Some((1, 'b')));
    let masked = select(DTL_ANY_SOURCE, 0, 0xFF);
    assert_eq!(matcher.take_unexpected(&masked).map(|m| (m.match_bits, m.what)), Some((0x10, 'a')));
    assert_eq!(matcher.take_unexpected(&select(1, 0x11, 0)), None);
    assert_eq!(matcher.take_unexpected(&select(2, 0x11, 0)).map(|m| m.what), Some('c'));
}

#[test]
fn withdrawal_and_failure() {
    let mut matcher = Matcher::<u32, u8>::new(2);
    matcher.post(select(0, 1, 0), 1);
    matcher.post(select(0, 1, 0), 2);
    matcher.post(select(DTL_ANY_SOURCE, 1, 0), 3);
    assert!(!matcher.cancel(1, &1) && !matcher.cancel(DTL_ANY_SOURCE, &1), "it names rank 0");
    assert!(matcher.cancel(0, &1) && !matcher.cancel(0, &1));
    assert_eq!(matcher.take_posted_from(0), [2]);
    assert!(!matcher.cancel(0, &3) && matcher.cancel(DTL_ANY_SOURCE, &3));
    matcher.arrive(0, 1, 7);
    matcher.arrive(0, 1, 8);
    matcher.retain_unexpected(0, |&what| what != 7);
    assert_eq!(matcher.remove_unexpected(0, |&what| what == 7).map(|m| m.what), None);
    assert_eq!(matcher.remove_unexpected(0, |&what| what == 8).map(|m| m.what), Some(8));
}

#[derive(Clone, Debug)]
enum Step {
    Message(i32, u64),
    Receive(i32, u64, u64),
    Withdraw(u32),
    PutBack(i32, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let source = prop_oneof![Just(DTL_ANY_SOURCE), 0..3_i32];
    prop_oneof![
        4 => (0..3_i32, 0..4_u64).prop_map(|(source, word)| Step::Message(source, word)),
        4 => (source, 0..4_u64, 0..4_u64).prop_map(|(s, word, ignore)| Step::Receive(s, word,
            ignore)),
        1 => (0..3_i32, 0..4_u64).prop_map(|(source, word)| Step::PutBack(source, word)),
        1 => (0..200_u32).prop_map(Step::Withdraw),
    ]
}

proptest! {
    #[test]
    fn agrees_with_two_plain_lists(steps in proptest::collection::vec(step(), 0..200)) {
        let mut matcher = Matcher::<u32, u32>::new(3);
        let mut naive = ReferenceMatcher::default();
        for (id, step) in (0_u32..).zip(steps) {
            match step {
                Step::Message(source, word) => {
                    let wanted = matcher.is_wanted(source, word);
                    let takes = |first: &PostedReceive<u32>| first.select.takes(source, word);
                    let first = matcher.posted_from(source)
                        .filter(|queue| id % 2 == 0 && queue.front().is_some_and(takes));
                    let posted = match first {
                        Some(queue) => queue.pop_front().map(|posted| posted.what),
                        None => matcher.take_posted(source, word),
                    };
                    let got = posted.map(|posted| (posted, id));
                    prop_assert_eq!(wanted, got.is_some());
                    if got.is_none() {
                        matcher.arrive(source, word, id);
                    }
                    prop_assert_eq!(got, naive.message(source, word, id));
                }
                Step::Receive(source, word, ignore) => {
                    let select = select(source, word, ignore);
                    if id % 2 == 0 && matcher.post_first(select, id) {
                        prop_assert_eq!(naive.receive(select, id), None);
                        continue;
                    }
                    let seen = matcher.peek(&select).map(|m| (m.source, m.match_bits, m.what));
                    prop_assert_eq!(seen, naive.peek(select));
                    let got = matcher.take_unexpected(&select).map(|message| (id,
                        message.what));
                    if got.is_none() {
                        matcher.post(select, id);
                    }
                    prop_assert_eq!(got, naive.receive(select, id));
                }
                Step::PutBack(source, word) => {
                    let taken = matcher.take_placed(source, word);
                    let first = naive.posted.iter().find(|(select, _)| select.takes(source,
                        word));
                    prop_assert_eq!(taken.map(|posted| posted.what), first.map(|(_, id)| *id));
                    taken.into_iter().for_each(|posted| matcher.put(posted));
                }
                Step::Withdraw(id) => {
                    let found = naive.posted.iter().position(|(_, posted)| *posted == id);
                    let source = found.map(|index| naive.posted.remove(index).0.source);
                    for other in [DTL_ANY_SOURCE, 0, 1, 2].into_iter()
                        .filter(|other| Some(*other) != source) {
                        prop_assert!(!matcher.cancel(other, &id));
                    }
                    let withdrawn = source.is_some_and(|source| matcher.cancel(source, &id));
                    prop_assert_eq!(withdrawn, source.is_some());
                }
            }
        }
    }
}
