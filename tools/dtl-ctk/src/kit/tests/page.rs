//! Tests of `page`.

use super::*;
use crate::kit::report::{Ended, Entry};

fn report(subject: &str, tests: &[(&'static str, Ended)]) -> (Report, Value) {
    let entry = |(name, ended): &(&'static str, Ended)| Entry::new(name, ended.clone(), 0.5, &[]);
    let entries = tests.iter().map(entry).collect();
    let report = Report { subject: subject.to_owned(), ranks: 2, entries, seconds: 1.0 };
    let facts = BTreeMap::from([("device 0".to_owned(), "A|B\n".to_owned())]);
    let costs = [vec![90.0, 100.0, 900.0], vec![150.4]];
    let costs = Measured::from([("message, 8 B".to_owned(), costs)]);
    let value = value(&report, facts, costs, &["the wire is cut".to_owned()]);
    (report, value)
}

#[test]
fn a_page_has_all_results() {
    let failed = Ended::Failed("element 3 is 7".to_owned());
    let skipped = Ended::Skipped("no pinned memory".to_owned());
    let tests = [("memory.a", Ended::Passed), ("memory.b", skipped), ("comm.c", failed)];
    let (report, value) = report("./libx.so", &tests);
    let text = page(&report, &value);
    assert!(text.starts_with("# Conformance of ./libx.so\n"), "{text}");
    for part in [
        "FAIL     comm.c: element 3 is 7\n",
        "skipped    1: no pinned memory\n",
        "the wire is cut\n",
        "| message, 8 B | 100  | 150     |\n",
        "A\\|B  ",
        "memory          2       1       0         0        1",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    assert!(!text.contains("Expected failures"), "{text}");
}

#[test]
fn reports_are_compared_by_test_and_by_cost() {
    let failed = Ended::Failed("why".to_owned());
    let (_, first) = report("a", &[("memory.a", Ended::Passed), ("memory.b", failed)]);
    let (_, second) = report("b", &[("memory.a", Ended::Passed), ("comm.c", Ended::Passed)]);
    let (text, differs) = compare([&first, &second]).unwrap();
    assert!(differs && !text.contains("memory.a"), "{text}");
    let squeezed = text.replace(' ', "");
    for row in ["|memory.b|failed|-|", "|comm.c|-|pass|", "|message,8B|100|100|1.00|150|150|1.00|"]
    {
        assert!(squeezed.contains(row), "no {row} in {text}");
    }
    assert!(!compare([&first, &first]).unwrap().1);
    let (_, other) = report("c", &[("device.z", Ended::Passed)]);
    assert!(compare([&first, &other]).unwrap_err().contains("no test in common"));
}

#[test]
fn a_report_with_other_fields_is_refused() {
    let (_, good) = report("a", &[("memory.a", Ended::Passed)]);
    assert_eq!(check(&good), Ok(()));
    let file = std::env::temp_dir().join(format!("dtl-ctk-page-{}.json", std::process::id()));
    let refused = |pointer: &str, new: Value, part: &str| {
        let mut value = good.clone();
        *value.pointer_mut(pointer).unwrap() = new;
        std::fs::write(&file, value.to_string()).unwrap();
        let error = read(&file).unwrap_err();
        let name = file.display().to_string();
        assert!(error.starts_with(&name) && error.contains(part), "{error}");
    };
    refused("/subject", json!(7), "field subject is 7, not a string");
    refused("/facts", json!([]), "field facts is [], not an object");
    refused("/facts/device 0", json!({}), "field facts.device 0 is {}, not a string");
    refused("/tests", json!("none"), "field tests is \"none\", not an array");
    refused("/tests/0", json!(1), "field tests[0] is 1, not an object");
    refused("/tests/0", json!({ "name": "memory.a" }), "field tests[0].outcome is missing");
    refused("/tests/0/name", json!(null), "field tests[0].name is missing");
    refused("/costs/0/slot_ns", json!("3"), "field costs[0].slot_ns is \"3\", not a number");
    refused("/notes", json!(null), "field notes is missing");
    refused("/notes/0", json!(false), "field notes[0] is false, not a string");
    std::fs::write(&file, good.to_string()).unwrap();
    assert_eq!(read(&file), Ok(good.clone()));
    std::fs::remove_file(&file).unwrap();
}
