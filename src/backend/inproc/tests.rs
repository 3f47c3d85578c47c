//! Tests of the transport between ranks of one process, without communicators.

use super::SelfComm;
use super::transfer::{SHARED_FROM, Transfer};
use super::transport::{EAGER, endpoints};
use crate::abi::comm::communicator::DTL_ANY_SOURCE;
use crate::abi::status::*;
use crate::backend::in_process::{buffer, bytes, from};
use crate::runtime::component::{
    Comm, Completion, Liveness, OpId, OpenArgs, PART_WORDS, SendMode, SharedMemory, SharedOffer,
    Transport,
};
use crate::sys::memory::buf::Region;
use crate::sys::os::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn liveness(comm: &dyn Transport) -> &dyn Liveness {
    comm.groups().liveness.expect("provided")
}

fn shared(comm: &dyn Transport) -> &dyn SharedMemory {
    comm.groups().shared_memory.expect("provided")
}

fn threads(count: i32) -> Vec<Box<dyn Transport>> {
    let ends = endpoints(count).expect("threads");
    ends.into_iter().map(|end| Box::new(end) as _).collect()
}

fn open_self() -> Box<dyn Transport> {
    let args = OpenArgs { timeout_ns: u64::MAX, ..OpenArgs::default() };
    SelfComm.open(&args).expect("self")
}

#[test]
fn self_sends_to_itself_before_and_after_the_receive() {
    let comm = open_self();
    for size in [0, 1, EAGER, EAGER + 1, 100_000] {
        let (data, into) = (buffer(&vec![size as u8 | 1; size]), buffer(&vec![0; size]));
        for receive_first in [true, false] {
            into.region().fill(0);
            let early =
                receive_first.then(|| comm.irecv(into.region(), from(0, 3)).expect("irecv"));
            let send = comm.isend(data.region(), 0, 3, SendMode::Standard).expect("isend");
            let receive =
                early.unwrap_or_else(|| comm.irecv(into.region(), from(0, 3)).expect("irecv"));
            let done = comm.outcome(receive).expect("test").expect("over");
            assert_eq!(
                done,
                Completion { source: 0, status: DTL_SUCCESS, match_bits: 3, size: size as u64 }
            );
            assert_eq!(comm.outcome(send).expect("test").expect("over").status, DTL_SUCCESS);
            assert_eq!(bytes(&into), bytes(&data));
            if send != OpId::COMPLETED {
                let error = comm.outcome(send).expect_err("stale");
                assert_eq!(error.status(), DTL_ERROR_INVALID_HANDLE);
            }
        }
    }
    comm.close().expect("close");
}

#[test]
fn truncation_cancel_and_bad_ranks() {
    let comm = open_self();
    let (data, into) = (buffer(&[9; 5000]), buffer(&[0; 10]));
    let send = comm.isend(data.region(), 0, 1, SendMode::Standard).expect("isend");
    assert_eq!(comm.outcome(send).expect("test"), None);
    let receive = comm.irecv(into.region(), from(DTL_ANY_SOURCE, 1)).expect("irecv");
    let done = comm.outcome(receive).expect("test").expect("over");
    assert_eq!((done.status, done.size, bytes(&into)), (DTL_ERROR_TRUNCATED, 5000, &[9; 10][..]));
    assert!(comm.outcome(send).expect("test").is_some());
    for op in [
        comm.isend(data.region(), 0, 1, SendMode::Standard).expect("isend"),
        comm.irecv(into.region(), from(0, 2)).expect("irecv"),
    ] {
        comm.cancel(op).expect("cancel");
        assert_eq!(comm.outcome(op).expect("test").expect("over").status, DTL_ERROR_CANCELED);
    }
    let late = comm.irecv(into.region(), from(0, 1)).expect("irecv");
    assert_eq!(comm.outcome(late).expect("test"), None, "the cancelled send is gone");
    assert_eq!(
        comm.isend(data.region(), 1, 1, SendMode::Standard).expect_err("rank").status(),
        DTL_ERROR_INVALID_RANK
    );
    assert_eq!(
        comm.irecv(into.region(), from(-7, 1)).expect_err("rank").status(),
        DTL_ERROR_INVALID_RANK
    );
}

