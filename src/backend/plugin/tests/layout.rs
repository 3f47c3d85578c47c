//! Tests of `layout`.

use super::*;

fn text(name: &str, field: Option<&str>, offset: usize, size: usize) -> String {
    check(name, field, offset, size).err().map_or(String::new(), |error| error.text().to_owned())
}

#[test]
fn our_own_rows_pass() {
    for layout in LAYOUTS {
        check(layout.name, None, 0, layout.size).unwrap();
        layout.fields().for_each(|f| check(layout.name, Some(f.name), f.offset, f.size).unwrap());
        assert!(layout.size > 0 && layout.fields().all(|field| field.size > 0));
    }
    assert!(LAYOUTS.len() > 40);
}

#[test]
fn older_and_newer_headers_pass() {
    assert_eq!(text("dtl_comm_vtable_t", None, 0, 48), "");
    assert_eq!(text("dtl_comm_vtable_t", None, 0, 500), "");
    assert_eq!(text("dtl_comm_vtable_t", Some("probe"), 176, 8), "");
    assert_eq!(text("dtl_future_t", Some("x"), 1, 1), "");
}

#[test]
fn a_difference_is_named_with_both_numbers() {
    let moved = text("dtl_comm_vtable_t", Some("isend"), 44, 8);
    assert!(moved.contains("dtl_comm_vtable_t.isend lies at offset 44 (8 bytes)"), "{moved}");
    assert!(moved.contains("at 32 (8 bytes) in this library"), "{moved}");
    assert!(text("dtl_launch_t", Some("grid"), 8, 24).contains("dtl_launch_t.grid"));
    assert!(text("dtl_comm_done_t", None, 0, 40).contains("has 40 bytes in the plugin and 24"));
    assert!(text("dtl_comm_vtable_t", Some("odd"), 16, 8).contains("not known"));
}
