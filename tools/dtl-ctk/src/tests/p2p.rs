//! Tests of messages: what arrives, where, in which order, and what does not.

use crate::kit::catalog::{Group, tests_of_ranks};
use crate::kit::outcome::{Outcome, call, ensure, refused};
use crate::kit::peer::{Flight, Peer, message};
use dtl_sys::*;
use std::thread;
use std::time::Duration;

pub(crate) const GROUPS: &[Group] = &[
    Group {
        slot: "comm.isend, irecv, test (sizes)",
        needs: &[],
        rule: "isend and irecv move bytes from and to the caller's buffers. Messages of up to 8 \
            KiB travel in \
               frames, larger ones alone under a match word of their own.",
        usually: "A size is cut to 16 or 32 bits, a partial write or read is not continued, or the \
            last bytes are \
                  taken from another message.",
        tests: tests_of_ranks![
            1 "comm.p2p.empty_message_arrives": "0 bytes, round the ring, 50 times" => size_0;
            1 "comm.p2p.one_byte_arrives": "1 byte" => size_1;
            1 "comm.p2p.small_sizes_arrive": "2 to 300 bytes" => sizes_small;
            1 "comm.p2p.sizes_around_4_kib": "4095, 4096, 4097 bytes" => sizes_4k;
            1 "comm.p2p.sizes_around_a_frame": "8 100 to 8 200 bytes" => sizes_frame;
            1 "comm.p2p.sizes_around_16_kib": "16 383, 16 384, 16 385 bytes" => sizes_16k;
            1 "comm.p2p.sizes_around_64_kib": "65 535, 65 536, 65 537 bytes" => sizes_64k;
            1 "comm.p2p.one_mib_arrives": "1 MiB and 1 byte" => size_1m;
            1 "comm.p2p.nine_mib_arrive": "9 MiB and 3 bytes" => size_9m;
            1 "comm.p2p.random_sizes_arrive": "200 sizes from 0 to 100 000" => sizes_random;
            1 "comm.p2p.unaligned_buffers": "buffers at odd addresses" => unaligned;
        ],
    },
    Group {
        slot: "comm.isend, irecv, test (routes)",
        needs: &[],
        rule: "A message goes to the rank that is named, once.",
        usually: "Ranks of the communicator and of the transport are mixed up, or messages to \
            oneself are sent away.",
        tests: tests_of_ranks![
            2 "comm.p2p.every_pair_exchanges": "each rank to each rank, contents tell who \
                sent" => every_pair;
            1 "comm.p2p.message_to_itself": "small and large" => to_itself;
            2 "comm.p2p.nobody_else_gets_it": "a message for one rank is seen by no \
                other" => nobody_else;
            2 "comm.p2p.all_to_one": "500 messages of each rank to rank 0: none lost, none \
                twice" => all_to_one;
            2 "comm.p2p.one_to_all": "rank 0 to all others, 300 each" => one_to_all;
            1 "comm.p2p.nobody_is_a_partner": "DTL_PROC_NULL sends and receives \
                nothing" => proc_null;
            1 "comm.p2p.rank_beyond_size_refused": "a rank that is none is \
                DTL_ERROR_INVALID_RANK" => bad_rank;
            1 "comm.p2p.tag_out_of_range_refused": "tag -5 and DTL_TAG_MAX + 1 are \
                DTL_ERROR_INVALID_ARGUMENT" => bad_tag;
        ],
    },
    Group {
        slot: "comm.isend, irecv (order)",
        needs: &[],
        rule: "Two messages of one rank under one word are received in the order sent, by receives \
            in the order \
               posted.",
        usually: "Two channels for small and large messages race, or a retry after DTL_ERROR_BUSY \
            overtakes.",
        tests: tests_of_ranks![
            1 "comm.p2p.small_messages_in_order": "1000 of 20 bytes" => order_small;
            1 "comm.p2p.large_messages_in_order": "20 of 200 000 bytes" => order_large;
            1 "comm.p2p.mixed_sizes_in_order": "300 alternately small and large" => order_mixed;
            1 "comm.p2p.posted_receives_in_order": "200 receives posted before the messages \
                come" => order_posted;
            1 "comm.p2p.empty_messages_in_order": "empty ones between full ones" => order_empty;
            2 "comm.p2p.order_from_each_sender": "all send to all, each pair in \
                order" => order_pairs;
        ],
    },
    Group {
        slot: "comm.isend, irecv, test (many at once)",
        needs: &[],
        rule: "Any number of operations may be in flight; DTL_ERROR_BUSY means no room now.",
        usually: "A queue of fixed length overflows, an operation's number is used again too \
            early, or test makes \
                  progress on one operation only.",
        tests: tests_of_ranks![
            1 "comm.p2p.thousand_sends_in_flight": "1000 sends are started before the first \
                receive" => flight_sends;
            1 "comm.p2p.thousand_receives_in_flight": "1000 receives are posted before the first \
                send" => flight_receives;
            1 "comm.p2p.large_ones_in_flight": "16 of 1 MiB each way at once" => flight_large;
            2 "comm.p2p.flood_both_ways": "both sides send 200 of 64 KiB before they \
                receive" => flood;
            1 "comm.p2p.waited_for_in_reverse": "requests are waited for last to \
                first" => wait_reverse;
            1 "comm.p2p.several_threads_at_once": "four threads of each rank with their own \
                tags" => threads;
            2 "comm.p2p.ten_thousand_messages": "one after another, none lost" => ten_thousand;
        ],
    },
    Group {
        slot: "comm.irecv (buffers)",
        needs: &[],
        rule: "A receive writes its message and nothing else; a longer message is \
            DTL_ERROR_TRUNCATED with its true \
               size. A send's buffer is read before the operation is done.",
        usually: "A whole packet is copied into a shorter buffer, or the buffer is read when the \
            receiver asks, \
                  after the send was reported done.",
        tests: tests_of_ranks![
            1 "comm.p2p.nothing_behind_a_short_message": "a larger buffer keeps its \
                tail" => short_message;
            1 "comm.p2p.small_message_truncated": "status, true size, full \
                buffer" => truncate_small, if Cut;
            1 "comm.p2p.large_message_truncated": "the same with 1 MiB into 1000 \
                bytes" => truncate_large, if Cut;
            1 "comm.p2p.truncated_to_nothing": "a receive of 0 bytes of a message of \
                10" => truncate_all, if Cut;
            1 "comm.p2p.truncation_is_told": "10 to 100 bytes into less: DTL_ERROR_TRUNCATED, \
                nothing behind the end, later messages arrive" => truncate_told;
            1 "comm.p2p.truncation_to_nothing_is_told": "the same with a receive of 0 \
                bytes" => truncate_all_told;
            1 "comm.p2p.works_after_truncation": "messages behind a truncated one arrive \
                whole" => truncate_after, if Cut;
            1 "comm.p2p.sent_buffer_may_change": "changing a buffer after its send is done does \
                not change the message" => reuse_small;
            1 "comm.p2p.large_sent_buffer_may_change": "the same with 1 MiB" => reuse_large;
            1 "comm.p2p.huge_sent_buffer_may_change": "the same with 24 MiB, more than a system \
                keeps" => reuse_huge;
            1 "comm.p2p.receive_of_zeros_is_written": "a message of zeros overwrites what was in \
                the buffer" => zeros;
        ],
    },
];

