//! Tests that compare counts and steps with formulas from the literature, and times with LogGP
//! times computed by hand.

use super::*;
use crate::model::count::count;

const NETWORK: Network =
    Network { latency: 1000.0, overhead: 200.0, gap: 100.0, gap_per_byte: 0.04 };
const COSTS: Costs = Costs { network: NETWORK, within: NETWORK, per_node: 0 };
const MIB: usize = 1 << 20;

fn job(ranks: i32, bytes: usize) -> DryRunJob {
    DryRunJob { ranks, bytes, root: 0, element: 8, commutes: true, per_node: 0 }
}

fn model(op: &str, job: DryRunJob) -> (Counts, Times, &'static str) {
    let mut plan = CollectivePlan::new(op, job).expect("a collective");
    let counts = count(&mut plan, &job).expect("counts");
    let times = times(&mut plan, &job, &counts, &COSTS).expect("times");
    assert!(counts.is_exact && times.is_exact);
    (counts, times, plan.algorithm())
}

/// Expected values: algorithm, total number of messages, maximum number of messages per rank, total
/// number of bytes, maximum number of bytes per rank, number of steps.
type Formula = (&'static str, u64, u64, u64, u64, u64);

fn check(op: &str, job: DryRunJob, expected: Formula) {
    let (counts, times, algorithm) = model(op, job);
    let bytes = u64::try_from(counts.bytes).expect("few bytes");
    let messages = u64::try_from(counts.messages).expect("few messages");
    let found = (algorithm, messages, counts.most_messages, bytes, counts.most_bytes, times.steps);
    assert_eq!(found, expected, "{op}, {job:?}");
}

#[test]
fn powers_of_two_are_as_the_formulas_say() {
    for log in [2_u64, 3, 4, 6, 8] {
        let n = 1_u64 << log;
        let of = |bytes: usize| job(n as i32, bytes);
        let m = 8;
        check("barrier", of(0), ("dissemination", n * log, log, 0, 0, log));
        check("bcast", of(8), ("binomial tree", n - 1, log, m * (n - 1), m * log, log));
        check("reduce", of(8), ("binomial tree", n - 1, log, m * (n - 1), m * log, log));
        check("allreduce", of(8), ("recursive doubling", n * log, log, m * n * log, m * log, log));
        let half = n / 2;
        check("gather", of(8), ("binomial tree", n - 1, log, m * half * log, m * (n - 1), log));
        check("scatter", of(8), ("binomial tree", n - 1, log, m * half * log, m * (n - 1), log));
        check("gatherv", of(8), ("linear", n - 1, n - 1, m * (n - 1), m * (n - 1), 1));
        check("scatter", of(4096), ("linear", n - 1, n - 1, 4096 * (n - 1), 4096 * (n - 1), 1));
        check("allgather", of(8), ("Bruck", n * log, log, m * n * (n - 1), m * (n - 1), log));
        check(
            "allgather",
            of(8192),
            ("ring", n * (n - 1), n - 1, 8192 * n * (n - 1), 8192 * (n - 1), n - 1),
        );
        check(
            "alltoall",
            of(512),
            ("pairwise", n * (n - 1), n - 1, 512 * n * (n - 1), 512 * (n - 1), n - 1),
        );
        check(
            "alltoallv",
            of(8),
            ("all at once", n * (n - 1), n - 1, m * n * (n - 1), m * (n - 1), 1),
        );
        check(
            "reduce_scatter",
            of(8),
            ("pairwise", n * (n - 1), n - 1, m * n * (n - 1), m * (n - 1), n - 1),
        );
        // Each rank r sends to r + 1, r + 2, r + 4, ..., as far as there are ranks.
        check(
            "scan",
            of(8),
            ("recursive doubling", n * log - (n - 1), log, m * (n * log - (n - 1)), m * log, log),
        );
        check("neighbor_alltoallv", of(8), ("all at once", 2 * n, 2, m * 2 * n, m * 2, 1));
        if n > 4 {
            // Half of the blocks in each round.
            let bytes = m * half * log;
            check("alltoall", of(8), ("Bruck", n * log, log, n * bytes, bytes, log));
        }
        if log <= 6 {
            large(n, log);
        }
    }
}

/// Checks that collectives with 1 MiB of data use the expected algorithms and numbers of messages,
/// bytes and steps. For this size, the algorithms divide the data among the ranks.
fn large(n: u64, log: u64) {
    let (of, m) = (job(n as i32, MIB), MIB as u64);
    // In pieces of 64 KiB for each rank, from 512 KiB to 4 MiB.
    let pieces = (MIB / (n as usize * (64 << 10)).clamp(512 << 10, 4 << 20)).max(1) as u64;
    let both = m * 2 * (n - 1) / n;
    let steps = pieces * 2 * log;
    let allreduce = match n {
        2 => ("recursive doubling", 2, 1, 2 * m, m, 1),
        _ => ("Rabenseifner", n * steps, steps, n * both, both, steps),
    };
    check("allreduce", of, allreduce);
    let share = m / n;
    check(
        "bcast",
        of,
        ("scatter, ring", (n + 1) * (n - 1), 2 * (n - 1), (n + 1) * (n - 1) * share, both, n),
    );
    let ordered = DryRunJob { commutes: false, ..of };
    let pairwise = pieces * 2 * (n - 1);
    check(
        "allreduce",
        ordered,
        ("pairwise, ring", n * pairwise, pairwise, n * both, both, pairwise),
    );
    // Halving at all, then the shares go up a tree: the root is sent the other half of the ranks',
    // and so on.
    let (counts, times, algorithm) = model("reduce", of);
    assert_eq!(
        (algorithm, counts.messages),
        ("halving, gather", u128::from(pieces * (n * log + n - 1)))
    );
    assert_eq!((counts.most_messages, counts.most_bytes), (pieces * 2 * log, both));
    assert!((pieces * log + 1..=pieces * 2 * log).contains(&times.steps), "{times:?}");
}

#[test]
fn other_numbers_of_ranks_and_roots() {
    // 11 = 8 + 3: three give their part away and are told the result. No chain has both ends of
    // that; of 8 + 7 some do.
    check("allreduce", job(11, 8), ("recursive doubling", 8 * 3 + 2 * 3, 4, 8 * 30, 32, 4));
    check("allreduce", job(15, 8), ("recursive doubling", 8 * 3 + 2 * 7, 4, 8 * 38, 32, 5));
    check("barrier", job(11, 0), ("dissemination", 44, 4, 0, 0, 4));
    for root in 0..11 {
        let of = |bytes| DryRunJob { root, ..job(11, bytes) };
        check("bcast", of(8), ("binomial tree", 10, 4, 80, 32, 3));
        check("reduce", of(8), ("binomial tree", 10, 4, 80, 32, 3));
        check("gatherv", of(8), ("linear", 10, 10, 80, 80, 1));
        // An operation that does not commute is folded at rank 0 and sent on.
        let ordered = DryRunJob { commutes: false, ..of(8) };
        let more = u64::from(root != 0);
        check("reduce", ordered, ("binomial tree", 10 + more, 4, 80 + 8 * more, 32, 3 + more));
    }
    check("allgather", job(11, 8), ("Bruck", 44, 4, 8 * 110, 80, 4));
    check("exscan", job(2, 8), ("recursive doubling", 1, 1, 8, 8, 1));
}

#[test]
fn two_levels_are_their_parts() {
    let of = |bytes| DryRunJob { per_node: 4, ..job(16, bytes) };
    // In each of 4 nodes 3 to the leader and back; among 4 leaders 2 rounds of 4.
    check("allreduce", of(8), ("two levels", 4 * 3 * 2 + 8, 4, 8 * 32, 32, 2 + 2 + 2));
    check("bcast", of(8), ("two levels", 3 + 4 * 3, 4, 8 * 15, 32, 4));
    check("barrier", of(0), ("two levels", 4 * 4 * 2 + 8 + 4 * 3, 6, 0, 0, 2 + 2 + 2));
}

fn ns(op: &str, ranks: i32, bytes: usize) -> f64 {
    model(op, job(ranks, bytes)).1.ns
}

#[test]
fn times_are_those_of_paper() {
    let Network { latency: l, overhead: o, gap: g, gap_per_byte: per_byte } = NETWORK;
    let hop = |bytes: f64| 2.0 * o + l + (bytes - 1.0) * per_byte;
    let near = |found: f64, expected: f64| {
        assert!((found / expected - 1.0).abs() < 1e-9, "{found}, {expected}")
    };
    near(ns("bcast", 2, 8), hop(8.0));
    near(ns("bcast", 2, 64 << 10), hop(65536.0));
    // The root sends to 2 first, which then sends to 3; and to 1.
    near(ns("bcast", 4, 8), 2.0 * hop(8.0));
    near(ns("allreduce", 1024, 8), 10.0 * hop(8.0));
    near(ns("barrier", 64, 0), 6.0 * hop(1.0));
    near(ns("allgather", 16, 8192), 15.0 * hop(8192.0));
    // The root takes one after the other, each when the processor has done with the one before.
    near(ns("gatherv", 9, 8), o + l + 7.0 * per_byte + 8.0 * o.max(g));
    // What limits it is the port: each begins when the last byte of the one before is in, and a gap
    // has passed.
    let stream = 99_999.0 * per_byte;
    near(ns("gatherv", 9, 100_000), o + l + 8.0 * stream + 7.0 * g + o);
}

/// Checks that a simulation of one rank gives the exact result if all ranks do the same work, and a
/// good estimate otherwise. Binomial trees are not checked, because `times` always simulates all
/// their ranks.
#[test]
fn one_rank_tells_about_all() {
    for op in dtl::tooling::schedules::collectives() {
        for (ranks, bytes) in [(64, 8), (64, MIB), (100, 8), (100, 64 << 10)] {
            let job = job(ranks, if op == "barrier" { 0 } else { bytes });
            let mut plan = CollectivePlan::new(op, job).expect("a collective");
            let all =
                simulate(&Lists::new(&mut plan, 0..ranks).expect("lists"), &COSTS).expect("times");
            let some = estimate(&mut plan, &job, &COSTS).expect("times");
            let (ratio, how) = (some.ns / all.ns, plan.algorithm());
            let alike = ["dissemination", "ring", "pairwise", "Bruck"].contains(&how);
            if alike || how == "all at once" {
                let is_same = (ratio - 1.0).abs() < 1e-9 && some.steps == all.steps;
                assert!(is_same, "{op}, {ranks} ranks, {bytes} bytes: {some:?}, {all:?}");
            } else if how != "binomial tree" {
                let is_near = (0.85..1.15).contains(&ratio) && some.steps.abs_diff(all.steps) <= 1;
                assert!(is_near, "{op}, {ranks} ranks, {bytes} bytes: {some:?}, {all:?}");
            }
        }
    }
}

/// Checks that a simulation of the ranks of some nodes gives a good estimate for the two-level
/// algorithms in which the last phase within the nodes depends on the phase between the leaders.
/// The remaining two-level algorithms are not checked: they are trees, for which `times` always
/// simulates all ranks.
#[test]
fn a_node_tells_about_all() {
    let per_node = 16;
    let costs = Costs { within: Network { latency: 200.0, ..NETWORK }, per_node, ..COSTS };
    for (ranks, root) in [(1024, 0), (1024, 37), (1000, 0), (200, 199)] {
        for op in ["barrier", "allreduce", "allgather"] {
            let job =
                DryRunJob { per_node, root, ..job(ranks, if op == "barrier" { 0 } else { 8 }) };
            let mut plan = CollectivePlan::new(op, job).expect("a collective");
            assert!(plan.is_two_level());
            let all =
                simulate(&Lists::new(&mut plan, 0..ranks).expect("lists"), &costs).expect("times");
            let some = estimate(&mut plan, &job, &costs).expect("times");
            let is_near =
                (0.85..1.15).contains(&(some.ns / all.ns)) && some.steps.abs_diff(all.steps) <= 1;
            assert!(is_near, "{op}, {ranks} ranks, root {root}: {some:?}, {all:?}");
        }
    }
}

#[test]
fn more_ranks_than_can_be_gone_through() {
    let job = job(100_000, 8);
    let mut plan = CollectivePlan::new("allgatherv", job).expect("a collective");
    let counts = count(&mut plan, &job).expect("counts");
    assert_eq!((counts.messages, counts.is_exact), (100_000 * 99_999, false));
    let times = times(&mut plan, &job, &counts, &COSTS).expect("times");
    assert_eq!((times.steps, times.is_exact), (99_999, false));
}
