//! Tests of synchronous sends, probes, time limits, cancellation, and late peers.

use crate::kit::prelude::*;
use crate::tests::p2p::{exchange, ring};

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Ranks "comm.p2p.":
        synchronous_send_waits, synchronous_request_is_pending, synchronous_sizes,
        probe_tells_the_message, probe_leaves_the_message, iprobe_finds_nothing,
        iprobe_finds_in_the_end, mprobe_takes_the_message, wait_times_out,
        request_lives_after_timeout, test_does_not_wait, not_done_without_a_message,
        canceled_receive_ends, cancel_loses_no_message = |p| canceled_then(p, 100),
        cancel_of_large_receive = |p| canceled_then(p, 1 << 20), cancel_race_loses_nothing,
        canceled_buffer_stays, late_receiver_small = |p| late_receiver(p, 100),
        late_receiver_large = |p| late_receiver(p, 2 << 20), late_sender, early_messages_are_kept,
        idle_ranks_do_not_matter, exchange_after_a_pause, small_ones_pass_a_large_one,
        failed_call_changes_nothing;
];

fn synchronous_send_waits(p: &Rank) -> Outcome {
    for size in [10, 100_000] {
        // Before the ranks meet: so before the receiver goes to sleep, however long this rank is
        // kept from running.
        let begin = Instant::now();
        p.meet(1)?;
        if p.rank == 0 {
            p.ssend(&message(0, 1, 1, size), 1, 2)?;
            let took = begin.elapsed();
            ensure!(
                took >= Duration::from_millis(40),
                "ssend returned after {took:?}, the receive began after 40 ms"
            );
        } else if p.rank == 1 {
            thread::sleep(Duration::from_millis(40));
            p.expect(&message(0, 1, 1, size), 0, 2)?;
        }
    }
    Ok(())
}

fn synchronous_request_is_pending(p: &Rank) -> Outcome {
    let mut send = p.issend(message(p.rank, p.next(), 1, 100), p.next(), 2)?;
    let begin = Instant::now();
    let mut early = false;
    while begin.elapsed() < Duration::from_millis(20) && !early {
        early = p.is_done(&mut send)?;
    }
    p.meet(3)?;
    p.take(1, 100, 2)?;
    ensure!(!early, "the synchronous send was done before any receive was posted");
    p.done([send])
}

fn synchronous_sizes(p: &Rank) -> Outcome {
    for size in [0, 1, 8000, 9000, 1 << 20] {
        let send = p.issend(message(p.rank, p.next(), 1, size), p.next(), 2)?;
        p.take(1, size, 2)?;
        p.wait(send)?;
    }
    Ok(())
}

fn probe_tells_the_message(p: &Rank) -> Outcome {
    for size in [0, 1, 777, 8192, 123_456] {
        let send = p.start(1, size, 11)?;
        let info = p.probe(p.previous(), 11)?;
        let told = (info.source, info.tag, info.size_bytes);
        let should = (p.previous(), 11, size);
        ensure!(told == should, "source, tag and size are {told:?}, expected {should:?}");
        p.take(1, size, 11)?;
        p.wait(send)?;
    }
    Ok(())
}

fn probe_leaves_the_message(p: &Rank) -> Outcome {
    for size in [100, 100_000] {
        let send = p.start(1, size, 11)?;
        (0..10).try_for_each(|_| p.probe(p.previous(), DTL_ANY_TAG).map(|_| ()))?;
        p.take(1, size, 11)?;
        p.wait(send)?;
        p.meet(3)?;
        let more = p.iprobe(p.previous(), 11)?;
        ensure!(more.is_none(), "the message is there a second time");
        p.meet(3)?;
    }
    Ok(())
}

fn iprobe_finds_nothing(p: &Rank) -> Outcome {
    for _ in 0..200 {
        let found = p.iprobe(DTL_ANY_SOURCE, 12)?;
        ensure!(found.is_none(), "nobody sent anything, and found is {found:?}");
    }
    p.meet(1)
}

