//! Numbers of messages and bytes that ranks send and receive: for all ranks if that is fast to
//! compute, otherwise for some ranks.

use crate::out::Outcome;
use dtl::tooling::schedules::{CollectivePlan, DryRunJob, PlanStep};

/// For jobs of 64 or more ranks, the steps of only some ranks are counted if the estimated number
/// of steps of all ranks exceeds this limit.
const ALL_STEPS: u64 = 300_000_000;

/// Counts of one rank.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub(crate) struct Rank {
    pub(crate) sent: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) received: u64,
    pub(crate) received_bytes: u64,
    /// Number of ranks to which the rank sends or from which it receives.
    pub(crate) partners: u64,
    /// Number of steps that the rank executes in the collective.
    pub(crate) steps: u64,
    /// Size of the rank's scratch memory in bytes.
    pub(crate) scratch: u64,
}

/// Totals and maxima over all ranks. The maxima of messages and bytes take, for each rank, the
/// larger of the number that it sends and the number that it receives.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub(crate) struct Counts {
    pub(crate) messages: u128,
    pub(crate) most_messages: u64,
    pub(crate) bytes: u128,
    pub(crate) most_bytes: u64,
    pub(crate) most_partners: u64,
    pub(crate) most_steps: u64,
    pub(crate) most_scratch: u64,
    /// True if all ranks were counted.
    pub(crate) is_exact: bool,
}

impl Counts {
    fn add(&mut self, rank: Rank) {
        self.messages += u128::from(rank.sent);
        self.bytes += u128::from(rank.sent_bytes);
        self.most(&rank);
    }

    fn most(&mut self, rank: &Rank) {
        self.most_messages = self.most_messages.max(rank.sent).max(rank.received);
        self.most_bytes = self.most_bytes.max(rank.sent_bytes).max(rank.received_bytes);
        self.most_partners = self.most_partners.max(rank.partners);
        self.most_steps = self.most_steps.max(rank.steps);
        self.most_scratch = self.most_scratch.max(rank.scratch);
    }
}

/// State for counting the messages and steps of one rank after another.
struct Counter {
    /// For each rank: ordinal (1, 2, ...) of the last counted rank that exchanges messages with it;
    /// 0 if there is none. `number` is the ordinal of the rank that is being counted.
    met_by: Vec<u32>,
    number: u32,
}

impl Counter {
    fn new(ranks: i32) -> Self {
        Counter { met_by: vec![0; ranks.unsigned_abs() as usize], number: 0 }
    }

    fn count(&mut self, plan: &mut CollectivePlan, rank: i32) -> Outcome<Rank> {
        self.number += 1;
        let mut all = Rank::default();
        let (met_by, number) = (&mut self.met_by, self.number);
        let mut meet = |peer: i32| {
            let last = &mut met_by[peer.unsigned_abs() as usize];
            let is_new = std::mem::replace(last, number) != number;
            u64::from(is_new)
        };
        let told = plan.for_each_step(rank, &mut |step| match step {
            PlanStep::Send { to, bytes } => {
                (all.sent, all.sent_bytes) = (all.sent + 1, all.sent_bytes + bytes);
                all.partners += meet(to);
            }
            PlanStep::Recv { from, bytes } => {
                (all.received, all.received_bytes) = (all.received + 1, all.received_bytes + bytes);
                all.partners += meet(from);
            }
            PlanStep::Local | PlanStep::Round => {}
        });
        let size = told.map_err(|error| error.to_string())?;
        (all.steps, all.scratch) = (size.steps, size.scratch);
        Ok(all)
    }
}

/// Returns the ranks whose steps differ from those of other ranks in at least one algorithm: the
/// first and the last rank, the root, the middle rank, the first rank after those that are combined
/// in pairs if the number of ranks is not a power of two, and the first rank of the second node.
/// Also returns the ranks immediately before and after each of these ranks.
pub(crate) fn chosen(job: &DryRunJob) -> Vec<i32> {
    let (size, root) = (job.ranks, job.root);
    let extra = 2 * (size - (1 << size.ilog2()));
    let around = |rank: i32| [rank - 1, rank, rank + 1];
    let mut all: Vec<i32> =
        [0, root, size / 2, extra, job.per_node, size - 1].into_iter().flat_map(around).collect();
    all.retain(|rank| (0..size).contains(rank));
    all.sort_unstable();
    all.dedup();
    all
}

/// Counts the messages, bytes and steps of all ranks in `plan` or, if there are too many steps, of
/// some ranks; totals for all ranks are then estimates.
pub(crate) fn count(plan: &mut CollectivePlan, job: &DryRunJob) -> Outcome<Counts> {
    let mut counter = Counter::new(job.ranks);
    let some = chosen(job);
    let ranks: Outcome<Vec<(i32, Rank)>> =
        some.iter().map(|rank| counter.count(plan, *rank).map(|all| (*rank, all))).collect();
    let ranks = ranks?;
    // A root, and rank 0 in its place, may have far more to do than others.
    let usual =
        || ranks.iter().filter(|(rank, _)| ![0, job.root].contains(rank)).map(|(_, all)| all);
    let most = usual().map(|all| all.steps).max().unwrap_or(0);
    if job.ranks < 64 || most.saturating_mul(job.ranks.unsigned_abs().into()) <= ALL_STEPS {
        let mut counts = Counts { is_exact: true, ..Counts::default() };
        for rank in 0..job.ranks {
            counts.add(counter.count(plan, rank)?);
        }
        return Ok(counts);
    }
    let mut counts = Counts::default();
    ranks.iter().for_each(|(_, all)| counts.add(*all));
    // The others are as many of them are, or if that took too long, as those that were looked at.
    let mut others: Vec<Rank> = usual().copied().collect();
    let many = spread(job, SPREAD_STEPS / most.max(1));
    if many.len() > 10 * others.len() {
        let counted: Outcome<Vec<Rank>> =
            many.into_iter().map(|rank| counter.count(plan, rank)).collect();
        others = counted?;
        others.iter().for_each(|all| counts.most(all));
    }
    let number = others.len() as u128;
    let sum = |of: fn(&Rank) -> u64| others.iter().map(|all| u128::from(of(all))).sum::<u128>();
    let left = (job.ranks as usize - ranks.len()) as u128;
    counts.messages += left * sum(|all| all.sent) / number;
    counts.bytes += left * sum(|all| all.sent_bytes) / number;
    Ok(counts)
}

/// Approximate total number of steps of the ranks that [`spread`] samples.
const SPREAD_STEPS: u64 = ALL_STEPS / 30;

/// Returns up to `number` ranks other than 0 and the root, spread over all ranks. The distances
/// between them are irregular, so that the sample does not coincide with a regular communication
/// pattern.
fn spread(job: &DryRunJob, number: u64) -> Vec<i32> {
    let ranks = u64::from(job.ranks.unsigned_abs());
    // Multiples of the golden ratio's fraction.
    let place = |at: u64| at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    let all = (0..number.min(ranks)).map(|at| ((place(at) * ranks) >> 32) as i32);
    all.filter(|rank| ![0, job.root].contains(rank)).collect()
}

#[cfg(test)]
#[path = "tests/count.rs"]
mod tests;
