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

#[test]
fn pairs_at_one_distance_share_their_copy_times() {
    let segment = Segment::create(4).expect("segment");
    let places = [(0, [1, 1]), (1, [1, 1]), (2, [9, 1]), (3, [0, 0])];
    for (rank, domains) in places {
        for (index, name) in domains.into_iter().enumerate() {
            segment.rank_word(rank, DOMAINS + 8 * index).expect("word").store(name, Relaxed);
        }
    }
    let word = |a, b| segment.copy_times(a, b).0.expect("times").word(0).expect("word").as_ptr();
    assert_eq!([word(0, 1), word(0, 2), word(0, 3)], [word(1, 0), word(2, 1), word(3, 3)]);
    assert!(word(0, 1) != word(0, 2) && word(0, 2) != word(0, 3) && word(0, 1) != word(0, 3));
    const { assert!(TIMES_AT + 3 * TIMES_BYTES <= RANKS_AT) };
}
