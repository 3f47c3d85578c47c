//! Tests of `segment`.

use super::*;

#[test]
fn states_are_told_once() {
    let one = Segment::create(3).expect("segment");
    let fd = one.descriptor().expect("file").try_clone_to_owned().expect("dup");
    let two = Segment::attach(fd, 3).expect("attach");
    assert_eq!((two.changes(), two.state(1)), (0, PeerState::Present));
    one.mark(1, PeerState::Left);
    two.mark(1, PeerState::Dead);
    one.mark(2, PeerState::Dead);
    assert_eq!((two.changes(), two.state(1), one.state(2)), (2, PeerState::Left, PeerState::Dead));
    one.set_probe(2, 77, 88);
    assert_eq!(two.probe(2), (77, 88));
}

#[test]
fn rings_are_ready_when_opened_and_sizes_must_agree() {
    let segment = Segment::create(70).expect("segment");
    assert_eq!(segment.ready(0, 1), 0);
    segment.open_ring(66, 0).expect("ring");
    assert_eq!((segment.ready(0, 0), segment.ready(0, 1), segment.ready(66, 0)), (0, 1 << 2, 0));
    segment.read_ring(66, 0).expect("ring");
    let fd = segment.descriptor().expect("file").try_clone_to_owned().expect("dup");
    assert!(Segment::attach(fd, 69).is_err());
}
