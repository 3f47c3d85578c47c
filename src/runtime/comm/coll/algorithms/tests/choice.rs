//! Tests of `choice`.

use super::*;

#[test]
fn every_collective_has_an_algorithm_for_every_size() {
    let none = Allowed::default();
    let levels = Allowed { two_level: true, mailboxes: false };
    for row in TABLE {
        for (bytes, commutes) in [(0, false), (100, true), (1 << 30, false), (1 << 30, true)] {
            for ranks in [1, 3, 4, 5, 1000] {
                let chosen = choose(row.kind, ranks, bytes, commutes, none);
                let rows = TABLE.iter().filter(|other| other.kind == row.kind);
                assert!(rows.into_iter().any(|other| other.algorithm == chosen), "{:?}", row.kind);
                assert_ne!(chosen, Algorithm::Mailbox, "{:?}", row.kind);
                assert_ne!(chosen, Algorithm::TwoLevel, "{:?}", row.kind);
            }
        }
    }
    assert_eq!(choose(Kind::Allreduce, 4, 1 << 20, false, none), Algorithm::PairwiseRing);
    assert_eq!(choose(Kind::Allreduce, 4, 8, true, none), Algorithm::RecursiveDoubling);
    assert_eq!(choose(Kind::Allreduce, 3, 1 << 20, true, none), Algorithm::Rabenseifner);
    assert_eq!(choose(Kind::Allreduce, 2, 1 << 20, true, none), Algorithm::RecursiveDoubling);
    assert_eq!(choose(Kind::Allreduce, 2, 4 << 20, true, none), Algorithm::Rabenseifner);
    assert_eq!(choose(Kind::Allreduce, 4, 8, true, levels), Algorithm::TwoLevel);
    let both = Allowed { two_level: true, mailboxes: true };
    assert_eq!(choose(Kind::Allreduce, 4, 1 << 10, true, both), Algorithm::Mailbox);
    assert_eq!(choose(Kind::Allreduce, 4, 1 << 11, true, both), Algorithm::TwoLevel);
    assert_eq!(choose(Kind::Reduce, 4, 1 << 20, true, none), Algorithm::HalvingGather);
    assert_eq!(choose(Kind::Reduce, 4, 1 << 20, false, none), Algorithm::Binomial);
    assert_eq!(choose(Kind::Allgather, 4, 1 << 20, true, levels), Algorithm::Ring);
    assert_eq!(choose(Kind::Alltoall, 4, 8, true, levels), Algorithm::Pairwise);
}
