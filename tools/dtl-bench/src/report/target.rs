//! Performance targets of the library. Most of them limit the ratio of the 10th percentile of the
//! library's samples to that of the fastest peer (implementation that the library is compared with)
//! in the same run and regime (class of the distance between the processors).

use super::run::{Of, Row, Run};
use crate::stats::Regime;

/// Method of comparing a value with its target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum By {
    /// Ratio of the value measured with this library to the value measured with the library
    /// compared against: an upper bound for times, a lower bound for GB/s and M/s.
    Ratio,
    /// Maximum excess, in nanoseconds, over the time measured with the library compared against.
    More,
    /// Maximum time in nanoseconds.
    Most,
}

/// Sizes, in bytes, to which a target applies; empty: all sizes.
type Sizes = &'static [u64];

/// Performance target of one or more rows of a report.
pub(crate) struct Target {
    of: Of,
    test: &'static str,
    bytes: Sizes,
    pub(crate) by: By,
    /// Name of the library to compare with; empty: all such libraries.
    peer: &'static str,
    near: f64,
    far: f64,
}

const fn target(of: Of, test: &'static str, bytes: Sizes, near: f64, far: f64) -> Target {
    Target { of, test, bytes, by: By::Ratio, peer: "", near, far }
}

/// Creates a target for a test of messages between two processes, with a limit for each regime
/// (class of the distance between the processors: near or far).
const fn pair(test: &'static str, bytes: Sizes, near: f64, far: f64) -> Target {
    target(Of::Pair, test, bytes, near, far)
}

/// Creates a target for a measurement within one process. The limit `ratio` applies to the
/// library's value divided by the value measured with the library `peer`. It is the same in all
/// regimes (near and far processors).
const fn local(peer: &'static str, test: &'static str, bytes: Sizes, ratio: f64) -> Target {
    Target { peer, ..target(Of::Process, test, bytes, ratio, ratio) }
}