/// Round the ring: everybody sends to the next and receives from the one before.
pub(crate) fn ring(p: &Peer, size: u64, tag: i32) -> Outcome {
    let got =
        p.sendrecv(&message(p.rank, p.next(), size, size), p.next(), size, p.previous(), tag)?;
    got.is(&message(p.previous(), p.rank, size, size), p.previous(), tag)
}

/// The same with requests.
pub(crate) fn exchange(p: &Peer, size: u64, tag: i32) -> Outcome {
    let send = p.isend(message(p.rank, p.next(), 7, size), p.next(), tag)?;
    p.expect(&message(p.previous(), p.rank, 7, size), p.previous(), tag)?;
    p.wait(send)?;
    Ok(())
}

fn size_0(p: &Peer) -> Outcome {
    (0..50).try_for_each(|_| ring(p, 0, 1))
}

fn size_1(p: &Peer) -> Outcome {
    (0..50).try_for_each(|_| ring(p, 1, 1))
}

fn sizes_small(p: &Peer) -> Outcome {
    (2..300).try_for_each(|size| ring(p, size, 1))
}

fn sizes_4k(p: &Peer) -> Outcome {
    (4095..=4097).try_for_each(|size| ring(p, size, 1))
}

fn sizes_frame(p: &Peer) -> Outcome {
    (8100..8200).try_for_each(|size| ring(p, size, 1))
}

