//! Tests of the rest of point to point: synchronous sends, probes, time limits, withdrawal, late
//! partners.

use crate::kit::catalog::{Group, tests_of_ranks};
use crate::kit::outcome::{Outcome, ensure, refused, wrong};
use crate::kit::peer::{Peer, message};
use crate::kit::subject::{becomes, quick};
use crate::tests::p2p::{done, exchange, ring};
use dtl_sys::*;
use std::thread;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(10);

pub(crate) const GROUPS: &[Group] = &[
    Group {
        slot: "comm.isend, test (synchronous)",
        needs: &[],
        rule: "A synchronous send is done when a receive has begun to take it.",
        usually: "The acknowledgement is sent when the message arrives instead of when it is \
            matched.",
        tests: tests_of_ranks![
            2 "comm.p2p.synchronous_send_waits": "ssend returns only after the receive \
                began" => ssend_waits;
            1 "comm.p2p.synchronous_request_is_pending": "issend is not done before the receive is \
                posted" => issend_pending;
            1 "comm.p2p.synchronous_sizes": "issend of 0 bytes to 1 MiB" => issend_sizes;
        ],
    },
    Group {
        slot: "comm.irecv, test (probe)",
        needs: &[],
        rule: "A probe tells a message's source, tag and size and leaves it to be received.",
        usually: "The size is that of the packet, or a probed message is lost or delivered twice.",
        tests: tests_of_ranks![
            1 "comm.p2p.probe_tells_the_message": "source, tag and size of small and large \
                messages" => probe_tells;
            1 "comm.p2p.probe_leaves_the_message": "it is received after ten probes, \
                once" => probe_leaves;
            1 "comm.p2p.iprobe_finds_nothing": "where nothing was sent there is \
                nothing" => iprobe_nothing;
            1 "comm.p2p.iprobe_finds_in_the_end": "asked again and again it finds what comes \
                late" => iprobe_late;
            1 "comm.p2p.mprobe_takes_the_message": "a message taken by mprobe is not received by \
                another call" => mprobe;
        ],
    },
    Group {
        slot: "comm.test (time limits)",
        needs: &[],
        rule: "isend, irecv and test do not block; a wait ends at its time limit and the operation \
            lives on.",
        usually: "test waits inside the transport, or an operation that was given up on writes its \
            buffer later.",
        tests: tests_of_ranks![
            1 "comm.p2p.wait_times_out": "wait(50 ms) without a message is DTL_ERROR_TIMEOUT, not \
                early, not late" => wait_timeout;
            1 "comm.p2p.request_lives_after_timeout": "the message that comes then is \
                received" => wait_after_timeout;
            1 "comm.p2p.test_does_not_wait": "1000 tests of a pending receive take no \
                time" => test_quick;
            1 "comm.p2p.not_done_without_a_message": "a receive is not done before anything was \
                sent" => not_done;
        ],
    },
    Group {
        slot: "comm.cancel",
        needs: &[],
        rule: "A withdrawn receive ends with DTL_ERROR_CANCELED and takes nothing; one that was \
            matched ends as usual.",
        usually: "The receive stays posted and swallows the next message, or a matched message is \
            lost.",
        tests: tests_of_ranks![
            1 "comm.p2p.canceled_receive_ends": "it ends with DTL_ERROR_CANCELED" => cancel_ends;
            1 "comm.p2p.cancel_loses_no_message": "the message that comes afterwards is received \
                by another" => cancel_keeps;
            1 "comm.p2p.cancel_of_large_receive": "the same with room for 1 MiB" => cancel_large;
            1 "comm.p2p.cancel_race_loses_nothing": "200 receives canceled while their messages \
                come: each message is there once" => cancel_race;
            1 "comm.p2p.canceled_buffer_stays": "the buffer of a withdrawn receive is not written \
                later" => cancel_buffer;
        ],
    },
    Group {
        slot: "comm.isend, irecv (late partners)",
        needs: &[],
        rule: "Sender and receiver may come in either order, and do other things between.",
        usually: "An early message overflows a queue, or nothing moves unless both are in a call.",
        tests: tests_of_ranks![
            2 "comm.p2p.late_receiver_small": "the receive is posted 30 ms after the \
                send" => late_receiver_small;
            2 "comm.p2p.late_receiver_large": "the same with 2 MiB" => late_receiver_large;
            2 "comm.p2p.late_sender": "the send comes 30 ms after the receive" => late_sender;
            1 "comm.p2p.early_messages_are_kept": "300 messages of 5000 bytes, received in \
                reverse" => early;
            2 "comm.p2p.idle_ranks_do_not_matter": "ranks that compute do not hold up the \
                others" => idle;
            1 "comm.p2p.exchange_after_a_pause": "messages after 100 ms of nothing" => pause;
            1 "comm.p2p.small_ones_pass_a_large_one": "small messages under other tags arrive \
                while a large one is in flight" => small_pass;
            1 "comm.p2p.failed_call_changes_nothing": "after refused calls all goes \
                on" => after_refusals;
        ],
    },
];

