//! Tests of creating, duplicating and destroying communicators.

use crate::kit::prelude::*;
use crate::tests::p2p::{exchange, ring};
use dtl_binding::Status;
use std::ffi::CStr;

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Ranks "comm.open.":
        opens, size_is_the_launchers, rank_is_below_size, ranks_are_distinct,
        size_is_the_same_everywhere, info_agrees, nobody_has_failed;
    Ranks "comm.dup.":
        messages_stay_apart = |p| apart(p, &p.dup()?, 100),
        large_messages_stay_apart = |p| apart(p, &p.dup()?, 300 << 10), forty_at_once, of_a_dup,
        original_stays, destroyed_leave_nothing;
    Ranks "comm.split.":
        halves_talk_at_once, keys_order_ranks, undefined_is_in_none, alone,
        messages_stay_apart = split_apart;
    Ranks "comm.close.":
        pending_receive_ends, many_pending_receives,
        sent_message_is_received = |p| sent_then_closed(p, 100),
        large_sent_message_is_received = |p| sent_then_closed(p, 1 << 20), stale_handle_refused;
];

/// Checks that each rank can send a message to the next rank (ring) on the communicator that was
/// opened for the tests. All other tests depend on this communicator.
fn opens(p: &Rank) -> Outcome {
    ring(p, 10, 1)
}

fn size_is_the_launchers(p: &Rank) -> Outcome {
    let told = ["DTL_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"];
    let told = told.iter().find_map(|name| std::env::var(name).ok()?.parse::<i32>().ok());
    let Some(launched) = told.filter(|_| p.kind != "self") else {
        skip!("no launcher started the ranks")
    };
    check!(p.size == launched, "{launched} ranks were started, the communicator has {}", p.size)
}

fn rank_is_below_size(p: &Rank) -> Outcome {
    check!(p.size >= 1 && (0..p.size).contains(&p.rank), "rank {} of {}", p.rank, p.size)
}

/// Gathers a number from each rank with point-to-point messages.
fn gathered(p: &Rank, mine: i32) -> Outcome<Vec<i32>> {
    let bytes = || mine.to_le_bytes().to_vec();
    let sent: Vec<_> =
        (0..p.size).map(|other| p.isend(bytes(), other, 3)).collect::<Result<_, _>>()?;
    let number = |got: Got| i32::from_le_bytes(got.bytes.try_into().unwrap_or_default());
    let all: Vec<_> =
        (0..p.size).map(|other| p.recv(4, other, 3).map(number)).collect::<Result<_, _>>()?;
    p.done(sent)?;
    Ok(all)
}

fn ranks_are_distinct(p: &Rank) -> Outcome {
    let all = gathered(p, p.rank)?;
    check!(all == (0..p.size).collect::<Vec<i32>>(), "rank r says that it is {all:?}")
}

fn size_is_the_same_everywhere(p: &Rank) -> Outcome {
    let all = gathered(p, p.size)?;
    check!(all.iter().all(|size| *size == p.size), "the ranks' sizes are {all:?}")
}

fn info_agrees(p: &Rank) -> Outcome {
    let (info, rank, size) = (p.info()?, p.rank, p.size);
    let (is, of) = (info.rank, info.size);
    ensure!((is, of) == (rank, size), "rank {rank} of {size}, info says {is} of {of}");
    // SAFETY: a text of the library's that lives for ever.
    let kind = unsafe { CStr::from_ptr(info.kind) }.to_string_lossy();
    check!(kind == p.kind.as_str(), "opened as {}, info says {kind}", p.kind)
}

fn nobody_has_failed(p: &Rank) -> Outcome {
    let failed = p.info()?.failed_count;
    check!(failed == 0, "{failed} rank(s) of a well communicator are said to have failed")
}

/// Sends a message with the same tag on each of two communicators, and receives the messages in the
/// opposite order.
fn apart(p: &Rank, other: &Rank, size: u64) -> Outcome {
    let sends =
        [p.start(1, size, 5)?, other.isend(message(p.rank, p.next(), 2, size), p.next(), 5)?];
    other.take(2, size, 5)?;
    p.take(1, size, 5)?;
    p.done(sends)
}

fn forty_at_once(p: &Rank) -> Outcome {
    let dups: Vec<Rank> = (0..40).map(|_| p.dup()).collect::<Result<_, _>>()?;
    let start = |(dup, number): (&Rank, u64)| dup.start(number, 500, 1);
    let sends: Vec<_> = dups.iter().zip(0..).map(start).collect::<Result<_, _>>()?;
    for (number, dup) in dups.iter().enumerate().rev() {
        dup.take(number as u64, 500, 1)?;
    }
    p.done(sends)
}

