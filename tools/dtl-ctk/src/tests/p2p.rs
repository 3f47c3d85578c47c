//! Tests of messages: contents, destination, order, and errors.

use crate::kit::prelude::*;

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Ranks "comm.p2p.":
        empty_message_arrives = |p| (0..50).try_for_each(|_| ring(p, 0, 1)),
        one_byte_arrives = |p| (0..50).try_for_each(|_| ring(p, 1, 1)),
        small_sizes_arrive = |p| (2..300).try_for_each(|size| ring(p, size, 1)),
        sizes_around_4_kib = |p| (4095..=4097).try_for_each(|size| ring(p, size, 1)),
        sizes_around_a_frame = |p| (8100..8200).try_for_each(|size| ring(p, size, 1)),
        sizes_around_16_kib = |p| (16_383..=16_385).try_for_each(|size| ring(p, size, 1)),
        sizes_around_64_kib = |p| (65_535..=65_537).try_for_each(|size| ring(p, size, 1)),
        one_mib_arrives = |p| ring(p, (1 << 20) + 1, 1),
        nine_mib_arrive = |p| ring(p, (9 << 20) + 3, 1), random_sizes_arrive, unaligned_buffers,
        every_pair_exchanges, message_to_itself, nobody_else_gets_it, all_to_one, one_to_all,
        nobody_is_a_partner, rank_beyond_size_refused, tag_out_of_range_refused,
        small_messages_in_order = |p| in_order(p, &[20; 1000], 1),
        large_messages_in_order = |p| in_order(p, &[200_000; 20], 1),
        mixed_sizes_in_order = |p| in_turn(p, 300, &[8, 30_000, 100, 9000, 1]),
        posted_receives_in_order,
        empty_messages_in_order = |p| in_turn(p, 200, &[0, 50, 0, 0, 10_000]),
        order_from_each_sender,
        thousand_sends_in_flight = |p| in_order(p, &[100; 1000], 3), thousand_receives_in_flight,
        large_ones_in_flight = |p| in_order(p, &[1 << 20; 16], 3),
        flood_both_ways = |p| in_order(p, &[65_536; 200], 3), waited_for_in_reverse,
        several_threads_at_once,
        ten_thousand_messages = |p| {
            (0..100).try_for_each(|block| in_order(p, &[12; 100], block % 7))
        }, nothing_behind_a_short_message,
        small_message_truncated = |p| truncated(p, &[(100, 60), (101, 100)]),
        large_message_truncated = |p| truncated(p, &[(1 << 20, 1000), (100_000, 99_999)]),
        truncated_to_nothing = |p| truncated(p, &[(10, 0)]),
        truncation_is_told = |p| truncation_reported(p, &[(10, 9), (100, 60), (100, 1)]),
        truncation_to_nothing_is_told = |p| truncation_reported(p, &[(16, 0), (1, 0)]),
        works_after_truncation,
        sent_buffer_may_change = |p| reused(p, 200, 20),
        large_sent_buffer_may_change = |p| reused(p, 1 << 20, 20),
        huge_sent_buffer_may_change = |p| reused(p, 24 << 20, 3), receive_of_zeros_is_written;
];

/// Sends to the next rank and receives from the previous one.
pub(crate) fn ring(p: &Rank, size: u64, tag: i32) -> Outcome {
    let got =
        p.sendrecv(&message(p.rank, p.next(), size, size), p.next(), size, p.previous(), tag)?;
    got.is(&p.due(size, size), p.previous(), tag)
}

/// Starts a nonblocking send to the next rank, receives from the previous rank, and completes the
/// send.
pub(crate) fn exchange(p: &Rank, number: u64, size: u64, tag: i32) -> Outcome {
    let send = p.start(number, size, tag)?;
    p.take(number, size, tag)?;
    p.done([send])
}

fn random_sizes_arrive(p: &Rank) -> Outcome {
    let mut state = 12_345u64;
    (0..200).try_for_each(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let bits = state >> 33;
        ring(p, (bits % 100_000) >> (bits % 17), 1)
    })
}

fn unaligned_buffers(p: &Rank) -> Outcome {
    for offset in 1..8usize {
        for size in [1usize, 9, 1000, 50_000] {
            let whole = message(p.rank, p.next(), size as u64, (size + offset) as u64);
            let got = p.sendrecv(&whole[offset..], p.next(), size as u64, p.previous(), 2)?;
            let theirs = p.due(size as u64, (size + offset) as u64);
            got.is(&theirs[offset..], p.previous(), 2)?;
        }
    }
    Ok(())
}

