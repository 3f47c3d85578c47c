//! Compares the messages that dry runs (`CollectivePlan`) predict with the messages that
//! collectives send. Every collective runs as a nonblocking request over a transport that counts
//! messages, with 2 to 16 ranks, all roots and all algorithms.

use super::*;
use crate::abi::status::DTL_SUCCESS;
use crate::abi::word::{DTL_DTYPE_UINT64, DTL_OP_SUM};
use crate::backend::in_process;
use crate::runtime::comm::coll::coll_exec::Run;
use crate::runtime::comm::coll::schedule::Advance;
use crate::runtime::comm::coll::{CallMode, StartedColl};
use crate::runtime::comm::op_desc::KINDS;
use crate::runtime::component::{
    Completion, Dest, Groups, Matched, OpId, Properties, RecvMode, Selector, SendMode, Transport,
    poll_of,
};
use crate::runtime::types::reduction;
use crate::sys::memory::buf::Scratch;
use crate::sys::sync::lock::Mutex;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::task::Poll;

/// Number and total size (in bytes) of the messages that a rank has sent and received, and the
/// peers of these messages.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Count {
    sent: u64,
    sent_bytes: u64,
    received: u64,
    received_bytes: u64,
    peers: BTreeSet<i32>,
}

impl Count {
    fn sends(&mut self, to: i32, bytes: u64) {
        (self.sent, self.sent_bytes) = (self.sent + 1, self.sent_bytes + bytes);
        self.peers.insert(to);
    }

    fn receives(&mut self, from: i32, bytes: u64) {
        (self.received, self.received_bytes) = (self.received + 1, self.received_bytes + bytes);
        self.peers.insert(from);
    }
}

/// State of the simulated network: messages in flight, posted receives, and the message counts of
/// each rank.
#[derive(Default)]
struct Net {
    messages: HashMap<(i32, i32, u64), VecDeque<Scratch>>,
    receives: HashMap<u64, (Region, Selector)>,
    next: u64,
    counts: Vec<Count>,
}

struct Wire {
    rank: i32,
    properties: Properties,
    net: Arc<Mutex<Net>>,
}

/// Operation id of all sends. Sends complete immediately, so they need no distinct ids.
const SENT: OpId = OpId(0);

impl Transport for Wire {
    fn properties(&self) -> &Properties {
        &self.properties
    }
    fn groups(&self) -> Groups<'_> {
        Groups::NONE
    }
    fn start_send(
        &self,
        data: Region,
        to: Dest,
        _mode: SendMode,
        _may_block: bool,
    ) -> Result<OpId> {
        let mut net = self.net.lock();
        net.counts[self.rank as usize].sends(to.rank, data.len() as u64);
        let copy = Scratch::copy_of(data).unwrap();
        net.messages.entry((self.rank, to.rank, to.word)).or_default().push_back(copy);
        Ok(SENT)
    }
    fn start_recv(&self, data: Region, select: Selector, _mode: RecvMode<'_>) -> Result<OpId> {
        let mut net = self.net.lock();
        net.next += 1;
        let id = net.next;
        net.receives.insert(id, (data, select));
        Ok(OpId(id))
    }
    fn test(&self, op: OpId, completion: &mut Completion) -> Poll<Result<()>> {
        let mut test = || -> Result<bool> {
            let mut net = self.net.lock();
            let done = |source, word, size| Completion {
                source,
                status: DTL_SUCCESS,
                match_bits: word,
                size,
            };
            if op == SENT {
                *completion = done(self.rank, 0, 0);
                return Ok(true);
            }
            let (data, select) = net.receives[&op.0];
            let queue = net.messages.get_mut(&(select.source, self.rank, select.match_bits));
            let Some(message) = queue.and_then(VecDeque::pop_front) else { return Ok(false) };
            net.receives.remove(&op.0);
            data.copy_from(message.region());
            let bytes = message.region().len() as u64;
            net.counts[self.rank as usize].receives(select.source, bytes);
            *completion = done(select.source, select.match_bits, bytes);
            Ok(true)
        };
        poll_of(test())
    }
    fn probe(&self, _select: Selector) -> Result<Option<Completion>> {
        Ok(None)
    }
    fn take(&self, _select: Selector) -> Result<Option<Matched>> {
        Ok(None)
    }
    fn receive_matched(&self, message: OpId, _data: Region) -> Result<OpId> {
        Ok(message)
    }
    fn progress(&self) {}
    fn cancel(&self, _op: OpId) -> Result<()> {
        Ok(())
    }
    fn close(&self) -> Result<()> {
        Ok(())
    }
}

