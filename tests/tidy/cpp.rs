//! Coverage of the C++ interface: `dtl.hpp` and its headers call every exported function, except
//! those that are waived here with a reason.

use super::{File, collect, has_word, report, root};
use std::fs;

/// Exported functions that the C++ interface does not call, with the reason. The list is empty and
/// should stay empty: a program in C++ needs every function.
const WAIVED: &[(&str, &str)] = &[];

/// Returns the code of the headers of the C++ interface: no comments and no preprocessor lines.
fn headers() -> Vec<String> {
    let mut files = Vec::new();
    collect(&root().join("include"), &[".hpp"], &mut files);
    assert!(files.len() > 20, "include has only {} C++ headers", files.len());
    files.iter().map(code_of).collect()
}

fn code_of(file: &File) -> String {
    let lines = file.code().map(|(_, line)| line.split("//").next().unwrap_or_default());
    lines.filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
}

/// Returns a finding for each exported function that is neither called nor waived, and for each
/// waiver that is of no use.
fn uncovered(exported: &str, headers: &[String], waived: &[(&str, &str)]) -> Vec<String> {
    let is_called = |name: &str| headers.iter().any(|header| has_word(header, name));
    let mut findings = Vec::new();
    let mut seen = 0;
    for name in exported.lines().filter(|line| line.starts_with("dtl_")) {
        seen += 1;
        let is_waived = waived.iter().any(|(waived, _)| *waived == name);
        match (is_called(name), is_waived) {
            (false, false) => findings.push(format!(
                "{name}: no header of the C++ interface calls it: write a wrapper in include/dtl, or \
                 waive it in tests/tidy/cpp.rs with the reason"
            )),
            (true, true) => findings.push(format!("{name}: called, so remove its waiver")),
            _ => {}
        }
    }
    assert!(seen > 0, "no exported function in the list: is its form right?");
    for (name, reason) in waived {
        if !exported.lines().any(|line| line == *name) || reason.is_empty() {
            findings.push(format!("{name}: waived, but not exported, or without a reason"));
        }
    }
    findings
}

#[test]
fn cpp_interface_calls_every_function() {
    let exported = fs::read_to_string(root().join("tests/dtl.symbols")).unwrap();
    report(&uncovered(&exported, &headers(), WAIVED));
}

/// Checks that the rule above fails where it should.
#[test]
fn a_function_without_a_wrapper_is_found() {
    let headers = ["check(dtl_called(1));".to_owned(), "check(dtl_other_thing());".to_owned()];
    let found =
        |exported: &str, waived: &[(&str, &str)]| uncovered(exported, &headers, waived).len();
    assert_eq!(found("dtl_called\ndtl_other_thing\n", &[]), 0);
    assert_eq!(found("dtl_called\ndtl_other\n", &[]), 1, "a part of a word is no call");
    assert_eq!(found("dtl_called\ndtl_other\n", &[("dtl_other", "a reason")]), 0);
    assert_eq!(found("dtl_called\n", &[("dtl_called", "a reason")]), 1, "a stale waiver");
    assert_eq!(found("dtl_called\n", &[("dtl_gone", "a reason")]), 1, "of no function");
    assert_eq!(found("dtl_called\ndtl_other\n", &[("dtl_other", "")]), 1, "without a reason");
    let comment = File {
        path: "include/x.hpp".into(),
        text: "/// dtl_named(1)\nint a; // dtl_named(2)\n#define X dtl_named(3)\n".into(),
    };
    assert!(!has_word(&code_of(&comment), "dtl_named"), "a comment is no call");
}
