//! Tests of `catalog`.

use super::*;
use std::collections::HashSet;

#[test]
fn names_are_unique_and_well_formed() {
    let mut seen = HashSet::new();
    for test in all() {
        assert!(seen.insert(test.name), "{} is there twice", test.name);
        assert!(COMPONENTS.contains(&test.component()), "{}", test.name);
        assert!(test.name.split('.').count() >= 3, "{}: component.slot.what", test.name);
        assert!(!test.what.is_empty() && !test.rule.is_empty() && !test.usually.is_empty());
    }
    assert!(seen.len() >= 250, "only {} tests", seen.len());
}

#[test]
fn every_row_has_a_function_and_every_function_a_row() {
    let lines = paragraphs().flat_map(str::lines).filter(|line| !line.starts_with('#'));
    let names = lines.filter_map(|line| line.split_once(" | ")).map(|(name, _)| name);
    let rows: HashSet<&str> =
        names.map(|name| name.split_once(' ').map_or(name, |(_, name)| name)).collect();
    let without = rows.iter().filter(|name| tests::body(name).is_none());
    let functions = tests::functions().map(|(name, _)| name);
    let odd: Vec<_> = without.chain(functions.filter(|name| !rows.contains(*name))).collect();
    assert!(odd.is_empty(), "in catalog.txt or in tests/*.rs only: {odd:?}");
}

#[test]
fn patterns() {
    assert!(matches("memory.host", "memory.host.one_byte"));
    assert!(matches("memory", "memory.host.one_byte"));
    assert!(!matches("mem", "memory.host.one_byte"));
    assert!(matches("*.one_*", "memory.host.one_byte"));
    assert!(matches("memory.*byte", "memory.host.one_byte"));
    assert!(!matches("*.two*", "memory.host.one_byte"));
    assert!(matches("*", "x.y.z"));
}