/// All ranks of a communicator, with the send and receive buffer of each rank.
struct Ranks {
    job: DryRunJob,
    net: Arc<Mutex<Net>>,
    comms: Vec<Comm>,
    send: Vec<Scratch>,
    recv: Vec<Scratch>,
}

impl Ranks {
    fn new(job: DryRunJob) -> Self {
        let counts = vec![Count::default(); job.ranks as usize];
        let net = Arc::new(Mutex::new(Net { counts, ..Net::default() }));
        let open = |rank: i32| {
            let nodes = (job.per_node > 0)
                .then(|| (0..job.ranks).map(|rank| rank / job.per_node).collect());
            let properties = Properties { nodes, ..Properties::new(rank, job.ranks, "counts") };
            let wire = Box::new(Wire { rank, properties, net: Arc::clone(&net) });
            in_process::comm_over(wire)
        };
        // Large data is not sent in blocks, so one block is enough.
        let blocks = if job.bytes > 16 << 10 { 1 } else { job.ranks as usize };
        let room = |_| Scratch::new(job.bytes * blocks).unwrap();
        let all = || 0..job.ranks;
        let (comms, send, recv) =
            (all().map(open).collect(), all().map(room).collect(), all().map(room).collect());
        Ranks { job, net, comms, send, recv }
    }

    /// Starts a nonblocking collective on each rank and completes all requests. Returns the message
    /// counts of each rank.
    fn run(&self, name: &str) -> Vec<Count> {
        let begun = (0..self.job.ranks).map(|rank| {
            let comm = &self.comms[rank as usize];
            (comm, self.begin(name, rank).unwrap())
        });
        let mut going: Vec<(&Comm, Run)> = begun
            .filter_map(|(comm, begun)| {
                let StartedColl::Going(mut run) = begun else { return None };
                (!run.start(comm).unwrap()).then_some((comm, run))
            })
            .collect();
        while !going.is_empty() {
            let before = going.len();
            let mut moved = false;
            going.retain_mut(|(comm, run)| {
                let advance = run.progress(comm).unwrap();
                moved |= advance != Advance::Waiting;
                advance != Advance::Done
            });
            assert!(moved || going.len() < before, "{name}: ranks wait for each other");
        }
        let mut net = self.net.lock();
        assert!(net.messages.values().all(VecDeque::is_empty), "{name}: messages are left");
        let none = vec![Count::default(); self.job.ranks as usize];
        std::mem::replace(&mut net.counts, none)
    }

    fn begin(&self, name: &str, rank: i32) -> Result<StartedColl> {
        let row = coll::rows().find(|row| row.kind.name() == name).unwrap();
        let (comm, at) = (&self.comms[rank as usize], rank as usize);
        let DryRunJob { bytes, root, commutes, ranks, .. } = self.job;
        let peers = [(rank + ranks - 1) % ranks, (rank + 1) % ranks];
        let is_neighborhood = row.kind == Kind::NeighborAlltoallv;
        let buffer = |extent, all: Region| match extent {
            Extent::Nothing => Buffer::NONE,
            Extent::Own => Buffer::Whole(all.part(0, bytes)),
            Extent::All => Buffer::Whole(all),
            Extent::Varied => {
                let block = |rank: i32| all.part(rank as usize * bytes, bytes);
                Buffer::Blocks(match is_neighborhood {
                    true => peers.map(block).to_vec(),
                    false => (0..ranks).map(block).collect(),
                })
            }
        };
        let op = if commutes { DTL_OP_SUM } else { DTL_OP_REPLACE };
        let neighbors = || Neighbors { dests: peers.to_vec(), sources: peers.to_vec() };
        let args = CollArgs {
            root,
            dtype: DTL_DTYPE_UINT64,
            count: (bytes / 8) as u64,
            bytes,
            reduction: row.reduces.then(|| reduction(DTL_DTYPE_UINT64, op).unwrap()),
            send: buffer(row.send, self.send[at].region()),
            recv: buffer(row.recv, self.recv[at].region()),
            neighbors: is_neighborhood.then(|| Box::new(neighbors())),
            ..CollArgs::new(row.kind)
        };
        coll::begin(comm, CallMode::Request, &args)
    }
}

