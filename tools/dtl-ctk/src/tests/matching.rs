//! Tests of matching: which receive matches which message.

use crate::kit::prelude::*;
use crate::tests::p2p::ring;
use std::collections::HashSet;

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Ranks "comm.match.":
        tag_selects, tags_in_reverse = |p| reversed(p, &(0..50).collect::<Vec<i32>>(), 100),
        tag_zero,
        largest_tag = |p| reversed(p, &[DTL_TAG_MAX, DTL_TAG_MAX - 1, 0, DTL_TAG_MAX / 2, 1], 100),
        every_bit_counts = |p| reversed(p, &bits(), 100),
        every_bit_counts_large = |p| reversed(p, &bits(), 20_000), two_thousand_tags,
        wrong_tag_is_not_taken, posted_tags_in_any_order, any_tag_takes_the_oldest,
        any_tag_tells_the_tag, any_tag_and_tag_by_turns,
        earlier_post_wins = |p| posted(p, DTL_ANY_TAG, 7),
        earlier_exact_post_wins = |p| posted(p, 7, DTL_ANY_TAG), any_tag_sees_no_collective,
        source_selects, same_tag_of_two_senders, any_source_tells_the_sender,
        any_source_takes_each_once,
        any_source_keeps_each_order = |p| {
            from_any(p, 50, |number| if number % 5 == 0 { 12_000 } else { 30 }, 12_000)
        }, any_source_starves_nobody,
        any_source_and_source_by_turns,
        any_source_large = |p| from_any(p, 3, |_| 150_000, 150_000), large_of_a_late_sender,
        any_source_posted_first, any_source_any_tag, wildcards_stay_in_their_communicator,
        fifty_contexts_one_tag, split_ranks_are_its_own, collectives_between_messages;
];

fn tag_selects(p: &Rank) -> Outcome {
    let sends = vec![p.start(1, 50, 10)?, p.start(2, 50, 20)?];
    p.take(2, 50, 20)?;
    p.take(1, 50, 10)?;
    p.done(sends)
}

/// Sends one message with each of these tags, in order, and receives the messages in reverse order.
fn reversed(p: &Rank, tags: &[i32], size: u64) -> Outcome {
    let messages = || (0..).zip(tags).map(|(number, tag)| (number, size, *tag));
    let sends = p.starts(messages())?;
    p.takes(messages().collect::<Vec<_>>().into_iter().rev())?;
    p.done(sends)
}

fn tag_zero(p: &Rank) -> Outcome {
    reversed(p, &[1, 0, 2], 64)?;
    reversed(p, &[0, 1 << 27], 20_000)
}

fn bits() -> Vec<i32> {
    (0..28).map(|bit| 1 << bit).collect()
}

fn two_thousand_tags(p: &Rank) -> Outcome {
    let mixed = |number: u64| (number, 16, (number * 7919 % 2000) as i32);
    let sends = p.starts((0..2000).map(mixed))?;
    p.takes((0..2000).map(|number| mixed(number * 1231 % 2000)))?;
    p.done(sends)
}

fn wrong_tag_is_not_taken(p: &Rank) -> Outcome {
    let mut waiting = p.irecv(100, p.previous(), 5)?;
    let messages =
        [4, 6, 5 | 1 << 8, 5 | 1 << 16, 5 | 1 << 24, 0, 10].map(|tag| (tag as u64, 100, tag));
    let mut sends = p.starts(messages)?;
    p.takes(messages)?;
    ensure!(!p.is_done(&mut waiting)?, "a receive of tag 5 took a message of another tag");
    p.meet(6)?;
    sends.push(p.start(99, 100, 5)?);
    p.taken(waiting, 99, 100, 5)?;
    p.done(sends)
}

fn posted_tags_in_any_order(p: &Rank) -> Outcome {
    let posted = p.irecvs(2000, p.previous(), 0..100)?;
    let sends = p.starts((0..100).rev().map(|tag| (tag, tag * 20, tag as i32)))?;
    for (flight, tag) in posted.into_iter().zip(0..) {
        p.taken(flight, tag, tag * 20, tag as i32)?;
    }
    p.done(sends)
}

