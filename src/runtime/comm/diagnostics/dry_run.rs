//! Dry run of collectives: passes the steps of any rank, for any number of ranks, to a callback.
//! The functions that generate the steps are those of real collectives. No message is sent, and no
//! memory is allocated for the data: the buffers are address ranges that are never accessed.
//!
//! Programs such as `dtl-bench model` use the dry run to report how the cost grows with the number
//! of ranks. The dry run does not include collectives of a few bytes over mailboxes (`small_coll`),
//! which send no messages, or native collectives of an MPI library.

use crate::abi::word::{DTL_DTYPE_BYTE, DTL_OP_REPLACE};
use crate::error::Result;
use crate::runtime::comm::Comm;
use crate::runtime::comm::coll::algorithms::choice::{Algorithm, Allowed, choose};
use crate::runtime::comm::coll::algorithms::levels::Levels;
use crate::runtime::comm::coll::algorithms::{AlgorithmChoice, Group};
use crate::runtime::comm::coll::schedule_builder::{Step, Steps};
use crate::runtime::comm::coll::{
    self, Buffer, CollArgs, CollectiveRow, Extent, Kind, Neighbors, mailboxes, schedule,
};
use crate::runtime::comm::flight_recorder::Recorder;
use crate::runtime::comm::rank_map::Members;
use crate::runtime::types;
use crate::sys::memory::buf::{Addr, Region};

/// Arguments of a collective, and the number of ranks.
#[derive(Clone, Copy, Debug)]
pub struct DryRunJob {
    /// Number of ranks, at least 1.
    pub ranks: i32,
    /// Size in bytes of one rank's data or, for collectives of blocks (such as gather), of one
    /// block. The blocks of the vector variants are all equal.
    pub bytes: usize,
    /// Root rank, if the collective has a root.
    pub root: i32,
    /// Element size of reductions in bytes.
    pub element: usize,
    /// True if the operation commutes.
    pub commutes: bool,
    /// Number of consecutive ranks on each node; 0 if unknown.
    pub per_node: i32,
}

/// One step, with its cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlanStep {
    /// Message to a rank.
    Send {
        /// Receiving rank.
        to: i32,
        /// Size of the message in bytes.
        bytes: u64,
    },
    /// Message from a rank.
    Recv {
        /// Sending rank.
        from: i32,
        /// Size of the message in bytes.
        bytes: u64,
    },
    /// Local copy or reduction.
    Local,
    /// End of a round: all previous steps complete before any later step starts.
    Round,
}

/// Size of one rank's step list and of its scratch memory.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Size {
    /// Number of steps.
    pub steps: u64,
    /// Bytes of scratch memory.
    pub scratch: u64,
}

/// Size, in bytes, of one step in the step list of a collective in progress.
pub const STEP_BYTES: usize = schedule::STEP_BYTES;

/// Returns the names of the collectives that consist of one list of steps. Operations that consist
/// of several parts (a fence is a flush and a barrier; a split is an allgather and local work) are
/// not included.
pub fn collectives() -> impl Iterator<Item = &'static str> {
    coll::rows().map(|row| row.kind.name())
}

/// Steps of a collective, with the algorithm that the library selects.
pub struct CollectivePlan {
    row: &'static CollectiveRow,
    how: Algorithm,
    job: DryRunJob,
    levels: Option<Levels>,
}

impl CollectivePlan {
    /// Creates the plan of `collective`; `None` if no collective has that name.
    pub fn new(collective: &str, job: DryRunJob) -> Option<CollectivePlan> {
        let row = coll::rows().find(|row| row.kind.name() == collective)?;
        let levels = match job.per_node {
            0 => None,
            each => Levels::new(0, (0..job.ranks).map(|rank| rank / each)),
        };
        let plan = CollectivePlan { row, how: Algorithm::Linear, job, levels };
        Some(CollectivePlan { how: plan.choose(false), ..plan })
    }

    /// Selects the algorithm. If `has_mailboxes` is true, this may be the algorithm over mailboxes
    /// in shared memory.
    fn choose(&self, has_mailboxes: bool) -> Algorithm {
        let (kind, job) = (self.row.kind, &self.job);
        let two_level =
            self.levels.as_ref().is_some_and(|levels| levels.suit(kind, job.commutes, false));
        let commutes = job.commutes || !self.row.reduces;
        choose(
            kind,
            job.ranks,
            self.row.deciding_bytes(self.job.bytes),
            commutes,
            Allowed { two_level, mailboxes: has_mailboxes },
        )
    }

    /// Returns true if a communicator executes this collective over its mailboxes in shared memory,
    /// and therefore sends none of the plan's messages. `room` is the size, in bytes, of the space
    /// for one rank's data in a mailbox.
    pub fn prefers_mailboxes(&self, room: usize) -> bool {
        let takes =
            self.row.deciding_bytes(self.job.bytes) <= mailboxes::most_bytes(room, self.job.ranks);
        self.choose(takes) == Algorithm::Mailbox
    }

