//! Tests of `count`.

use super::*;

/// Checks that, in collectives in which the ranks send different numbers of messages, the mean
/// number of sent messages over a sample of the ranks agrees with the mean over all ranks.
#[test]
fn some_ranks_tell_about_all() {
    for (op, per_node) in [("allreduce", 16), ("barrier", 64), ("bcast", 0), ("scan", 0)] {
        let job =
            DryRunJob { ranks: 20_000, bytes: 8, root: 3, element: 8, commutes: true, per_node };
        let mut plan = CollectivePlan::new(op, job).expect("a collective");
        let mut counter = Counter::new(job.ranks);
        let mut mean = |ranks: Vec<i32>| {
            let number = ranks.len() as f64;
            ranks
                .into_iter()
                .map(|rank| counter.count(&mut plan, rank).expect("counts").sent as f64)
                .sum::<f64>()
                / number
        };
        let all = mean((0..job.ranks).filter(|rank| ![0, 3].contains(rank)).collect());
        let ratio = mean(spread(&job, 2000)) / all;
        assert!((0.97..1.03).contains(&ratio), "{op}: {ratio}");
    }
}
