//! Checks that reductions over mailboxes in shared memory and reductions that send messages give
//! bitwise equal results for any number of ranks.

use super::*;
use crate::abi::word::{
    DTL_DTYPE_FLOAT64, DTL_DTYPE_UINT64, DTL_OP_NO_OP, DTL_OP_REPLACE, DTL_OP_SUM,
};
use crate::runtime::comm::coll::algorithms::choice::Algorithm;
use crate::runtime::comm::coll::algorithms::{self, Group, ReductionInfo};
use crate::runtime::comm::coll::mailboxes::PARTIAL_BYTES;
use crate::runtime::comm::coll::schedule::Schedule;
use crate::runtime::comm::coll::schedule::simulation::simulate;
use crate::runtime::types::reduction;
use crate::sys::memory::buf::Scratch;

/// Number of elements that each rank contributes.
const COUNT: usize = 5;
const BYTES: usize = 8 * COUNT;

/// Returns numbers whose sum depends on the order of the operands.
fn floats(rank: i32) -> Scratch {
    let value =
        |at: usize| (f64::from(rank) + 1.0) / 3.0 * 10_f64.powi((rank * 7 + at as i32 * 5) % 31);
    Scratch::of_words(&(0..COUNT).map(|at| value(at).to_bits()).collect::<Vec<_>>()).unwrap()
}

fn by_messages(ranks: i32, by: Reduction, root: Option<i32>) -> Vec<Vec<u64>> {
    let folding = ReductionInfo { element: by.element, commutes: by.commutes };
    let send: Vec<_> = (0..ranks).map(floats).collect();
    let recv: Vec<_> = (0..ranks).map(|_| Scratch::new(BYTES).unwrap()).collect();
    let list = |rank: i32| {
        let mut s = Schedule::default();
        s.reset(Some(by));
        let data = (send[rank as usize].region(), recv[rank as usize].region());
        let group = Group { rank, size: ranks };
        match root {
            Some(root) => {
                algorithms::reduce(&mut s, group, Algorithm::Binomial, root, folding, data)
            }
            None => {
                algorithms::allreduce(&mut s, group, Algorithm::RecursiveDoubling, folding, data)
            }
        }
        .unwrap();
        s
    };
    simulate(&mut (0..ranks).map(list).collect::<Vec<_>>());
    recv.iter().map(Scratch::words).collect()
}

fn by_tree(ranks: i32, by: Reduction, root: Option<i32>) -> Vec<u64> {
    let send: Vec<_> = (0..ranks).map(floats).collect();
    let part = |rank: i32| send[rank as usize].region();
    let (recv, room) = (
        Scratch::new(BYTES).unwrap(),
        Scratch::new(PARTIAL_BYTES.min(BYTES * ranks.ilog2() as usize)).unwrap(),
    );
    fold_all(&by, Group { rank: 0, size: ranks }, root, part, recv.region(), room.region());
    assert!(
        (0..).zip(&send).all(|(rank, sent)| sent.words() == floats(rank).words()),
        "a part changed"
    );
    recv.words()
}

#[test]
fn the_bits_are_those_of_messages() {
    for ranks in (1..=16).chain([23, 32, 33, 64]) {
        for (dtype, op) in [
            (DTL_DTYPE_FLOAT64, DTL_OP_SUM),
            (DTL_DTYPE_UINT64, DTL_OP_NO_OP),
            (DTL_DTYPE_UINT64, DTL_OP_REPLACE),
        ] {
            let by = reduction(dtype, op).unwrap();
            let own = by_tree(ranks, by, None);
            for (rank, other) in by_messages(ranks, by, None).iter().enumerate() {
                assert_eq!(&own, other, "allreduce, rank {rank} of {ranks}, {by:?}");
            }
            for root in (0..ranks).filter(|root| ranks < 10 || root % 7 == 3) {
                let other = &by_messages(ranks, by, Some(root))[root as usize];
                assert_eq!(
                    &by_tree(ranks, by, Some(root)),
                    other,
                    "reduce to {root} of {ranks}, {by:?}"
                );
            }
        }
    }
}
