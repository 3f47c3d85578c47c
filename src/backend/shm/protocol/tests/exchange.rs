//! Tests of `exchange`.

use super::CopyMethod::{Cells, Get};
use super::*;

/// Else the sender would keep a choice that nobody measures.
#[test]
fn an_exchange_ends_with_many_bytes_in_one_direction() {
    let mut exchange = Exchange::default();
    let send = |exchange: &mut Exchange| {
        exchange.send(1 << 20, (0, 0));
        exchange.is_on
    };
    assert!(!send(&mut exchange));
    for _ in 0..3 {
        exchange.arrive(next(&Exchange::default()), false);
        assert!((0..16).all(|_| send(&mut exchange)));
        assert!(!send(&mut exchange));
    }
}

/// Messages of two ranks that answer each other, and messages that cross each other, of which each
/// is sent without knowing the other one. This does not depend on when a send completes.
#[test]
fn an_exchange_is_two_messages_that_cross_each_other() {
    let (mut one, mut other) = (Exchange::default(), Exchange::default());
    let pass = |from: &mut Exchange, to: &mut Exchange, message| {
        to.arrive(message, false);
        to.receive();
        (from.is_on, to.is_on)
    };
    // Numbers wrap around within these messages.
    for _ in 0..1 << NUMBER_BITS {
        let message = send(&mut one, 0);
        assert_eq!(pass(&mut one, &mut other, message), (false, false));
        let message = send(&mut other, 0);
        assert_eq!(pass(&mut other, &mut one, message), (false, false));
    }
    for _ in 0..3 {
        let messages = (send(&mut one, 1_000), send(&mut other, 900));
        pass(&mut one, &mut other, messages.0);
        assert_eq!(pass(&mut other, &mut one, messages.1), (true, true));
        let starts = [one.take_start(), one.take_start(), other.take_start()];
        assert_eq!(starts, [(1_000, 300), (0, 0), (900, 300)]);
    }
    let message = send(&mut one, 1_000);
    assert_eq!(pass(&mut one, &mut other, message), (true, false), "the other one knows first");
    one.arrive(next(&other), true);
    assert!(one.is_on, "sends are in progress");
}

/// A message that arrives before this rank's own one, and is received after it, crosses that one:
/// the ranks of an exchange need not begin it at the same time.
#[test]
fn a_message_that_has_arrived_crosses_the_next_one() {
    let (mut one, mut other) = (Exchange::default(), Exchange::default());
    one.arrive(send(&mut other, 0), false);
    one.prepare();
    assert!(one.is_on);
    let answer = send(&mut one, 0);
    one.receive();
    other.arrive(answer, false);
    other.receive();
    assert!(other.is_on, "both ranks know");
    one.arrive(send(&mut other, 0), false);
    one.receive();
    one.prepare();
    assert!(!one.is_on, "an answer");
    // One message that nobody receives does not make an exchange of all later ones.
    one.arrive(send(&mut other, 0), false);
    let mut send_large = || {
        one.prepare();
        one.send(1 << 20, (0, 0));
        one.is_on
    };
    assert!((0..16).all(|_| send_large()));
    assert!((0..16).all(|_| !send_large()));
}

fn next(exchange: &Exchange) -> LargeHeader {
    LargeHeader::of(exchange.announce(1 << 20, Get))
}

/// Starts the next message and returns its word, as its receiver reads it.
fn send(exchange: &mut Exchange, started_ns: u64) -> LargeHeader {
    let message = next(exchange);
    exchange.send(1 << 20, (started_ns, if started_ns > 0 { 300 } else { 0 }));
    message
}

#[test]
fn a_message_that_is_not_counted_does_not_make_an_exchange() {
    let (mut one, mut other) = (Exchange::default(), Exchange::default());
    send(&mut one, 0);
    let message = send(&mut one, 0);
    other.arrive(message, false);
    other.receive();
    one.arrive(send(&mut other, 0), false);
    assert!(!one.is_on);
}

#[test]
fn a_word_has_all_values() {
    for number in [0, 1, number_of(u16::MAX)] {
        for method in [Cells, CopyMethod::CellsNt] {
            let received = number ^ 5;
            let message = LargeHeader { size: u32::MAX, method, number, received };
            assert_eq!(LargeHeader::of(message.word()), message);
            assert_eq!(LargeHeader::of(LargeHeader { size: 0, ..message }.word()).size, 0);
        }
    }
}