#[test]
fn three_endpoints_exchange() {
    let ends = threads(3);
    let data: Vec<_> = (0..3).map(|rank| buffer(&[rank as u8 + 1; 6000])).collect();
    let into: Vec<_> = (0..3).map(|_| buffer(&[0; 6000])).collect();
    let sends: Vec<_> = (0..3)
        .map(|rank| {
            ends[rank]
                .isend(data[rank].region(), (rank as i32 + 1) % 3, 1, SendMode::Standard)
                .expect("isend")
        })
        .collect();
    for rank in 0..3 {
        let receive =
            ends[rank].irecv(into[rank].region(), from(DTL_ANY_SOURCE, 1)).expect("irecv");
        let done = ends[rank].outcome(receive).expect("test").expect("over");
        assert_eq!(done.source, (rank as i32 + 2) % 3);
        assert_eq!(bytes(&into[rank])[0], done.source as u8 + 1);
    }
    for rank in 0..3 {
        assert!(ends[rank].outcome(sends[rank]).expect("test").is_some());
    }
    ends[1].close().expect("close");
    assert_eq!(
        (liveness(ends[0].as_ref()).failed_ranks(), liveness(ends[0].as_ref()).failed_count()),
        (vec![1], 0),
        "nobody needs it"
    );
    let notice = ends[0].isend(Region::EMPTY, 1, 1, SendMode::Notice).expect("isend");
    assert_eq!(
        ends[0].outcome(notice).expect("test").expect("over").status,
        DTL_ERROR_RANK_FAILURE
    );
    assert_eq!(liveness(ends[0].as_ref()).failed_count(), 0, "nobody needs a notice to arrive");
    let late = ends[0].isend(Region::EMPTY, 1, 1, SendMode::Standard).expect("isend");
    assert_eq!(ends[0].outcome(late).expect("test").expect("over").status, DTL_ERROR_RANK_FAILURE);
    assert_eq!(liveness(ends[2].as_ref()).failed_count(), 1);
}

/// Polls `op` until it is complete.
fn wait(comm: &dyn Transport, op: OpId) -> Completion {
    loop {
        if let Some(done) = comm.outcome(op).expect("test") {
            return done;
        }
        std::hint::spin_loop();
    }
}

/// Returns `len` bytes that differ from those at other offsets.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u32).wrapping_mul(0x9E37_79B1).to_be_bytes()[0]).collect()
}

/// Starts a message of `data` to `into`, in which rank 0 is the sender and another thread calls for
/// the rank that starts second. The thread of the first rank calls `meanwhile`, then polls. Checks
/// both completions.
fn send_between_threads(
    (data, into): (Region, Region),
    receive_first: bool,
    meanwhile: impl Fn(&dyn Transport, OpId) -> Option<Completion>,
) {
    let ends = threads(2);
    let start = |rank: usize| {
        if rank == 0 {
            ends[0].isend(data, 1, 5, SendMode::Standard).expect("isend")
        } else {
            ends[1].irecv(into, from(0, 5)).expect("irecv")
        }
    };
    let (first, second) = if receive_first { (1, 0) } else { (0, 1) };
    let op = start(first);
    let [one, other] = std::thread::scope(|scope| {
        let late = scope.spawn(|| wait(ends[second].as_ref(), start(second)));
        let first = ends[first].as_ref();
        let done = meanwhile(first, op).unwrap_or_else(|| wait(first, op));
        [done, late.join().expect("no panic")]
    });
    let (sent, received) = if receive_first { (other, one) } else { (one, other) };
    let status = if data.len() > into.len() { DTL_ERROR_TRUNCATED } else { DTL_SUCCESS };
    let expected = Completion { source: 0, status, match_bits: 5, size: data.len() as u64 };
    assert_eq!((received, sent), (expected, Completion { status: DTL_SUCCESS, ..expected }));
}

