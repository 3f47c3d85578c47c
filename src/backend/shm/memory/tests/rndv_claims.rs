//! Tests of `rndv_claims`.

use super::*;
use crate::sys::os::shm_segment::SharedMapping;

#[test]
fn an_offer_is_taken_or_withdrawn() {
    let memory = SharedMapping::create(BYTES).expect("memfd");
    memory.commit(0, BYTES).expect("commit");
    let span = || memory.span(0, BYTES).expect("inside");
    let (mut offers, offered) = (OwnClaims::new(span()), PeerClaims::new(span()));
    let claim = offers.open().expect("claim");
    assert!(offered.is_open(claim) && offered.take(claim) && !offered.is_open(claim));
    assert!(!offers.cancel(claim), "taken");
    offers.close(claim);
    let all: Vec<_> = std::iter::from_fn(|| offers.open()).collect();
    assert_eq!(all.len(), usize::from(FIRST_CLAIMS));
    assert!(offers.can_grow(0) && !offers.should_request_sweep());
    assert!(offers.cancel(all[0]));
    assert_eq!(offers.open(), None, "the receiver has not seen it");
    assert!(!offers.can_grow(0) && offers.should_request_sweep(), "there is something to wait for");
    offers.sweep_requested();
    assert!(!offers.should_request_sweep());
    assert!(!offered.take(all[0]));
    assert_eq!(offers.open(), Some(all[0]));
    assert!(offers.cancel(all[1]) && offers.should_request_sweep());
    assert!(offered.release_withdrawn(all[1]) && !offered.release_withdrawn(all[2]));
    assert_eq!((offers.open(), offers.open()), (Some(all[1]), None));
    offers.refused(5);
    assert!(!offers.can_grow(4 + ASK_AGAIN_NS), "there was no memory a moment ago");
    assert!(offers.can_grow(5 + ASK_AGAIN_NS));
    offers.grow();
    assert_eq!(std::iter::from_fn(|| offers.open()).count(), usize::from(CLAIMS - FIRST_CLAIMS));
}

#[test]
fn fragments_are_taken_from_both_ends() {
    let memory = SharedMapping::create(BYTES).expect("memfd");
    memory.commit(0, BYTES).expect("commit");
    let span = || memory.span(0, BYTES).expect("inside");
    let (offers, offered) = (OwnClaims::new(span()), PeerClaims::new(span()));
    let (one, most) = (|_| 1, |left: u32| left.min(3));
    assert_eq!((offers.take_fragments(5, one), offered.take_fragments(5, most)), (None, None));
    offered.share(5, 0..6);
    assert_eq!(offers.take_fragments(5, one), Some(0..1));
    assert_eq!(offered.take_fragments(5, most), Some(3..6));
    assert_eq!((offers.take_fragments(5, one), offers.left(5)), (Some(1..2), 2..3));
    assert_eq!(
        (offered.take_fragments(5, most), offers.take_fragments(5, one)),
        (Some(2..3), None)
    );
    offered.return_fragments(5, 1);
    assert_eq!((offers.take_fragments(5, one), offers.left(5)), (Some(2..3), 3..3));
    offered.share(5, 0..6);
    assert_eq!(
        (offers.take_fragments(5, most), offered.take_fragments(5, most)),
        (Some(0..3), Some(3..6))
    );
    offers.return_fragments(5, 3);
    assert_eq!((offered.take_fragments(5, most), offers.left(5)), (Some(0..3), 0..0));
}