fn iprobe_finds_in_the_end(p: &Rank) -> Outcome {
    thread::sleep(Duration::from_millis(5));
    let send = p.start(1, 50, 12)?;
    let found = becomes(LONG, || p.iprobe(p.previous(), 12).is_ok_and(|found| found.is_some()));
    ensure!(found, "the message is never found");
    p.take(1, 50, 12)?;
    p.done([send])
}

fn mprobe_takes_the_message(p: &Rank) -> Outcome {
    for size in [60, 60_000] {
        let sends = vec![p.start(1, size, 12)?, p.start(2, size, 12)?];
        let (taken, info) = p.mprobe(p.previous(), 12)?;
        ensure!(info.size_bytes == size, "{} bytes, expected {size}", info.size_bytes);
        p.take(2, size, 12)?;
        p.mrecv(taken, size)?.is(&p.due(1, size), p.previous(), 12)?;
        p.done(sends)?;
    }
    Ok(())
}

fn wait_times_out(p: &Rank) -> Outcome {
    let dup = p.dup()?;
    let flight = dup.irecv(10, p.previous(), 1)?;
    let handle = flight.handle;
    let begin = Instant::now();
    let (_, ended) = dup.end(flight, 50_000_000);
    let took = begin.elapsed();
    refused(ended, DTL_ERROR_TIMEOUT, "wait(50 ms) without a message")?;
    ensure!(took >= Duration::from_millis(50), "it gave up after {took:?}");
    ensure!(handle.id != 0, "no request");
    // The others may still wait on the copy, which ends for them when this rank destroys it.
    p.meet(2)
}

fn request_lives_after_timeout(p: &Rank) -> Outcome {
    let mut receive = p.irecv(100, p.previous(), 1)?;
    let handle = receive.handle;
    let mut info = crate::api::no_info();
    let ended = call!(dtl_request_wait(handle, 10_000_000, &raw mut info));
    refused(ended, DTL_ERROR_TIMEOUT, "wait(10 ms) without a message")?;
    ensure!(!p.is_done(&mut receive)?, "the receive is done, nothing was sent");
    p.meet(2)?;
    let send = p.start(1, 100, 1)?;
    p.taken(receive, 1, 100, 1)?;
    p.done([send])
}

fn test_does_not_wait(p: &Rank) -> Outcome {
    let mut receive = p.irecv(100, p.previous(), 1)?;
    let ended = quick("a test of a pending receive", Duration::from_millis(2), || {
        let begin = Instant::now();
        ensure!(!p.is_done(&mut receive)?, "the receive is done, nothing was sent");
        Ok(begin.elapsed())
    });
    p.meet(2)?;
    let send = p.isend(vec![1; 100], p.next(), 1)?;
    p.wait(receive)?;
    p.wait(send)?;
    ended
}

fn not_done_without_a_message(p: &Rank) -> Outcome {
    for size in [0, 100, 100_000] {
        let mut receive = p.irecv(size, p.previous(), 1)?;
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(5) {
            let done = p.is_done(&mut receive)?;
            ensure!(!done, "a receive of {size} bytes is done, nothing was sent");
        }
        p.meet(2)?;
        let send = p.start(1, size, 1)?;
        p.taken(receive, 1, size, 1)?;
        p.wait(send)?;
    }
    Ok(())
}

fn canceled_receive_ends(p: &Rank) -> Outcome {
    withdrawn(p, 100, p.previous())?;
    withdrawn(p, 100, DTL_ANY_SOURCE)?;
    p.meet(1)
}

fn canceled_then(p: &Rank, size: u64) -> Outcome {
    for _ in 0..10 {
        withdrawn(p, size, p.previous())?;
        p.meet(1)?;
        ring(p, size, 77)?;
    }
    Ok(())
}