fn of_a_dup(p: &Rank) -> Outcome {
    let mut last = p.dup()?;
    for _ in 0..10 {
        last = last.dup()?;
        ring(&last, 50, 1)?;
    }
    Ok(())
}

fn original_stays(p: &Rank) -> Outcome {
    for _ in 0..10 {
        let dup = p.dup()?;
        ring(&dup, 100, 1)?;
        dup.destroy()?;
        ring(p, 100, 1)?;
    }
    Ok(())
}

fn destroyed_leave_nothing(p: &Rank) -> Outcome {
    let most = Growth { bytes: 64 << 20, threads: Some(16), files: Some(16) };
    leaves_little((10, 100), &most, "100 duplicates", || {
        let dup = p.dup()?;
        ring(&dup, 2000, 1)?;
        Ok(dup.destroy()?)
    })
}

/// Splits the communicator and returns the new communicator to which this rank belongs. Fails if
/// this rank belongs to none.
fn part(p: &Rank, color: i32, key: i32) -> Outcome<Rank> {
    match p.split(color, key)? {
        Some(part) => Ok(part),
        None => wrong!("split with color {color} gave no communicator"),
    }
}

fn halves_talk_at_once(p: &Rank) -> Outcome {
    let half = part(p, p.rank % 2, p.rank)?;
    let expected = (p.size + 1 - p.rank % 2) / 2;
    ensure!(half.size == expected, "{} ranks in this half, expected {expected}", half.size);
    (0..10).try_for_each(|_| ring(&half, 1000, 2))
}

fn keys_order_ranks(p: &Rank) -> Outcome {
    let turned = part(p, 0, -p.rank)?;
    let expected = p.size - 1 - p.rank;
    ensure!(turned.rank == expected, "rank {} became {}, expected {expected}", p.rank, turned.rank);
    ring(&turned, 1000, 2)
}

fn undefined_is_in_none(p: &Rank) -> Outcome {
    let (rank, size, last) = (p.rank, p.size, p.rank == p.size - 1);
    let part = p.split(if last { -1 } else { 0 }, 0)?;
    let not = if last { "" } else { "not " };
    ensure!(part.is_none() == last, "rank {rank} of {size} is {not}in the part");
    part.map_or(Ok(()), |part| ring(&part, 10, 1))
}

fn alone(p: &Rank) -> Outcome {
    let own = part(p, p.rank, 0)?;
    ensure!((own.rank, own.size) == (0, 1), "rank {} of {}", own.rank, own.size);
    ring(&own, 1000, 1)
}

fn split_apart(p: &Rank) -> Outcome {
    let whole = part(p, 0, p.rank)?;
    apart(p, &whole, 1000)?;
    apart(&whole, p, 100_000)
}

fn pending_receive_ends(p: &Rank) -> Outcome {
    let dup = p.dup()?;
    let flight = dup.irecv(1000, p.previous(), 9)?;
    dup.destroy()?;
    match p.end(flight, p.timeout_ns).1 {
        Err(Error { status: Status(DTL_ERROR_INVALID_HANDLE | DTL_ERROR_CANCELED), .. }) => {
            ring(p, 100, 1)
        }
        Err(refused) => Err(refused.into()),
        Ok(()) => wrong!("a receive without a message succeeded when its communicator ended"),
    }
}

fn many_pending_receives(p: &Rank) -> Outcome {
    let dup = p.dup()?;
    let flights: Vec<_> =
        (0..100).map(|tag| dup.irecv(100_000, p.previous(), tag)).collect::<Result<_, _>>()?;
    dup.destroy()?;
    drop(flights); // the buffers are leaked: the communicator is gone, and so are the requests
    ring(p, 100, 1)
}

/// Destroys the sender's communicator immediately after a send, and checks that the message
/// arrives.
fn sent_then_closed(p: &Rank, size: u64) -> Outcome {
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

fn stale_handle_refused(p: &Rank) -> Outcome {
    let dup = p.dup()?;
    let handle = dup.comm.raw();
    exchange(&dup, 7, 10, 1)?;
    dup.destroy()?;
    let mut rank = -1;
    let result = call!(dtl_comm_rank(handle, &raw mut rank));
    refused(result, DTL_ERROR_INVALID_HANDLE, "a call on a destroyed communicator")
}
