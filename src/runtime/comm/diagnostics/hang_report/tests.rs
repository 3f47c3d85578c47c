//! Tests of `hang_report`.

use super::*;
use crate::abi::status::DTL_ERROR_REVOKED;
use crate::backend::in_process::comms;

#[test]
fn ranges_are_short() {
    assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
    assert_eq!(ranges(&[3]), "3");
}

/// Rank 0 dies after it has notified rank 1 alone: the others are notified by rank 1.
#[test]
fn a_revocation_is_forwarded() {
    let comms = comms(4);
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
    let comms = comms(2);
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
