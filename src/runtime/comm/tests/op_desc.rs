//! Tests of `op_desc`.

use super::*;

#[test]
fn calls_survive_being_words() {
    for (number, (kind, name)) in (0..).zip(KINDS) {
        assert_eq!(Kind::of(number), Some(*kind));
        let call = OpDesc { kind: *kind, dtype: 9, op: -1, peer: -2, tag: 12, count: 1 << 40 };
        assert_eq!(OpDesc::from_words(call.words()), Some(call));
        assert!(call.to_string().starts_with(name), "{call}");
        let bare = OpDesc::new(*kind);
        assert_eq!(OpDesc::from_words(bare.words()), Some(bare));
    }
    assert_eq!(OpDesc::from_words([200 << 32, 0, 0]), None);
    for kind in [Kind::Send, Kind::Recv] {
        let what = Tagged::new(kind, 7);
        let call = OpDesc { peer: 3, tag: 7, ..OpDesc::new(kind).with(5, 2) };
        assert_eq!((what.words(3, 5, 2), what.kind()), (call.words(), kind));
    }
}

#[test]
fn own_types_are_compared_by_what_they_are() {
    let dtype = |size, name| types::create_dtype(size, name).expect("a dtype");
    let call = |dtype| OpDesc { peer: 0, ..OpDesc::new(Kind::Bcast).with(2, dtype) };
    let (one, same, larger) =
        (call(dtype(8, "one")), call(dtype(8, "same")), call(dtype(12, "larger")));
    assert_ne!(one, same);
    assert!(one.goes_with(&same) && one.signature() == same.signature() && !one.goes_with(&larger));
    types::destroy_dtype(same.dtype).expect("a dtype");
    let told = OpDesc::from_words(same.portable().words()).expect("a call");
    assert_eq!(told, one.portable(), "also after its end");
    assert!(told.goes_with(&one) && told.portable() == told);
    assert_eq!(told.to_string(), "bcast #0 (count 2, user-defined dtype of 8 bytes, root 0)");
    let huge = call(dtype(1 << 40, "huge")).portable();
    assert_eq!(OpDesc::from_words(huge.words()), Some(huge));
    assert!(huge.to_string().contains("of 4194303 bytes or more"), "{huge}");
    let device = |call: OpDesc| OpDesc { op: 7, ..call }.on_device();
    assert!(
        device(one).goes_with(&device(same)) && !device(one).goes_with(&OpDesc { op: 7, ..one })
    );
}

#[test]
fn texts_name_what_matters() {
    let call = OpDesc { op: 0, ..OpDesc::new(Kind::Allreduce).with(64, 9) };
    assert_eq!(OpDesc { tag: 812, ..call }.to_string(), "allreduce #812 (count 64, FLOAT64, SUM)");
    let recv =
        OpDesc { peer: DTL_ANY_SOURCE, tag: DTL_ANY_TAG, ..OpDesc::new(Kind::Recv).with(3, 2) };
    assert_eq!(recv.to_string(), "recv (count 3, INT32, from any rank, any tag)");
    let nobody = OpDesc { peer: DTL_PROC_NULL, tag: 1, ..OpDesc::new(Kind::Send).with(3, 2) };
    assert_eq!(nobody.to_string(), "send (count 3, INT32, to DTL_PROC_NULL, tag 1)");
}

#[test]
fn collectives_of_a_backend_do_not_match_those_of_the_library() {
    let sum = OpDesc { op: 0, ..OpDesc::new(Kind::Allreduce).with(64, 9) };
    for call in [sum, OpDesc::new(Kind::Barrier), OpDesc::new(Kind::Bcast).with(2, 0)] {
        let marked = call.by_backend();
        assert!(marked.goes_with(&marked) && !marked.goes_with(&call) && !call.goes_with(&marked));
        assert_eq!(OpDesc::from_words(marked.portable().words()), Some(marked.portable()));
        assert_eq!(marked.by_backend(), call);
        assert_eq!(marked.on_device().by_backend(), call.on_device());
    }
    assert_eq!(
        sum.by_backend().to_string(),
        "allreduce #0 (count 64, FLOAT64, SUM, by the backend)"
    );
    assert_eq!(OpDesc::new(Kind::Barrier).by_backend().to_string(), "barrier #0 (by the backend)");
}