#[test]
fn large_messages_are_whole_when_two_ranks_copy() {
    const LONG: usize = 40 * SHARED_FROM;
    let (data, into) = (buffer(&pattern(LONG)), buffer(&vec![0; LONG]));
    let sizes = [SHARED_FROM - 1, SHARED_FROM, SHARED_FROM + 1, 3 * SHARED_FROM + 17, LONG - 64];
    for (len, round) in sizes.into_iter().flat_map(|len| (0..8).map(move |round| (len, round))) {
        let (source, target) = (data.region().part(round, len), [0, 1, 63][round % 3]);
        // Every fourth message is longer than the receive.
        let room = if round % 4 == 3 { len - len / 3 } else { len };
        into.region().fill(0);
        let receive = into.region().part(target, room);
        send_between_threads((source, receive), round % 2 == 0, |_, _| None);
        assert!(bytes(&into)[target..target + room] == bytes(&data)[round..round + room]);
        assert!(bytes(&into)[..target].iter().all(|byte| *byte == 0));
        assert!(bytes(&into)[target + room..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn one_rank_copies_everything_while_the_other_does_not_poll() {
    let ends = threads(2);
    let len = 5 * SHARED_FROM + 3;
    let (data, into) = (buffer(&pattern(len)), buffer(&vec![0; len]));
    for receive_first in [true, false] {
        into.region().fill(0);
        let send = || ends[0].isend(data.region(), 1, 1, SendMode::Standard).expect("isend");
        let receive = || ends[1].irecv(into.region(), from(0, 1)).expect("irecv");
        let (receive, send) = if receive_first {
            let receive = receive();
            (receive, send())
        } else {
            let send = send();
            (receive(), send)
        };
        assert_eq!(bytes(&into), bytes(&data));
        assert_eq!(ends[1].outcome(receive).expect("test").expect("over").size, len as u64);
        assert!(ends[0].outcome(send).expect("test").is_some());
    }
}

#[test]
fn a_message_that_is_being_copied_survives_cancel_and_close() {
    const LONG: usize = 32 << 20;
    let (data, into) = (buffer(&pattern(LONG)), buffer(&vec![0; LONG]));
    for (receive_first, closes) in [(true, false), (false, false), (true, true), (false, true)] {
        let has_helped = AtomicBool::new(false);
        // On a loaded machine this thread may wake when the message is already copied.
        for _ in 0..50 {
            into.region().fill(0);
            send_between_threads((data.region(), into.region()), receive_first, |comm, op| {
                let mut seen = 0;
                let wakeup = comm.groups().wakeup.expect("provided");
                while wakeup.rest(&mut seen, Duration::from_secs(60)) && seen == 0 {}
                let done = comm.outcome(op).expect("test");
                if done.is_none() {
                    has_helped.store(true, Ordering::Relaxed);
                    if closes { comm.close() } else { comm.cancel(op) }.expect("no effect");
                }
                done
            });
            assert!(bytes(&into) == bytes(&data));
            if has_helped.load(Ordering::Relaxed) {
                break;
            }
        }
        let can_help = process::affinity().len() > 1;
        assert!(
            has_helped.load(Ordering::Relaxed) || !can_help,
            "a sleeping rank is woken to copy"
        );
    }
}

#[test]
fn overlapping_memory_is_copied_in_order() {
    let comm = open_self();
    let all = buffer(&pattern(4 * SHARED_FROM));
    let expected = bytes(&all)[..3 * SHARED_FROM].to_vec();
    let into = all.region().part(SHARED_FROM / 2, 3 * SHARED_FROM);
    let receive = comm.irecv(into, from(0, 3)).expect("irecv");
    let source = all.region().part(0, 3 * SHARED_FROM);
    let send = comm.isend(source, 0, 3, SendMode::Standard).expect("isend");
    assert!(comm.outcome(receive).expect("test").is_some());
    assert!(comm.outcome(send).expect("test").is_some());
    assert!(bytes(&all)[SHARED_FROM / 2..][..3 * SHARED_FROM] == expected);
}

#[test]
fn claimed_pieces_are_disjoint_and_complete() {
    for len in [SHARED_FROM, 9 * SHARED_FROM + 77] {
        let (data, into) = (buffer(&vec![0; len]), buffer(&vec![0; len]));
        let (sender, receiver) = ((0, OpId(1)), (1, OpId(2)));
        let mut transfer = Transfer::new(sender, (data.region(), 3), receiver, into.region());
        let (mut pieces, mut rank) = (Vec::new(), 0);
        while transfer.has_left() {
            let (to, from) = transfer.claim(rank);
            let at = to.addr().get() - into.region().addr().get();
            assert_eq!(at, from.addr().get() - data.region().addr().get());
            pieces.push((at, to.len()));
            rank = 1 - rank;
        }
        assert!(pieces[1..].iter().all(|_| !transfer.end_piece()), "a piece is being copied");
        assert!(transfer.end_piece());
        pieces.sort_unstable();
        let end = pieces.iter().fold(0, |end, &(at, len)| {
            assert!(at == end && len > 0);
            at + len
        });
        assert_eq!(end, len);
    }
}

#[test]
fn parts_are_found_by_their_keys_while_somebody_has_them() {
    let ranks = threads(2);
    let offer =
        |rank: usize, what| shared(ranks[rank].as_ref()).offer_part(what).expect("provided");
    let fresh = offer(0, SharedOffer::Fresh(1000)).expect("memory");
    let mine = buffer(b"program");
    let own = offer(1, SharedOffer::Own(mine.region())).expect("memory");
    assert_eq!(
        (own.region(), fresh.region().len(), fresh.words().len()),
        (mine.region(), 1000, PART_WORDS)
    );
    fresh.words()[PART_WORDS - 1].store(5, Ordering::Relaxed);
    let found = shared(ranks[1].as_ref()).find_part(0, fresh.key()).expect("there");
    assert_eq!((found.region(), found.key()), (fresh.region(), fresh.key()));
    assert_eq!(found.words()[PART_WORDS - 1].load(Ordering::Relaxed), 5);
    let (key, [number, check]) = (fresh.key(), own.key());
    for (rank, wrong) in [(0, own.key()), (1, [number, check + 8]), (1, [77, check]), (1, [0, 0])] {
        assert_eq!(
            shared(ranks[0].as_ref()).find_part(rank, wrong).err().expect("wrong").status(),
            DTL_ERROR_NOT_FOUND
        );
    }
    drop(fresh);
    assert!(shared(ranks[1].as_ref()).find_part(0, key).is_ok(), "one still has it");
    drop(found);
    assert_eq!(
        shared(ranks[1].as_ref()).find_part(0, key).err().expect("gone").status(),
        DTL_ERROR_NOT_FOUND
    );
    for len in [usize::MAX, usize::MAX - 4096, 1 << 60] {
        let error = offer(0, SharedOffer::Fresh(len)).err().expect("too much");
        assert_eq!(error.status(), DTL_ERROR_OUT_OF_MEMORY);
    }
}