fn any_tag_takes_the_oldest(p: &Rank) -> Outcome {
    let tag = |number: u64| (number * 37 % 11) as i32;
    let sends = p.starts((0..100).map(|number| (number, 80, tag(number))))?;
    for number in 0..100 {
        let got = p.recv(80, p.previous(), DTL_ANY_TAG)?;
        got.is(&p.due(number, 80), p.previous(), tag(number))?;
    }
    p.done(sends)
}

fn any_tag_tells_the_tag(p: &Rank) -> Outcome {
    for tag in [0, 1, 255, 65_536, DTL_TAG_MAX] {
        for size in [10, 20_000] {
            let send = p.start(1, size, tag)?;
            let got = p.recv(size, p.previous(), DTL_ANY_TAG)?;
            got.is(&p.due(1, size), p.previous(), tag)?;
            p.wait(send)?;
        }
    }
    Ok(())
}

fn any_tag_and_tag_by_turns(p: &Rank) -> Outcome {
    let sends = p.starts((0..60).map(|number| (number, 40, 1 + (number % 2) as i32)))?;
    for round in 0..30 {
        p.take(round * 2 + 1, 40, 2)?;
        let got = p.recv(40, p.previous(), DTL_ANY_TAG)?;
        got.is(&p.due(round * 2, 40), p.previous(), 1)?;
    }
    p.done(sends)
}

/// Posts two receives, then sends two messages, each of which matches both receives. Checks that
/// the receive that was posted first gets the message that was sent first.
fn posted(p: &Rank, first: i32, second: i32) -> Outcome {
    let dup = p.dup()?;
    for size in [50, 30_000] {
        let receives = dup.irecvs(size, p.previous(), [first, second])?;
        p.meet(8)?;
        let sends = dup.starts([(1, size, 7), (2, size, 7)])?;
        for (receive, number) in receives.into_iter().zip(1..) {
            dup.taken(receive, number, size, 7)?;
        }
        dup.done(sends)?;
    }
    Ok(())
}

fn any_tag_sees_no_collective(p: &Rank) -> Outcome {
    let dup = p.dup()?;
    let mut waiting = dup.irecv(1 << 16, DTL_ANY_SOURCE, DTL_ANY_TAG)?;
    for _ in 0..20 {
        dup.barrier()?;
        crate::tests::collective::sum_all(&dup, 3000)?;
        ensure!(!dup.is_done(&mut waiting)?, "a wildcard receive took a collective's message");
    }
    p.meet(5)?;
    let send = dup.start(3, 99, 1)?;
    dup.taken(waiting, 3, 99, 1)?;
    dup.done([send])
}

fn source_selects(p: &Rank) -> Outcome {
    let sends = p.to_all((0..10).map(|number| (number, 60)), 1)?;
    for other in (0..p.size).rev() {
        (0..10).try_for_each(|number| p.take_from(other, number, 60, 1))?;
    }
    p.done(sends)
}

fn same_tag_of_two_senders(p: &Rank) -> Outcome {
    let sends = p.to_all([(0, 30_000)], 1)?;
    for step in 1..=p.size {
        p.take_from((p.rank + p.size - step % p.size) % p.size, 0, 30_000, 1)?;
    }
    p.done(sends)
}

fn any_source_tells_the_sender(p: &Rank) -> Outcome {
    for size in [0, 10, 50_000] {
        let sends = p.to_all([(0, size)], 1)?;
        let mut seen = HashSet::new();
        for _ in 0..p.size {
            let got = p.recv(size, DTL_ANY_SOURCE, 1)?;
            got.is_due(p, 0, size, 1)?;
            let from = got.info.source;
            ensure!(
                seen.insert(from),
                "two messages are said to be from rank {from}, which sent one"
            );
        }
        p.done(sends)?;
        p.meet(2)?;
    }
    Ok(())
}

