//! A test case consists of numbers that describe the operations of all ranks. `generate` creates a
//! case from a seed and the case's number, `plan` derives the buffers and calls of one rank, and
//! `shrink` reduces a case that failed. A case can be written as a line of numbers for the program
//! in tests/oracle, which runs the same cases with MPI.

use crate::data::{self, Type};
use crate::window::Schedule;
use dtl_sys::{dtl_dtype_t, dtl_reduce_op_t};
use std::fmt::Write;

/// Defines an enumeration and its table: `Variant "name": "what is checked";`.
macro_rules! operations {
    ($($op:ident $name:literal: $what:literal;)+) => {
        /// Operation of a step. The discriminants are the operation numbers in files with cases.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Op {
            $($op),+
        }

        /// Table of all operations: the variant, the name (which --only accepts), and what is
        /// checked.
        pub(crate) const OPS: &[(Op, &str, &str)] = &[$((Op::$op, $name, $what)),+];
    };
}

operations! {
    Barrier "barrier": "dtl_comm_barrier, _ibarrier";
    Bcast "bcast": "dtl_comm_bcast, _ibcast: every root, 0 elements too";
    Reduce "reduce": "dtl_comm_reduce, _ireduce: every operation and dtype, in place or not";
    Allreduce "allreduce": "dtl_comm_allreduce, _iallreduce: likewise";
    Gather "gather": "dtl_comm_gather, _igather: in place at the root or not";
    Gatherv "gatherv": "dtl_comm_gatherv, _igatherv: blocks of any size, in any order, with gaps";
    Scatter "scatter": "dtl_comm_scatter, _iscatter: in place at the root or not";
    Scatterv "scatterv": "dtl_comm_scatterv, _iscatterv: blocks as for gatherv";
    Allgather "allgather": "dtl_comm_allgather, _iallgather: in place or not";
    Allgatherv "allgatherv": "dtl_comm_allgatherv, _iallgatherv: blocks as for gatherv";
    Alltoall "alltoall": "dtl_comm_alltoall, _ialltoall: in place or not";
    Alltoallv "alltoallv": "dtl_comm_alltoallv, _ialltoallv: blocks as for gatherv, both ways";
    ReduceScatter "reduce_scatter": "dtl_comm_reduce_scatter, _ireduce_scatter: blocks of 0 too";
    ReduceScatterBlock "reduce_scatter_block":
        "dtl_comm_reduce_scatter_block, _ireduce_scatter_block";
    Scan "scan": "dtl_comm_scan, _iscan: in place or not";
    Exscan "exscan": "dtl_comm_exscan, _iexscan: rank 0's buffer stays as it is";
    Neighbor "neighbor_alltoallv": "dtl_comm_neighbor_alltoallv, _ineighbor_…: random graphs";
    P2p "p2p": "send, isend, persistent; recv, irecv; any source, any tag, truncation, order";
    Sendrecv "sendrecv": "dtl_comm_sendrecv round a ring or with nobody at the ends";
    Replace "sendrecv_replace": "dtl_comm_sendrecv_replace, likewise";
    Ssend "ssend": "p2p with dtl_comm_ssend and _issend";
    Probe "probe": "p2p with dtl_comm_probe, _iprobe, _mprobe, _improbe, _mrecv, _imrecv";
    Window "window":
        "one-sided: every dtype and operation, fences, locks of one, several or all targets";
    WindowMixed "window_mixed":
        "fetch_op and compare_and_swap on one element at once: wider than MPI's rule";
    WindowMisuse "window_misuse":
        "what one-sided calls refuse, in the middle of others that are right";
}

