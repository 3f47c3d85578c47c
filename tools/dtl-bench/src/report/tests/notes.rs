//! Tests of `notes`.

use super::*;

#[test]
fn rows_find_their_notes() {
    let text = r#"
        [[note]]
        rows = ["barrier", "latency"]
        sizes = ["64 KiB"]
        regime = "near"
        text = "cells"
        [[note]]
        rows = ["latency"]
        text = "all"
    "#;
    let notes = Notes::of(text).expect("notes");
    assert_eq!(notes.of_row("latency", "64 KiB", Regime::Near), Some((0, "cells")));
    assert_eq!(notes.of_row("latency", "64 KiB", Regime::Far), Some((1, "all")));
    assert_eq!(notes.of_row("reduce", "", Regime::Far), None);
    for bad in ["[[note]]\nrows = [\"x\"]", "[[note]]\nrows = \"x\"\ntext = \"y\"", "note"] {
        assert!(Notes::of(bad).is_err(), "{bad}");
    }
}
