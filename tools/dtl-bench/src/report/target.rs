//! Performance targets of the library. Most of them limit the ratio of the 10th percentile of the
//! library's samples to that of the fastest peer (implementation that the library is compared with)
//! in the same run and regime (class of the distance between the processors). A row of messages or
//! collectives between two processes also holds if the library is close to the bare prototype.

use super::run::{Of, Row, Run};
use crate::stats::Regime;
use std::sync::LazyLock;

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
    pub(crate) of: Of,
    test: &'static str,
    bytes: Sizes,
    pub(crate) by: By,
    /// Name of the library to compare with; empty: all such libraries.
    peer: &'static str,
    near: f64,
    far: f64,
}

/// Largest ratio of the library's time to that of the bare prototype in the same run with which a
/// row between two processes holds, whatever the peers need.
pub(crate) const OF_PROTOTYPE: f64 = 1.1;

/// Ratio of the automatic choice of the copy method to the best forced method that each row should
/// keep; the share of the rows that must keep it; and the ratio that all rows must keep.
pub(crate) const CHOICE: (f64, f64, f64) = (1.05, 0.95, 1.15);

/// Creates a target for the ratio to the peers, which is the same in all regimes (near and far
/// processors).
fn target(of: Of, test: &'static str, bytes: Sizes, ratio: f64) -> Target {
    Target { of, test, bytes, by: By::Ratio, peer: "", near: ratio, far: ratio }
}

/// Creates a target for a test of messages or collectives between two processes.
fn pair(test: &'static str, bytes: Sizes, ratio: f64) -> Target {
    target(Of::Pair, test, bytes, ratio)
}

/// Creates a target for a measurement within one process. The limit `ratio` applies to the
/// library's value divided by the value measured with the library `peer`.
fn local(peer: &'static str, test: &'static str, bytes: Sizes, ratio: f64) -> Target {
    Target { peer, ..target(Of::Process, test, bytes, ratio) }
}

fn at_most(of: Of, test: &'static str, bytes: Sizes, by: By, nanoseconds: f64) -> Target {
    Target { by, ..target(of, test, bytes, nanoseconds) }
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const ANY: Sizes = &[];
/// Data sizes, in bytes, of large collectives.
const LARGE: Sizes = &[64 * KIB, MIB, 8 * MIB];
/// Data sizes, in bytes, of messages in streams.
const STREAM: Sizes = &[64 * KIB, MIB];
const SMALL: Sizes = &[8, KIB];
const LIBC: &str = "malloc (libc";

static TARGETS: LazyLock<Vec<Target>> = LazyLock::new(|| {
    let collectives = ["allreduce", "bcast", "reduce", "allgather", "alltoall"];
    let mut all = vec![
        pair("latency", &[0, 8, 64], 0.8),
        pair("latency", &[KIB], 1.0),
        pair("latency", &[8 * KIB, 64 * KIB, MIB, 16 * MIB], 0.85),
        pair("bandwidth", STREAM, 1.15),
        pair("bidirectional", STREAM, 1.15),
        pair("rate", ANY, 1.3),
        pair("barrier", ANY, 0.7),
        pair("allreduce", SMALL, 0.7),
    ];
    all.extend(collectives.map(|test| pair(test, LARGE, 0.9)));
    for ranks in [4, 8, 16, 32] {
        let small = ["barrier", "allreduce", "bcast", "reduce"];
        all.extend(small.map(|test| target(Of::Crowd(ranks), test, ANY, 0.75)));
    }
    all.push(Target { far: 2.0, ..target(Of::Threads, "bandwidth", &[MIB], 1.2) });
    // The inverse limits the ratio of rates.
    all.push(target(Of::Methods, "latency", ANY, CHOICE.0));
    all.extend(
        ["bandwidth", "bidirectional"]
            .map(|test| target(Of::Methods, test, ANY, (1000.0 / CHOICE.0).floor() / 1000.0)),
    );
    all.extend(collectives.map(|test| target(Of::Methods, test, ANY, CHOICE.0)));
    all.extend(elsewhere());
    all
});

/// Returns the targets of the measurements that are not about kind shm and threads.
fn elsewhere() -> Vec<Target> {
    let calls = ["event_record", "event_query", "stream_query", "stream_sync", "device_count"];
    let mut all = vec![
        at_most(Of::Process, "to main", ANY, By::Most, 5e6),
        at_most(Of::OverMpi, "latency", &[8], By::More, 10.0),
        at_most(Of::OverMpi, "rate", &[8], By::More, 20.0),
        target(Of::OverMpi, "latency", STREAM, 1.01),
        target(Of::OverMpi, "bandwidth", STREAM, 0.99),
        local(LIBC, "pair", &[64], 0.8),
        local(LIBC, "pair", &[4 * KIB, 64 * KIB, MIB, 16 * MIB], 0.4),
        local(LIBC, "pool", &[64], 0.8),
        local(LIBC, "pool", &[4 * KIB, 64 * KIB, MIB, 16 * MIB], 0.4),
        local(LIBC, "touched", &[64 * MIB], 0.025),
        local("libgomp", "empty", ANY, 0.6),
        local("libgomp", "saxpy 1K", ANY, 0.5),
        local("libgomp", "saxpy 100K", ANY, 0.95),
    ];
    all.extend(calls.map(|test| at_most(Of::Process, test, ANY, By::More, 2.5)));
    all
}

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