fn completion(plan: &mut CollectivePlan, rank: i32) -> Count {
    let mut count = Count::default();
    plan.for_each_step(rank, &mut |step| match step {
        PlanStep::Send { to, bytes } => count.sends(to, bytes),
        PlanStep::Recv { from, bytes } => count.receives(from, bytes),
        PlanStep::Local | PlanStep::Round => {}
    })
    .unwrap();
    count
}

fn has_root(name: &str) -> bool {
    ["bcast", "reduce", "gather", "scatter", "gatherv", "scatterv"].contains(&name)
}

/// Compares the messages that each plan predicts with those that were sent and received, for each
/// rank and collective. Adds the algorithms of the plans to `met`.
fn compare(
    job: DryRunJob,
    names: &[&'static str],
    met: &mut BTreeSet<(&'static str, &'static str)>,
) {
    for name in names {
        let some =
            if job.bytes > 16 << 10 { vec![1] } else { vec![0, 1, job.ranks / 2, job.ranks - 1] };
        let roots = if has_root(name) { some } else { vec![0] };
        for root in roots.into_iter().collect::<BTreeSet<_>>() {
            let job = DryRunJob { root, ..job };
            let mut plan = CollectivePlan::new(name, job).unwrap();
            met.insert((name, plan.algorithm()));
            let expected: Vec<Count> =
                (0..job.ranks).map(|rank| completion(&mut plan, rank)).collect();
            assert_eq!(
                Ranks::new(job).run(name),
                expected,
                "{name}, {job:?}, {}",
                plan.algorithm()
            );
        }
    }
}

#[test]
fn plans_tell_what_is_sent() {
    let all: Vec<&'static str> = collectives().collect();
    let large = ["bcast", "reduce", "allreduce"];
    let mut met = BTreeSet::new();
    for ranks in 2..=16 {
        for commutes in [true, false] {
            let job = DryRunJob { ranks, bytes: 8, root: 0, element: 8, commutes, per_node: 0 };
            for bytes in [8, 5 << 10] {
                compare(DryRunJob { bytes, ..job }, &all, &mut met);
            }
            for bytes in
                [24 << 10, 264 << 10].into_iter().filter(|_| [2, 4, 7, 16].contains(&ranks))
            {
                compare(DryRunJob { bytes, ..job }, &large, &mut met);
            }
            for per_node in [2, 3, 4] {
                compare(DryRunJob { per_node, ..job }, &all, &mut met);
            }
        }
    }
    // Every algorithm that the table can select was compared.
    let chosen = |name: &str| met.iter().filter(|(of, _)| *of == name).count();
    let expected = [("barrier", 2), ("bcast", 3), ("reduce", 3), ("allreduce", 4), ("gather", 3)];
    let more =
        [("scatter", 3), ("allgather", 3), ("alltoall", 2), ("scan", 1), ("reduce_scatter", 1)];
    for (name, count) in expected.into_iter().chain(more) {
        assert_eq!(chosen(name), count, "{name}: {met:?}");
    }
    assert_eq!(all.len(), 17);
}

/// Checks that all ranks together receive as many messages and bytes as they send, in plans that
/// divide the data into segments or among the ranks. The elements are one byte long, so that the
/// parts may have unequal sizes.
#[test]
fn what_is_sent_is_received() {
    for (name, how) in [
        ("reduce", Algorithm::Binomial),
        ("reduce", Algorithm::HalvingGather),
        ("allreduce", Algorithm::Rabenseifner),
        ("allreduce", Algorithm::PairwiseRing),
        ("bcast", Algorithm::ScatterRing),
    ] {
        for (ranks, bytes) in [(2, 3 << 20), (7, 1 << 30), (64, 5_000_001), (100, 1 << 30)] {
            let job = DryRunJob { ranks, bytes, root: 1, element: 1, commutes: true, per_node: 0 };
            let mut plan = CollectivePlan::new(name, job).unwrap().by(how);
            let counts: Vec<Count> = (0..ranks).map(|rank| completion(&mut plan, rank)).collect();
            let sum = |of: fn(&Count) -> u64| counts.iter().map(of).sum::<u64>();
            assert_eq!(sum(|count| count.sent), sum(|count| count.received));
            assert_eq!(sum(|count| count.sent_bytes), sum(|count| count.received_bytes));
        }
    }
}

#[test]
fn a_plan_of_a_million_ranks_takes_no_memory_of_theirs() {
    let job = DryRunJob {
        ranks: 1 << 20,
        bytes: 1 << 30,
        root: 5,
        element: 8,
        commutes: true,
        per_node: 0,
    };
    for name in collectives() {
        let mut plan = CollectivePlan::new(name, job).unwrap();
        let (mut sent, mut steps) = (0, 0);
        let size = plan.for_each_step(7, &mut |step| {
            steps += 1;
            sent += u64::from(matches!(step, PlanStep::Send { .. }));
        });
        assert_eq!(size.unwrap().steps, steps, "{name}");
        assert!(steps > 0 && (sent > 0 || has_root(name)), "{name}");
    }
}

/// Checks that a plan exists only for collectives that execute a single list of steps. The test
/// `plans_tell_what_is_sent` compares these lists with the messages that are sent.
#[test]
fn only_what_is_one_list_of_steps_is_offered() {
    let job = DryRunJob { ranks: 16, bytes: 8, root: 0, element: 8, commutes: true, per_node: 0 };
    let others = [
        "send",
        "put",
        "split",
        "dup",
        "shrink",
        "group_create",
        "win_create/allocate",
        "win_destroy",
        "fence",
    ];
    for name in others {
        assert!(KINDS.iter().any(|(_, known)| *known == name), "{name}");
        assert!(
            CollectivePlan::new(name, job).is_none()
                && collectives().all(|offered| offered != name),
            "{name}"
        );
    }
    for name in collectives() {
        let is_all_at_once = CollectivePlan::new(name, job).unwrap().algorithm() == "all at once";
        assert_eq!(is_all_at_once, ["alltoallv", "neighbor_alltoallv"].contains(&name), "{name}");
    }
}

#[test]
fn few_bytes_of_few_ranks_use_mailboxes() {
    let prefers = |name: &str, ranks, bytes, commutes| {
        let job = DryRunJob { ranks, bytes, root: 0, element: 8, commutes, per_node: 0 };
        CollectivePlan::new(name, job).unwrap().prefers_mailboxes(2048)
    };
    for name in ["barrier", "bcast", "reduce", "allreduce", "allgather"] {
        assert!(prefers(name, 2, 8, true) && prefers(name, 64, 512, false), "{name}");
        // The data of all ranks together is at most 32 KiB; a barrier has no data.
        assert_eq!(prefers(name, 64, 520, true), name == "barrier");
    }
    for name in ["gather", "scan", "allgatherv", "alltoall", "neighbor_alltoallv", "reduce_scatter"]
    {
        assert!(!prefers(name, 4, 8, true), "{name}");
    }
    assert!(prefers("allreduce", 2, 2040, true) && !prefers("allreduce", 2, 2048, true));
}
