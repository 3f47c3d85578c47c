//! Tests of `source`.

use super::*;

#[test]
fn what_is_kept_comes_back() {
    let entries = Entries::from([("k".into(), vec![8, 32]), ("none".into(), vec![])]);
    let image = Image { code: b"\x7fELF\n\n\0".to_vec(), entries };
    let packed = pack(&image);
    let back = unpack(&packed).unwrap();
    assert_eq!((back.code, back.entries), (image.code, image.entries));
    assert!(
        unpack(b"").is_none()
            && unpack(b"kernel k x\n\n").is_none()
            && unpack(b"kernel k 8\n").is_none()
    );
}

#[test]
fn the_callers_architecture_is_his() {
    for option in ["-arch", "-arch=sm_90", "--gpu-architecture=compute_80", "--gpu-architecture"] {
        assert!(names_architecture(option.as_bytes()), "{option}");
    }
    assert!(!names_architecture(b"-archive") && !names_architecture(b"-DX=-arch"));
}
