//! Tests of `frame`.

use super::*;
use crate::sys::memory::buf::Scratch;

#[test]
fn a_frame_says_what_was_written_and_nothing_else_is_one() {
    let mut frame = Frame::new().expect("memory");
    let data = Scratch::new(100).expect("memory");
    data.region().fill(7);
    for kind in (1..9).filter_map(FrameKind::of) {
        let payload = if kind == FrameKind::Eager { data.region() } else { Region::EMPTY };
        let header = Header { kind, payload: 5, word: u64::MAX, size: 100, id: 1 << 40 };
        let len = frame.write(&header, payload).len() as u64;
        assert_eq!((len, frame.read(len)), (HEADER as u64 + payload.len() as u64, Some(header)));
        assert_eq!((frame.read(len + 1), frame.read(len - 1)), (None, None));
    }
    assert_eq!(frame.0[HEADER + 99..HEADER + 101], [7, 0]);
    frame.0[0] = 9;
    assert_eq!(frame.read(HEADER as u64), None);
    let huge = Header { kind: FrameKind::Eager, payload: 0, word: 0, size: u64::MAX, id: 0 };
    frame.write(&huge, Region::EMPTY);
    assert_eq!(frame.read(HEADER as u64 - 1), None);
}