    /// Returns the name of the algorithm.
    pub fn algorithm(&self) -> &'static str {
        self.how.name()
    }

    /// Returns true if the algorithm has two levels: inside the nodes, and among the nodes.
    pub fn is_two_level(&self) -> bool {
        self.how == Algorithm::TwoLevel
    }

    /// Returns the plan with its algorithm replaced by `how`, which must be valid for this
    /// collective.
    #[cfg(test)]
    fn by(mut self, how: Algorithm) -> Self {
        self.how = how;
        self
    }

    /// Passes the steps of `rank` to the callback, in order. Returns the size of its step list.
    ///
    /// # Errors
    /// Returns the errors of the functions that generate the steps. Currently these functions
    /// return no errors.
    pub fn for_each_step(&mut self, rank: i32, visit: &mut impl FnMut(PlanStep)) -> Result<Size> {
        if let Some(levels) = &mut self.levels {
            levels.rank = rank;
        }
        let mut sink = StepSink { steps: Vec::new(), next: FIRST, scratch: 0 };
        let g = Group { rank, size: self.job.ranks };
        let choice = AlgorithmChoice { how: self.how, levels: self.levels.as_ref() };
        let args = self.args(&mut sink, g)?;
        (self.row.list)(&mut sink, g, choice, &args)?;
        for step in &sink.steps {
            visit(match *step {
                Step::Send { to, data } => PlanStep::Send { to, bytes: data.len() as u64 },
                Step::Recv { from, data } => PlanStep::Recv { from, bytes: data.len() as u64 },
                Step::Reduce { .. } | Step::ReduceToRight { .. } | Step::Copy { .. } => {
                    PlanStep::Local
                }
                Step::Round => PlanStep::Round,
            });
        }
        Ok(Size { steps: sink.steps.len() as u64, scratch: sink.scratch })
    }

    fn args(&self, s: &mut StepSink, g: Group) -> Result<CollArgs> {
        let (row, DryRunJob { bytes, root, element, commutes, .. }) = (self.row, self.job);
        // No data is reduced, so only these two properties of the operation matter.
        let reduction = match row.reduces {
            true => {
                let mut any = types::reduction(DTL_DTYPE_BYTE, DTL_OP_REPLACE)?;
                (any.element, any.commutes) = (element, commutes);
                Some(any)
            }
            false => None,
        };
        let mut buffer = |extent| match extent {
            Extent::Nothing => Buffer::NONE,
            Extent::Own => Buffer::Whole(s.buffer(bytes)),
            // One block of equal size for each rank.
            Extent::All | Extent::Varied => {
                Buffer::Whole(s.buffer(bytes * g.size.unsigned_abs() as usize))
            }
        };
        let (send, recv) = (buffer(row.send), buffer(row.recv));
        let args = CollArgs { root, bytes, reduction, send, recv, ..CollArgs::new(row.kind) };
        Ok(if row.kind == Kind::NeighborAlltoallv { with_neighbors(args, g) } else { args })
    }
}

/// Replaces each buffer with blocks for the two neighbors of this rank in a ring.
fn with_neighbors(args: CollArgs, g: Group) -> CollArgs {
    let ranks = vec![(g.rank + g.size - 1) % g.size, (g.rank + 1) % g.size];
    let blocks = |buffer: &Buffer| {
        Buffer::Blocks(ranks.iter().map(|rank| buffer.block(*rank, args.bytes)).collect())
    };
    let (send, recv) = (blocks(&args.send), blocks(&args.recv));
    let neighbors = Neighbors { dests: ranks.clone(), sources: ranks };
    CollArgs { send, recv, neighbors: Some(Box::new(neighbors)), ..args }
}

/// Address of the first imaginary buffer (address range that is never accessed); no buffer is at
/// address 0.
const FIRST: usize = 4096;

/// Sink that collects the steps of one rank.
struct StepSink {
    steps: Vec<Step>,
    /// Address of the next imaginary buffer (address range that is never accessed).
    next: usize,
    /// Bytes of scratch memory.
    scratch: u64,
}

impl StepSink {
    /// Returns an imaginary buffer (address range that is never accessed) that is not adjacent to
    /// any other buffer.
    fn buffer(&mut self, len: usize) -> Region {
        let region = Region::allocated(Addr::NULL.offset(self.next), len);
        self.next += len + 1;
        region
    }
}

impl Steps for StepSink {
    fn steps(&mut self) -> &mut Vec<Step> {
        &mut self.steps
    }

    fn scratch(&mut self, len: usize) -> Result<Region> {
        if len == 0 {
            return Ok(Region::EMPTY);
        }
        self.scratch += len as u64;
        Ok(self.buffer(len))
    }
}

/// Returns the number of bytes that a communicator uses on each rank, excluding its transport.
/// `nodes` is the number of nodes (1 if unknown). If `is_split` is true, the result includes the
/// rank tables of a communicator that `dtl_comm_split` has created from all ranks.
pub fn comm_bytes(ranks: u64, nodes: u64, is_split: bool) -> u64 {
    let levels = if 1 < nodes && nodes < ranks { Levels::heap_bytes(ranks, nodes) } else { 0 };
    let members = if is_split { Members::heap_bytes(ranks, ranks) } else { 0 };
    (size_of::<Comm>() + Recorder::HEAP_BYTES) as u64 + levels + members
}

#[cfg(test)]
#[path = "tests/dry_run.rs"]
mod tests;