fn every_pair_exchanges(p: &Rank) -> Outcome {
    for size in [10, 20_000] {
        let sends = p.to_all([(size, size)], 4)?;
        (0..p.size).rev().try_for_each(|other| p.take_from(other, size, size, 4))?;
        p.done(sends)?;
    }
    Ok(())
}

fn message_to_itself(p: &Rank) -> Outcome {
    for size in [0, 1, 100, 10_000, 300_000] {
        let send = p.isend(message(p.rank, p.rank, size, size), p.rank, 6)?;
        p.take_from(p.rank, size, size, 6)?;
        p.done([send])?;
    }
    Ok(())
}

fn nobody_else_gets_it(p: &Rank) -> Outcome {
    match p.rank {
        0 => p.send(&message(0, 1, 3, 64), 1, 8)?,
        1 => p.take_from(0, 3, 64, 8)?,
        _ => {}
    }
    p.meet(9)?;
    let stray = p.iprobe(DTL_ANY_SOURCE, 8)?;
    check!(
        stray.is_none(),
        "rank {} sees a message that was sent once, to rank 1: {stray:?}",
        p.rank
    )
}

fn all_to_one(p: &Rank) -> Outcome {
    const EACH: u64 = 500;
    if p.rank > 0 {
        (0..EACH).try_for_each(|number| p.send(&message(p.rank, 0, number, 40), 0, 2))?;
    } else {
        for number in 0..EACH {
            (1..p.size).try_for_each(|other| p.take_from(other, number, 40, 2))?;
        }
        let more = p.iprobe(DTL_ANY_SOURCE, 2)?;
        ensure!(more.is_none(), "there is one message more than were sent");
    }
    p.meet(3)
}

fn one_to_all(p: &Rank) -> Outcome {
    for number in 0..300 {
        if p.rank == 0 {
            (1..p.size).try_for_each(|other| p.send(&message(0, other, number, 100), other, 2))?;
        } else {
            p.take_from(0, number, 100, 2)?;
        }
    }
    p.meet(3)
}

fn nobody_is_a_partner(p: &Rank) -> Outcome {
    p.send(&[1, 2, 3], DTL_PROC_NULL, 1)?;
    let got = p.recv(10, DTL_PROC_NULL, 1)?;
    let size = got.info.size_bytes;
    ensure!(size == 0 && got.bytes == [0xA5; 10], "nobody sent {size} bytes");
    ring(p, 10, 1)
}

fn rank_beyond_size_refused(p: &Rank) -> Outcome {
    let received = p.recv(1, p.size + 5, 1);
    refused(p.send(&[1], p.size, 1), DTL_ERROR_INVALID_RANK, "a send to rank size")?;
    refused(received, DTL_ERROR_INVALID_RANK, "a receive from rank size + 5")?;
    refused(p.send(&[1], -1, 1), DTL_ERROR_INVALID_RANK, "a send to rank -1")
}

fn tag_out_of_range_refused(p: &Rank) -> Outcome {
    for (tag, when) in
        [(-5, "a send with tag -5"), (DTL_TAG_MAX + 1, "a send with a tag above the largest")]
    {
        refused(p.send(&[1], p.rank, tag), DTL_ERROR_INVALID_ARGUMENT, when)?;
    }
    Ok(())
}

/// Sends messages of these sizes to the next rank and receives them in order.
fn in_order(p: &Rank, sizes: &[u64], tag: i32) -> Outcome {
    let messages = || (0..).zip(sizes).map(|(number, size)| (number, *size, tag));
    let sends = p.starts(messages())?;
    p.takes(messages())?;
    p.done(sends)
}

fn posted_receives_in_order(p: &Rank) -> Outcome {
    let sizes = || (0..200).map(|number| (number, [16, 12_000][number as usize % 2], 1));
    let posted = p.irecvs(12_000, p.previous(), sizes().map(|_| 1))?;
    let sends = p.starts(sizes())?;
    for (flight, (number, size, tag)) in posted.into_iter().zip(sizes()) {
        p.taken(flight, number, size, tag)?;
    }
    p.done(sends)
}

fn order_from_each_sender(p: &Rank) -> Outcome {
    let sends = p.to_all((0..100).map(|number| (number, 64)), 1)?;
    for other in 0..p.size {
        (0..100).try_for_each(|number| p.take_from(other, number, 64, 1))?;
    }
    p.done(sends)
}

fn thousand_receives_in_flight(p: &Rank) -> Outcome {
    let posted = p.irecvs(100, p.previous(), 0..1000)?;
    p.meet(2000)?;
    for tag in (0..1000).rev() {
        p.send(&message(p.rank, p.next(), tag as u64, 100), p.next(), tag)?;
    }
    let mut received = posted.into_iter().zip(0..);
    received.try_for_each(|(flight, tag)| p.taken(flight, tag as u64, 100, tag))
}

