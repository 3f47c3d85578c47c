//! Tests of `source`.

use super::*;

#[test]
fn what_is_kept_comes_back() {
    let entries = Entries::from([("k".into(), vec![8, 32]), ("none".into(), vec![])]);
    let image = Image { code: b"\x7fELF\n\n\0".to_vec(), entries };
    let packed = pack(&image);
    let back = unpack(&packed).unwrap();
    assert_eq!((back.code, back.entries), (image.code, image.entries));
    for damaged in
        [&b""[..], b"{\"k\":[8]}", b"{\"k\":[-8]}\n", b"{\"k\n", b"\n", b"kernel k 8\n\n"]
    {
        assert!(unpack(damaged).is_none(), "{damaged:?}");
    }
}

#[test]
fn the_callers_architecture_is_his() {
    for option in ["-arch", "-arch=sm_90", "--gpu-architecture=compute_80", "--gpu-architecture"] {
        assert!(names_architecture(option.as_bytes()), "{option}");
    }
    assert!(!names_architecture(b"-archive") && !names_architecture(b"-DX=-arch"));
}
