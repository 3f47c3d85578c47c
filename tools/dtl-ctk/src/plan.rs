//! Buffers (filled with the input), counts and displacements that one rank passes to the library in
//! a step (one operation of a random test case). The module `reference` computes the expected
//! output; the module `collective` calls the library.

use crate::case::{Op, Place, Step};
use crate::data::{self, FILLER, Origin};
use dtl_sys::DTL_PROC_NULL;

/// Number of guard bytes after each receive buffer. The library must not write them.
pub(crate) const GUARD: usize = 16;

/// One rank's arguments for a step (one operation of a random case).
#[derive(Clone, Default, Debug)]
pub(crate) struct Plan {
    pub(crate) send: Vec<u8>,
    /// Receive buffer. It contains the output after the call.
    pub(crate) recv: Vec<u8>,
    /// True if the call passes DTL_IN_PLACE instead of the send buffer.
    pub(crate) send_in_place: bool,
    pub(crate) recv_in_place: bool,
    pub(crate) count: u64,
    pub(crate) root: i32,
    pub(crate) scounts: Vec<u64>,
    pub(crate) rcounts: Vec<u64>,
    /// Displacements of the blocks. Empty if the blocks are contiguous and the call passes no
    /// displacements.
    pub(crate) sdispls: Vec<u64>,
    pub(crate) rdispls: Vec<u64>,
    pub(crate) dests: Vec<i32>,
    pub(crate) sources: Vec<i32>,
}

/// Step (one operation of a random case) together with the rank that performs it.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) step: &'a Step,
    pub(crate) place: Place,
    /// Number of ranks in the job.
    pub(crate) ranks: u64,
    pub(crate) key: u64,
}

/// Positions of the blocks in a buffer.
pub(crate) struct Layout {
    pub(crate) counts: Vec<u64>,
    pub(crate) displs: Vec<u64>,
    /// Size of the whole buffer in elements, including the gaps between blocks.
    pub(crate) total: u64,
}

