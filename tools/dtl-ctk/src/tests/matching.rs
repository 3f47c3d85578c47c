//! Tests of matching: which receive takes which message.

use crate::kit::catalog::{Group, tests_of_ranks};
use crate::kit::outcome::{Outcome, ensure};
use crate::kit::peer::{Flight, Peer, message};
use crate::tests::p2p::{done, ring};
use dtl_sys::{DTL_ANY_SOURCE, DTL_ANY_TAG, DTL_TAG_MAX};
use std::collections::HashSet;
use std::time::Duration;

pub(crate) const GROUPS: &[Group] = &[
    Group {
        slot: "comm.irecv (tags)",
        needs: &[],
        rule: "A receive takes the oldest message whose match word is its own under the mask.",
        usually: "Some bits of the word are not compared, compared as signed numbers, or cut off.",
        tests: tests_of_ranks![
            1 "comm.match.tag_selects": "of two messages the one with the tag asked \
                for" => tag_selects;
            1 "comm.match.tags_in_reverse": "50 tags received last to first" => tags_reverse;
            1 "comm.match.tag_zero": "tag 0 is a tag like others" => tag_zero;
            1 "comm.match.largest_tag": "DTL_TAG_MAX and its neighbours" => tag_max;
            1 "comm.match.every_bit_counts": "28 tags of one bit each, received in another \
                order" => tag_bits;
            1 "comm.match.every_bit_counts_large": "the same with messages of 20 000 \
                bytes" => tag_bits_large;
            1 "comm.match.two_thousand_tags": "2000 tags in a mixed order" => tag_many;
            1 "comm.match.wrong_tag_is_not_taken": "a receive stays pending while other tags \
                come" => tag_wrong;
            1 "comm.match.posted_tags_in_any_order": "100 posted tags, sent in \
                reverse" => tag_posted;
        ],
    },
    Group {
        slot: "comm.irecv (any tag)",
        needs: &[],
        rule: "DTL_ANY_TAG takes the oldest message of the sender.",
        usually: "The oldest of one tag's queue is taken instead of the oldest of all.",
        tests: tests_of_ranks![
            1 "comm.match.any_tag_takes_the_oldest": "100 messages of mixed tags in the order \
                sent" => any_tag;
            1 "comm.match.any_tag_tells_the_tag": "the info has the message's tag" => any_tag_tells;
            1 "comm.match.any_tag_and_tag_by_turns": "alternating receives keep both \
                orders" => any_tag_turns;
            1 "comm.match.earlier_post_wins": "a posted any-tag receive is served before a later \
                exact one" => post_any_first;
            1 "comm.match.earlier_exact_post_wins": "and the other way round" => post_exact_first;
            1 "comm.match.any_tag_sees_no_collective": "an any-tag receive is not served by a \
                barrier's or allreduce's messages" => any_tag_collective;
        ],
    },
    Group {
        slot: "comm.irecv (sources)",
        needs: &[],
        rule: "A receive names its source or takes from any; each message is taken once.",
        usually: "The sender's rank is that of another communicator, or one sender's messages are \
            served for ever.",
        tests: tests_of_ranks![
            2 "comm.match.source_selects": "of all ranks' messages those of the one asked \
                for" => source_selects;
            2 "comm.match.same_tag_of_two_senders": "are kept apart" => source_same_tag;
            1 "comm.match.any_source_tells_the_sender": "source and contents \
                agree" => any_source_tells;
            2 "comm.match.any_source_takes_each_once": "200 messages of each rank: each exactly \
                once" => any_source_once;
            2 "comm.match.any_source_keeps_each_order": "of each sender, in the order \
                sent" => any_source_order;
            2 "comm.match.any_source_starves_nobody": "while all send all the time, each is heard \
                soon" => any_source_fair;
            2 "comm.match.any_source_and_source_by_turns": "wildcards do not take what is left for \
                exact ones" => any_source_turns;
            2 "comm.match.any_source_large": "large messages of all ranks" => any_source_large;
            3 "comm.match.large_of_a_late_sender": "a quick sender's large message is not taken \
                for a late one's" => late_sender_large;
            2 "comm.match.any_source_posted_first": "wildcards posted before anything was \
                sent" => any_source_posted;
            1 "comm.match.any_source_any_tag": "takes everything, once" => any_any;
        ],
    },
    Group {
        slot: "comm.irecv (contexts and classes)",
        needs: &[],
        rule: "Messages of other communicators and of collectives never match.",
        usually: "The context's bits are dropped from the word.",
        tests: tests_of_ranks![
            1 "comm.match.wildcards_stay_in_their_communicator": "any source, any tag on a \
                duplicate sees nothing of the original" => wildcard_context;
            1 "comm.match.fifty_contexts_one_tag": "50 duplicates, one tag, wildcards on \
                each" => contexts;
            2 "comm.match.split_ranks_are_its_own": "the source is the rank in the part, not in \
                the whole" => split_sources;
            1 "comm.match.collectives_between_messages": "barriers between sends and receives \
                change nothing" => collectives_between;
        ],
    },
];

