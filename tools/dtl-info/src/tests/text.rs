//! Tests of `text`.

use super::*;

#[test]
fn long_texts_are_wrapped_under_their_begin() {
    let text = wrapped("head: ", &"word ".repeat(40));
    assert!(text.lines().count() == 3 && text.lines().all(|line| width(line) <= WIDTH), "{text}");
    assert!(text.lines().nth(1).is_some_and(|line| line.starts_with("      word")), "{text}");
    let long = wrapped("  x: ", &format!("a {}", "é".repeat(250)));
    assert!(long.lines().all(|line| width(line) <= WIDTH), "{long}");
    assert_eq!(long.chars().filter(|c| *c == 'é').count(), 250);
    assert_eq!(wrapped("x: ", ""), "x:\n");
}

#[test]
fn numbers_in_a_row_are_one_range() {
    assert_eq!(
        (ranges(&[0, 1, 2, 8, 10, 11]), ranges(&[])),
        ("0-2, 8, 10-11".into(), String::new())
    );
}

#[test]
fn sizes_are_readable() {
    assert_eq!(
        (bytes(512), bytes(8 << 30), bytes(3 << 40)),
        ("512.0 B".into(), "8.0 GiB".into(), "3.0 TiB".into())
    );
}