impl View<'_> {
    pub(crate) fn root(&self) -> u64 {
        self.step.root % self.place.size
    }

    fn is_root(&self) -> bool {
        self.root() == self.place.rank
    }

    /// Returns the first `count` elements of block number `block` of the input of rank `source`.
    pub(crate) fn input(&self, source: u64, block: u64, count: u64) -> Vec<u8> {
        let mut bytes = vec![0; count as usize * self.step.ty.size];
        self.put_input(&mut bytes, source, block);
        bytes
    }

    pub(crate) fn put_input(&self, out: &mut [u8], source: u64, block: u64) {
        let reduction = self.step.op.reduces().then_some(self.step.reduction);
        let from = Origin { key: self.key, source, ranks: self.ranks };
        data::fill(out, self.step.ty, reduction, from, block);
    }

    /// Returns the bytes of the `count` elements that start at index `first`.
    pub(crate) fn part<'b>(&self, bytes: &'b mut [u8], first: u64, count: u64) -> &'b mut [u8] {
        let size = self.step.ty.size;
        &mut bytes[first as usize * size..][..count as usize * size]
    }

    fn filler(&self, count: u64) -> Vec<u8> {
        vec![FILLER; count as usize * self.step.ty.size + GUARD]
    }

    /// Returns the positions of blocks with these element counts, placed in the order that the step
    /// (one operation of a random case) specifies.
    pub(crate) fn layout(&self, counts: Vec<u64>) -> Layout {
        let mut displs = vec![0; counts.len()];
        let mut total = 0;
        let in_turn: Vec<u64> = (0..counts.len() as u64).collect();
        let order = if self.step.order.is_empty() { &in_turn } else { &self.step.order };
        for &block in order.iter().filter(|&&block| block < counts.len() as u64) {
            displs[block as usize] = total;
            total += counts[block as usize] + self.step.gap;
        }
        Layout { counts, displs, total }
    }

    /// Returns the ranks to which this rank sends (or from which it receives) in a
    /// neighbor_alltoallv, in the order that the step (one operation of a random case) specifies.
    pub(crate) fn neighbors(&self, sends: bool) -> Vec<u64> {
        let me = self.place.rank;
        let edge =
            |other: &u64| if sends { self.between(me, *other) } else { self.between(*other, me) };
        let mut order = self.step.order.clone();
        if order.is_empty() {
            order = (0..self.place.size).collect();
        }
        order.retain(|other| *other < self.place.size && edge(other).is_some());
        order
    }

    /// Returns the number of elements that one rank sends to another; `None` if the communication
    /// graph has no edge between them.
    pub(crate) fn between(&self, from: u64, to: u64) -> Option<u64> {
        self.step.count_between(from, to, self.ranks)
    }

    /// Returns the rank to which this rank sends in a sendrecv (or from which it receives); `None`
    /// if this rank has no destination (or no source).
    pub(crate) fn shifted(&self, sends: bool) -> Option<u64> {
        let Place { rank, size, .. } = self.place;
        let by = self.step.root % (size + 1);
        let by = if sends { by } else { size + size - by };
        match (rank + by, self.step.in_place) {
            (other, true) => Some(other % size),
            (other, false) if sends => (other < size).then_some(other),
            (other, false) => (other >= 2 * size).then(|| other - 2 * size),
        }
    }

    /// Creates the buffers and arguments that this rank passes in the step, which is one operation
    /// of a random test case.
    pub(crate) fn plan(&self) -> Plan {
        use Op::*;
        let mut plan =
            Plan { count: self.step.count(), root: self.root() as i32, ..Plan::default() };
        match self.step.op {
            Barrier | P2p | Ssend | Probe | Window | WindowMixed | WindowMisuse => {}
            Bcast => {
                plan.recv = self.filler(plan.count);
                if self.is_root() {
                    self.put_input(self.part(&mut plan.recv, 0, plan.count), self.root(), 0);
                }
            }
            Reduce | Allreduce | Scan | Exscan => self.fold(&mut plan),
            ReduceScatter | ReduceScatterBlock => self.fold_blocks(&mut plan),
            Gather | Gatherv | Allgather | Allgatherv => self.collect(&mut plan),
            Scatter | Scatterv => self.hand_out(&mut plan),
            Alltoall | Alltoallv => self.exchange(&mut plan),
            Neighbor => self.neighborhood(&mut plan),
            Sendrecv | Replace => self.shift(&mut plan),
        }
        plan
    }

    fn fold(&self, plan: &mut Plan) {
        let me = self.place.rank;
        let receives = self.step.op != Op::Reduce || self.is_root();
        if receives {
            plan.recv = self.filler(plan.count);
        }
        plan.send_in_place = self.step.in_place && receives;
        if plan.send_in_place {
            self.put_input(self.part(&mut plan.recv, 0, plan.count), me, 0);
        } else {
            plan.send = self.input(me, 0, plan.count);
        }
    }

    /// Returns the number of elements of each block in a collective with one block for each rank.
    pub(crate) fn block_counts(&self) -> Vec<u64> {
        use Op::*;
        let uniform =
            matches!(self.step.op, ReduceScatterBlock | Gather | Allgather | Scatter | Alltoall);
        let count = |rank| if uniform { self.step.count() } else { self.step.count_of(rank) };
        (0..self.place.size).map(count).collect()
    }

    fn fold_blocks(&self, plan: &mut Plan) {
        let me = self.place.rank;
        plan.rcounts = self.block_counts();
        let total = plan.rcounts.iter().sum();
        plan.send_in_place = self.step.in_place;
        if plan.send_in_place {
            plan.recv = self.filler(total);
            self.put_input(self.part(&mut plan.recv, 0, total), me, 0);
        } else {
            plan.send = self.input(me, 0, total);
            plan.recv = self.filler(plan.rcounts[me as usize]);
        }
    }

    fn collect(&self, plan: &mut Plan) {
        let me = self.place.rank;
        let layout = self.layout(self.block_counts());
        let mine = layout.counts[me as usize];
        let receives = matches!(self.step.op, Op::Allgather | Op::Allgatherv) || self.is_root();
        plan.count = mine;
        if receives {
            plan.recv = self.filler(layout.total);
        }
        plan.send_in_place = self.step.in_place && receives;
        if plan.send_in_place {
            self.put_input(self.part(&mut plan.recv, layout.displs[me as usize], mine), me, 0);
        } else {
            plan.send = self.input(me, 0, mine);
        }
        if receives {
            plan.rcounts = layout.counts;
            plan.rdispls = self.passed(layout.displs);
        }
    }

    fn hand_out(&self, plan: &mut Plan) {
        let me = self.place.rank;
        let layout = self.layout(self.block_counts());
        plan.count = layout.counts[me as usize];
        plan.recv_in_place = self.step.in_place && self.is_root();
        if !plan.recv_in_place {
            plan.recv = self.filler(plan.count);
        }
        if self.is_root() {
            plan.send = self.filler(layout.total);
            self.put_blocks(&mut plan.send, &layout);
            plan.scounts = layout.counts;
            plan.sdispls = self.passed(layout.displs);
        }
    }

    /// Writes this rank's input blocks to `out`, at the displacements in `layout`.
    fn put_blocks(&self, out: &mut [u8], layout: &Layout) {
        for (block, (&count, &displ)) in layout.counts.iter().zip(&layout.displs).enumerate() {
            self.put_input(self.part(out, displ, count), self.place.rank, block as u64);
        }
    }

    fn exchange(&self, plan: &mut Plan) {
        let me = self.place.rank;
        let all = 0..self.place.size;
        let is_uniform = self.step.op == Op::Alltoall;
        let count =
            |count: Option<u64>| if is_uniform { self.step.count() } else { count.unwrap_or(0) };
        let sends = self.layout(all.clone().map(|to| count(self.between(me, to))).collect());
        let receives = self.layout(all.map(|from| count(self.between(from, me))).collect());
        plan.recv = self.filler(receives.total);
        plan.send_in_place = self.step.in_place;
        if plan.send_in_place {
            self.put_blocks(&mut plan.recv, &receives);
        } else {
            plan.send = self.filler(sends.total);
            self.put_blocks(&mut plan.send, &sends);
        }
        (plan.scounts, plan.sdispls) = (sends.counts, self.passed(sends.displs));
        (plan.rcounts, plan.rdispls) = (receives.counts, self.passed(receives.displs));
    }

    /// Returns the displacements to pass to the call: an empty list if the blocks are contiguous.
    fn passed(&self, displs: Vec<u64>) -> Vec<u64> {
        if self.step.order.is_empty() { Vec::new() } else { displs }
    }

    fn neighborhood(&self, plan: &mut Plan) {
        let me = self.place.rank;
        let (dests, sources) = (self.neighbors(true), self.neighbors(false));
        let count = |from, to| self.between(from, to).unwrap_or(0);
        let sends = stacked(dests.iter().map(|&to| count(me, to)).collect(), self.step.gap);
        let receives =
            stacked(sources.iter().map(|&from| count(from, me)).collect(), self.step.gap);
        plan.send = self.filler(sends.total);
        for (index, &to) in dests.iter().enumerate() {
            let (first, count) = (sends.displs[index], sends.counts[index]);
            self.put_input(self.part(&mut plan.send, first, count), me, to);
        }
        plan.recv = self.filler(receives.total);
        (plan.scounts, plan.sdispls) = (sends.counts, self.passed(sends.displs));
        (plan.rcounts, plan.rdispls) = (receives.counts, self.passed(receives.displs));
        plan.dests = dests.into_iter().map(|rank| rank as i32).collect();
        plan.sources = sources.into_iter().map(|rank| rank as i32).collect();
        if self.step.root % 2 == 0 {
            with_nobody(&mut plan.dests, &mut plan.scounts, &mut plan.sdispls);
            with_nobody(&mut plan.sources, &mut plan.rcounts, &mut plan.rdispls);
        }
    }

    fn shift(&self, plan: &mut Plan) {
        let me = self.place.rank;
        let nobody = |rank: Option<u64>| vec![rank.map_or(DTL_PROC_NULL, |rank| rank as i32)];
        (plan.dests, plan.sources) = (nobody(self.shifted(true)), nobody(self.shifted(false)));
        if self.step.op == Op::Replace {
            plan.recv = self.filler(plan.count);
            self.put_input(self.part(&mut plan.recv, 0, plan.count), me, 0);
        } else {
            plan.send = self.input(me, 0, self.step.count_of(me));
            plan.scounts = vec![self.step.count_of(me)];
            plan.rcounts = vec![self.shifted(false).map_or(1, |source| self.step.count_of(source))];
            plan.recv = self.filler(plan.rcounts[0]);
        }
    }
}

/// Adds a neighbor with rank DTL_PROC_NULL.
fn with_nobody(ranks: &mut Vec<i32>, counts: &mut Vec<u64>, displs: &mut Vec<u64>) {
    if !displs.is_empty() {
        displs.push(0);
    }
    ranks.push(DTL_PROC_NULL);
    counts.push(0);
}

/// Returns the positions of consecutive blocks with a gap of `gap` elements after each.
pub(crate) fn stacked(counts: Vec<u64>, gap: u64) -> Layout {
    let mut total = 0;
    let mut place = |count: &u64| {
        let here = total;
        total += count + gap;
        here
    };
    let displs = counts.iter().map(&mut place).collect();
    Layout { counts, displs, total }
}
