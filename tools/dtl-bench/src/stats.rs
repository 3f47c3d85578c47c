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

/// Samples of one implementation in one row of the table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<Sample>);

/// Result of a batch.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// Number of the pass over the rows of the table.
    round: u32,
    regime: Regime,
    /// Nanoseconds per operation.
    ns: f64,
}

/// Minimum number of samples of each implementation in a round for a ratio of that round.
const FEW: usize = 5;

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
        self.0.push(Sample { round: 0, regime, ns: nanoseconds });
    }

    /// Adds the samples of round `round`.
    pub(crate) fn append(&mut self, round: u32, other: Samples) {
        self.0.extend(other.0.into_iter().map(|sample| Sample { round, ..sample }));
    }

    /// Returns true if there is a sample in the regime.
    pub(crate) fn has(&self, regime: Regime) -> bool {
        self.0.iter().any(|sample| sample.regime == regime)
    }

    /// Returns the statistics of the samples that belong to one [`Regime`]; `None` if there are
    /// none.
    pub(crate) fn summary(&self, regime: Regime) -> Option<Summary> {
        self.summary_of(|sample| sample.regime == regime)
    }

    /// Returns the median, over the rounds of a regime, of the time of these samples divided by that
    /// of `other`, and the number of these rounds. A round is of the regime that most of its samples
    /// have, and counts if there are enough. If no round counts, all samples together give the
    /// ratio. Load that lasts for a round slows both down, so it hardly changes the median.
    pub(crate) fn ratio(&self, other: &Samples, regime: Regime) -> Option<(f64, usize)> {
        let rounds = 0..=self.0.last()?.round;
        let of_round = |round| {
            let p10 = |samples: &Samples| {
                let all = samples.0.iter().filter(|sample| sample.round == round).count();
                let is_it = |sample: &Sample| sample.regime == regime && sample.round == round;
                let found = samples.summary_of(is_it)?;
                (found.count >= FEW && 2 * found.count > all).then_some(found.p10)
            };
            Some(p10(self)? / p10(other)?)
        };
        let mut ratios: Vec<f64> = rounds.filter_map(of_round).collect();
        ratios.sort_by(f64::total_cmp);
        let together = || Some(self.summary(regime)?.p10 / other.summary(regime)?.p10);
        let ratio = ratios.get(ratios.len() / 2).copied().or_else(together)?;
        Some((ratio, ratios.len()))
    }

    fn summary_of(&self, is_counted: impl Fn(&Sample) -> bool) -> Option<Summary> {
        let counted = self.0.iter().filter(|sample| is_counted(sample));
        let mut values: Vec<f64> = counted.map(|sample| sample.ns).collect();
        values.sort_by(f64::total_cmp);
        let at = |tenths: usize| values.get(values.len() * tenths / 10).copied();
        Some(Summary { count: values.len(), best: at(0)?, p10: at(1)?, median: at(5)? })
    }
}

#[cfg(test)]
#[path = "tests/stats.rs"]
mod tests;
