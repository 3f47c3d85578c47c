//! Tests of `file`.

use super::*;

#[test]
fn what_a_full_disk_leaves_ends_with_a_line() {
    let path = std::env::temp_dir().join(format!("dtl-cut-{}", process::own_pid()));
    let left = |written: &str| {
        std::fs::write(&path, written).unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        cut_back(&file, 2, b"one\ntwo\n").unwrap();
        std::fs::read_to_string(&path).unwrap()
    };
    assert_eq!(
        ["[\non", "[\none\n", "[\none\ntw", "[\n", "["].map(left),
        ["[\n", "[\none\n", "[\none\n", "[\n", "["]
    );
    std::fs::remove_file(&path).unwrap();
}
