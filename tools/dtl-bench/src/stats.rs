//! Samples: times of batches, grouped by the distance of the processors at that moment.

/// Round trip of a cache line between the processors, measured around a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Regime {
    /// Below 200 ns before and after.
    Near,
    /// Above 300 ns before and after.
    Far,
    /// Neither, or it changed.
    Between,
    /// Not measured.
    Unknown,
}

impl Regime {
    pub(crate) const ALL: [Regime; 4] =
        [Regime::Near, Regime::Far, Regime::Between, Regime::Unknown];

    /// Returns the regime for the round trips before and after a batch, in nanoseconds.
    pub(crate) fn of(before: Option<f64>, after: Option<f64>) -> Regime {
        match (before, after) {
            (Some(before), Some(after)) if before < 200.0 && after < 200.0 => Regime::Near,
            (Some(before), Some(after)) if before > 300.0 && after > 300.0 => Regime::Far,
            (Some(_), Some(_)) => Regime::Between,
            _ => Regime::Unknown,
        }
    }

    /// In tables and JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Regime::Near => "near",
            Regime::Far => "far",
            Regime::Between => "between",
            Regime::Unknown => "any",
        }
    }
}

/// Samples of one side of a row: nanoseconds per operation, one value for each batch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<(Regime, f64)>);

/// Summary of the samples of a regime, in nanoseconds per operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) count: usize,
    pub(crate) best: f64,
    /// 10th percentile: the value for comparisons.
    pub(crate) p10: f64,
    pub(crate) median: f64,
}

impl Samples {
    pub(crate) fn push(&mut self, regime: Regime, nanoseconds: f64) {
        self.0.push((regime, nanoseconds));
    }

    pub(crate) fn append(&mut self, mut other: Samples) {
        self.0.append(&mut other.0);
    }

    /// `None`: there are none of that regime.
    pub(crate) fn summary(&self, regime: Regime) -> Option<Summary> {
        let mut values: Vec<f64> =
            self.0.iter().filter(|sample| sample.0 == regime).map(|sample| sample.1).collect();
        values.sort_by(f64::total_cmp);
        let at = |tenths: usize| values.get(values.len() * tenths / 10).copied();
        Some(Summary { count: values.len(), best: at(0)?, p10: at(1)?, median: at(5)? })
    }
}

#[cfg(test)]
#[path = "tests/stats.rs"]
mod tests;
