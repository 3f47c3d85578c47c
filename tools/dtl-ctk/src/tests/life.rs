//! Tests of how communicators begin, multiply and end.

use crate::kit::catalog::{Group, tests_of_ranks};
use crate::kit::outcome::{Outcome, ensure, skip, wrong};
use crate::kit::peer::{Peer, message};
use crate::kit::subject::{open_files, resident_bytes, thread_count};
use crate::tests::p2p::{exchange, ring};
use dtl_sys::*;
use std::ffi::CStr;

pub(crate) const GROUPS: &[Group] = &[
    Group {
        slot: "comm.open",
        needs: &[],
        rule: "open gives the communicator, this process' rank and the number of ranks; it is \
            collective.",
        usually: "The rank or the size is taken from the wrong place, or open returns before the \
            others are there.",
        tests: tests_of_ranks![
            1 "comm.open.opens": "all ranks can open the communicator, in time" => opens;
            1 "comm.open.size_is_the_launchers": "as many ranks as the launcher \
                started" => size_launched;
            1 "comm.open.rank_is_below_size": "0 <= rank < size" => rank_range;
            1 "comm.open.ranks_are_distinct": "every rank is there once" => ranks_distinct;
            1 "comm.open.size_is_the_same_everywhere": "all ranks have one size" => size_same;
            1 "comm.open.info_agrees": "dtl_comm_info tells rank, size and kind of the \
                communicator" => info;
            1 "comm.open.nobody_has_failed": "a new communicator has no failed \
                ranks" => none_failed;
        ],
    },
    Group {
        slot: "comm.isend, irecv (contexts)",
        needs: &[],
        rule: "Communicators made from one another share the transport; their messages never mix.",
        usually: "The match word is compared in part, or not at all for large messages.",
        tests: tests_of_ranks![
            1 "comm.dup.messages_stay_apart": "one tag on a communicator and its duplicate: each \
                gets its own" => dup_apart;
            1 "comm.dup.large_messages_stay_apart": "the same with 300 KiB" => dup_apart_large;
            1 "comm.dup.forty_at_once": "40 duplicates with messages in flight on each" => dup_many;
            1 "comm.dup.of_a_dup": "ten generations deep" => dup_deep;
            1 "comm.dup.original_stays": "the original works after its duplicate \
                ended" => dup_original;
            1 "comm.dup.destroyed_leave_nothing": "100 duplicates leave no threads, files or much \
                memory" => dup_leak;
            2 "comm.split.halves_talk_at_once": "even and odd ranks exchange in their own \
                communicators" => split_halves;
            2 "comm.split.keys_order_ranks": "descending keys turn the order round" => split_order;
            1 "comm.split.undefined_is_in_none": "DTL_UNDEFINED gives no \
                communicator" => split_undefined;
            1 "comm.split.alone": "each rank in a communicator of its own" => split_alone;
            2 "comm.split.messages_stay_apart": "one tag in the whole and in a part" => split_apart;
        ],
    },
    Group {
        slot: "comm.close, cancel",
        needs: &[],
        rule: "Destroying a communicator ends what waits on it on this rank; what was sent stays \
            receivable.",
        usually: "An operation that is pending at the end keeps a buffer, hangs the close, or sent \
            messages are dropped.",
        tests: tests_of_ranks![
            1 "comm.close.pending_receive_ends": "a receive that nothing matched ends when its \
                communicator does" => close_pending;
            1 "comm.close.many_pending_receives": "so do 100 of them" => close_many;
            2 "comm.close.sent_message_is_received": "a message sent before the sender's destroy \
                arrives" => close_sent;
            2 "comm.close.large_sent_message_is_received": "so does one of 1 MiB whose send has \
                ended" => close_sent_large;
            1 "comm.close.stale_handle_refused": "a destroyed communicator is \
                DTL_ERROR_INVALID_HANDLE" => close_stale;
        ],
    },
];

/// Opening is what comes before the first test: if it fails, all do, and this one says what it is.
fn opens(p: &Peer) -> Outcome {
    ring(p, 10, 1)
}

fn size_launched(p: &Peer) -> Outcome {
    let told = ["DTL_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"];
    let told = told.iter().find_map(|name| std::env::var(name).ok()?.parse::<i32>().ok());
    let Some(launched) = told.filter(|_| p.kind != "self") else {
        skip!("no launcher started the ranks")
    };
    ensure!(p.size == launched, "{launched} ranks were started, the communicator has {}", p.size);
    Ok(())
}

