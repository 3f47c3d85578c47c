//! Tests of `hang_report`.

use super::*;
use crate::abi::status::DTL_ERROR_REVOKED;
use crate::runtime::comm::open::open_kind;
use std::sync::Arc;

#[test]
fn ranges_are_short() {
    assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
    assert_eq!(ranges(&[3]), "3");
}

/// Opens a communicator whose ranks are in this process, and returns one for each rank.
fn ranks(size: i32) -> Vec<Comm> {
    let [_, threads] = crate::backend::inproc::backends();
    let ranks =
        threads.comm.as_ref().and_then(|comm| comm.open_ranks(size)).expect("ranks").expect("open");
    let backend = Arc::new(threads);
    let open =
        |rank| open_kind::assemble(Arc::clone(&backend), rank, 0, 1_000_000_000).expect("open");
    ranks.into_iter().map(open).collect()
}

/// Rank 0 dies after it has notified rank 1 alone: the others are notified by rank 1.
#[test]
fn a_revocation_is_forwarded() {
    let comms = ranks(4);
    notify(&comms[0], 1, &own(&comms[0], NoticeKind::Revoke, DTL_SUCCESS, 0));
    comms[2..].iter().for_each(serve_own);
    assert!(comms.iter().all(Comm::is_open));
    comms[1..].iter().for_each(serve_own);
    for comm in &comms[1..] {
        assert_eq!(comm.ended().status(), DTL_ERROR_REVOKED);
        assert!(comm.ended().text().starts_with("rank 0 has revoked"), "{}", comm.ended());
    }
}

/// A revocation by the program replaces that of a shrink; later ones change nothing.
#[test]
fn the_first_revocation_counts() {
    let comms = ranks(2);
    revoke(&comms[0], Revocation::Shrink);
    serve_own(&comms[1]);
    assert_eq!(comms[1].ended().status(), DTL_ERROR_RANK_FAILURE);
    revoke(&comms[1], Revocation::Rank(1));
    revoke(&comms[1], Revocation::Rank(0));
    serve_own(&comms[0]);
    for comm in &comms {
        revoke(comm, Revocation::Shrink);
        assert_eq!(comm.reports.revocation(), Some(Revocation::Rank(1)));
        assert_eq!(comm.ended().status(), DTL_ERROR_REVOKED);
    }
}
