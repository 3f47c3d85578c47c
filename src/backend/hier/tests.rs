//! Tests of the router. All ranks are in one process, and the nodes are simulated.

use super::nodes::Nodes;
use super::router::HierLevel;
use super::transport::HierTransport;
use crate::abi::comm::communicator::{DTL_ANY_SOURCE, DTL_TAG_MAX};
use crate::abi::status::*;
use crate::backend::bootstrap::over_comm::OverTransport;
use crate::backend::in_process::{buffer, bytes, from, threads};
use crate::backend::inproc;
use crate::runtime::component::{
    Completion, Exchange, OpId, OpenArgs, Selector, SendMode, Transport,
};
use crate::runtime::registry::Backend;
use crate::sys::memory::buf::{Region, Scratch};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

type Rank = Box<dyn Transport>;

fn kinds() -> [Arc<Backend>; 2] {
    let [alone, threads] = inproc::backends();
    [threads, alone].map(Arc::new)
}

/// Creates all ranks of a job; `of` is the node of each rank.
fn job(of: &[i32]) -> Vec<Rank> {
    let count = of.iter().max().expect("a node") + 1;
    let size =
        |node: i32| i32::try_from(of.iter().filter(|of| **of == node).count()).expect("small");
    let mut inside: Vec<_> = (0..count).map(|node| threads(size(node)).1.into_iter()).collect();
    let across = threads(i32::try_from(of.len()).expect("small")).1;
    let ranks = (0..).zip(across).zip(of);
    ranks
        .map(|((rank, across), node)| {
            let inside = inside[*node as usize].next().expect("a rank");
            Box::new(HierTransport::new(inside, across, Nodes::new(rank, of), kinds())) as _
        })
        .collect()
}

fn first(scratch: &Scratch) -> u8 {
    bytes(scratch)[0]
}

fn any_tag(source: i32) -> Selector {
    Selector { source, match_bits: 0, ignore: DTL_TAG_MAX as u64 }
}

fn send(comm: &Rank, what: u8, dest: i32, word: u64) {
    let data = buffer(&[what]);
    let op = comm.isend(data.region(), dest, word, SendMode::Standard).expect("isend");
    assert_eq!(comm.outcome(op).expect("test").expect("a byte goes at once").status, DTL_SUCCESS);
}

fn end(comm: &Rank, op: OpId) -> Completion {
    (0..100).find_map(|_| comm.outcome(op).expect("test")).expect("it ends")
}

#[test]
fn messages_go_their_way_and_come_from_the_right_rank() {
    let ranks = job(&[0, 1, 0, 1, 2]);
    for source in 0..5 {
        for dest in 0..5 {
            send(&ranks[source as usize], (10 * source + dest) as u8, dest, 7);
        }
    }
    for (dest, comm) in (0..).zip(&ranks) {
        for source in 0..5 {
            let into = buffer(&[0]);
            let done = end(comm, comm.irecv(into.region(), from(source, 7)).expect("irecv"));
            assert_eq!((done.source, done.status, done.size), (source, DTL_SUCCESS, 1));
            assert_eq!(first(&into), (10 * source + dest) as u8);
        }
        assert_eq!(comm.properties().nodes.as_deref(), Some(&[0, 1, 0, 1, 2][..]));
        assert!(
            !comm.properties().is_one_node
                && comm
                    .properties()
                    .description
                    .starts_with("3 nodes with 1 to 2 ranks: threads inside, self between (")
        );
    }
    assert_eq!(
        ranks[0].isend(Region::EMPTY, 5, 0, SendMode::Standard).unwrap_err().status(),
        DTL_ERROR_INVALID_RANK
    );
    let error = ranks[0].irecv(Region::EMPTY, from(-7, 0)).unwrap_err();
    assert_eq!(error.status(), DTL_ERROR_INVALID_RANK);
}