fn waited_for_in_reverse(p: &Rank) -> Outcome {
    let (mut sends, mut receives) = (Vec::new(), Vec::new());
    for number in 0..100 {
        let size = 10 + number * 301;
        receives.push((number, size, p.irecv(size, p.previous(), number as i32)?));
        sends.push(p.start(number, size, number as i32)?);
    }
    for (number, size, flight) in receives.into_iter().rev() {
        p.taken(flight, number, size, number as i32)?;
    }
    p.done(sends.into_iter().rev())
}

fn several_threads_at_once(p: &Rank) -> Outcome {
    in_threads(4, |thread| {
        (0..50).try_for_each(|number| {
            exchange(p, (thread as u64) << 10 | number, 50 + number * 397, thread)
        })
    })
}

fn nothing_behind_a_short_message(p: &Rank) -> Outcome {
    for (size, room) in [(0u64, 100u64), (1, 8), (10, 5000), (9000, 20_000), (100_000, 300_000)] {
        let bytes = message(p.rank, p.next(), size, size);
        let got = p.sendrecv(&bytes, p.next(), room, p.previous(), 1)?;
        got.is(&p.due(size, size), p.previous(), 1)?;
    }
    Ok(())
}

/// Receives messages into shorter buffers and checks the status, the message information and the
/// received bytes. `sizes` contains pairs of message size and buffer size in bytes.
fn truncated(p: &Rank, sizes: &[(u64, u64)]) -> Outcome {
    for &(size, room) in sizes {
        let send = p.start(size, size, 1)?;
        let (got, status) = p.recv_any(room, p.previous(), 1);
        let (_, sent) = p.end(send, p.timeout_ns);
        refused(status, DTL_ERROR_TRUNCATED, &format!("{size} bytes into {room}"))?;
        let dtl_recv_info_t { source, tag, size_bytes, .. } = got.info;
        ensure!(size_bytes == size, "a message of {size} bytes is said to have {size_bytes}");
        ensure!(source == p.previous() && tag == 1, "it is said to be from {source}, tag {tag}");
        ensure!(
            got.bytes == p.due(size, size)[..room as usize],
            "the buffer does not hold the message's first {room} bytes"
        );
        sent?;
    }
    Ok(())
}

/// Receives messages into shorter buffers and checks the rules that hold for every communicator
/// kind: the status is DTL_ERROR_TRUNCATED, the bytes after the buffer are unchanged, and the next
/// message is received correctly.
fn truncation_reported(p: &Rank, sizes: &[(u64, u64)]) -> Outcome {
    for &(size, room) in sizes {
        let send = p.start(size, size, 1)?;
        let (mut buffer, source) = (vec![0xA5u8; 200], p.previous());
        let (comm, into) = (p.comm.raw(), buffer.as_mut_ptr().cast());
        let status = output!(
            crate::api::no_info(),
            dtl_comm_recv(comm, into, room, DTL_DTYPE_BYTE, source, 1)
        );
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

fn works_after_truncation(p: &Rank) -> Outcome {
    for size in [100, 50_000] {
        truncated(p, &[(size, size / 2)])?;
        (0..5).try_for_each(|_| ring(p, size, 1))?;
    }
    Ok(())
}

/// Sends a message in each round and checks the received data. In rounds with an even number, the
/// receive is posted before the send, and the send buffer is overwritten as soon as the send is
/// complete.
fn reused(p: &Rank, size: u64, rounds: u64) -> Outcome {
    for number in 0..rounds {
        let receive = (number % 2 == 0).then(|| p.irecv(size, p.previous(), 1)).transpose()?;
        p.meet(2)?;
        let mut send = Some(p.start(number, size, 1)?);
        // A large message need not leave before it is received.
        if let Some(send) = send.take_if(|_| receive.is_some()) {
            let mut sent = p.wait(send)?;
            sent.bytes.fill(0xEE);
            std::hint::black_box(&sent.bytes);
            thread::sleep(Duration::from_micros(100));
        }
        match receive {
            Some(receive) => p.taken(receive, number, size, 1)?,
            None => p.take(number, size, 1)?,
        }
        p.done(send)?;
    }
    Ok(())
}

fn receive_of_zeros_is_written(p: &Rank) -> Outcome {
    for size in [1usize, 100, 9000, 100_000] {
        let got = p.sendrecv(&vec![0; size], p.next(), size as u64, p.previous(), 1)?;
        got.is(&vec![0; size], p.previous(), 1)?;
    }
    Ok(())
}

fn in_turn(p: &Rank, count: usize, sizes: &[u64]) -> Outcome {
    in_order(p, &sizes.iter().copied().cycle().take(count).collect::<Vec<_>>(), 1)
}