fn sizes_16k(p: &Peer) -> Outcome {
    (16_383..=16_385).try_for_each(|size| ring(p, size, 1))
}

fn sizes_64k(p: &Peer) -> Outcome {
    (65_535..=65_537).try_for_each(|size| ring(p, size, 1))
}

fn size_1m(p: &Peer) -> Outcome {
    ring(p, (1 << 20) + 1, 1)
}

fn size_9m(p: &Peer) -> Outcome {
    ring(p, (9 << 20) + 3, 1)
}

fn sizes_random(p: &Peer) -> Outcome {
    let mut state = 12_345u64;
    (0..200).try_for_each(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let bits = state >> 33;
        ring(p, (bits % 100_000) >> (bits % 17), 1)
    })
}

fn unaligned(p: &Peer) -> Outcome {
    for offset in 1..8usize {
        for size in [1usize, 9, 1000, 50_000] {
            let whole = message(p.rank, p.next(), size as u64, (size + offset) as u64);
            let got = p.sendrecv(&whole[offset..], p.next(), size as u64, p.previous(), 2)?;
            let theirs = message(p.previous(), p.rank, size as u64, (size + offset) as u64);
            got.is(&theirs[offset..], p.previous(), 2)?;
        }
    }
    Ok(())
}

fn every_pair(p: &Peer) -> Outcome {
    for size in [10, 20_000] {
        let mut sends = Vec::new();
        for other in 0..p.size {
            sends.push(p.isend(message(p.rank, other, size, size), other, 4)?);
        }
        for other in (0..p.size).rev() {
            p.expect(&message(other, p.rank, size, size), other, 4)?;
        }
        done(p, sends)?;
    }
    Ok(())
}

/// Waits for all.
pub(crate) fn done(p: &Peer, flights: Vec<Flight>) -> Outcome {
    flights.into_iter().try_for_each(|flight| p.wait(flight).map(|_| ())).map_err(Into::into)
}

fn to_itself(p: &Peer) -> Outcome {
    for size in [0, 1, 100, 10_000, 300_000] {
        let send = p.isend(message(p.rank, p.rank, size, size), p.rank, 6)?;
        p.expect(&message(p.rank, p.rank, size, size), p.rank, 6)?;
        p.wait(send)?;
    }
    Ok(())
}

fn nobody_else(p: &Peer) -> Outcome {
    if p.rank == 0 {
        p.send(&message(0, 1, 3, 64), 1, 8)?;
    }
    if p.rank == 1 {
        p.expect(&message(0, 1, 3, 64), 0, 8)?;
    }
    p.meet(9)?;
    let stray = p.iprobe(dtl_sys::DTL_ANY_SOURCE, 8)?;
    ensure!(
        stray.is_none(),
        "rank {} sees a message that was sent once, to rank 1: {stray:?}",
        p.rank
    );
    Ok(())
}

