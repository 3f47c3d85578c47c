//! `model`: growth of the cost of collectives, computed from their steps for any number of ranks.
//! Nothing is sent or measured.
//!
//! `wanted` is the command line, `count` counts the steps from `dtl::tooling::schedules`, `clock`
//! computes completion times, `memory` computes the memory of a rank, `show` writes tables and
//! JSON, `plot` draws.

mod clock;
mod count;
mod memory;
mod plot;
mod show;
mod wanted;

pub(crate) use wanted::Model;

use crate::out::{Outcome, Stop, say};
use crate::table::Progress;
use clock::{Costs, Times};
use count::Counts;
use dtl::tooling::schedules::{CollectivePlan, DryRunJob};
use memory::Memory;
use wanted::Kind;

/// Row of the tables: a collective with a number of ranks and a data size.
pub(crate) struct Row {
    pub(crate) op: &'static str,
    pub(crate) ranks: i32,
    pub(crate) bytes: usize,
    pub(crate) algorithm: &'static str,
    pub(crate) counts: Counts,
    pub(crate) times: Times,
    pub(crate) memory: Memory,
    /// True if communicators of this kind run the collective through mailboxes in shared memory.
    /// The messages in this row are then those of a communicator without mailboxes, because only a
    /// limited number of communicators have mailboxes.
    pub(crate) uses_mailboxes: bool,
}

/// Computes the model that the command line requests.
pub(crate) fn run(wanted: &Model) -> Result<(), Stop> {
    let ranks = wanted.all_ranks();
    check(wanted, &ranks)?;
    if let Some(folder) = &wanted.output {
        let made = std::fs::create_dir_all(folder);
        made.map_err(|error| Stop::Misused(format!("--output {}: {error}", folder.display())))?;
    }
    let rows = rows(wanted, &ranks)?;
    match &wanted.output {
        Some(folder) => show::write(folder, wanted, &rows)?,
        None if wanted.json => say!("{:#}", show::json(wanted, &rows)),
        None => say!("{}", show::text(wanted, &rows).trim_end()),
    }
    Ok(())
}

/// Returns all rows, grouped by collective and size.
fn rows(wanted: &Model, ranks: &[i32]) -> Outcome<Vec<Row>> {
    let sizes = wanted.sizes();
    let mut jobs = Vec::new();
    for op in wanted.ops() {
        // A barrier has no data.
        let sizes = if op == "barrier" { &[0] } else { &sizes[..] };
        jobs.extend(
            sizes.iter().flat_map(|bytes| ranks.iter().map(move |ranks| (op, *ranks, *bytes))),
        );
    }
    let mut progress = Progress::ticking(jobs.len());
    let row = |(op, ranks, bytes)| {
        progress.next(&format!("{op}, {ranks} ranks, {bytes} bytes"));
        row(wanted, op, ranks, bytes)
    };
    jobs.into_iter().map(row).collect()
}

fn check(wanted: &Model, ranks: &[i32]) -> Result<(), Stop> {
    let (least, most) = (ranks.first().copied().unwrap_or(2), ranks.last().copied().unwrap_or(2));
    let misused = |text: String| Err(Stop::Misused(text));
    if wanted.root >= least {
        return misused(format!(
            "--root {}: {least} ranks have the roots 0 to {}",
            wanted.root,
            least - 1
        ));
    }
    if wanted.kind == Kind::Shm && most > memory::SHM_RANKS {
        return misused(format!(
            "--kind shm has at most {} ranks; --ranks goes to {most}",
            memory::SHM_RANKS
        ));
    }
    if wanted.kind == Kind::Shm && wanted.per_node.is_some() {
        return misused("--kind shm is one node: leave --per-node out".to_owned());
    }
    let element = wanted.element as usize;
    let folded =
        ["reduce", "allreduce", "reduce_scatter", "reduce_scatter_block", "scan", "exscan"];
    let folds = wanted.ops().iter().any(|op| folded.contains(op));
    match wanted.sizes().iter().find(|bytes| folds && **bytes % element != 0) {
        Some(bytes) => misused(format!(
            "--bytes {bytes}: reductions take whole elements of {element} bytes (--element)"
        )),
        None => Ok(()),
    }
}

/// Computes one row.
fn row(wanted: &Model, op: &'static str, ranks: i32, bytes: usize) -> Outcome<Row> {
    let per_node = wanted.per_node.unwrap_or(0);
    let (root, element, commutes) = (wanted.root, wanted.element as usize, !wanted.ordered);
    let job = DryRunJob { ranks, bytes, root, element, commutes, per_node };
    let mut plan =
        CollectivePlan::new(op, job).ok_or_else(|| format!("no collective is named {op}"))?;
    let counts = count::count(&mut plan, &job)?;
    let costs = Costs { network: wanted.network, within: wanted.within, per_node };
    let times = clock::times(&mut plan, &job, &counts, &costs)?;
    let memory = Memory::of(wanted.kind, &job, &counts);
    let uses_mailboxes = memory::uses_mailboxes(wanted.kind, &job, &plan);
    Ok(Row { op, ranks, bytes, algorithm: plan.algorithm(), counts, times, memory, uses_mailboxes })
}