impl Op {
    pub(crate) fn name(self) -> &'static str {
        OPS[self as usize].1
    }

    pub(crate) fn of_name(name: &str) -> Option<Op> {
        OPS.iter().find(|(_, known, _)| *known == name).map(|(op, ..)| *op)
    }

    /// Returns true for operations that reduce values.
    pub(crate) fn reduces(self) -> bool {
        use Op::*;
        matches!(self, Reduce | Allreduce | ReduceScatter | ReduceScatterBlock | Scan | Exscan)
    }

    /// Returns true for batches of messages.
    pub(crate) fn is_batch(self) -> bool {
        matches!(self, Op::P2p | Op::Ssend | Op::Probe)
    }

    /// Returns true for operations on an RMA window that the step creates, uses and destroys.
    pub(crate) fn is_window(self) -> bool {
        matches!(self, Op::Window | Op::WindowMixed | Op::WindowMisuse)
    }

    /// Returns true for point-to-point operations.
    pub(crate) fn is_p2p(self) -> bool {
        self.is_batch() || matches!(self, Op::Sendrecv | Op::Replace)
    }

    /// Returns true for operations with a root.
    pub(crate) fn is_rooted(self) -> bool {
        use Op::*;
        matches!(self, Bcast | Reduce | Gather | Gatherv | Scatter | Scatterv)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SendKind {
    Send,
    Ssend,
    Isend,
    Issend,
    Persistent,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RecvKind {
    /// Nonblocking receive, posted before anything is sent.
    Irecv,
    Persistent,
    /// Blocking receive, called after everything was sent.
    Recv,
    Probe,
    Mprobe,
    Iprobe,
    Improbe,
}

impl RecvKind {
    pub(crate) fn is_early(self) -> bool {
        matches!(self, RecvKind::Irecv | RecvKind::Persistent)
    }
}

/// Message of a batch. `source` and `dest` are ranks in the case's communicator. A message from or
/// to a rank that does not exist is skipped.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) source: u64,
    pub(crate) dest: u64,
    pub(crate) tag: i32,
    pub(crate) count: u64,
    /// Capacity of the receive buffer, as a number of elements.
    pub(crate) room: u64,
    pub(crate) send: SendKind,
    pub(crate) recv: RecvKind,
    pub(crate) any_tag: bool,
    /// True if the receive uses DTL_ANY_SOURCE. The value is the same for all messages to one rank.
    pub(crate) any_source: bool,
    /// Position of the receive in the posting order. Receives with equal values are posted in list
    /// order.
    pub(crate) order: u64,
}

/// One operation of a case.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) op: Op,
    pub(crate) ty: Type,
    pub(crate) reduction: dtl_reduce_op_t,
    pub(crate) nonblocking: bool,
    /// True if the call uses DTL_IN_PLACE; for sendrecv: true if the ring wraps around, so that
    /// every rank has a peer.
    pub(crate) in_place: bool,
    /// Number whose remainder modulo the size of the communicator is the root; for sendrecv:
    /// distance from the source to the destination.
    pub(crate) root: u64,
    /// Number of elements between blocks; for sendrecv: the tag.
    pub(crate) gap: u64,
    /// Order of the blocks in their buffers. If it is empty, the blocks are contiguous and in rank
    /// order, and the call passes no displacements.
    pub(crate) order: Vec<u64>,
    /// Numbers of elements: one for all ranks, one for each rank, or a matrix with one for each
    /// pair of ranks (a row for each sender; -1 if there is no edge from the sender to the receiver
    /// in the graph of a neighborhood collective).
    pub(crate) counts: Vec<i64>,
    pub(crate) messages: Vec<Message>,
    pub(crate) window: Schedule,
}

impl Step {
    pub(crate) fn dtype(&self) -> dtl_dtype_t {
        crate::user::dtype(self.ty.dtype)
    }

    /// Returns the first count, which is the only one in most operations.
    pub(crate) fn count(&self) -> u64 {
        self.counts.first().map_or(0, |&count| count.max(0) as u64)
    }

    /// Returns the count of a rank.
    pub(crate) fn count_of(&self, rank: u64) -> u64 {
        self.counts.get(rank as usize).map_or(0, |&count| count.max(0) as u64)
    }

    /// Returns the number of elements that `from` sends to `to`; `None` if there is no edge between
    /// them. With DTL_IN_PLACE the number must be the same in both directions.
    pub(crate) fn count_between(&self, from: u64, to: u64, ranks: u64) -> Option<u64> {
        let in_place = self.in_place && self.op == Op::Alltoallv;
        let (row, column) = if in_place { (from.min(to), from.max(to)) } else { (from, to) };
        let count = self.counts.get((row * ranks + column) as usize).copied().unwrap_or(0);
        u64::try_from(count).ok()
    }
}

/// Communicator on which a case runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Group {
    World,
    Dup,
    /// Color and key of each rank. A rank with color -1 is not a member of any new communicator.
    Split(Vec<(i32, i32)>),
}

/// Random case: a communicator and the steps on it.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) number: u64,
    /// Number of ranks of the job.
    pub(crate) ranks: u64,
    pub(crate) group: Group,
    /// Method that completes the requests: 0 = wait_all, 1 = wait for one request after another,
    /// beginning with the last, 2 = wait_any, 3 = wait_some, 4 = test_all, 5 = test.
    pub(crate) finish: u64,
    pub(crate) steps: Vec<Step>,
}