fn all_to_one(p: &Peer) -> Outcome {
    const EACH: u64 = 500;
    if p.rank > 0 {
        (0..EACH).try_for_each(|number| p.send(&message(p.rank, 0, number, 40), 0, 2))?;
    } else {
        for number in 0..EACH {
            for other in 1..p.size {
                p.expect(&message(other, 0, number, 40), other, 2)?;
            }
        }
        let more = p.iprobe(dtl_sys::DTL_ANY_SOURCE, 2)?;
        ensure!(more.is_none(), "there is one message more than were sent");
    }
    p.meet(3)
}

fn one_to_all(p: &Peer) -> Outcome {
    for number in 0..300 {
        if p.rank == 0 {
            (1..p.size).try_for_each(|other| p.send(&message(0, other, number, 100), other, 2))?;
        } else {
            p.expect(&message(0, p.rank, number, 100), 0, 2)?;
        }
    }
    p.meet(3)
}

fn proc_null(p: &Peer) -> Outcome {
    p.send(&[1, 2, 3], DTL_PROC_NULL, 1)?;
    let got = p.recv(10, DTL_PROC_NULL, 1)?;
    ensure!(
        got.info.size_bytes == 0 && got.bytes == [0xA5; 10],
        "nobody sent {} bytes",
        got.info.size_bytes
    );
    ring(p, 10, 1)
}

fn bad_rank(p: &Peer) -> Outcome {
    refused(p.send(&[1], p.size, 1), DTL_ERROR_INVALID_RANK, "a send to rank size")?;
    refused(
        p.recv(1, p.size + 5, 1).map(|_| ()),
        DTL_ERROR_INVALID_RANK,
        "a receive from rank size + 5",
    )?;
    refused(p.send(&[1], -1, 1), DTL_ERROR_INVALID_RANK, "a send to rank -1")
}

fn bad_tag(p: &Peer) -> Outcome {
    refused(p.send(&[1], p.rank, -5), DTL_ERROR_INVALID_ARGUMENT, "a send with tag -5")?;
    refused(
        p.send(&[1], p.rank, DTL_TAG_MAX + 1),
        DTL_ERROR_INVALID_ARGUMENT,
        "a send with a tag above the largest",
    )
}

/// Messages of these sizes to the next rank, received in order.
fn in_order(p: &Peer, sizes: &[u64], tag: i32) -> Outcome {
    let numbered = |from, to| {
        sizes.iter().zip(0..).map(move |(size, number)| message(from, to, number, *size))
    };
    let sends: Vec<Flight> = numbered(p.rank, p.next())
        .map(|bytes| p.isend(bytes, p.next(), tag))
        .collect::<Result<_, _>>()?;
    for bytes in numbered(p.previous(), p.rank) {
        p.expect(&bytes, p.previous(), tag)?;
    }
    done(p, sends)
}

fn order_small(p: &Peer) -> Outcome {
    in_order(p, &[20; 1000], 1)
}

fn order_large(p: &Peer) -> Outcome {
    in_order(p, &[200_000; 20], 1)
}

fn order_mixed(p: &Peer) -> Outcome {
    let sizes: Vec<u64> = (0..300).map(|index| [8, 30_000, 100, 9000, 1][index % 5]).collect();
    in_order(p, &sizes, 1)
}

fn order_posted(p: &Peer) -> Outcome {
    let sizes: Vec<u64> = (0..200).map(|index| [16, 12_000][index % 2]).collect();
    let posted: Vec<Flight> =
        sizes.iter().map(|_| p.irecv(12_000, p.previous(), 1)).collect::<Result<_, _>>()?;
    let mut sends = Vec::new();
    for (size, number) in sizes.iter().zip(0..) {
        sends.push(p.isend(message(p.rank, p.next(), number, *size), p.next(), 1)?);
    }
    for ((flight, size), number) in posted.into_iter().zip(&sizes).zip(0..) {
        p.wait(flight)?.is(&message(p.previous(), p.rank, number, *size), p.previous(), 1)?;
    }
    done(p, sends)
}

fn order_empty(p: &Peer) -> Outcome {
    let sizes: Vec<u64> = (0..200).map(|index| [0, 50, 0, 0, 10_000][index % 5]).collect();
    in_order(p, &sizes, 1)
}

