//! Golden-file tests: the steps of every algorithm for 2 to 17 ranks, and the selection of the
//! algorithm, must match tests/golden/schedules.txt.
//!
//! Each line of this file describes one case: collective, algorithm, parameters, and a hash of the
//! steps of all ranks. Steps contain offsets in their buffers instead of addresses.
//! `DTL_GOLDEN=write` rewrites the file after an intended change.

use super::alltoall::exchange;
use super::choice::{Algorithm, Allowed, choose};
use super::levels::Levels;
use super::{AlgorithmChoice, Group};
use crate::abi::word::{DTL_DTYPE_BYTE, DTL_OP_REPLACE};
use crate::error::Result;
use crate::runtime::comm::coll::schedule_builder::{Step, Steps};
use crate::runtime::comm::coll::{Buffer, CollArgs};
use crate::runtime::comm::op_desc::{KINDS, Kind};
use crate::runtime::types::reduction;
use crate::sys::memory::buf::{Addr, Region};
use std::fmt::Write;

/// Distance in bytes between the start addresses of imaginary buffers (addresses that are never
/// accessed). Every buffer is smaller than this distance.
const APART: usize = 1 << 40;

/// Recorder that formats each step as one line of text. `s` is the send buffer, `r` is the result
/// buffer, and `t0`, `t1` and so on are scratch buffers.
#[derive(Default)]
struct Recorder {
    steps: Vec<Step>,
    /// For each scratch buffer: the number of steps that were appended before the buffer was
    /// requested, and the size of the buffer in bytes.
    scratch: Vec<(usize, usize)>,
}

/// Returns the imaginary buffer (address range that is never accessed) with the number `index`.
fn buffer(index: usize, len: usize) -> Region {
    Region::allocated(Addr::NULL.offset((index + 1) * APART), len)
}

fn name(region: Region) -> String {
    if region.is_empty() {
        return "-".to_owned();
    }
    let (index, offset) = (region.addr().get() / APART - 1, region.addr().get() % APART);
    match index {
        0 => format!("s+{offset}:{}", region.len()),
        1 => format!("r+{offset}:{}", region.len()),
        _ => format!("t{}+{offset}:{}", index - 2, region.len()),
    }
}

fn text(step: &Step) -> String {
    match *step {
        Step::Send { to, data } => format!("send @{to} {}", name(data)),
        Step::Recv { from, data } => format!("recv @{from} {}", name(data)),
        Step::Reduce { into, from } => format!("reduce {} {}", name(into), name(from)),
        Step::ReduceToRight { left, right } => {
            format!("reduce_to_right {} {}", name(left), name(right))
        }
        Step::Copy { into, from } => format!("copy {} {}", name(into), name(from)),
        Step::Round => "round".to_owned(),
    }
}

impl Recorder {
    /// Returns the line of each step and of each scratch buffer, in order.
    fn lines(&self) -> Vec<String> {
        let scratch = self.scratch.iter().enumerate();
        let scratch =
            scratch.map(|(number, (before, len))| (*before, format!("scratch t{number} {len}")));
        let mut lines: Vec<_> = scratch.chain(self.steps.iter().map(text).enumerate()).collect();
        lines.sort_by_key(|(place, _)| *place);
        lines.into_iter().map(|(_, line)| line).collect()
    }
}

impl Steps for Recorder {
    fn steps(&mut self) -> &mut Vec<Step> {
        &mut self.steps
    }

    fn scratch(&mut self, len: usize) -> Result<Region> {
        if len == 0 {
            return Ok(Region::EMPTY);
        }
        self.scratch.push((self.steps.len(), len));
        Ok(buffer(self.scratch.len() + 1, len))
    }
}

/// Parameters of one case in the golden file tests/golden/schedules.txt.
#[derive(Clone, Debug)]
struct Case {
    kind: Kind,
    how: Algorithm,
    ranks: i32,
    root: i32,
    /// Size in bytes of one rank's data or, for collectives of blocks (such as gather), of one
    /// block.
    bytes: usize,
    element: usize,
    commutes: bool,
    in_place: bool,
    /// Node of each rank; empty for one-level algorithms.
    nodes: Vec<i32>,
}

impl Case {
    fn title(&self) -> String {
        let mut title = format!(
            "{} {:?} ranks={} bytes={}",
            self.kind.name(),
            self.how,
            self.ranks,
            self.bytes
        );
        if has_root(self.kind) {
            write!(title, " root={}", self.root).unwrap();
        }
        if folds(self.kind) {
            if self.element != 8 {
                write!(title, " element={}", self.element).unwrap();
            }
            if !self.commutes {
                title.push_str(" ordered");
            }
        }
        if self.in_place {
            title.push_str(" in_place");
        }
        if !self.nodes.is_empty() {
            title.push_str(" nodes=");
            // The node numbers have one digit: there are at most nine nodes.
            self.nodes.iter().for_each(|node| write!(title, "{node}").unwrap());
        }
        title
    }

