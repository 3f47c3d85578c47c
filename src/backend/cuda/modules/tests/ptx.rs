//! Tests of `ptx`.

use super::*;

#[test]
fn entries_are_read() {
    let text = br#".version 8.8
.file 1 "a.cu // \".entry quoted(.param .u32 x)"
// .visible .entry comment(.param .u32 x)
/* .entry other( */
.visible .entry k(
	.param .u64 .ptr .global .align 4 k_param_0,
	.param .align 8 .b8 k_param_1[32], // two /* things
	.param .u8 k_param_2, .param .f16x2 k_param_3, .param .b128 v
)
.maxntid 128, 1, 1
{ ld.param.u64 %rd1, [k_param_0]; div.s32 %r1, %r2, %r3; }
.weak .entry _Z2ttIiEvPT_(
	.param .u64 _Z2ttIiEvPT__param_0
) { ret; }
.entry none { ret; }
.visible .entry empty() { ret; }
.visible .entry image(.param .texref t) { ret; }
.entrypoint x(.param .u8 y)"#;
    let found = entries(text);
    assert_eq!(found.get("k").unwrap(), &[8, 32, 1, 4, 16]);
    assert_eq!(found.get("_Z2ttIiEvPT_").unwrap(), &[8]);
    assert!(found.get("none").unwrap().is_empty() && found.get("empty").unwrap().is_empty());
    assert_eq!(found.len(), 4, "{found:?}");
    for cut in 0..text.len() {
        entries(text.get(..cut).unwrap()); // returns without a panic
    }
    assert!(entries(b"\xff\xfe.entry \xff(").len() <= 1);
}
