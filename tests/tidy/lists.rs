//! Checks that the lists of planted weakenings and faults name existing texts and faults. They
//! patch sources by exact text, so a change of the source must also change the list.

use super::{collect, report, root};
use std::collections::BTreeSet;
use std::fs;

/// Returns the fields of each line of a list, without comments. `\|` is a bar in a field.
fn lines(path: &str) -> Vec<(usize, Vec<String>)> {
    let text = fs::read_to_string(root().join(path)).unwrap();
    let lines =
        text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let fields = |line: &str| -> Vec<String> {
        let hidden = line.replace("\\|", "\r");
        hidden.split('|').map(|field| field.trim().replace('\r', "|")).collect()
    };
    lines.map(|(index, line)| (index + 1, fields(line))).collect()
}

#[test]
fn weakenings_name_texts_that_occur() {
    let mut findings = Vec::new();
    for (list, fields) in [("tests/models/weakened.txt", 4), ("tests/ctk/weakened.txt", 5)] {
        for (number, line) in lines(list) {
            let [file, old, new, ..] = &line[..] else { panic!("{list}:{number}: {line:?}") };
            let text = fs::read_to_string(root().join("src").join(file)).unwrap_or_default();
            let is_there = !old.is_empty() && text.contains(&old.replace("\\n", "\n"));
            if line.len() != fields || old == new || !is_there {
                findings.push(format!(
                    "{list}:{number}: src/{file} does not contain it: write the line for the source as it is\n    {old}"
                ));
            }
        }
    }
    report(&findings);
}

/// Returns the faults in the sources of tests/mutants: those in `is_fault("name")`, and three for
/// each `SLOT(component, slot`.
fn planted() -> BTreeSet<String> {
    let mut files = Vec::new();
    collect(&root().join("tests/mutants"), &[".c"], &mut files);
    let mut found = BTreeSet::new();
    for file in &files {
        let names =
            file.text.split("is_fault(\"").skip(1).filter_map(|rest| rest.split('"').next());
        found.extend(names.map(str::to_owned));
        for line in file.text.lines().filter_map(|line| line.strip_prefix("SLOT(")) {
            let mut words = line.split(", ");
            let slot = format!("{}.{}", words.next().unwrap(), words.next().unwrap());
            found.extend(["fails", "nothing", "odd_status"].map(|fault| format!("{slot}.{fault}")));
        }
    }
    found
}

#[test]
fn planted_faults_are_listed() {
    let list = lines("tests/mutants/mutants.txt");
    let listed: BTreeSet<String> =
        list.into_iter().map(|(_, mut line)| line.swap_remove(0)).collect();
    let planted = planted();
    let in_one = |one: &BTreeSet<String>, other: &BTreeSet<String>, what: &str| -> Vec<String> {
        one.difference(other).map(|name| format!("{name}: {what}")).collect()
    };
    let mut findings =
        in_one(&planted, &listed, "in the sources of tests/mutants, but not in mutants.txt");
    findings.extend(in_one(
        &listed,
        &planted,
        "in mutants.txt, but not in the sources of tests/mutants",
    ));
    report(&findings);
}