    /// Returns a string that lists the steps of all ranks, one step per line.
    fn schedule(&self) -> String {
        let mut text = String::new();
        for rank in 0..self.ranks {
            let mut s = Recorder::default();
            let levels = Levels::new(rank, self.nodes.iter().copied());
            let choice = AlgorithmChoice { how: self.how, levels: levels.as_ref() };
            self.list(&mut s, Group { rank, size: self.ranks }, choice).unwrap();
            writeln!(text, "rank {rank}").unwrap();
            for line in s.lines() {
                text.push_str(&line);
                text.push('\n');
            }
        }
        text
    }

    fn list(&self, s: &mut Recorder, g: Group, choice: AlgorithmChoice) -> Result<()> {
        let (recv, root) = (buffer(1, self.bytes), self.root);
        let send = if self.in_place { recv } else { buffer(0, self.bytes) };
        match self.kind {
            Kind::Barrier | Kind::Bcast => self.list_pair(s, g, choice, (Region::EMPTY, recv)),
            Kind::Reduce => {
                let send = if g.rank == root { send } else { buffer(0, self.bytes) };
                self.list_pair(s, g, choice, (send, recv))
            }
            Kind::Allreduce | Kind::Scan | Kind::Exscan => {
                self.list_pair(s, g, choice, (send, recv))
            }
            _ => self.list_blocks(s, g, choice),
        }
    }

    /// Appends the steps of a collective whose send buffer and receive buffer are each one
    /// contiguous range.
    fn list_pair(
        &self,
        s: &mut Recorder,
        g: Group,
        choice: AlgorithmChoice,
        (send, recv): (Region, Region),
    ) -> Result<()> {
        let mut by = reduction(DTL_DTYPE_BYTE, DTL_OP_REPLACE)?;
        (by.element, by.commutes) = (self.element, self.commutes);
        let args = CollArgs {
            root: self.root,
            bytes: self.bytes,
            reduction: Some(by),
            send: Buffer::Whole(send),
            recv: Buffer::Whole(recv),
            ..CollArgs::new(self.kind)
        };
        (args.row.list)(s, g, choice, &args)
    }

    /// Appends the steps of a collective with a block for each rank. If the collective is in place,
    /// the block of this rank is inside the buffer that contains the blocks of all ranks.
    fn list_blocks(&self, s: &mut Recorder, g: Group, choice: AlgorithmChoice) -> Result<()> {
        let (len, root, ranks) = (self.bytes, self.root, g.size as usize);
        let all = |index| buffer(index, len * ranks);
        let block = |whole: Region| move |rank: i32| whole.part(rank as usize * len, len);
        // Block sizes of the vector variants differ by rank.
        let varied = |whole: Region| {
            move |rank: i32| whole.part(rank as usize * len, len * (rank as usize % 3) / 2)
        };
        let in_place = self.in_place && (!has_root(self.kind) || g.rank == root);
        let (s_all, r_all) = (all(0), all(1));
        let own =
            |whole: Region, other: Region| if in_place { block(whole)(g.rank) } else { other };
        let own_send = own(r_all, buffer(0, len));
        match self.kind {
            Kind::Gather => self.list_pair(s, g, choice, (own_send, r_all))?,
            Kind::Scatter => self.list_pair(s, g, choice, (s_all, own(s_all, buffer(1, len))))?,
            Kind::Allgather => self.list_pair(s, g, choice, (own_send, r_all))?,
            Kind::Alltoall => self.list_pair(s, g, choice, (s_all, r_all))?,
            Kind::ReduceScatter | Kind::ReduceScatterBlock => {
                let recv = buffer(
                    1,
                    if self.kind == Kind::ReduceScatter {
                        varied(s_all)(g.rank).len()
                    } else {
                        len
                    },
                );
                let sent = if self.in_place { r_all } else { s_all };
                let blocks: Vec<Region> = (0..g.size)
                    .map(|rank| match self.kind {
                        Kind::ReduceScatter => varied(sent)(rank),
                        _ => block(sent)(rank),
                    })
                    .collect();
                super::reduce_scatter(s, g, |rank| blocks[rank as usize], recv)?;
            }
            Kind::Gatherv => {
                let own = if in_place { r_all } else { s_all };
                super::gatherv(s, g, root, varied(own)(g.rank), varied(r_all))?;
            }
            Kind::Scatterv => {
                let own = if in_place { s_all } else { r_all };
                super::scatterv(s, g, root, varied(s_all), varied(own)(g.rank))?;
            }
            Kind::Allgatherv => {
                let own = if in_place { r_all } else { s_all };
                super::allgatherv(s, g, varied(own)(g.rank), varied(r_all))?;
            }
            Kind::Alltoallv => {
                // Each pair of ranks exchanges equally many bytes in both directions.
                let pair = |whole: Region| {
                    move |rank: i32| {
                        block(whole)(rank).part(0, len * ((g.rank + rank) as usize % 3) / 2)
                    }
                };
                super::alltoallv(s, g, pair(s_all), pair(r_all), false)?;
            }
            Kind::NeighborAlltoallv => {
                let pairs = |whole| {
                    [g.after(-1), g.after(1)]
                        .into_iter()
                        .map(move |peer| (peer, block(whole)(peer)))
                };
                exchange(s, g, pairs(s_all), pairs(r_all));
            }
            other => panic!("{other:?} has no schedule here"),
        }
        Ok(())
    }
}