#[test]
fn a_router_knows_the_ways() {
    let nodes = Nodes::new(2, &[0, 1, 0]);
    let node = threads(2).1.pop().expect("rank 1");
    let router = super::router::Router::new(node, threads(3).1.pop().expect("rank 2"), nodes);
    let level = |rank| router.level(rank).expect("a rank");
    assert_eq!(
        (level(0), level(1), level(2)),
        ((HierLevel::Node, 0), (HierLevel::Across, 1), (HierLevel::Node, 1))
    );
}

#[test]
fn receives_from_any_source_take_what_comes_either_way() {
    let ranks = job(&[0, 0, 1]);
    let into = [buffer(&[0]), buffer(&[0]), buffer(&[0])];
    let ops: Vec<_> = into
        .iter()
        .map(|into| ranks[0].irecv(into.region(), from(DTL_ANY_SOURCE, 1)).expect("irecv"))
        .collect();
    assert_eq!(ranks[0].outcome(ops[0]).expect("test"), None);
    send(&ranks[2], 12, 0, 1);
    assert_eq!(end(&ranks[0], ops[0]).source, 2);
    send(&ranks[1], 11, 0, 1);
    assert_eq!(end(&ranks[0], ops[1]).source, 1);
    send(&ranks[0], 10, 0, 1);
    assert_eq!(end(&ranks[0], ops[2]).source, 0);
    assert_eq!((first(&into[0]), first(&into[1]), first(&into[2])), (12, 11, 10));
}

#[test]
fn receives_match_in_the_order_posted() {
    let ranks = job(&[0, 0, 1]);
    let into: Vec<_> = (0..5).map(|_| buffer(&[0])).collect();
    let post = |index: usize, select| ranks[0].irecv(into[index].region(), select).expect("irecv");
    // Posted before the receive from any source: on a transport. Posted after it: deferred if it
    // could match the same message.
    let specific = post(0, from(2, 5));
    let any = post(1, from(DTL_ANY_SOURCE, 5));
    let wild = post(2, any_tag(2));
    let behind = post(3, from(2, 6));
    let apart = post(4, from(1, 6));
    send(&ranks[1], 50, 0, 6);
    assert_eq!(end(&ranks[0], apart).source, 1);
    for (what, word) in [(1, 5), (2, 6), (3, 5), (4, 6)] {
        send(&ranks[2], what, 0, word);
    }
    for (op, index, word, what) in
        [(specific, 0, 5, 1), (wild, 2, 6, 2), (any, 1, 5, 3), (behind, 3, 6, 4)]
    {
        let done = end(&ranks[0], op);
        assert_eq!((done.source, done.match_bits, done.status), (2, word, DTL_SUCCESS));
        assert_eq!(first(&into[index]), what);
    }
}

#[test]
fn a_receive_waits_behind_one_from_any_source() {
    let ranks = job(&[0, 1]);
    let into = [buffer(&[0]), buffer(&[0])];
    let any = ranks[0].irecv(into[0].region(), from(DTL_ANY_SOURCE, 5)).expect("irecv");
    let behind = ranks[0].irecv(into[1].region(), from(1, 5)).expect("irecv");
    send(&ranks[1], 1, 0, 5);
    assert_eq!(ranks[0].outcome(behind).expect("test"), None);
    assert_eq!((end(&ranks[0], any).source, first(&into[0])), (1, 1));
    send(&ranks[1], 2, 0, 5);
    assert_eq!((end(&ranks[0], behind).source, first(&into[1])), (1, 2));
}

