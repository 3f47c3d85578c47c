//! Samples: the times of batches. They are grouped by the round-trip time of a cache line, during
//! the batch, between the processors on which the measuring threads run.

/// Class of the round-trip time of a cache line between two processors, measured before and after a
/// batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Regime {
    /// The round trip takes less than 200 ns before and after the batch.
    Near,
    /// The round trip takes more than 300 ns before and after the batch.
    Far,
    /// Neither `Near` nor `Far`, for example because the distance between the processors changed
    /// during the batch.
    Between,
    /// The round-trip time was not measured.
    Unknown,
}

impl Regime {
    pub(crate) const ALL: [Regime; 4] =
        [Regime::Near, Regime::Far, Regime::Between, Regime::Unknown];

    /// Returns the regime for the round-trip times before and after a batch, in nanoseconds;
    /// `Unknown` if one of them was not measured.
    pub(crate) fn of(before: Option<f64>, after: Option<f64>) -> Regime {
        match (before, after) {
            (Some(before), Some(after)) if before < 200.0 && after < 200.0 => Regime::Near,
            (Some(before), Some(after)) if before > 300.0 && after > 300.0 => Regime::Far,
            (Some(_), Some(_)) => Regime::Between,
            _ => Regime::Unknown,
        }
    }

    /// Returns the name of the regime for tables and JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Regime::Near => "near",
            Regime::Far => "far",
            Regime::Between => "between",
            Regime::Unknown => "any",
        }
    }
}

/// Samples of one implementation in one row of the table: for each batch, the regime and the time
/// in nanoseconds per operation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<(Regime, f64)>);

/// Statistics of the samples of a regime (class of the distance between the processors), in
/// nanoseconds per operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) count: usize,
    pub(crate) best: f64,
    /// 10th percentile, the value that is used for comparisons.
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

    /// Returns the statistics of the samples that belong to one [`Regime`]; `None` if there are
    /// none.
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
