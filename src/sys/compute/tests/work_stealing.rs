//! Tests of `work_stealing`.

use super::*;

fn all(shares: &Shares, member: usize) -> Vec<u64> {
    std::iter::from_fn(|| shares.take(member)).collect()
}

#[test]
fn pieces_are_dealt_in_order_and_evenly() {
    let shares = Shares::new(3);
    shares.deal(8);
    assert_eq!([0, 1, 2].map(|member| shares.take(member)), [Some(0), Some(3), Some(6)]);
    shares.deal(2);
    assert_eq!((shares.take(2), shares.take(2), shares.take(2)), (Some(0), Some(1), None));
    assert!(!shares.is_any_left());
}

#[test]
fn one_member_gets_all_pieces_once() {
    for (members, pieces) in [(1, 5), (2, 1), (2, 9), (7, 100), (5, 3)] {
        for member in 0..members {
            let shares = Shares::new(members);
            shares.deal(pieces);
            let mut taken = all(&shares, member);
            taken.sort_unstable();
            assert_eq!(taken, (0..pieces).collect::<Vec<_>>());
        }
    }
}

#[test]
fn the_most_pieces_fit() {
    let shares = Shares::new(2);
    shares.deal(MOST);
    assert_eq!((shares.take(0), shares.take(1)), (Some(0), Some(MOST / 2)));
}

#[test]
fn a_thief_leaves_the_front_to_the_owner() {
    let shares = Shares::new(2);
    shares.deal(16);
    (8..16).for_each(|piece| assert_eq!(shares.take(1), Some(piece)));
    assert_eq!(shares.take(1), Some(4), "the back half of the other's eight");
    assert_eq!((shares.take(0), shares.take(1)), (Some(0), Some(5)));
}

#[test]
fn members_at_once_get_each_piece_once() {
    let shares = Shares::new(4);
    for pieces in [3, 50, if cfg!(miri) { 200 } else { 5000 }] {
        shares.deal(pieces);
        let mut taken: Vec<u64> = std::thread::scope(|scope| {
            let members = [0, 1, 2, 3].map(|member| {
                scope.spawn({
                    let shares = &shares;
                    move || all(shares, member)
                })
            });
            members.into_iter().flat_map(|member| member.join().unwrap()).collect()
        });
        taken.sort_unstable();
        assert_eq!(taken, (0..pieces).collect::<Vec<_>>());
    }
}