fn order_pairs(p: &Peer) -> Outcome {
    let mut sends = Vec::new();
    for number in 0..100 {
        for other in 0..p.size {
            sends.push(p.isend(message(p.rank, other, number, 64), other, 1)?);
        }
    }
    for other in 0..p.size {
        (0..100).try_for_each(|number| p.expect(&message(other, p.rank, number, 64), other, 1))?;
    }
    done(p, sends)
}

fn flight_sends(p: &Peer) -> Outcome {
    in_order(p, &[100; 1000], 3)
}

fn flight_receives(p: &Peer) -> Outcome {
    let posted: Vec<Flight> =
        (0..1000).map(|tag| p.irecv(100, p.previous(), tag)).collect::<Result<_, _>>()?;
    p.meet(2000)?;
    for tag in (0..1000).rev() {
        p.send(&message(p.rank, p.next(), tag as u64, 100), p.next(), tag)?;
    }
    for (flight, tag) in posted.into_iter().zip(0..) {
        p.wait(flight)?.is(&message(p.previous(), p.rank, tag as u64, 100), p.previous(), tag)?;
    }
    Ok(())
}

fn flight_large(p: &Peer) -> Outcome {
    in_order(p, &[1 << 20; 16], 3)
}

fn flood(p: &Peer) -> Outcome {
    in_order(p, &[65_536; 200], 3)
}

fn wait_reverse(p: &Peer) -> Outcome {
    let mut sends = Vec::new();
    let mut receives = Vec::new();
    for number in 0..100 {
        let size = 10 + number * 301;
        receives.push((number, size, p.irecv(size, p.previous(), number as i32)?));
        sends.push(p.isend(message(p.rank, p.next(), number, size), p.next(), number as i32)?);
    }
    for (number, size, flight) in receives.into_iter().rev() {
        p.wait(flight)?.is(
            &message(p.previous(), p.rank, number, size),
            p.previous(),
            number as i32,
        )?;
    }
    sends.reverse();
    done(p, sends)
}

fn threads(p: &Peer) -> Outcome {
    crate::tests::device::in_threads(4, |thread| {
        for number in 0..50 {
            let size = 50 + number * 397;
            let send = p.isend(
                message(p.rank, p.next(), (thread as u64) << 10 | number, size),
                p.next(),
                thread,
            )?;
            let should = message(p.previous(), p.rank, (thread as u64) << 10 | number, size);
            p.expect(&should, p.previous(), thread)?;
            p.wait(send)?;
        }
        Ok(())
    })
}

fn ten_thousand(p: &Peer) -> Outcome {
    let blocks = 100;
    for block in 0..blocks {
        in_order(p, &[12; 100], block % 7)?;
    }
    Ok(())
}

fn short_message(p: &Peer) -> Outcome {
    for (size, room) in [(0u64, 100u64), (1, 8), (10, 5000), (9000, 20_000), (100_000, 300_000)] {
        let bytes = message(p.rank, p.next(), size, size);
        let got = p.sendrecv(&bytes, p.next(), room, p.previous(), 1)?;
        got.is(&message(p.previous(), p.rank, size, size), p.previous(), 1)?;
    }
    Ok(())
}

/// A message of `size` bytes into `room`.
fn truncated(p: &Peer, size: u64, room: u64) -> Outcome {
    let send = p.isend(message(p.rank, p.next(), size, size), p.next(), 1)?;
    let (got, status) = p.recv_any(room, p.previous(), 1);
    let should = message(p.previous(), p.rank, size, size);
    let (_, sent) = p.end(send, p.timeout_ns);
    refused(status, DTL_ERROR_TRUNCATED, &format!("{size} bytes into {room}"))?;
    ensure!(
        got.info.size_bytes == size,
        "a message of {size} bytes is said to have {}",
        got.info.size_bytes
    );
    ensure!(
        got.info.source == p.previous() && got.info.tag == 1,
        "it is said to be from {}, tag {}",
        got.info.source,
        got.info.tag
    );
    ensure!(
        got.bytes == should[..room as usize],
        "the buffer does not hold the message's first {room} bytes"
    );
    Ok(sent?)
}

