//! Options of the subcommand `model`: numbers of ranks, sizes, and network parameters.

use crate::options::parse_bytes;
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use dtl::tooling::schedules;
use std::path::PathBuf;

/// Largest number of ranks. Trees of up to this number of ranks are simulated in full, not
/// estimated (see `clock`).
pub(crate) const MOST_RANKS: i32 = 1 << 22;

/// Options of `model`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Model {
    /// Model only these collectives. neighbor_alltoallv uses two neighbours, the adjacent ranks of
    /// a ring
    #[arg(long, value_name = "OP,…", value_delimiter = ',', value_parser = known_ops(), default_value = ALL)]
    op: Vec<String>,

    /// Numbers of ranks: 64, or 2..1000000 for both ends and the powers of two between them
    #[arg(long, value_name = "RANKS,…", value_delimiter = ',', value_parser = parse_ranks, default_value = "2..1024")]
    ranks: Vec<Vec<i32>>,

    /// Sizes of a rank's data or, in collectives with blocks, of a block
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = parse_bytes, default_value = "8,64KiB,1MiB")]
    bytes: Vec<usize>,

    /// Root of the collectives that have one
    #[arg(long, value_name = "RANK", default_value_t = 0, value_parser = clap::value_parser!(i32).range(0..))]
    pub(crate) root: i32,

    /// Model reductions with an operation that does not commute (the default commutes)
    #[arg(long)]
    pub(crate) ordered: bool,

    /// Size of a reduction's element in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) element: u32,

    /// Number of ranks on each node (the number of nodes follows); enables two-level collectives
    /// where the library uses them
    #[arg(long, value_name = "RANKS", value_parser = clap::value_parser!(i32).range(1..=65536))]
    pub(crate) per_node: Option<i32>,

    /// Network between nodes, or between all ranks if the number of ranks per node is not
    /// specified.
    #[command(flatten)]
    pub(crate) network: Network,

    /// LogGP parameters L,o,g,G within a node
    #[arg(long, value_name = "L,o,g,G", default_value = "0.3us,0.1us,0.05us,0.1ns", value_parser = parse_network, requires = "per_node")]
    pub(crate) within: Network,

    /// Kind of communicator whose memory is computed: mpi (opened with a time limit), rdma, or shm
    /// (one node, up to 1024 ranks)
    #[arg(long, value_enum, default_value = "mpi")]
    pub(crate) kind: Kind,

    /// Write plots and tables.md into this folder
    #[arg(long, value_name = "FOLDER", conflicts_with = "json")]
    pub(crate) output: Option<PathBuf>,

    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Transport of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Messages over an MPI, collectives of the library
    Mpi,
    /// Messages over RDMA verbs, collectives of the library
    Rdma,
    /// Shared memory
    Shm,
}

/// LogGP's parameters in nanoseconds.
#[derive(Args, Clone, Copy, Debug, PartialEq)]
pub(crate) struct Network {
    /// LogGP's L: latency from the end of the sender's overhead to the arrival of the first byte
    #[arg(long, value_name = "TIME", default_value = "1us", value_parser = parse_time)]
    pub(crate) latency: f64,

    /// LogGP's o: overhead of the processor for sending or receiving a message
    #[arg(long, value_name = "TIME", default_value = "0.2us", value_parser = parse_time)]
    pub(crate) overhead: f64,

    /// LogGP's g: minimum gap between two messages of a rank in one direction
    #[arg(long, value_name = "TIME", default_value = "0.1us", value_parser = parse_time)]
    pub(crate) gap: f64,

    /// LogGP's G: time for each byte after a message's first (0.04ns = 25 GB/s)
    #[arg(long, value_name = "TIME", default_value = "0.04ns", value_parser = parse_time)]
    pub(crate) gap_per_byte: f64,
}

impl Network {
    /// Returns the time in nanoseconds between the first and the last byte of a message at a send
    /// or receive port.
    pub(crate) fn stream(&self, bytes: u64) -> f64 {
        bytes.saturating_sub(1) as f64 * self.gap_per_byte
    }

    pub(crate) fn text(&self) -> String {
        let Network { latency, overhead, gap, gap_per_byte } = self;
        format!("L {latency} ns, o {overhead} ns, g {gap} ns, G {gap_per_byte} ns")
    }
}

impl Model {
    /// Returns all requested numbers of ranks, in ascending order and without duplicates.
    pub(crate) fn all_ranks(&self) -> Vec<i32> {
        let mut all = self.ranks.concat();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Returns the sizes without duplicates.
    pub(crate) fn sizes(&self) -> Vec<usize> {
        once(self.bytes.iter().copied())
    }

    /// Returns the collectives without duplicates.
    pub(crate) fn ops(&self) -> Vec<&'static str> {
        let known: Vec<_> = schedules::collectives().collect();
        let of = |name| known.iter().copied().filter(move |op| name == ALL || *op == name);
        once(self.op.iter().map(String::as_str).flat_map(of))
    }
}

/// Removes duplicates; keeps the first occurrence of each value.
fn once<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    all.fold(Vec::new(), |mut kept, one| {
        if !kept.contains(&one) {
            kept.push(one);
        }
        kept
    })
}

/// Option value that selects all collectives.
const ALL: &str = "all";

fn known_ops() -> PossibleValuesParser {
    PossibleValuesParser::new([ALL].into_iter().chain(schedules::collectives()))
}

fn parse_ranks(text: &str) -> Result<Vec<i32>, String> {
    let one = |text: &str| {
        let ranks =
            text.trim().parse::<i32>().ok().filter(|ranks| (2..=MOST_RANKS).contains(ranks));
        ranks.ok_or_else(|| {
            format!("expected 2 to {MOST_RANKS} ranks, as 64, or a range, as 2..1000000")
        })
    };
    let Some((first, last)) = text.split_once("..") else { return Ok(vec![one(text)?]) };
    let (first, last) = (one(first)?, one(last)?);
    if last < first {
        return Err(format!("the range ends before it begins: {last}..{first}?"));
    }
    let powers = (1..31).map(|bit| 1 << bit).filter(|power| (first + 1..last).contains(power));
    let mut all: Vec<i32> = [first].into_iter().chain(powers).chain([last]).collect();
    all.dedup();
    Ok(all)
}

/// Parses a time and returns nanoseconds.
fn parse_time(text: &str) -> Result<f64, String> {
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6)];
    let unit =
        units.iter().find_map(|(unit, ns)| text.strip_suffix(unit).map(|number| (number, *ns)));
    let value =
        unit.and_then(|(number, ns)| number.trim().parse::<f64>().ok().map(|number| number * ns));
    value
        .filter(|value| (0.0..=1e9).contains(value))
        .ok_or_else(|| "expected a time as 1.5us, 200ns or 0.04ns, at most 1000ms".to_owned())
}

fn parse_network(text: &str) -> Result<Network, String> {
    let times: Result<Vec<f64>, String> = text.split(',').map(parse_time).collect();
    match times?[..] {
        [latency, overhead, gap, gap_per_byte] => {
            Ok(Network { latency, overhead, gap, gap_per_byte })
        }
        _ => Err("expected four times: L,o,g,G, as 0.3us,0.1us,0.05us,0.1ns".to_owned()),
    }
}

#[cfg(test)]
#[path = "tests/wanted.rs"]
pub(super) mod tests;
