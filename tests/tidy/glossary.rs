//! The glossary: each row has a term, a definition, a place that exists, and a source.

use super::root;
use std::collections::BTreeSet;

/// Most rows whose source is this project.
const OWN_TERMS: usize = 15;

#[test]
fn glossary_rows_are_complete() {
    let text = std::fs::read_to_string(root().join("docs/glossary.md")).unwrap();
    let mut findings = Vec::new();
    let mut terms = BTreeSet::new();
    let mut own = 0;
    let rows = text.lines().enumerate().filter(|(_, line)| line.starts_with("| ")).skip(1);
    for (index, line) in rows {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [term, definition, place, source] = cells[..] else {
            findings.push(format!("docs/glossary.md:{}: {} cells, not 4", index + 1, cells.len()));
            continue;
        };
        let path = place.trim_matches('`');
        let folders = ["src/", ""].map(|top| root().join(format!("{top}{path}")));
        let exists = folders.iter().any(|at| at.exists() || at.with_extension("rs").exists());
        if !exists {
            findings.push(format!("docs/glossary.md:{}: no {place} for {term}", index + 1));
        }
        if definition.is_empty() || source.is_empty() || !terms.insert(term.to_lowercase()) {
            findings.push(format!("docs/glossary.md:{}: {term}: incomplete or twice", index + 1));
        }
        own += usize::from(source == "libdtl");
    }
    assert!(terms.len() > 100, "only {} terms: is the table read?", terms.len());
    if own > OWN_TERMS {
        findings.push(format!("{own} terms are our own, at most {OWN_TERMS}: find the field's"));
    }
    super::report(&findings);
}
