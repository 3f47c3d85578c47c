//! Tests of `report`.

use super::*;

fn entry(ended: Ended) -> Entry {
    let expected = expect::parse("memory.host.one = \"x\"").unwrap_or_default();
    Entry::new("memory.host.named", ended, 0.5, &expected)
}

#[test]
fn verdicts_count_as_they_should() {
    let expected = expect::parse("memory.host.named = \"a reason\"").expect("parses");
    let with = |ended| Entry::new("memory.host.named", ended, 0.0, &expected);
    assert!(with(Ended::Passed).is_bad(), "an unexpected pass");
    assert!(!with(Ended::Failed("x".into())).is_bad(), "an expected failure");
    assert!(entry(Ended::Failed("x".into())).is_bad());
    assert!(!entry(Ended::Skipped("x".into())).is_bad());
    assert!(!entry(Ended::Passed).is_bad());
}

#[test]
fn xml_has_no_bare_signs() {
    let entries = vec![entry(Ended::Failed("a < b & \"c\"\u{1}".into())), entry(Ended::Passed)];
    let run = Report { subject: "a&b".into(), ranks: 1, entries, seconds: 1.0 };
    let text = run.junit();
    assert!(
        text.contains("a &lt; b &amp; &quot;c&quot; ") && text.contains("failures=\"1\""),
        "{text}"
    );
    assert!(run.table().lines().count() == 3 && !run.passed());
}