/// Checks the messages that this rank received from `Rank::to_all`: `rounds` messages from each
/// rank, in the order in which that rank sent them.
fn take_all(
    p: &Rank,
    rounds: u64,
    size: impl Fn(u64) -> u64,
    messages: impl Iterator<Item = Called<Got>>,
) -> Outcome {
    let mut numbers = vec![0; p.size as usize];
    for got in messages {
        let got = got?;
        let from = got.info.source;
        ensure!(
            (0..p.size).contains(&from),
            "a message is said to be from rank {from} of {}",
            p.size
        );
        let number = &mut numbers[from as usize];
        got.is_due(p, *number, size(*number), 1)?;
        *number += 1;
    }
    check!(
        numbers.iter().all(|count| *count == rounds),
        "of each rank came {numbers:?} messages, {rounds} were sent"
    )
}

fn any_source_takes_each_once(p: &Rank) -> Outcome {
    from_any(p, 200, |_| 24, 24)?;
    p.meet(2)?;
    let more = p.iprobe(DTL_ANY_SOURCE, 1)?;
    check!(more.is_none(), "a message is there a second time: {more:?}")
}

fn any_source_starves_nobody(p: &Rank) -> Outcome {
    // Rank 0 answers whoever is heard; the others always have one message on the way.
    const ROUNDS: u64 = 200;
    if p.rank > 0 {
        for number in 0..ROUNDS {
            p.send(&message(p.rank, 0, number, 32), 0, 1)?;
            p.recv(0, 0, 2)?;
        }
        return p.meet(3);
    }
    let others = p.size as u64 - 1;
    let (mut heard, mut last) = (vec![0u64; p.size as usize], vec![0u64; p.size as usize]);
    for now in 1..=ROUNDS * others {
        let got = p.recv(32, DTL_ANY_SOURCE, 1)?;
        let from = got.info.source as usize;
        got.is(&message(from as i32, 0, heard[from], 32), from as i32, 1)?;
        (heard[from], last[from]) = (heard[from] + 1, now);
        p.send(&[], from as i32, 2)?;
        // Everybody sends all the time, so silence this long is not chance.
        let silent = (1..p.size as usize)
            .find(|rank| heard[*rank] < ROUNDS && now - last[*rank] > 150 * others);
        ensure!(silent.is_none(), "rank {silent:?} was not heard for {} messages", 150 * others);
    }
    p.meet(3)
}

fn any_source_and_source_by_turns(p: &Rank) -> Outcome {
    let messages = || (0..20).map(|number| (number, 40));
    let mut sends = p.to_all(messages(), 1)?;
    sends.extend(p.to_all(messages(), 2)?);
    for number in 0..20 {
        p.take_from(p.next(), number, 40, 2)?;
        let tag = p.recv(40, DTL_ANY_SOURCE, 1)?.info.tag;
        ensure!(tag == 1, "a message of tag {tag} was taken by a receive of tag 1");
    }
    for other in (0..p.size).filter(|other| *other != p.next()) {
        (0..20).try_for_each(|number| p.take_from(other, number, 40, 2))?;
    }
    for _ in 0..20 * (p.size - 1) {
        p.recv(40, DTL_ANY_SOURCE, 1)?;
    }
    p.done(sends)
}

/// Checks that rank 0 receives large messages from ranks 1 and 2 correctly. Rank 1 starts its send
/// and then pauses before it waits for the request; rank 2 does not pause.
fn large_of_a_late_sender(p: &Rank) -> Outcome {
    const SIZE: u64 = 300_000;
    for number in 0..5 {
        p.meet(3)?;
        if p.rank == 0 {
            let flights = [p.irecv(SIZE, 1, 4)?, p.irecv(SIZE, 2, 4)?];
            for (flight, source) in flights.into_iter().zip(1..) {
                p.wait(flight)?.is(&message(source, 0, number, SIZE), source, 4)?;
            }
        } else if p.rank <= 2 {
            let send = p.isend(message(p.rank, 0, number, SIZE), 0, 4)?;
            if p.rank == 1 {
                std::thread::sleep(Duration::from_millis(20));
            }
            p.wait(send)?;
        }
    }
    Ok(())
}