/// Sends to the next rank, not waited for yet.
fn start(p: &Peer, number: u64, size: u64, tag: i32) -> Outcome<Flight> {
    Ok(p.isend(message(p.rank, p.next(), number, size), p.next(), tag)?)
}

/// Receives from the previous rank what it started under this number.
fn take(p: &Peer, number: u64, size: u64, tag: i32) -> Outcome {
    p.expect(&message(p.previous(), p.rank, number, size), p.previous(), tag)
}

fn tag_selects(p: &Peer) -> Outcome {
    let sends = vec![start(p, 1, 50, 10)?, start(p, 2, 50, 20)?];
    take(p, 2, 50, 20)?;
    take(p, 1, 50, 10)?;
    done(p, sends)
}

/// These tags, sent in order and received in reverse.
fn reversed(p: &Peer, tags: &[i32], size: u64) -> Outcome {
    let mut sends = Vec::new();
    for (tag, number) in tags.iter().zip(0..) {
        sends.push(start(p, number, size, *tag)?);
    }
    for (number, tag) in tags.iter().enumerate().rev() {
        take(p, number as u64, size, *tag)?;
    }
    done(p, sends)
}

fn tags_reverse(p: &Peer) -> Outcome {
    reversed(p, &(0..50).collect::<Vec<i32>>(), 100)
}

fn tag_zero(p: &Peer) -> Outcome {
    reversed(p, &[1, 0, 2], 64)?;
    reversed(p, &[0, 1 << 27], 20_000)
}

fn tag_max(p: &Peer) -> Outcome {
    reversed(p, &[DTL_TAG_MAX, DTL_TAG_MAX - 1, 0, DTL_TAG_MAX / 2, 1], 100)
}

fn bits() -> Vec<i32> {
    (0..28).map(|bit| 1 << bit).collect()
}

fn tag_bits(p: &Peer) -> Outcome {
    reversed(p, &bits(), 100)
}

fn tag_bits_large(p: &Peer) -> Outcome {
    reversed(p, &bits(), 20_000)
}

fn tag_many(p: &Peer) -> Outcome {
    let mut sends = Vec::new();
    for number in 0..2000u64 {
        sends.push(start(p, number, 16, (number * 7919 % 2000) as i32)?);
    }
    for number in 0..2000u64 {
        let number = number * 1231 % 2000;
        take(p, number, 16, (number * 7919 % 2000) as i32)?;
    }
    done(p, sends)
}

fn tag_wrong(p: &Peer) -> Outcome {
    let mut waiting = p.irecv(100, p.previous(), 5)?;
    let mut sends = Vec::new();
    for tag in [4, 6, 5 | 1 << 8, 5 | 1 << 16, 5 | 1 << 24, 0, 10] {
        sends.push(start(p, tag as u64, 100, tag)?);
    }
    for tag in [4, 6, 5 | 1 << 8, 5 | 1 << 16, 5 | 1 << 24, 0, 10] {
        take(p, tag as u64, 100, tag)?;
    }
    ensure!(!p.is_done(&mut waiting)?, "a receive of tag 5 took a message of another tag");
    p.meet(6)?;
    sends.push(start(p, 99, 100, 5)?);
    p.wait(waiting)?.is(&message(p.previous(), p.rank, 99, 100), p.previous(), 5)?;
    done(p, sends)
}