fn truncate_small(p: &Peer) -> Outcome {
    [(100, 60), (101, 100)].iter().try_for_each(|&(size, room)| truncated(p, size, room))
}

fn truncate_large(p: &Peer) -> Outcome {
    [(1 << 20, 1000), (100_000, 99_999)]
        .iter()
        .try_for_each(|&(size, room)| truncated(p, size, room))
}

fn truncate_all(p: &Peer) -> Outcome {
    truncated(p, 10, 0)
}

/// What holds of every kind: the status, the bytes behind the buffer, the messages that follow.
fn told(p: &Peer, sizes: &[(u64, u64)]) -> Outcome {
    for &(size, room) in sizes {
        let send = p.isend(message(p.rank, p.next(), size, size), p.next(), 1)?;
        let mut buffer = vec![0xA5u8; 200];
        let (into, mut info) = (buffer.as_mut_ptr().cast(), crate::api::no_info());
        let (source, out) = (p.previous(), &raw mut info);
        let status =
            call!(dtl_comm_recv(p.comm.handle, into, room, DTL_DTYPE_BYTE, source, 1, out));
        p.wait(send)?;
        refused(status, DTL_ERROR_TRUNCATED, &format!("{size} bytes into {room}"))?;
        let behind = buffer.iter().skip(room as usize).position(|byte| *byte != 0xA5);
        ensure!(
            behind.is_none(),
            "{size} bytes into {room}: byte {behind:?} behind the buffer was written"
        );
        ring(p, size, 1)?;
    }
    Ok(())
}

fn truncate_told(p: &Peer) -> Outcome {
    told(p, &[(10, 9), (100, 60), (100, 1)])
}

fn truncate_all_told(p: &Peer) -> Outcome {
    told(p, &[(16, 0), (1, 0)])
}

fn truncate_after(p: &Peer) -> Outcome {
    for size in [100, 50_000] {
        truncated(p, size, size / 2)?;
        (0..5).try_for_each(|_| ring(p, size, 1))?;
    }
    Ok(())
}

/// Sends, changes the buffer as soon as that is allowed, and only then lets the receiver begin.
fn reused(p: &Peer, size: u64, rounds: u64) -> Outcome {
    for number in 0..rounds {
        let receive = (number % 2 == 0).then(|| p.irecv(size, p.previous(), 1)).transpose()?;
        p.meet(2)?;
        let send = p.isend(message(p.rank, p.next(), number, size), p.next(), 1)?;
        // A large message need not leave before it is received.
        let (early, send) =
            if receive.is_some() { (Some(p.wait(send)?), None) } else { (None, Some(send)) };
        if let Some(mut sent) = early {
            sent.bytes.fill(0xEE);
            std::hint::black_box(&sent.bytes);
            thread::sleep(Duration::from_micros(100));
        }
        let got =
            receive.map_or_else(|| p.recv(size, p.previous(), 1), |receive| p.wait(receive))?;
        got.is(&message(p.previous(), p.rank, number, size), p.previous(), 1)?;
        done(p, send.into_iter().collect())?;
    }
    Ok(())
}

fn reuse_small(p: &Peer) -> Outcome {
    reused(p, 200, 20)
}

fn reuse_large(p: &Peer) -> Outcome {
    reused(p, 1 << 20, 20)
}

fn reuse_huge(p: &Peer) -> Outcome {
    reused(p, 24 << 20, 3)
}

fn zeros(p: &Peer) -> Outcome {
    for size in [1usize, 100, 9000, 100_000] {
        let got = p.sendrecv(&vec![0; size], p.next(), size as u64, p.previous(), 1)?;
        got.is(&vec![0; size], p.previous(), 1)?;
    }
    Ok(())
}
