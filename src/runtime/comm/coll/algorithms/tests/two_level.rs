//! Simulates the step lists of all ranks in one thread; checks the results and the messages between
//! nodes.

use super::*;
use crate::abi::word::{DTL_DTYPE_UINT64, DTL_OP_NO_OP, DTL_OP_REPLACE, DTL_OP_SUM};
use crate::runtime::comm::coll::schedule::Schedule;
use crate::runtime::comm::coll::schedule::simulation::simulate;
use crate::runtime::types::{Reduction, reduction};
use crate::sys::memory::buf::Scratch;

const LAYOUTS: [&[i32]; 6] = [
    &[0, 0, 1, 1],
    &[0, 1, 0, 1],
    &[1, 1, 1, 0],
    &[0, 1, 1, 2, 2, 2, 3],
    &[2, 0, 2, 1, 0, 2, 1, 0],
    &[0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2],
];

/// Ranks of a job, with the send and receive buffer of each rank.
struct Job {
    nodes: &'static [i32],
    send: Vec<Scratch>,
    recv: Vec<Scratch>,
}

impl Job {
    /// Creates a job in which 64-bit word w in the send buffer of rank r has the value 100 r + w.
    fn new(nodes: &'static [i32], send: usize, recv: usize) -> Self {
        let words =
            |rank: usize| (0..send).map(|word| (100 * rank + word) as u64).collect::<Vec<_>>();
        Job {
            nodes,
            send: (0..nodes.len()).map(|rank| Scratch::of_words(&words(rank)).unwrap()).collect(),
            recv: nodes.iter().map(|_| Scratch::new(8 * recv).unwrap()).collect(),
        }
    }

    fn ranks(&self) -> i32 {
        i32::try_from(self.nodes.len()).unwrap()
    }

    /// Runs the steps of all ranks. Returns the number and the total size, in bytes, of the
    /// messages between nodes.
    fn run(
        &self,
        with: Option<Reduction>,
        list: impl Fn(&mut Schedule, &Levels, Group, (Region, Region)) -> Result<()>,
    ) -> (usize, usize) {
        let of_rank = |rank: i32| {
            let mut schedule = Schedule::default();
            schedule.reset(with);
            let levels = Levels::new(rank, self.nodes.iter().copied()).unwrap();
            let at = rank as usize;
            let regions = (self.send[at].region(), self.recv[at].region());
            list(&mut schedule, &levels, Group { rank, size: self.ranks() }, regions).unwrap();
            schedule
        };
        let mut all: Vec<_> = (0..self.ranks()).map(of_rank).collect();
        let node = |rank: i32| self.nodes[rank as usize];
        let sent = simulate(&mut all);
        let across: Vec<_> = sent.iter().filter(|(from, to, _)| node(*from) != node(*to)).collect();
        (across.len(), across.iter().map(|(_, _, bytes)| bytes).sum())
    }

    fn got(&self, rank: i32) -> Vec<u64> {
        self.recv[rank as usize].words()
    }

    /// Returns the data that all ranks send, in rank order.
    fn all(&self) -> Vec<u64> {
        self.send.iter().flat_map(Scratch::words).collect()
    }
}

fn folding(commutes: bool) -> ReductionInfo {
    ReductionInfo { element: 8, commutes }
}

fn with(op: i32) -> Option<Reduction> {
    Some(reduction(DTL_DTYPE_UINT64, op).unwrap())
}

#[test]
fn data_of_a_root_reach_all_and_cross_to_each_node_once() {
    for nodes in LAYOUTS {
        for root in 0..nodes.len() as i32 {
            let job = Job::new(nodes, 3, 3);
            let (messages, bytes) = job.run(None, |s, l, g, (send, recv)| {
                let data = if g.rank == root { send } else { recv };
                bcast(s, l, root, data)
            });
            let expected = job.send[root as usize].words();
            assert!(
                (0..job.ranks()).all(|rank| rank == root || job.got(rank) == expected),
                "{nodes:?} {root}"
            );
            let others = *nodes.iter().max().unwrap() as usize;
            assert_eq!((messages, bytes), (others, 24 * others), "{nodes:?} {root}");
        }
        let (messages, bytes) = Job::new(nodes, 0, 0).run(None, |s, l, _, _| barrier(s, l));
        assert!(messages > 0 && bytes == 0);
    }
}