/// For messages from one source, matching must not depend on arrival times: receives match in
/// posting order, messages in sending order. The test takes the messages in sending order and
/// checks that each was received by the first matching receive, in posting order, that no earlier
/// message had matched.
#[test]
fn messages_that_come_at_any_moment_are_matched_in_order() {
    const MESSAGES: usize = 3000;
    let mut ranks = job(&[0, 1]);
    let (sender, receiver) = (ranks.pop().expect("rank 1"), ranks.pop().expect("rank 0"));
    let mut state = 1_u64;
    let mut random = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let words: Vec<u64> = (0..MESSAGES).map(|_| 1 + random(2)).collect();
    let mut posted: Vec<(Selector, Option<OpId>, Scratch)> = Vec::new();
    let sent = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let (words, sender, sent) = (&words, &sender, &sent);
        scope.spawn(move || {
            for (number, word) in (0_u64..).zip(words) {
                let data = Scratch::of_words(&[number]).expect("memory");
                let op = sender.isend(data.region(), 0, *word, SendMode::Standard).expect("isend");
                while sender.outcome(op).expect("test").is_none() {}
                sent.fetch_add(1, Ordering::Relaxed);
                (0..16 * (number % 64)).for_each(|_| std::hint::spin_loop());
            }
        });
        while posted.len() < MESSAGES {
            let source = if random(2) == 0 { DTL_ANY_SOURCE } else { 1 };
            let word = 1 + random(3);
            let select = if word == 3 { any_tag(source) } else { from(source, word) };
            let into = Scratch::of_words(&[u64::MAX]).expect("memory");
            // At most a few receives ahead: then messages arrive while receives are being matched.
            if random(2) == 0 && posted.len() < sent.load(Ordering::Relaxed) + 4 {
                let op = receiver.irecv(into.region(), select).expect("irecv");
                posted.push((select, Some(op), into));
            } else if let Some(taken) = receiver.take(select).expect("take") {
                let op = receiver.receive_matched(taken.message, into.region()).expect("receive");
                assert_eq!(end(&receiver, op).source, 1);
                posted.push((select, None, into));
            }
            receiver.progress();
        }
    });
    let mut free: Vec<usize> = (0..posted.len()).collect();
    for (number, word) in words.iter().enumerate() {
        let Some(place) = free.iter().position(|index| posted[*index].0.takes(1, *word)) else {
            continue;
        };
        let (_, op, into) = &posted[free.remove(place)];
        if let Some(op) = op {
            assert_eq!(end(&receiver, *op).status, DTL_SUCCESS);
        }
        assert_eq!(into.words(), [number as u64], "the receive that takes message {number}");
    }
    for index in free {
        if let (_, Some(op), _) = posted[index] {
            assert_eq!(
                receiver.outcome(op).expect("test"),
                None,
                "receive {index} got what is not its own"
            );
            receiver.cancel(op).expect("cancel");
            assert_eq!(end(&receiver, op).status, DTL_ERROR_CANCELED);
        }
    }
}

#[test]
fn a_probe_sees_only_what_no_receive_waits_for() {
    let ranks = job(&[0, 1]);
    let into = buffer(&[0]);
    let any = ranks[0].irecv(into.region(), from(DTL_ANY_SOURCE, 5)).expect("irecv");
    send(&ranks[1], 1, 0, 5);
    assert_eq!(ranks[0].probe(from(1, 5)).expect("probe"), None);
    assert_eq!(ranks[0].take(any_tag(DTL_ANY_SOURCE)).expect("take"), None);
    send(&ranks[1], 2, 0, 5);
    let found = ranks[0].probe(from(DTL_ANY_SOURCE, 5)).expect("probe").expect("the second");
    assert_eq!((found.source, found.size), (1, 1));
    let taken = ranks[0].take(from(1, 5)).expect("take").expect("the second");
    assert_eq!(taken.done, found);
    let second = buffer(&[0]);
    let op = ranks[0].receive_matched(taken.message, second.region()).expect("receive");
    assert_eq!((end(&ranks[0], op).source, end(&ranks[0], any).source), (1, 1));
    assert_eq!((first(&into), first(&second)), (1, 2));
    assert_eq!(
        ranks[0].receive_matched(taken.message, second.region()).unwrap_err().status(),
        DTL_ERROR_INVALID_HANDLE
    );
}