fn has_root(kind: Kind) -> bool {
    use Kind::*;
    matches!(kind, Bcast | Reduce | Gather | Scatter | Gatherv | Scatterv)
}

fn folds(kind: Kind) -> bool {
    use Kind::*;
    matches!(kind, Reduce | Allreduce | ReduceScatter | ReduceScatterBlock | Scan | Exscan)
}

/// One-level algorithms of each collective.
const ONE_LEVEL: &[(Kind, &[Algorithm])] = &[
    (Kind::Barrier, &[Algorithm::Dissemination]),
    (Kind::Bcast, &[Algorithm::Binomial, Algorithm::ScatterRing]),
    (Kind::Reduce, &[Algorithm::Binomial, Algorithm::HalvingGather]),
    (
        Kind::Allreduce,
        &[Algorithm::RecursiveDoubling, Algorithm::Rabenseifner, Algorithm::PairwiseRing],
    ),
    (Kind::ReduceScatter, &[Algorithm::Pairwise]),
    (Kind::ReduceScatterBlock, &[Algorithm::Pairwise]),
    (Kind::Scan, &[Algorithm::RecursiveDoubling]),
    (Kind::Exscan, &[Algorithm::RecursiveDoubling]),
    (Kind::Gather, &[Algorithm::Binomial, Algorithm::Linear]),
    (Kind::Scatter, &[Algorithm::Binomial, Algorithm::Linear]),
    (Kind::Gatherv, &[Algorithm::Linear]),
    (Kind::Scatterv, &[Algorithm::Linear]),
    (Kind::Allgather, &[Algorithm::Bruck, Algorithm::Ring]),
    (Kind::Allgatherv, &[Algorithm::Ring]),
    (Kind::Alltoall, &[Algorithm::Bruck, Algorithm::Pairwise]),
    (Kind::Alltoallv, &[Algorithm::AllAtOnce]),
    (Kind::NeighborAlltoallv, &[Algorithm::AllAtOnce]),
];

/// Collectives with a two-level algorithm.
const TWO_LEVEL: &[Kind] = &[
    Kind::Barrier,
    Kind::Bcast,
    Kind::Reduce,
    Kind::Allreduce,
    Kind::Gather,
    Kind::Scatter,
    Kind::Allgather,
];

/// Data size, in bytes, at which a reduction splits the data into more than one piece.
const PIECES: usize = (600 << 10) + 8;

/// Adds a case for each root, with and without in-place buffers, and with commutative and
/// non-commutative operations, where these parameters apply.
fn variants(case: &Case, roots: &[i32], into: &mut Vec<Case>) {
    let has_place = !matches!(
        case.kind,
        Kind::Barrier | Kind::Bcast | Kind::Alltoall | Kind::Alltoallv | Kind::NeighborAlltoallv
    );
    // Only tree algorithms depend on `commutes`.
    let may_be_ordered = case.kind == Kind::Reduce && case.how != Algorithm::HalvingGather;
    for root in if has_root(case.kind) { roots } else { &roots[..1] } {
        for in_place in if has_place { &[false, true][..] } else { &[false] } {
            for commutes in if may_be_ordered { &[true, false][..] } else { &[true] } {
                into.push(Case {
                    root: *root,
                    in_place: *in_place,
                    commutes: *commutes,
                    ..case.clone()
                });
            }
        }
    }
}