fn tag_posted(p: &Peer) -> Outcome {
    let posted: Vec<Flight> =
        (0..100).map(|tag| p.irecv(2000, p.previous(), tag)).collect::<Result<_, _>>()?;
    let mut sends = Vec::new();
    for tag in (0..100).rev() {
        sends.push(start(p, tag, tag * 20, tag as i32)?);
    }
    for (flight, tag) in posted.into_iter().zip(0..) {
        p.wait(flight)?.is(
            &message(p.previous(), p.rank, tag, tag * 20),
            p.previous(),
            tag as i32,
        )?;
    }
    done(p, sends)
}

fn any_tag(p: &Peer) -> Outcome {
    let mut sends = Vec::new();
    for number in 0..100u64 {
        sends.push(start(p, number, 80, (number * 37 % 11) as i32)?);
    }
    for number in 0..100 {
        let got = p.recv(80, p.previous(), DTL_ANY_TAG)?;
        got.is(
            &message(p.previous(), p.rank, number, 80),
            p.previous(),
            (number * 37 % 11) as i32,
        )?;
    }
    done(p, sends)
}

fn any_tag_tells(p: &Peer) -> Outcome {
    for tag in [0, 1, 255, 65_536, DTL_TAG_MAX] {
        for size in [10, 20_000] {
            let send = start(p, 1, size, tag)?;
            let got = p.recv(size, p.previous(), DTL_ANY_TAG)?;
            got.is(&message(p.previous(), p.rank, 1, size), p.previous(), tag)?;
            p.wait(send)?;
        }
    }
    Ok(())
}

fn any_tag_turns(p: &Peer) -> Outcome {
    let mut sends = Vec::new();
    for round in 0..30 {
        sends.push(start(p, round * 2, 40, 1)?);
        sends.push(start(p, round * 2 + 1, 40, 2)?);
    }
    for round in 0..30 {
        take(p, round * 2 + 1, 40, 2)?;
        let got = p.recv(40, p.previous(), DTL_ANY_TAG)?;
        got.is(&message(p.previous(), p.rank, round * 2, 40), p.previous(), 1)?;
    }
    done(p, sends)
}

/// Two posted receives for one message each; which is first decides.
fn posted(p: &Peer, first: i32, second: i32) -> Outcome {
    let dup = p.dup()?;
    for size in [50, 30_000] {
        let receives =
            [dup.irecv(size, p.previous(), first)?, dup.irecv(size, p.previous(), second)?];
        p.meet(8)?;
        let sends = vec![start(&dup, 1, size, 7)?, start(&dup, 2, size, 7)?];
        for (receive, number) in receives.into_iter().zip(1..) {
            dup.wait(receive)?.is(&message(p.previous(), p.rank, number, size), p.previous(), 7)?;
        }
        done(&dup, sends)?;
    }
    Ok(())
}

fn post_any_first(p: &Peer) -> Outcome {
    posted(p, DTL_ANY_TAG, 7)
}

fn post_exact_first(p: &Peer) -> Outcome {
    posted(p, 7, DTL_ANY_TAG)
}

fn any_tag_collective(p: &Peer) -> Outcome {
    let dup = p.dup()?;
    let mut waiting = dup.irecv(1 << 16, DTL_ANY_SOURCE, DTL_ANY_TAG)?;
    for _ in 0..20 {
        dup.barrier()?;
        crate::tests::collective::sum_all(&dup, 3000)?;
        ensure!(!dup.is_done(&mut waiting)?, "a wildcard receive took a collective's message");
    }
    p.meet(5)?;
    let send = dup.isend(message(p.rank, p.next(), 3, 99), p.next(), 1)?;
    dup.wait(waiting)?.is(&message(p.previous(), p.rank, 3, 99), p.previous(), 1)?;
    dup.wait(send)?;
    Ok(())
}

/// Everybody sends to everybody.
fn all_to_all(p: &Peer, rounds: u64, size: u64, tag: i32) -> Outcome<Vec<Flight>> {
    let mut sends = Vec::new();
    for number in 0..rounds {
        for other in 0..p.size {
            sends.push(p.isend(message(p.rank, other, number, size), other, tag)?);
        }
    }
    Ok(sends)
}

