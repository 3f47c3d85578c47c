//! Tests of the subcommand `comm`: names, sizes, units, and the number of repetitions in a batch.

use crate::table::Unit;
use clap::ValueEnum;

/// Operation that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub(crate) enum Test {
    /// Half a round trip of a message between ranks 0 and 1
    Latency,
    /// A window of messages from rank 0 to rank 1
    Bandwidth,
    /// A window of messages in each direction at the same time
    Bidirectional,
    /// A window of messages of 8 bytes
    Rate,
    /// Barrier of all ranks
    Barrier,
    /// Sum of floats, on all
    Allreduce,
    /// From rank 0
    Bcast,
    /// Sum of floats, on rank 0
    Reduce,
    /// Data of every rank, gathered on all ranks
    Allgather,
    /// A block from each rank for each rank
    Alltoall,
}

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Row of the table: a test with a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Row {
    pub(crate) test: Test,
    /// Size in bytes of a message, of each rank's data in a collective, or of each block in
    /// `alltoall`.
    pub(crate) bytes: usize,
}

impl Test {
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Returns true if only ranks 0 and 1 take part.
    pub(crate) fn is_of_two(self) -> bool {
        matches!(self, Test::Latency | Test::Bandwidth | Test::Bidirectional | Test::Rate)
    }

    fn is_of_floats(self) -> bool {
        matches!(self, Test::Allreduce | Test::Reduce)
    }

    fn own_sizes(self) -> &'static [usize] {
        match self {
            Test::Latency => &[0, 8, 64, KIB, 8 * KIB, 64 * KIB, MIB, 16 * MIB],
            Test::Bandwidth | Test::Bidirectional => &[KIB, 8 * KIB, 64 * KIB, MIB, 16 * MIB],
            Test::Rate => &[8],
            Test::Barrier => &[0],
            Test::Allreduce => &[8, KIB, 64 * KIB, MIB, 8 * MIB],
            Test::Bcast | Test::Reduce | Test::Allgather | Test::Alltoall => {
                &[64 * KIB, MIB, 8 * MIB]
            }
        }
    }

    fn has_sizes(self) -> bool {
        !matches!(self, Test::Rate | Test::Barrier)
    }
}

impl Row {
    /// Returns the rows that the command line selects, or an error message if a test does not
    /// support a size.
    pub(crate) fn list(only: &[Test], sizes: &[usize]) -> Result<Vec<Row>, String> {
        let tests = if only.is_empty() { Test::value_variants() } else { only };
        let mut rows = Vec::new();
        for &test in tests {
            let wanted =
                if sizes.is_empty() || !test.has_sizes() { test.own_sizes() } else { sizes };
            for &bytes in wanted {
                if test.is_of_floats() && bytes % super::endpoint::ELEMENT != 0 {
                    return Err(format!(
                        "--sizes {bytes}: {} adds floats of 4 bytes, give multiples of 4 or leave \
                         the test out with --only",
                        test.name()
                    ));
                }
                if matches!(test, Test::Bandwidth | Test::Bidirectional) && bytes == 0 {
                    continue; // no bytes, no bandwidth
                }
                rows.push(Row { test, bytes });
            }
        }
        if rows.is_empty() {
            return Err(
                "a bandwidth needs messages of more than 0 bytes: give another size".to_owned()
            );
        }
        Ok(rows)
    }

    pub(crate) fn unit(self) -> Unit {
        match self.test {
            Test::Bandwidth => Unit::Bandwidth(self.bytes as f64),
            Test::Bidirectional => Unit::Bandwidth(2.0 * self.bytes as f64),
            Test::Rate => Unit::Rate,
            _ => Unit::Microseconds,
        }
    }

    /// Returns the number of timed repetitions in a batch. The batch is short, but long compared
    /// with the clock's resolution and, up to 1 MiB, with the untimed repetition before it.
    pub(crate) fn repeats(self) -> usize {
        match self.bytes {
            0..=1024 if self.test.is_of_two() => 50,
            0..=65_536 => 20,
            65_537..=1_048_576 => 8,
            _ => 1,
        }
    }

    /// Returns the number of messages that are in flight at the same time.
    pub(crate) fn window(self) -> usize {
        match self.bytes {
            0..=65536 => 64,
            65537..=1_048_576 => 8,
            _ => 2,
        }
    }

    /// Returns the sizes in bytes of a rank's send buffer and receive buffer.
    pub(crate) fn room(self, ranks: usize) -> (usize, usize) {
        match self.test {
            Test::Allgather => (self.bytes, self.bytes * ranks),
            Test::Alltoall => (self.bytes * ranks, self.bytes * ranks),
            _ => (self.bytes, self.bytes),
        }
    }
}

#[cfg(test)]
#[path = "tests/test.rs"]
mod tests;