const fn at_most(of: Of, test: &'static str, bytes: Sizes, by: By, nanoseconds: f64) -> Target {
    Target { by, ..target(of, test, bytes, nanoseconds, nanoseconds) }
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const ANY: Sizes = &[];
/// Data sizes, in bytes, of large collectives.
const LARGE: Sizes = &[64 * KIB, MIB];
const SMALL: Sizes = &[8, KIB];
const LIBC: &str = "malloc (libc";

const TARGETS: &[Target] = &[
    pair("latency", &[0, 8, 64], 0.6, 0.8),
    pair("latency", &[KIB], 0.75, 0.9),
    pair("latency", &[8 * KIB], 0.9, 0.85),
    pair("latency", &[64 * KIB], 1.0, 1.0),
    pair("latency", &[MIB], 0.95, 0.6),
    pair("latency", &[16 * MIB], 0.95, 0.35),
    pair("bandwidth", &[8 * KIB], 2.0, 1.5),
    pair("bandwidth", &[64 * KIB], 2.5, 1.15),
    pair("bandwidth", &[MIB], 1.1, 1.7),
    pair("rate", ANY, 2.5, 2.0),
    pair("barrier", ANY, 0.55, 0.75),
    pair("allreduce", SMALL, 0.55, 0.75),
    pair("allreduce", LARGE, 0.9, 0.9),
    pair("bcast", LARGE, 0.9, 0.75),
    pair("reduce", LARGE, 0.9, 0.75),
    pair("allgather", LARGE, 0.95, 1.0),
    pair("alltoall", LARGE, 0.95, 1.0),
    target(Of::Crowd(4), "barrier", ANY, 0.75, 0.75),
    target(Of::Crowd(4), "allreduce", SMALL, 0.75, 0.75),
    target(Of::Crowd(4), "bcast", SMALL, 0.75, 0.75),
    target(Of::Crowd(4), "reduce", SMALL, 0.75, 0.75),
    target(Of::Crowd(8), "barrier", ANY, 0.75, 0.75),
    target(Of::Crowd(8), "allreduce", SMALL, 0.75, 0.75),
    target(Of::Crowd(8), "bcast", SMALL, 0.75, 0.75),
    target(Of::Crowd(8), "reduce", SMALL, 0.75, 0.75),
    target(Of::Crowd(16), "barrier", ANY, 0.75, 0.75),
    target(Of::Crowd(16), "allreduce", SMALL, 0.75, 0.75),
    target(Of::Crowd(16), "bcast", SMALL, 0.75, 0.75),
    target(Of::Crowd(16), "reduce", SMALL, 0.75, 0.75),
    target(Of::Crowd(32), "barrier", ANY, 0.75, 0.75),
    target(Of::Crowd(32), "allreduce", SMALL, 0.75, 0.75),
    target(Of::Crowd(32), "bcast", SMALL, 0.75, 0.75),
    target(Of::Crowd(32), "reduce", SMALL, 0.75, 0.75),
    target(Of::Threads, "bandwidth", &[MIB], 1.2, 2.0),
    target(Of::Methods, "latency", ANY, 1.05, 1.05),
    target(Of::Methods, "bandwidth", ANY, 0.95, 0.95),
    target(Of::Methods, "bidirectional", ANY, 0.95, 0.95),
    target(Of::Methods, "bcast", ANY, 1.05, 1.05),
    target(Of::Methods, "reduce", ANY, 1.05, 1.05),
    target(Of::Methods, "allreduce", ANY, 1.05, 1.05),
    target(Of::Methods, "allgather", ANY, 1.05, 1.05),
    target(Of::Methods, "alltoall", ANY, 1.05, 1.05),
    at_most(Of::Process, "to main", ANY, By::Most, 5e6),
    at_most(Of::OverMpi, "latency", &[8], By::More, 10.0),
    at_most(Of::OverMpi, "rate", &[8], By::More, 20.0),
    target(Of::OverMpi, "latency", LARGE, 1.01, 1.01),
    target(Of::OverMpi, "bandwidth", LARGE, 0.99, 0.99),
    at_most(Of::Process, "event_record", ANY, By::More, 2.5),
    at_most(Of::Process, "event_query", ANY, By::More, 2.5),
    at_most(Of::Process, "stream_query", ANY, By::More, 2.5),
    at_most(Of::Process, "stream_sync", ANY, By::More, 2.5),
    at_most(Of::Process, "device_count", ANY, By::More, 2.5),
    local(LIBC, "pair", &[64], 0.8),
    local(LIBC, "pair", &[4 * KIB, 64 * KIB, MIB, 16 * MIB], 0.4),
    local(LIBC, "pool", &[64], 0.8),
    local(LIBC, "pool", &[4 * KIB, 64 * KIB, MIB, 16 * MIB], 0.4),
    local(LIBC, "touched", &[64 * MIB], 0.025),
    local("libgomp", "empty", ANY, 0.6),
    local("libgomp", "saxpy 1K", ANY, 0.5),
    local("libgomp", "saxpy 100K", ANY, 0.95),
];

/// Returns the performance target for a row, and the position of this target among all targets;
/// `None` if the row has no target.
pub(crate) fn of(run: &Run, row: &Row) -> Option<(usize, &'static Target)> {
    let bytes = row.bytes.unwrap_or(0);
    let is_its = |target: &&Target| {
        target.of == run.of()
            && target.test == row.test
            && (target.bytes.is_empty() || target.bytes.contains(&bytes))
            && run.peer().unwrap_or_default().starts_with(target.peer)
    };
    TARGETS.iter().enumerate().find(|(_, target)| is_its(target))
}

impl Target {
    /// Returns the target value in a regime.
    pub(crate) fn at(&self, regime: Regime) -> f64 {
        if regime == Regime::Far { self.far } else { self.near }
    }

    /// Returns true if the target is an upper bound.
    pub(crate) fn is_most(&self, row: &Row) -> bool {
        self.by != By::Ratio || !row.unit.grows()
    }

    /// Returns true if a value meets the target.
    pub(crate) fn is_met(&self, row: &Row, regime: Regime, value: f64) -> bool {
        if self.is_most(row) { value <= self.at(regime) } else { value >= self.at(regime) }
    }
}