fn ssend_waits(p: &Peer) -> Outcome {
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

fn issend_pending(p: &Peer) -> Outcome {
    let mut send = p.issend(message(p.rank, p.next(), 1, 100), p.next(), 2)?;
    let begin = Instant::now();
    let mut early = false;
    while begin.elapsed() < Duration::from_millis(20) && !early {
        early = p.is_done(&mut send)?;
    }
    p.meet(3)?;
    p.expect(&message(p.previous(), p.rank, 1, 100), p.previous(), 2)?;
    ensure!(!early, "the synchronous send was done before any receive was posted");
    p.wait(send)?;
    Ok(())
}

fn issend_sizes(p: &Peer) -> Outcome {
    for size in [0, 1, 8000, 9000, 1 << 20] {
        let send = p.issend(message(p.rank, p.next(), 1, size), p.next(), 2)?;
        p.expect(&message(p.previous(), p.rank, 1, size), p.previous(), 2)?;
        p.wait(send)?;
    }
    Ok(())
}

fn probe_tells(p: &Peer) -> Outcome {
    for size in [0, 1, 777, 8192, 123_456] {
        let send = p.isend(message(p.rank, p.next(), 1, size), p.next(), 11)?;
        let info = p.probe(p.previous(), 11)?;
        let told = (info.source, info.tag, info.size_bytes);
        ensure!(
            told == (p.previous(), 11, size),
            "source, tag and size are {told:?}, expected {:?}",
            (p.previous(), 11, size)
        );
        p.expect(&message(p.previous(), p.rank, 1, size), p.previous(), 11)?;
        p.wait(send)?;
    }
    Ok(())
}

fn probe_leaves(p: &Peer) -> Outcome {
    for size in [100, 100_000] {
        let send = p.isend(message(p.rank, p.next(), 1, size), p.next(), 11)?;
        (0..10).try_for_each(|_| p.probe(p.previous(), DTL_ANY_TAG).map(|_| ()))?;
        p.expect(&message(p.previous(), p.rank, 1, size), p.previous(), 11)?;
        p.wait(send)?;
        p.meet(3)?;
        let more = p.iprobe(p.previous(), 11)?;
        ensure!(more.is_none(), "the message is there a second time");
        p.meet(3)?;
    }
    Ok(())
}

fn iprobe_nothing(p: &Peer) -> Outcome {
    for _ in 0..200 {
        let found = p.iprobe(DTL_ANY_SOURCE, 12)?;
        ensure!(found.is_none(), "nobody sent anything, and found is {found:?}");
    }
    p.meet(1)
}

fn iprobe_late(p: &Peer) -> Outcome {
    thread::sleep(Duration::from_millis(5));
    let send = p.isend(message(p.rank, p.next(), 1, 50), p.next(), 12)?;
    let found = becomes(LIMIT, || p.iprobe(p.previous(), 12).is_ok_and(|found| found.is_some()));
    ensure!(found, "the message is never found");
    p.expect(&message(p.previous(), p.rank, 1, 50), p.previous(), 12)?;
    p.wait(send)?;
    Ok(())
}

fn mprobe(p: &Peer) -> Outcome {
    for size in [60, 60_000] {
        let sends = vec![
            p.isend(message(p.rank, p.next(), 1, size), p.next(), 12)?,
            p.isend(message(p.rank, p.next(), 2, size), p.next(), 12)?,
        ];
        let (taken, info) = p.mprobe(p.previous(), 12)?;
        ensure!(info.size_bytes == size, "{} bytes, expected {size}", info.size_bytes);
        p.expect(&message(p.previous(), p.rank, 2, size), p.previous(), 12)?;
        p.mrecv(taken, size)?.is(&message(p.previous(), p.rank, 1, size), p.previous(), 12)?;
        done(p, sends)?;
    }
    Ok(())
}

fn wait_timeout(p: &Peer) -> Outcome {
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

fn wait_after_timeout(p: &Peer) -> Outcome {
    let mut receive = p.irecv(100, p.previous(), 1)?;
    let handle = receive.handle;
    let mut info = crate::api::no_info();
    let ended = crate::kit::outcome::call!(dtl_request_wait(handle, 10_000_000, &raw mut info));
    refused(ended, DTL_ERROR_TIMEOUT, "wait(10 ms) without a message")?;
    ensure!(!p.is_done(&mut receive)?, "the receive is done, nothing was sent");
    p.meet(2)?;
    let send = p.isend(message(p.rank, p.next(), 1, 100), p.next(), 1)?;
    p.wait(receive)?.is(&message(p.previous(), p.rank, 1, 100), p.previous(), 1)?;
    p.wait(send)?;
    Ok(())
}

fn test_quick(p: &Peer) -> Outcome {
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

fn not_done(p: &Peer) -> Outcome {
    for size in [0, 100, 100_000] {
        let mut receive = p.irecv(size, p.previous(), 1)?;
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(5) {
            ensure!(
                !p.is_done(&mut receive)?,
                "a receive of {size} bytes is done, nothing was sent"
            );
        }
        p.meet(2)?;
        let send = p.isend(message(p.rank, p.next(), 1, size), p.next(), 1)?;
        p.wait(receive)?.is(&message(p.previous(), p.rank, 1, size), p.previous(), 1)?;
        p.wait(send)?;
    }
    Ok(())
}

fn cancel_ends(p: &Peer) -> Outcome {
    for source in [p.previous(), DTL_ANY_SOURCE] {
        let receive = p.irecv(100, source, 77)?;
        p.cancel(&receive)?;
        let (_, ended) = p.end(receive, p.timeout_ns);
        refused(ended, DTL_ERROR_CANCELED, "a receive that was withdrawn")?;
    }
    p.meet(1)
}

fn canceled_then(p: &Peer, size: u64) -> Outcome {
    for _ in 0..10 {
        let receive = p.irecv(size, p.previous(), 77)?;
        p.cancel(&receive)?;
        let (_, ended) = p.end(receive, p.timeout_ns);
        refused(ended, DTL_ERROR_CANCELED, "a receive that was withdrawn")?;
        p.meet(1)?;
        ring(p, size, 77)?;
    }
    Ok(())
}

fn cancel_keeps(p: &Peer) -> Outcome {
    canceled_then(p, 100)
}

fn cancel_large(p: &Peer) -> Outcome {
    canceled_then(p, 1 << 20)
}

fn cancel_race(p: &Peer) -> Outcome {
    for number in 0..200u64 {
        let size = if number % 4 == 0 { 20_000 } else { 64 };
        let receive = p.irecv(size, p.previous(), 5)?;
        let send = p.isend(message(p.rank, p.next(), number, size), p.next(), 5)?;
        if number % 3 == 0 {
            thread::yield_now();
        }
        p.cancel(&receive)?;
        let should = message(p.previous(), p.rank, number, size);
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
    ensure!(more.is_none(), "a message is there a second time");
    Ok(())
}

fn cancel_buffer(p: &Peer) -> Outcome {
    let receive = p.irecv(5000, p.previous(), 77)?;
    p.cancel(&receive)?;
    let (got, ended) = p.end(receive, p.timeout_ns);
    refused(ended, DTL_ERROR_CANCELED, "a receive that was withdrawn")?;
    p.meet(1)?;
    ring(p, 5000, 77)?;
    ensure!(
        got.bytes.iter().all(|byte| *byte == 0xA5),
        "the buffer of the withdrawn receive was written"
    );
    Ok(())
}

fn late_receiver(p: &Peer, size: u64) -> Outcome {
    if p.rank == 0 {
        p.send(&message(0, 1, 1, size), 1, 1)?;
    } else if p.rank == 1 {
        thread::sleep(Duration::from_millis(30));
        p.expect(&message(0, 1, 1, size), 0, 1)?;
    }
    p.meet(2)
}

fn late_receiver_small(p: &Peer) -> Outcome {
    late_receiver(p, 100)
}

fn late_receiver_large(p: &Peer) -> Outcome {
    late_receiver(p, 2 << 20)
}

fn late_sender(p: &Peer) -> Outcome {
    for size in [0, 100, 1 << 20] {
        if p.rank == 0 {
            thread::sleep(Duration::from_millis(30));
            p.send(&message(0, 1, 1, size), 1, 1)?;
        } else if p.rank == 1 {
            p.expect(&message(0, 1, 1, size), 0, 1)?;
        }
    }
    p.meet(2)
}

fn early(p: &Peer) -> Outcome {
    let mut sends = Vec::new();
    for tag in 0..300 {
        sends.push(p.isend(message(p.rank, p.next(), tag, 5000), p.next(), tag as i32)?);
    }
    for tag in (0..300).rev() {
        p.expect(&message(p.previous(), p.rank, tag, 5000), p.previous(), tag as i32)?;
    }
    done(p, sends)
}

fn idle(p: &Peer) -> Outcome {
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
        ensure!(
            least < Duration::from_millis(250),
            "a round took {least:?} while one rank was idle"
        );
    }
    p.meet(2)
}

fn pause(p: &Peer) -> Outcome {
    ring(p, 100, 1)?;
    thread::sleep(Duration::from_millis(100));
    ring(p, 100, 1)?;
    ring(p, 100_000, 1)
}

fn small_pass(p: &Peer) -> Outcome {
    let large = p.isend(message(p.rank, p.next(), 0, 4 << 20), p.next(), 1)?;
    for number in 1..20 {
        exchange(p, number * 10, 2)?;
    }
    p.expect(&message(p.previous(), p.rank, 0, 4 << 20), p.previous(), 1)?;
    p.wait(large)?;
    Ok(())
}

fn after_refusals(p: &Peer) -> Outcome {
    for _ in 0..100 {
        if p.send(&[1], p.size + 1, 1).is_ok() || p.recv(1, p.rank, -9).is_ok() {
            wrong!("a wrong call succeeded");
        }
    }
    ring(p, 100, 1)?;
    ring(p, 100_000, 1)
}

use dtl_sys::dtl_request_wait;
