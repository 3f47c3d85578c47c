//! Tests of `notice`.

use super::*;
use crate::runtime::comm::op_desc::Kind;

#[test]
fn notices_survive_being_words() {
    let call = OpDesc { peer: 1, ..OpDesc::new(Kind::Bcast).with(7, 2) };
    let gone = MissingRanks { failed: vec![0, 77], absent: vec![5] };
    let calls = vec![(call, false), (call, true)];
    let notice = Notice { why: NoticeKind::GaveUp, status: 104, number: 9, gone, calls };
    let again = Notice::parse(&notice.words()).unwrap();
    assert!(again.why == NoticeKind::GaveUp && again.status == 104 && again.number == 9);
    assert!(again.calls == notice.calls && again.gone == notice.gone);
    assert_eq!(notice.words().len(), WORDS);
    assert_eq!(again.present(), Some(&call));
    assert!(Notice::parse(&[9, 0, 0]).is_none() && Notice::parse(&[1]).is_none());
}

#[test]
fn a_place_names_what_is_stuck_and_what_is_meant() {
    let call = |kind, tag| OpDesc { tag, ..OpDesc::new(kind) };
    let (barrier, bcast, scan) =
        (call(Kind::Barrier, 9), call(Kind::Bcast, 5), call(Kind::Scan, 3));
    let of = |calls: &[(OpDesc, bool)], about| {
        let (gone, calls) = (MissingRanks::default(), calls.to_vec());
        Notice { why: NoticeKind::Answer, status: 0, number: 0, gone, calls }.place(about)
    };
    assert_eq!(of(&[(barrier, false)], Some(9)), "in barrier #9");
    assert_eq!(
        of(&[(barrier, false), (bcast, false)], Some(5)),
        "in barrier #9, begun before: bcast #5"
    );
    assert_eq!(
        of(&[(barrier, false), (bcast, true), (scan, true)], Some(5)),
        "in barrier #9, after bcast #5"
    );
    assert_eq!(
        of(&[(barrier, false), (bcast, false), (scan, true)], Some(3)),
        "in barrier #9, begun before: bcast #5, after scan #3"
    );
}