/// Position of a rank in a case's communicator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) rank: u64,
    pub(crate) size: u64,
    pub(crate) color: u64,
}

impl Case {
    /// Enlarges each receive buffer to the size of its message, so that no message is truncated.
    /// The buffers for matched probes keep their sizes: the size of the message is known before the
    /// receive, so the library itself truncates the message.
    pub(crate) fn uncut(&mut self) {
        let messages = self.steps.iter_mut().flat_map(|step| &mut step.messages);
        for message in
            messages.filter(|one| !matches!(one.recv, RecvKind::Mprobe | RecvKind::Improbe))
        {
            message.room = message.room.max(message.count);
        }
    }

    /// Returns the position of a rank in the case's communicator; `None` if it is not a member.
    pub(crate) fn place(&self, rank: u64) -> Option<Place> {
        let Group::Split(places) = &self.group else {
            return Some(Place { rank, size: self.ranks, color: 0 });
        };
        let (color, key) = *places.get(rank as usize)?;
        let mine = (key, rank);
        let others = places.iter().zip(0u64..).filter(|((other, _), _)| *other == color);
        let before = others.clone().filter(|((_, key), rank)| (*key, *rank) < mine).count();
        let size = others.count() as u64;
        u64::try_from(color).ok().map(|color| Place { rank: before as u64, size, color })
    }

    /// Returns the case as a line of numbers, followed by # and a description of the case.
    pub(crate) fn line(&self) -> String {
        let mut line = format!("{} {} ", self.number, self.ranks);
        match &self.group {
            Group::World => line.push_str("0 "),
            Group::Dup => line.push_str("1 "),
            Group::Split(places) => {
                line.push_str("2 ");
                places
                    .iter()
                    .for_each(|(color, key)| put(&mut line, &[i64::from(*color), i64::from(*key)]));
            }
        }
        put(&mut line, &[self.steps.len() as i64]);
        self.steps.iter().for_each(|step| step.put(&mut line));
        line.push_str("# ");
        line.push_str(&self.describe());
        line
    }

    /// In words.
    pub(crate) fn describe(&self) -> String {
        let group = match &self.group {
            Group::World => "world".to_owned(),
            Group::Dup => "dup".to_owned(),
            Group::Split(places) => {
                let colors: Vec<String> =
                    places.iter().map(|(color, _)| color.to_string()).collect();
                format!("split {}", colors.join(","))
            }
        };
        let steps: Vec<String> = self.steps.iter().map(Step::describe).collect();
        format!("{group}: {}", steps.join("; "))
    }
}

fn put(line: &mut String, numbers: &[i64]) {
    for number in numbers {
        let _ = write!(line, "{number} ");
    }
}

impl Step {
    fn put(&self, line: &mut String) {
        let flags = [i64::from(self.in_place), self.root as i64, self.gap as i64];
        put(line, &[self.op as i64, i64::from(self.ty.dtype), i64::from(self.reduction)]);
        put(line, &flags);
        put(line, &[self.order.len() as i64]);
        self.order.iter().for_each(|&place| put(line, &[place as i64]));
        put(line, &[self.counts.len() as i64]);
        put(line, &self.counts);
        put(line, &[self.messages.len() as i64]);
        for m in &self.messages {
            put(
                line,
                &[m.source as i64, m.dest as i64, i64::from(m.tag), m.count as i64, m.room as i64],
            );
            put(line, &[i64::from(m.any_tag), i64::from(m.any_source), m.order as i64]);
        }
        self.window.put(line);
    }

    /// In words.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!("{}{}", if self.nonblocking { "i" } else { "" }, self.op.name());
        if self.op.is_window() {
            text.push_str(&self.window.describe());
            return text;
        }
        if self.op != Op::Barrier {
            let _ = write!(text, " {}", self.ty.name);
        }
        if self.op.reduces() {
            let _ = write!(text, " {}", data::reduction_name(self.reduction));
        }
        if self.op.is_batch() {
            let total: u64 = self.messages.iter().map(|message| message.count).sum();
            let _ = write!(text, " {} messages, {total} elements", self.messages.len());
        } else if self.op != Op::Barrier {
            match self.counts.as_slice() {
                [count] => _ = write!(text, " count {count}"),
                counts => {
                    _ = write!(text, " counts {}", counts.iter().filter(|&&c| c > 0).sum::<i64>())
                }
            }
        }
        if self.op.is_rooted() {
            let _ = write!(text, " root {}", self.root);
        }
        if self.in_place && !self.op.is_p2p() {
            text.push_str(" in place");
        }
        text
    }
}