fn source_selects(p: &Peer) -> Outcome {
    let sends = all_to_all(p, 10, 60, 1)?;
    for other in (0..p.size).rev() {
        (0..10).try_for_each(|number| p.expect(&message(other, p.rank, number, 60), other, 1))?;
    }
    done(p, sends)
}

fn source_same_tag(p: &Peer) -> Outcome {
    let sends = all_to_all(p, 1, 30_000, 1)?;
    for step in 1..=p.size {
        let other = (p.rank + p.size - step % p.size) % p.size;
        p.expect(&message(other, p.rank, 0, 30_000), other, 1)?;
    }
    done(p, sends)
}

fn any_source_tells(p: &Peer) -> Outcome {
    for size in [0, 10, 50_000] {
        let sends = all_to_all(p, 1, size, 1)?;
        let mut seen = HashSet::new();
        for _ in 0..p.size {
            let got = p.recv(size, DTL_ANY_SOURCE, 1)?;
            let from = got.info.source;
            got.is(&message(from, p.rank, 0, size), from, 1)?;
            ensure!(
                seen.insert(from),
                "two messages are said to be from rank {from}, which sent one"
            );
        }
        done(p, sends)?;
        p.meet(2)?;
    }
    Ok(())
}

/// Takes the messages of `all_to_all` from any source; each sender's in order.
fn take_all(p: &Peer, rounds: u64, size: u64, tag: i32) -> Outcome {
    let mut next = vec![0; p.size as usize];
    for _ in 0..rounds * p.size as u64 {
        let got = p.recv(size, DTL_ANY_SOURCE, tag)?;
        let from = got.info.source;
        ensure!(
            (0..p.size).contains(&from),
            "a message is said to be from rank {from} of {}",
            p.size
        );
        let number = &mut next[from as usize];
        got.is(&message(from, p.rank, *number, size), from, tag)?;
        *number += 1;
    }
    ensure!(
        next.iter().all(|count| *count == rounds),
        "of each rank came {next:?} messages, {rounds} were sent"
    );
    Ok(())
}

fn any_source_once(p: &Peer) -> Outcome {
    let sends = all_to_all(p, 200, 24, 1)?;
    take_all(p, 200, 24, 1)?;
    done(p, sends)?;
    p.meet(2)?;
    let more = p.iprobe(DTL_ANY_SOURCE, 1)?;
    ensure!(more.is_none(), "a message is there a second time: {more:?}");
    Ok(())
}

fn any_source_order(p: &Peer) -> Outcome {
    let mut sends = Vec::new();
    let size = |number: u64| if number % 5 == 0 { 12_000 } else { 30 };
    for number in 0..50 {
        for other in 0..p.size {
            sends.push(p.isend(message(p.rank, other, number, size(number)), other, 1)?);
        }
    }
    let mut next = vec![0; p.size as usize];
    for _ in 0..50 * p.size {
        let got = p.recv(12_000, DTL_ANY_SOURCE, 1)?;
        let number = &mut next[got.info.source as usize];
        got.is(&message(got.info.source, p.rank, *number, size(*number)), got.info.source, 1)?;
        *number += 1;
    }
    done(p, sends)
}

