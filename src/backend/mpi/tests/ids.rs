//! Tests of `ids`.

use super::*;

#[test]
fn a_word_tells_the_request_and_what_it_is() {
    for request in [0, 0x2C00_0000, 0xAC00_0001, 0x7FFF_FFFF_FFF0, !0xFFF] {
        for is_send in [false, true] {
            assert_eq!(request_of(id_of(request, is_send)), (request, is_send), "{request:#x}");
            assert!(kept(id_of(request, is_send)).is_none(), "{request:#x}");
        }
    }
}