#[test]
fn what_is_held_can_be_withdrawn() {
    let ranks = job(&[0, 1]);
    let into = [buffer(&[0]), buffer(&[0])];
    let any = ranks[0].irecv(into[0].region(), from(DTL_ANY_SOURCE, 5)).expect("irecv");
    let behind = ranks[0].irecv(into[1].region(), from(1, 5)).expect("irecv");
    ranks[0].cancel(any).expect("cancel");
    assert_eq!(end(&ranks[0], any).status, DTL_ERROR_CANCELED);
    assert_eq!(ranks[0].outcome(any).unwrap_err().status(), DTL_ERROR_INVALID_HANDLE);
    send(&ranks[1], 9, 0, 5);
    assert_eq!(end(&ranks[0], behind).source, 1);
    assert_eq!(first(&into[1]), 9);
    let any = ranks[0].irecv(into[0].region(), from(DTL_ANY_SOURCE, 5)).expect("irecv");
    let behind = ranks[0].irecv(into[1].region(), from(1, 5)).expect("irecv");
    ranks[0].cancel(behind).expect("cancel");
    assert_eq!(end(&ranks[0], behind).status, DTL_ERROR_CANCELED);
    send(&ranks[1], 9, 0, 5);
    assert_eq!(end(&ranks[0], any).status, DTL_SUCCESS);
}

#[test]
fn who_leaves_is_told_by_its_rank() {
    let mut ranks = job(&[0, 1, 0]);
    ranks.pop().expect("rank 2").close().expect("close");
    assert_eq!(ranks[0].groups().liveness.expect("provided").failed_ranks(), [2]);
    let into = buffer(&[0]);
    let done = end(&ranks[0], ranks[0].irecv(into.region(), from(2, 5)).expect("irecv"));
    assert_eq!((done.source, done.status), (2, DTL_ERROR_RANK_FAILURE));
    assert!(ranks[0].groups().liveness.expect("provided").failed_count() > 0);
    ranks[0].close().expect("close");
    assert_eq!(ranks[0].close().unwrap_err().status(), DTL_ERROR_INVALID_STATE);
    assert_eq!(ranks[0].groups().liveness.expect("provided").failed_count(), 0);
}

#[test]
fn words_are_exchanged_between_any_number_of_ranks() {
    for size in 1..8 {
        let ranks = threads(size).1;
        let expected: Vec<u64> = (0..size as u64).flat_map(|rank| [rank, 100 + rank]).collect();
        std::thread::scope(|scope| {
            for (rank, comm) in (0_u64..).zip(&ranks) {
                let expected = &expected;
                scope.spawn(move || {
                    let words =
                        OverTransport::new(comm.as_ref(), u64::MAX).allgather(&[rank, 100 + rank]);
                    assert_eq!(&words.expect("exchange"), expected);
                });
            }
        });
    }
    let ranks = threads(2).1;
    let alone = OverTransport::new(ranks[0].as_ref(), 20_000_000);
    let error = alone.allgather(&[1]).unwrap_err();
    assert_eq!(error.status(), DTL_ERROR_TIMEOUT);
    assert!(error.text().contains("nothing from rank 1"), "{error}");
}

#[test]
fn without_a_kind_between_the_nodes_it_is_not_available() {
    let shm = Arc::new(crate::backend::shm::backend());
    let hier = super::backend(Arc::clone(&shm), vec![shm]);
    let why = hier.availability().unwrap_err();
    assert!(
        why.contains("no kind \"mpi\"") && why.contains("DTL_HIER_ACROSS: shm or a registered one"),
        "{why}"
    );
    let args = OpenArgs {
        named: Some((0, 1)),
        job: c"j".to_owned(),
        own_algorithms: true,
        ..OpenArgs::default()
    };
    let error = hier.comm.expect("comm").open(&args).err().expect("nothing to open");
    assert_eq!(error.status(), DTL_ERROR_UNAVAILABLE);
}