fn any_source_fair(p: &Peer) -> Outcome {
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

fn any_source_turns(p: &Peer) -> Outcome {
    let mut sends = all_to_all(p, 20, 40, 1)?;
    sends.extend(all_to_all(p, 20, 40, 2)?);
    for number in 0..20 {
        p.expect(&message(p.next(), p.rank, number, 40), p.next(), 2)?;
        let got = p.recv(40, DTL_ANY_SOURCE, 1)?;
        ensure!(
            got.info.tag == 1,
            "a message of tag {} was taken by a receive of tag 1",
            got.info.tag
        );
    }
    for other in (0..p.size).filter(|other| *other != p.next()) {
        (0..20).try_for_each(|number| p.expect(&message(other, p.rank, number, 40), other, 2))?;
    }
    for _ in 0..20 * (p.size - 1) {
        p.recv(40, DTL_ANY_SOURCE, 1)?;
    }
    done(p, sends)
}

fn any_source_large(p: &Peer) -> Outcome {
    let sends = all_to_all(p, 3, 150_000, 1)?;
    take_all(p, 3, 150_000, 1)?;
    done(p, sends)
}

/// Rank 1 says early that it sends, and does nothing more for a while; rank 2 is quick.
fn late_sender_large(p: &Peer) -> Outcome {
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

fn any_source_posted(p: &Peer) -> Outcome {
    let count = p.size * 5;
    let posted: Vec<Flight> =
        (0..count).map(|_| p.irecv(500, DTL_ANY_SOURCE, 1)).collect::<Result<_, _>>()?;
    p.meet(2)?;
    let sends = all_to_all(p, 5, 500, 1)?;
    let mut seen = vec![0; p.size as usize];
    for flight in posted {
        let got = p.wait(flight)?;
        let number = &mut seen[got.info.source as usize];
        got.is(&message(got.info.source, p.rank, *number, 500), got.info.source, 1)?;
        *number += 1;
    }
    done(p, sends)
}

fn any_any(p: &Peer) -> Outcome {
    let dup = p.dup()?;
    let mut sends = Vec::new();
    for other in 0..p.size {
        for tag in 0..10 {
            sends.push(dup.isend(message(p.rank, other, tag, 70), other, tag as i32)?);
        }
    }
    let mut seen = HashSet::new();
    for _ in 0..p.size * 10 {
        let got = dup.recv(70, DTL_ANY_SOURCE, DTL_ANY_TAG)?;
        let (from, tag) = (got.info.source, got.info.tag);
        got.is(&message(from, p.rank, tag as u64, 70), from, tag)?;
        ensure!(seen.insert((from, tag)), "tag {tag} of rank {from} came twice");
    }
    done(&dup, sends)
}

fn wildcard_context(p: &Peer) -> Outcome {
    let dup = p.dup()?;
    let mut waiting = dup.irecv(100_000, DTL_ANY_SOURCE, DTL_ANY_TAG)?;
    for size in [0, 50, 50_000] {
        ring(p, size, 3)?;
        ensure!(
            !dup.is_done(&mut waiting)?,
            "a wildcard on a duplicate took a message of the original"
        );
    }
    p.meet(5)?;
    let send = dup.isend(message(p.rank, p.next(), 1, 10), p.next(), 4)?;
    dup.wait(waiting)?.is(&message(p.previous(), p.rank, 1, 10), p.previous(), 4)?;
    dup.wait(send)?;
    Ok(())
}

fn contexts(p: &Peer) -> Outcome {
    let dups: Vec<Peer> = (0..50).map(|_| p.dup()).collect::<Result<_, _>>()?;
    let receives: Vec<Flight> = dups
        .iter()
        .map(|dup| dup.irecv(64, DTL_ANY_SOURCE, DTL_ANY_TAG))
        .collect::<Result<_, _>>()?;
    let mut sends = Vec::new();
    for (number, dup) in dups.iter().enumerate().rev() {
        sends.push((dup, dup.isend(message(p.rank, p.next(), number as u64, 64), p.next(), 1)?));
    }
    for ((dup, flight), number) in dups.iter().zip(receives).zip(0..) {
        dup.wait(flight)?.is(&message(p.previous(), p.rank, number, 64), p.previous(), 1)?;
    }
    for (dup, flight) in sends {
        dup.wait(flight)?;
    }
    Ok(())
}

fn split_sources(p: &Peer) -> Outcome {
    let Some(turned) = p.split(0, -p.rank)? else { return Ok(()) };
    let send = turned.isend(message(turned.rank, turned.next(), 1, 40), turned.next(), 1)?;
    let got = turned.recv(40, DTL_ANY_SOURCE, 1)?;
    got.is(&message(turned.previous(), turned.rank, 1, 40), turned.previous(), 1)?;
    ensure!(
        got.info.source == turned.previous(),
        "the source is {}, in the part it is {}",
        got.info.source,
        turned.previous()
    );
    turned.wait(send)?;
    Ok(())
}

fn collectives_between(p: &Peer) -> Outcome {
    let mut sends = Vec::new();
    for number in 0..20 {
        sends.push(start(p, number, 700, 1)?);
        p.barrier()?;
    }
    for number in 0..20 {
        crate::tests::collective::sum_all(p, 10)?;
        take(p, number, 700, 1)?;
    }
    done(p, sends)
}