fn rank_range(p: &Peer) -> Outcome {
    ensure!(p.size >= 1 && (0..p.size).contains(&p.rank), "rank {} of {}", p.rank, p.size);
    Ok(())
}

/// Everybody's number, by plain messages.
fn gathered(p: &Peer, mine: i32) -> Outcome<Vec<i32>> {
    let sent: Vec<_> = (0..p.size)
        .map(|other| p.isend(mine.to_le_bytes().to_vec(), other, 3))
        .collect::<Result<_, _>>()?;
    let mut all = Vec::new();
    for other in 0..p.size {
        let got = p.recv(4, other, 3)?;
        all.push(i32::from_le_bytes(got.bytes.try_into().unwrap_or_default()));
    }
    for flight in sent {
        p.wait(flight)?;
    }
    Ok(all)
}

fn ranks_distinct(p: &Peer) -> Outcome {
    let all = gathered(p, p.rank)?;
    ensure!(all == (0..p.size).collect::<Vec<i32>>(), "rank r says that it is {all:?}");
    Ok(())
}

fn size_same(p: &Peer) -> Outcome {
    let all = gathered(p, p.size)?;
    ensure!(all.iter().all(|size| *size == p.size), "the ranks' sizes are {all:?}");
    Ok(())
}

fn info(p: &Peer) -> Outcome {
    let info = p.info()?;
    ensure!(
        (info.rank, info.size) == (p.rank, p.size),
        "rank {} of {}, info says {} of {}",
        p.rank,
        p.size,
        info.rank,
        info.size
    );
    // SAFETY: a text of the library's that lives for ever.
    let kind = unsafe { CStr::from_ptr(info.kind) }.to_string_lossy();
    ensure!(kind == p.kind.as_str(), "opened as {}, info says {kind}", p.kind);
    Ok(())
}

fn none_failed(p: &Peer) -> Outcome {
    let failed = p.info()?.failed_count;
    ensure!(failed == 0, "{failed} rank(s) of a well communicator are said to have failed");
    Ok(())
}

/// One tag on two communicators, received in the other order.
fn apart(p: &Peer, other: &Peer, size: u64) -> Outcome {
    let (one, two) = (message(p.rank, p.next(), 1, size), message(p.rank, p.next(), 2, size));
    let sends = [p.isend(one, p.next(), 5)?, other.isend(two, p.next(), 5)?];
    other.expect(&message(p.previous(), p.rank, 2, size), p.previous(), 5)?;
    p.expect(&message(p.previous(), p.rank, 1, size), p.previous(), 5)?;
    for flight in sends {
        p.wait(flight)?;
    }
    Ok(())
}

fn dup_apart(p: &Peer) -> Outcome {
    apart(p, &p.dup()?, 100)
}

fn dup_apart_large(p: &Peer) -> Outcome {
    apart(p, &p.dup()?, 300 << 10)
}

fn dup_many(p: &Peer) -> Outcome {
    let dups: Vec<Peer> = (0..40).map(|_| p.dup()).collect::<Result<_, _>>()?;
    let mut sends = Vec::new();
    for (dup, number) in dups.iter().zip(0..) {
        sends.push(dup.isend(message(p.rank, p.next(), number, 500), p.next(), 1)?);
    }
    for (number, dup) in dups.iter().enumerate().rev() {
        dup.expect(&message(p.previous(), p.rank, number as u64, 500), p.previous(), 1)?;
    }
    sends.into_iter().try_for_each(|flight| p.wait(flight).map(|_| ())).map_err(Into::into)
}

fn dup_deep(p: &Peer) -> Outcome {
    let mut last = p.dup()?;
    for _ in 0..10 {
        last = last.dup()?;
        ring(&last, 50, 1)?;
    }
    Ok(())
}

fn dup_original(p: &Peer) -> Outcome {
    for _ in 0..10 {
        let dup = p.dup()?;
        ring(&dup, 100, 1)?;
        dup.destroy()?;
        ring(p, 100, 1)?;
    }
    Ok(())
}

