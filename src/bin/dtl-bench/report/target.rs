//! What the library is to reach against its best peer: ratios of 10th percentiles of the same run and regime.

use super::run::Row;
use crate::stats::Regime;

/// A ratio to reach: at most for times, at least for GB/s and M/s.
struct Target {
    test: &'static str,
    /// These sizes; none: any.
    bytes: &'static [u64],
    near: f64,
    far: f64,
}

const fn target(test: &'static str, bytes: &'static [u64], near: f64, far: f64) -> Target {
    Target { test, bytes, near, far }
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const ANY: &[u64] = &[];
/// Of collectives.
const LARGE: &[u64] = &[64 * KIB, MIB];

const TARGETS: &[Target] = &[
    target("latency", &[0, 8, 64], 0.6, 0.8),
    target("latency", &[KIB], 0.75, 0.9),
    target("latency", &[8 * KIB], 0.9, 0.85),
    target("latency", &[64 * KIB], 1.0, 1.0),
    target("latency", &[MIB], 0.95, 0.6),
    target("latency", &[16 * MIB], 0.95, 0.35),
    target("bandwidth", &[8 * KIB], 2.0, 1.5),
    target("bandwidth", &[64 * KIB], 2.5, 1.15),
    target("bandwidth", &[MIB], 1.1, 1.7),
    target("rate", ANY, 2.5, 2.0),
    target("barrier", ANY, 0.55, 0.75),
    target("allreduce", &[8, KIB], 0.55, 0.75),
    target("allreduce", LARGE, 0.9, 0.9),
    target("bcast", LARGE, 0.9, 0.75),
    target("reduce", LARGE, 0.9, 0.75),
    target("allgather", LARGE, 0.95, 1.0),
    target("alltoall", LARGE, 0.95, 1.0),
    target("pair", &[64], 0.8, 0.8),
    target("pair", &[4 * KIB, 64 * KIB, MIB, 16 * MIB], 0.4, 0.4),
    target("touched", &[64 * MIB], 0.025, 0.025),
    target("empty", ANY, 0.6, 0.6),
    target("saxpy 1K", ANY, 0.5, 0.5),
    target("saxpy 100K", ANY, 0.95, 0.95),
];

/// What a row is to reach in a regime, and the place of that among all; `None`: nothing in particular.
pub(crate) fn of(row: &Row, regime: Regime) -> Option<(usize, f64)> {
    let bytes = row.bytes.unwrap_or(0);
    let is_its = |target: &Target| {
        target.test == row.test && (target.bytes.is_empty() || target.bytes.contains(&bytes))
    };
    let place = TARGETS.iter().position(is_its)?;
    match regime {
        Regime::Near | Regime::Unknown => Some((place, TARGETS[place].near)),
        Regime::Far => Some((place, TARGETS[place].far)),
        Regime::Between => None,
    }
}

/// Whether a ratio reaches it.
pub(crate) fn is_met(row: &Row, target: f64, ratio: f64) -> bool {
    if row.unit.grows() { ratio >= target } else { ratio <= target }
}