fn one_level(ranks: i32, into: &mut Vec<Case>) {
    let mut roots = vec![0, 1, ranks - 1];
    roots.dedup();
    for (kind, algorithms) in ONE_LEVEL {
        for how in *algorithms {
            let mut sizes = vec![(8, 8), (1000, 8)];
            match kind {
                Kind::Barrier => sizes.truncate(1),
                Kind::Bcast => sizes.push((PIECES, 8)),
                kind if folds(*kind) => sizes.extend([(PIECES, 8), (0, 8), (35, 1)]),
                _ => {}
            }
            for (bytes, element) in sizes {
                let roots = if bytes == 1000 { &roots } else { &roots[..1] };
                let case = Case {
                    kind: *kind,
                    how: *how,
                    ranks,
                    root: 0,
                    bytes,
                    element,
                    commutes: true,
                    in_place: false,
                    nodes: Vec::new(),
                };
                variants(&case, roots, into);
            }
        }
    }
}

fn two_level(ranks: i32, into: &mut Vec<Case>) {
    let roots = [0, ranks - 1];
    let mut seen = Vec::new();
    let topologies: [fn(i32) -> i32; 5] = [
        |rank| rank / 2,
        |rank| rank / 4,
        |rank| rank % 2,
        |rank| rank % 3,
        |rank| (rank + 3) / 5 * (rank % 7).min(1),
    ];
    for node_of in topologies {
        let nodes: Vec<i32> = (0..ranks).map(node_of).collect();
        if Levels::new(0, nodes.iter().copied()).is_none() || seen.contains(&nodes) {
            continue;
        }
        seen.push(nodes.clone());
        for kind in TWO_LEVEL {
            let sizes = match kind {
                Kind::Barrier => &[8][..],
                Kind::Reduce | Kind::Allreduce => &[1000, PIECES],
                _ => &[1000],
            };
            for bytes in sizes {
                let case = Case {
                    kind: *kind,
                    how: Algorithm::TwoLevel,
                    ranks,
                    root: 0,
                    bytes: *bytes,
                    element: 8,
                    commutes: true,
                    in_place: false,
                    nodes: nodes.clone(),
                };
                variants(&case, if *bytes == PIECES { &roots[1..] } else { &roots }, into);
            }
        }
    }
}

/// Returns the FNV-1a hash of `text`.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Appends lines that list, for each collective and number of ranks, the data sizes in bytes from
/// which each algorithm is selected. Consecutive rank counts with equal selections share one line.
fn selection(lines: &mut Vec<String>) {
    let mut edges: Vec<usize> = (0..32).flat_map(|bit| [1 << bit, 3 << bit]).collect();
    edges.push(0);
    edges.sort_unstable();
    for (kind, name) in KINDS {
        let has_algorithms = kind.row().kind == *kind;
        for bits in 0..8 {
            let (commutes, two_level, mailboxes) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
            let by_ranks = |ranks| {
                let mut last = None;
                let mut text = String::new();
                for bytes in &edges {
                    let how =
                        choose(*kind, ranks, *bytes, commutes, Allowed { two_level, mailboxes });
                    if last.replace(how) != Some(how) {
                        write!(text, " {bytes}:{how:?}").unwrap();
                    }
                    let is_listed =
                        ONE_LEVEL.iter().any(|(of, all)| of == kind && all.contains(&how));
                    let is_listed =
                        is_listed || matches!(how, Algorithm::TwoLevel | Algorithm::Mailbox);
                    assert!(is_listed || !has_algorithms, "no case of {name} {how:?}");
                }
                text
            };
            if has_algorithms {
                let mut of: Vec<(i32, String)> = [1, 2, 3, 4, 5, 6, 7, 8, 16, 17, 1000]
                    .map(|ranks| (ranks, by_ranks(ranks)))
                    .into();
                of.dedup_by(|next, one| next.1 == one.1);
                for (ranks, text) in of {
                    lines.push(format!(
                        "select {name} commutes={commutes} two_level={two_level} \
                         mailboxes={mailboxes} ranks>={ranks}:{text}"
                    ));
                }
            }
        }
    }
}

#[test]
fn schedules_are_as_recorded() {
    let mut cases = Vec::new();
    for ranks in 2..=17 {
        one_level(ranks, &mut cases);
        two_level(ranks, &mut cases);
    }
    let mut lines = Vec::new();
    selection(&mut lines);
    let chosen = lines.len();
    lines.extend(
        cases.iter().map(|case| format!("{}: {:016x}", case.title(), hash(&case.schedule()))),
    );
    crate::golden::compare("schedules.txt", &lines, |index| {
        index.checked_sub(chosen).map_or(String::new(), |index| cases[index].schedule())
    });
}