#[test]
fn sums_are_those_of_all() {
    // 40 000 words are enough for the algorithms for much data.
    for (nodes, words) in LAYOUTS.into_iter().flat_map(|nodes| [(nodes, 3), (nodes, 40_000)]) {
        let ranks = nodes.len() as u64;
        let expected: Vec<u64> =
            (0..words as u64).map(|word| ranks * word + 100 * (ranks * (ranks - 1) / 2)).collect();
        for in_place in [false, true] {
            let job = Job::new(nodes, words, words);
            job.run(with(DTL_OP_SUM), |s, l, _, (send, recv)| {
                let from = if in_place { recv } else { send };
                from.copy_from(send);
                allreduce(s, l, folding(true), (from, recv))
            });
            assert!((0..job.ranks()).all(|rank| job.got(rank) == expected), "{nodes:?} {words}");
        }
        for root in 0..if words == 3 { nodes.len() as i32 } else { 1 } {
            let job = Job::new(nodes, words, words);
            job.run(with(DTL_OP_SUM), |s, l, g, io| reduce(s, l, g, root, folding(true), io));
            assert_eq!(job.got(root), expected, "{nodes:?} {root}");
        }
    }
}

#[test]
fn the_order_of_ranks_is_kept_where_nodes_are_consecutive() {
    let ordered = |nodes: &&[i32]| Levels::new(0, nodes.iter().copied()).unwrap().is_ordered;
    for nodes in LAYOUTS.into_iter().filter(ordered) {
        let last = nodes.len() - 1;
        for (op, rank) in [(DTL_OP_NO_OP, 0), (DTL_OP_REPLACE, last)] {
            let job = Job::new(nodes, 3, 3);
            let expected = job.send[rank].words();
            job.run(with(op), |s, l, _, io| allreduce(s, l, folding(false), io));
            assert!((0..job.ranks()).all(|rank| job.got(rank) == expected), "{nodes:?} {op}");
            for root in 0..job.ranks() {
                let job = Job::new(nodes, 3, 3);
                job.run(with(op), |s, l, g, io| reduce(s, l, g, root, folding(false), io));
                assert_eq!(job.got(root), expected, "{nodes:?} {op} {root}");
            }
        }
    }
}

#[test]
fn blocks_get_to_their_places() {
    for (nodes, len) in
        LAYOUTS.into_iter().flat_map(|nodes| [(nodes, 2), (nodes, 1000), (nodes, 0)])
    {
        let ranks = nodes.len();
        let job = Job::new(nodes, len, len * ranks);
        job.run(None, |s, l, _, io| allgather(s, l, io));
        assert!((0..job.ranks()).all(|rank| job.got(rank) == job.all()), "{nodes:?} {len}");
        for root in 0..ranks as i32 {
            let job = Job::new(nodes, len, len * ranks);
            let (messages, _) = job.run(None, |s, l, g, io| gather(s, l, g, root, io));
            assert_eq!(job.got(root), job.all(), "{nodes:?} {root}");
            assert_eq!(messages, *nodes.iter().max().unwrap() as usize, "one for each other node");
            let job = Job::new(nodes, len * ranks, len);
            let (messages, _) = job.run(None, |s, l, g, io| scatter(s, l, g, root, io));
            let dealt: Vec<u64> = (0..job.ranks()).flat_map(|rank| job.got(rank)).collect();
            assert_eq!(dealt, job.send[root as usize].words(), "{nodes:?} {root}");
            assert_eq!(messages, *nodes.iter().max().unwrap() as usize, "one for each other node");
        }
    }
}

#[test]
fn fewer_messages_cross_nodes_than_on_one_level() {
    let mailboxes = |nodes: &'static [i32], words: usize, how: Algorithm| {
        Job::new(nodes, words, words).run(with(DTL_OP_SUM), |s, _, g, io| {
            crate::runtime::comm::coll::algorithms::allreduce(s, g, how, folding(true), io)
        })
    };
    let levels = |nodes: &'static [i32], words: usize| {
        Job::new(nodes, words, words)
            .run(with(DTL_OP_SUM), |s, l, _, io| allreduce(s, l, folding(true), io))
    };
    let (two_nodes, dealt): (&[i32], &[i32]) =
        (&[0, 0, 0, 0, 1, 1, 1, 1], &[0, 1, 0, 1, 0, 1, 0, 1]);
    assert_eq!(mailboxes(two_nodes, 1, Algorithm::RecursiveDoubling), (8, 64));
    assert_eq!(mailboxes(dealt, 1, Algorithm::RecursiveDoubling), (8, 64));
    assert_eq!((levels(two_nodes, 1), levels(dealt, 1)), ((2, 16), (2, 16)));
    // 1 MiB: each of the two leaders sends all its data to the other leader once.
    let (_, flat_bytes) = mailboxes(two_nodes, 1 << 17, Algorithm::Rabenseifner);
    let (messages, bytes) = levels(two_nodes, 1 << 17);
    assert!(
        bytes <= 2 << 20 && bytes < flat_bytes && messages == 2,
        "{bytes} of {flat_bytes}, {messages}"
    );
}