fn dup_leak(p: &Peer) -> Outcome {
    let round = || -> Outcome {
        let dup = p.dup()?;
        ring(&dup, 2000, 1)?;
        Ok(dup.destroy()?)
    };
    (0..10).try_for_each(|_| round())?;
    let (memory, files, threads) = (resident_bytes(), open_files(), thread_count());
    (0..100).try_for_each(|_| round())?;
    let grown = resident_bytes().saturating_sub(memory);
    ensure!(grown < 64 << 20, "{} MiB more after 100 duplicates", grown >> 20);
    ensure!(
        open_files() <= files + 16,
        "{} files are open; there were {files} before 100 duplicates",
        open_files()
    );
    ensure!(
        thread_count() <= threads + 16,
        "{} threads run; there were {threads} before 100 duplicates",
        thread_count()
    );
    Ok(())
}

/// A part of the communicator that must have this rank.
fn part(p: &Peer, color: i32, key: i32) -> Outcome<Peer> {
    match p.split(color, key)? {
        Some(part) => Ok(part),
        None => wrong!("split with color {color} gave no communicator"),
    }
}

fn split_halves(p: &Peer) -> Outcome {
    let half = part(p, p.rank % 2, p.rank)?;
    let expected = (p.size + 1 - p.rank % 2) / 2;
    ensure!(half.size == expected, "{} ranks in this half, expected {expected}", half.size);
    (0..10).try_for_each(|_| ring(&half, 1000, 2))
}

fn split_order(p: &Peer) -> Outcome {
    let turned = part(p, 0, -p.rank)?;
    let expected = p.size - 1 - p.rank;
    ensure!(turned.rank == expected, "rank {} became {}, expected {expected}", p.rank, turned.rank);
    ring(&turned, 1000, 2)
}

fn split_undefined(p: &Peer) -> Outcome {
    let last = p.rank == p.size - 1;
    let part = p.split(if last { -1 } else { 0 }, 0)?;
    ensure!(
        part.is_none() == last,
        "rank {} of {} is {}in the part",
        p.rank,
        p.size,
        if last { "" } else { "not " }
    );
    match part {
        Some(part) => ring(&part, 10, 1),
        None => Ok(()),
    }
}

fn split_alone(p: &Peer) -> Outcome {
    let own = part(p, p.rank, 0)?;
    ensure!((own.rank, own.size) == (0, 1), "rank {} of {}", own.rank, own.size);
    ring(&own, 1000, 1)
}

fn split_apart(p: &Peer) -> Outcome {
    let whole = part(p, 0, p.rank)?;
    apart(p, &whole, 1000)?;
    apart(&whole, p, 100_000)
}

fn close_pending(p: &Peer) -> Outcome {
    let dup = p.dup()?;
    let flight = dup.irecv(1000, p.previous(), 9)?;
    dup.destroy()?;
    let (_, ended) = p.end(flight, p.timeout_ns);
    match ended {
        Err(refused)
            if [DTL_ERROR_INVALID_HANDLE, DTL_ERROR_CANCELED].contains(&refused.status) =>
        {
            ring(p, 100, 1)
        }
        Err(refused) => Err(refused.into()),
        Ok(()) => wrong!("a receive without a message succeeded when its communicator ended"),
    }
}

fn close_many(p: &Peer) -> Outcome {
    let dup = p.dup()?;
    let flights: Vec<_> =
        (0..100).map(|tag| dup.irecv(100_000, p.previous(), tag)).collect::<Result<_, _>>()?;
    dup.destroy()?;
    drop(flights); // the buffers are leaked: the communicator is gone, and so are the requests
    ring(p, 100, 1)
}

/// The sender destroys its communicator right after the send.
fn sent_then_closed(p: &Peer, size: u64) -> Outcome {
    let dup = p.dup()?;
    if p.rank == 0 {
        dup.send(&message(0, 1, 1, size), 1, 4)?;
        dup.destroy()?;
    } else if p.rank == 1 {
        std::thread::sleep(std::time::Duration::from_millis(20));
        dup.expect(&message(0, 1, 1, size), 0, 4)?;
    }
    ring(p, 10, 1)
}

fn close_sent(p: &Peer) -> Outcome {
    sent_then_closed(p, 100)
}

fn close_sent_large(p: &Peer) -> Outcome {
    sent_then_closed(p, 1 << 20)
}

fn close_stale(p: &Peer) -> Outcome {
    let dup = p.dup()?;
    let handle = dup.comm.handle;
    exchange(&dup, 10, 1)?;
    dup.destroy()?;
    let mut rank = -1;
    let result = crate::kit::outcome::call!(dtl_comm_rank(handle, &raw mut rank));
    crate::kit::outcome::refused(
        result,
        DTL_ERROR_INVALID_HANDLE,
        "a call on a destroyed communicator",
    )
}

use dtl_sys::dtl_comm_rank;
