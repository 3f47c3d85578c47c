//! Tests of `text`.

use super::*;

fn expanded(path: &str, ranks: (i32, i32)) -> String {
    expand(path, ranks, 4711).unwrap().to_string_lossy().into_owned()
}

#[test]
fn paths_say_whose_they_are() {
    assert_eq!(expanded("a/trace.json", (0, 1)), "a/trace.json");
    assert_eq!(expanded("a/trace.json", (3, 8)), "a/trace.3.json");
    assert_eq!(expanded("trace", (3, 8)), "trace.3");
    assert_eq!(expanded("%r/%p.json", (3, 8)), "3/4711.json");
    assert_eq!(expanded("100%%.json", (3, 8)), "100%.3.json");
    let lives = |path: &str| of_life(PathBuf::from(path), 2).to_string_lossy().into_owned();
    assert_eq!(
        ["a/trace.json", "trace.3.json", "a.b/trace", ".trace"].map(lives),
        ["a/trace-2.json", "trace.3-2.json", "a.b/trace-2", ".trace-2"]
    );
    for bad in ["", "/", "a/..", "a/", "%x", "trace%"] {
        assert!(expand(bad, (0, 1), 1).is_err(), "{bad}");
    }
}

#[test]
fn texts_are_json() {
    let mut text = String::new();
    quoted(&mut text, "a\"b\\c\nd é");
    assert_eq!(text, "\"a\\\"b\\\\c\\u000ad é\"");
    text.clear();
    time(&mut text, 12_000_034);
    assert_eq!(text, "12000.034");
    text.clear();
    metadata(&mut text, EventOrigin { rank: 3, thread: 9 }, "thread_name", "a \"b\"");
    assert_eq!(
        text,
        "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":3,\"tid\":9,\
         \"args\":{\"name\":\"a \\\"b\\\"\"}},\n"
    );
}
