//! Tests of `wanted`.

use super::*;
use crate::options::{Command, Options};
use clap::Parser;

/// Parses `words` as command-line options of `model`.
pub(crate) fn wanted(words: &str) -> Model {
    match Options::parse_from(["dtl-bench", "model"].into_iter().chain(words.split_whitespace()))
        .command
    {
        Command::Model(wanted) => wanted,
        _ => panic!("no model"),
    }
}

#[test]
fn each_once() {
    let some = wanted("--op bcast,barrier,bcast --bytes 64KiB,8,65536 --ranks 8,2..16");
    assert_eq!(some.ops(), ["bcast", "barrier"]);
    assert_eq!((some.sizes(), some.all_ranks()), (vec![65536, 8], vec![2, 4, 8, 16]));
    let all: Vec<_> = schedules::collectives().collect();
    assert_eq!(wanted("").ops(), all);
    assert_eq!(wanted("--op all").ops(), all);
    assert_eq!(wanted("--op scan,all").ops().len(), all.len());
}

#[test]
fn ranks() {
    assert_eq!(parse_ranks("7"), Ok(vec![7]));
    assert_eq!(parse_ranks("2..16"), Ok(vec![2, 4, 8, 16]));
    assert_eq!(parse_ranks("3..20"), Ok(vec![3, 4, 8, 16, 20]));
    assert_eq!(parse_ranks("5..5"), Ok(vec![5]));
    assert_eq!(parse_ranks("2..1000000").map(|all| (all.len(), all[19])), Ok((20, 1_000_000)));
    for bad in ["", "1", "0..4", "8..4", "2..", "99999999", "two", "2...4"] {
        assert!(parse_ranks(bad).is_err(), "{bad}");
    }
}

#[test]
fn times() {
    assert_eq!(
        (parse_time("1.5us"), parse_time("200ns"), parse_time("0ms")),
        (Ok(1500.0), Ok(200.0), Ok(0.0))
    );
    for bad in ["", "1", "-1us", "1s", "nanns", "us", "2000ms"] {
        assert!(parse_time(bad).is_err(), "{bad}");
    }
    let network = Network { latency: 1.0, overhead: 2.0, gap: 3.0, gap_per_byte: 0.5 };
    assert_eq!(parse_network("1ns,2ns,3ns,0.5ns"), Ok(network));
    assert!(parse_network("1ns,2ns,3ns").is_err() && parse_network("1ns,2ns,3ns,4").is_err());
    assert_eq!((network.stream(0), network.stream(1), network.stream(9)), (0.0, 0.0, 4.0));
}
