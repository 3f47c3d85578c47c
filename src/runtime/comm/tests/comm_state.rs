//! Tests of `comm_state`.

use super::*;

#[test]
fn only_an_open_one_admits_ranks() {
    let standing = StateWord::new(3);
    let admitted = || [0, 2, 3, i32::MAX].map(|rank| standing.admits(rank));
    assert_eq!(admitted(), [true, true, false, false]);
    for state in [CommState::Closed, CommState::Revoked] {
        standing.set(state);
        assert!(standing.state() == state && !standing.is_open() && admitted() == [false; 4]);
        standing.revoke();
        assert_eq!(standing.state(), state);
    }
    standing.set(CommState::Open);
    assert!(standing.is_open() && standing.admits(2));
    standing.revoke();
    assert_eq!(standing.state(), CommState::Revoked);
}