fn any_source_posted_first(p: &Rank) -> Outcome {
    let posted = p.irecvs(500, DTL_ANY_SOURCE, (0..p.size * 5).map(|_| 1))?;
    p.meet(2)?;
    let sends = p.to_all((0..5).map(|number| (number, 500)), 1)?;
    take_all(p, 5, |_| 500, posted.into_iter().map(|flight| p.wait(flight)))?;
    p.done(sends)
}

fn any_source_any_tag(p: &Rank) -> Outcome {
    let (dup, mut sends) = (p.dup()?, Vec::new());
    for tag in 0..10 {
        sends.extend(dup.to_all([(tag, 70)], tag as i32)?);
    }
    let mut seen = HashSet::new();
    for _ in 0..p.size * 10 {
        let got = dup.recv(70, DTL_ANY_SOURCE, DTL_ANY_TAG)?;
        let (from, tag) = (got.info.source, got.info.tag);
        got.is_due(p, tag as u64, 70, tag)?;
        ensure!(seen.insert((from, tag)), "tag {tag} of rank {from} came twice");
    }
    dup.done(sends)
}

fn wildcards_stay_in_their_communicator(p: &Rank) -> Outcome {
    let dup = p.dup()?;
    let mut waiting = dup.irecv(100_000, DTL_ANY_SOURCE, DTL_ANY_TAG)?;
    for size in [0, 50, 50_000] {
        ring(p, size, 3)?;
        let is_done = dup.is_done(&mut waiting)?;
        ensure!(!is_done, "a wildcard on a duplicate took a message of the original");
    }
    p.meet(5)?;
    let send = dup.start(1, 10, 4)?;
    dup.taken(waiting, 1, 10, 4)?;
    dup.done([send])
}

fn fifty_contexts_one_tag(p: &Rank) -> Outcome {
    let dups: Vec<Rank> = (0..50).map(|_| p.dup()).collect::<Result<_, _>>()?;
    let any = |dup: &Rank| dup.irecv(64, DTL_ANY_SOURCE, DTL_ANY_TAG);
    let receives: Vec<Flight> = dups.iter().map(any).collect::<Result<_, _>>()?;
    let mut sends = Vec::new();
    for (number, dup) in dups.iter().enumerate().rev() {
        sends.push((dup, dup.start(number as u64, 64, 1)?));
    }
    for ((dup, flight), number) in dups.iter().zip(receives).zip(0..) {
        dup.taken(flight, number, 64, 1)?;
    }
    sends.into_iter().try_for_each(|(dup, flight)| dup.done([flight]))
}

fn split_ranks_are_its_own(p: &Rank) -> Outcome {
    let Some(turned) = p.split(0, -p.rank)? else { return Ok(()) };
    let send = turned.start(1, 40, 1)?;
    let (got, from) = (turned.recv(40, DTL_ANY_SOURCE, 1)?, turned.previous());
    got.is(&turned.due(1, 40), from, 1)?;
    let source = got.info.source;
    ensure!(source == from, "the source is {source}, in the part it is {from}");
    turned.done([send])
}

fn collectives_between_messages(p: &Rank) -> Outcome {
    let mut sends = Vec::new();
    for number in 0..20 {
        sends.push(p.start(number, 700, 1)?);
        p.barrier()?;
    }
    for number in 0..20 {
        crate::tests::collective::sum_all(p, 10)?;
        p.take(number, 700, 1)?;
    }
    p.done(sends)
}

/// Exchanges messages between all ranks, receives them with DTL_ANY_SOURCE, and checks them.
fn from_any(p: &Rank, rounds: u64, size: impl Fn(u64) -> u64, room: u64) -> Outcome {
    let sends = p.to_all((0..rounds).map(|number| (number, size(number))), 1)?;
    let all = (0..rounds * p.size as u64).map(|_| p.recv(room, DTL_ANY_SOURCE, 1));
    take_all(p, rounds, size, all)?;
    p.done(sends)
}