fn cancel_race_loses_nothing(p: &Rank) -> Outcome {
    for number in 0..200u64 {
        let size = if number % 4 == 0 { 20_000 } else { 64 };
        let receive = p.irecv(size, p.previous(), 5)?;
        let send = p.start(number, size, 5)?;
        if number % 3 == 0 {
            thread::yield_now();
        }
        p.cancel(&receive)?;
        let should = p.due(number, size);
        let (got, ended) = p.end(receive, p.timeout_ns);
        match ended {
            Ok(()) => got.is(&should, p.previous(), 5)?,
            Err(refused) if refused.status == DTL_ERROR_CANCELED => {
                p.expect(&should, p.previous(), 5)?
            }
            Err(refused) => return Err(refused.into()),
        }
        p.wait(send)?;
    }
    let more = p.iprobe(p.previous(), 5)?;
    check!(more.is_none(), "a message is there a second time")
}

fn canceled_buffer_stays(p: &Rank) -> Outcome {
    let bytes = withdrawn(p, 5000, p.previous())?;
    p.meet(1)?;
    ring(p, 5000, 77)?;
    let stays = bytes.iter().all(|byte| *byte == 0xA5);
    check!(stays, "the buffer of the withdrawn receive was written")
}

fn late_receiver(p: &Rank, size: u64) -> Outcome {
    late(p, 1, size)?;
    p.meet(2)
}

fn late_sender(p: &Rank) -> Outcome {
    [0, 100, 1 << 20].iter().try_for_each(|size| late(p, 0, *size))?;
    p.meet(2)
}

fn early_messages_are_kept(p: &Rank) -> Outcome {
    let messages = || (0..300).map(|tag| (tag, 5000, tag as i32));
    let sends = p.starts(messages())?;
    p.takes(messages().rev())?;
    p.done(sends)
}

fn idle_ranks_do_not_matter(p: &Rank) -> Outcome {
    // The last rank does nothing for a while; the others exchange (with fewer than three, nobody is
    // left).
    let last = p.size - 1;
    if p.rank == last {
        thread::sleep(Duration::from_millis(150));
    } else if last >= 2 {
        let mut least = Duration::MAX;
        for number in 0..20 {
            let begin = Instant::now();
            let (to, from) = ((p.rank + 1) % last, (p.rank + last - 1) % last);
            let got = p.sendrecv(&message(p.rank, to, number, 300), to, 300, from, 1)?;
            got.is(&message(from, p.rank, number, 300), from, 1)?;
            least = least.min(begin.elapsed());
        }
        let quick = least < Duration::from_millis(250);
        ensure!(quick, "a round took {least:?} while one rank was idle");
    }
    p.meet(2)
}

fn exchange_after_a_pause(p: &Rank) -> Outcome {
    ring(p, 100, 1)?;
    thread::sleep(Duration::from_millis(100));
    ring(p, 100, 1)?;
    ring(p, 100_000, 1)
}

fn small_ones_pass_a_large_one(p: &Rank) -> Outcome {
    let large = p.start(0, 4 << 20, 1)?;
    for number in 1..20 {
        exchange(p, 7, number * 10, 2)?;
    }
    p.take(0, 4 << 20, 1)?;
    p.done([large])
}

fn failed_call_changes_nothing(p: &Rank) -> Outcome {
    for _ in 0..100 {
        if p.send(&[1], p.size + 1, 1).is_ok() || p.recv(1, p.rank, -9).is_ok() {
            wrong!("a wrong call succeeded");
        }
    }
    ring(p, 100, 1)?;
    ring(p, 100_000, 1)
}

/// Posts and cancels a receive; returns its buffer.
fn withdrawn(p: &Rank, room: u64, source: i32) -> Outcome<Vec<u8>> {
    let receive = p.irecv(room, source, 77)?;
    p.cancel(&receive)?;
    let (got, ended) = p.end(receive, p.timeout_ns);
    refused(ended, DTL_ERROR_CANCELED, "a receive that was withdrawn")?;
    Ok(got.bytes)
}

/// Sends a message from rank 0 to rank 1 and checks it. Rank `sleeper` starts 30 ms late.
fn late(p: &Rank, sleeper: i32, size: u64) -> Outcome {
    if p.rank == sleeper {
        thread::sleep(Duration::from_millis(30));
    }
    match p.rank {
        0 => p.send(&message(0, 1, 1, size), 1, 1)?,
        1 => p.expect(&message(0, 1, 1, size), 0, 1)?,
        _ => {}
    }
    Ok(())
}
