//! Simulates the step lists of all ranks in one thread and checks the results, for rank counts that
//! are powers of two and for other rank counts, and for data that is reduced as a whole or in
//! several pieces.

use super::*;
use crate::abi::word::{DTL_DTYPE_UINT64, DTL_OP_NO_OP, DTL_OP_REPLACE, DTL_OP_SUM};
use crate::runtime::comm::coll::schedule::Schedule;
use crate::runtime::comm::coll::schedule::simulation::simulate;
use crate::runtime::types::{Reduction, reduction};
use crate::sys::memory::buf::Scratch;

/// Number of 8-byte words per rank for which a reduction splits the data into several pieces. The
/// last piece is shorter than the others.
const MANY: usize = 140_000;
const ELEMENT: usize = 8;

fn with(op: i32) -> Reduction {
    reduction(DTL_DTYPE_UINT64, op).unwrap()
}

/// Returns element `word` of rank `rank`'s operand.
fn word(rank: i32, word: usize) -> u64 {
    1_000_000 * (rank as u64 + 1) + word as u64
}

fn words(rank: i32, count: usize) -> Scratch {
    Scratch::of_words(&(0..count).map(|w| word(rank, w)).collect::<Vec<_>>()).unwrap()
}

/// Returns the expected result of reducing the words of all ranks.
fn expected(op: i32, ranks: i32, count: usize) -> Vec<u64> {
    let fold = |w| match op {
        DTL_OP_NO_OP => word(0, w),
        DTL_OP_REPLACE => word(ranks - 1, w),
        _ => (0..ranks).map(|rank| word(rank, w)).sum(),
    };
    (0..count).map(fold).collect()
}

/// Simulates the steps that `list` appends for each rank. Checks that the send buffers are
/// unchanged. Returns the receive buffers in rank order.
fn run(
    (ranks, count, op, in_place): (i32, usize, i32, bool),
    list: impl Fn(&mut Schedule, Group, (Region, Region)) -> Result<()>,
) -> Vec<Scratch> {
    let send: Vec<_> = (0..ranks).map(|rank| words(rank, count)).collect();
    let recv: Vec<_> = (0..ranks).map(|rank| words(rank, count)).collect();
    let mut all: Vec<_> = (0..ranks)
        .map(|rank| {
            let mut s = Schedule::default();
            s.reset(Some(with(op)));
            let (send, recv) = (send[rank as usize].region(), recv[rank as usize].region());
            list(&mut s, Group { rank, size: ranks }, (if in_place { recv } else { send }, recv))
                .unwrap();
            s
        })
        .collect();
    simulate(&mut all);
    assert!(
        (0..).zip(&send).all(|(rank, send)| send.words() == words(rank, count).words()),
        "sent data changed"
    );
    recv
}

fn cases() -> impl Iterator<Item = (i32, usize, i32, bool)> {
    let few = [1, 2, 3, 4, 5, 6, 7, 8, 11]
        .into_iter()
        .flat_map(|ranks| [0, 3, 100].map(|count| (ranks, count)));
    let all = few.chain([2, 3].map(|ranks| (ranks, MANY)));
    all.flat_map(|(ranks, count)| {
        let ops = [DTL_OP_SUM, DTL_OP_NO_OP, DTL_OP_REPLACE];
        ops.into_iter()
            .flat_map(move |op| [false, true].map(|in_place| (ranks, count, op, in_place)))
    })
}

#[test]
fn a_root_gets_the_folded_data_of_all() {
    for case in cases() {
        let (ranks, count, op, in_place) = case;
        let by = ReductionInfo { element: ELEMENT, commutes: op == DTL_OP_SUM };
        for root in if count == MANY { 1..2 } else { 0..ranks } {
            for how in [Algorithm::Binomial, Algorithm::HalvingGather] {
                if how == Algorithm::HalvingGather && !by.commutes {
                    continue;
                }
                let recv = run((ranks, count, op, false), |s, g, (send, recv)| {
                    let from = if in_place && g.rank == root { recv } else { send };
                    reduce(s, g, how, root, by, (from, recv))
                });
                let right = recv[root as usize].words() == expected(op, ranks, count);
                assert!(right, "{case:?}, root {root}, {how:?}");
            }
        }
    }
}

#[test]
fn all_get_the_folded_data_of_all() {
    for case in cases() {
        let (ranks, count, op, _) = case;
        for how in [Algorithm::RecursiveDoubling, Algorithm::PairwiseRing, Algorithm::Rabenseifner]
        {
            if how == Algorithm::Rabenseifner && op != DTL_OP_SUM {
                continue;
            }
            let by = ReductionInfo { element: ELEMENT, commutes: op == DTL_OP_SUM };
            let recv = run(case, |s, g, io| allreduce(s, g, how, by, io));
            let right = expected(op, ranks, count);
            assert!(recv.iter().all(|recv| recv.words() == right), "{case:?}, {how:?}");
        }
    }
}

#[test]
fn each_gets_its_block_of_the_folded_data() {
    for case in cases().filter(|(_, count, ..)| *count != MANY) {
        let (ranks, count, op, in_place) = case;
        let recv = run((ranks, count, op, in_place), |s, g, (send, recv)| {
            let blocks: Vec<_> = (0..ranks).map(|rank| share(send, rank, ranks, ELEMENT)).collect();
            reduce_scatter(
                s,
                g,
                |rank| blocks[rank as usize],
                recv.part(0, blocks[g.rank as usize].len()),
            )
        });
        let right = Scratch::of_words(&expected(op, ranks, count)).unwrap();
        for (rank, recv) in (0..).zip(&recv) {
            let right =
                Scratch::copy_of(share(right.region(), rank, ranks, ELEMENT)).unwrap().words();
            assert_eq!(recv.words()[..right.len()], right[..], "{case:?}, rank {rank}");
        }
    }
}

/// Checks that `pieces` splits data only between elements, even if an element is larger than the
/// requested size of a piece, or if that size is not a multiple of the element size.
#[test]
fn pieces_are_of_whole_elements() {
    for (len, element, bytes) in
        [(0, 8, 64), (1 << 20, 24, 1000), (3 << 20, 1 << 20, 256), (1 << 30, 7, 100)]
    {
        let len = len / element * element;
        let (starts, piece) = pieces(len, element, bytes);
        let starts: Vec<_> = starts.collect();
        assert_eq!((starts[0], piece % element), (0, 0));
        assert!(starts.iter().zip(0..).all(|(start, index)| *start == index * piece));
        let last = starts[starts.len() - 1];
        assert!(last <= len && len - last <= piece && starts.len() <= MOST_PIECES + 1);
        assert!(len == 0 || last < len);
    }
}
