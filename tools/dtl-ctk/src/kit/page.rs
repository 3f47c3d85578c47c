//! Page of `dtl-ctk report` (Markdown, also readable as text) and its JSON, and the page on which
//! `dtl-ctk compare` shows two of these files.

use crate::kit::costs::{Measured, median};
use crate::kit::report::{Entry, Report, Verdict};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

/// Key of the JSON whose value is its version.
const MARK: &str = "dtl_ctk_report";
const VERSION: u64 = 1;
/// Largest file that `compare` reads.
const LARGEST: u64 = 64 << 20;

/// Returns the JSON of a report. `facts` are texts about backend and library, and `notes` the
/// reasons why costs are missing.
pub(crate) fn value(
    report: &Report,
    mut facts: BTreeMap<String, String>,
    costs: Measured,
    notes: &[String],
) -> Value {
    let topology = dtl::tooling::os::topology();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut fact = |name: &str, value: String| facts.insert(name.to_owned(), value);
    fact("subject", report.subject.clone());
    // Without a comm table all tests of ranks are skipped.
    let on_ranks = |entry: &Entry| {
        entry.test.starts_with("comm.") && !matches!(entry.verdict, Verdict::Skip(_))
    };
    if report.entries.iter().any(on_ranks) {
        fact("ranks", report.ranks.to_string());
    }
    fact("machine: cpu", dtl::tooling::os::cpu_name());
    fact("machine: cores", topology.cores.to_string());
    fact("machine: memory", format!("{} MiB", topology.memory_bytes >> 20));
    fact("machine: kernel", kernel.trim().to_owned());
    let cost = |(name, [slots, library]): (String, [Vec<f64>; 2])| {
        let (slot, library) = (median(slots), median(library));
        json!({ "name": name, "slot_ns": slot, "library_ns": library })
    };
    let costs: Vec<Value> = costs.into_iter().map(cost).collect();
    let mut value = report.json();
    value[MARK] = json!(VERSION);
    value["facts"] = json!(facts);
    value["costs"] = json!(costs);
    value["notes"] = json!(notes);
    value
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn ns(value: &Value) -> String {
    value.as_f64().map_or("-".to_owned(), |ns| format!("{ns:.0}"))
}

/// Returns the rows of a list or an object by name.
fn rows<'a, T>(value: &'a Value, row: impl Fn(&'a Value) -> T) -> BTreeMap<String, T> {
    let list = value.as_array().into_iter().flatten().map(|one| (text(&one["name"]), one));
    let object = value.as_object().into_iter().flatten().map(|(name, one)| (name.clone(), one));
    list.chain(object).map(|(name, one)| (name, row(one))).collect()
}

/// Returns the page of a report, of which `value` is the JSON.
pub(crate) fn page(report: &Report, value: &Value) -> String {
    let facts = rows(&value["facts"], text).into_iter().map(|(name, fact)| [name, fact]);
    let costs = rows(&value["costs"], |cost| [ns(&cost["slot_ns"]), ns(&cost["library_ns"])]);
    let costs = costs.into_iter().map(|(name, [slot, library])| [name, slot, library]);
    let of = |which: fn(&Verdict) -> bool| {
        let lines = report.entries.iter().filter(|entry| which(&entry.verdict));
        lines.map(|entry| entry.line() + "\n").collect::<String>()
    };
    let failures = of(|verdict| matches!(verdict, Verdict::Fail(_) | Verdict::UnexpectedPass(_)));
    let expected = of(|verdict| matches!(verdict, Verdict::ExpectedFailure(..)));
    let notes = value["notes"].as_array().into_iter().flatten();
    let notes: String = notes.map(|note| text(note) + "\n").collect();
    let mut page = format!("# Conformance of {}\n", report.subject);
    table(&mut page, "What was tested", ["item", "value"], facts);
    for (name, text) in [
        ("Tests", report.table()),
        ("Failures", failures),
        ("Expected failures", expected),
        ("Not tested", report.skips()),
        ("Costs that are missing", notes),
    ] {
        if !text.is_empty() {
            let _ = write!(page, "\n## {name}\n\n```text\n{text}```\n");
        }
    }
    table(&mut page, "Costs in nanoseconds", ["operation", "slot", "library"], costs);
    page
}

/// Reads the JSON of a report.
pub(crate) fn read(path: &Path) -> Result<Value, String> {
    let read = || -> Result<Value, String> {
        let data = std::fs::metadata(path).map_err(|error| error.to_string())?;
        if !data.is_file() || data.len() > LARGEST {
            return Err(format!("not a file of at most {LARGEST} bytes"));
        }
        let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
        let value: Value = serde_json::from_slice(&bytes).map_err(|e| format!("no JSON: {e}"))?;
        if value[MARK].as_u64() != Some(VERSION) {
            return Err(format!("not written by dtl-ctk report ({MARK} {VERSION} is missing)"));
        }
        check(&value).map(|()| value)
    };
    read().map_err(|why| format!("{}: {why}", path.display()))
}

/// Fails with the name of the first field of a report that is missing or has another type.
fn check(value: &Value) -> Result<(), String> {
    let is = |field: &Value, at: String, type_name: &str, is_one: fn(&Value) -> bool| match field {
        field if is_one(field) => Ok(()),
        Value::Null => Err(format!("field {at} is missing; write the report again")),
        field => Err(format!("field {at} is {field:.40}, not {type_name}; write the report again")),
    };
    let is_text = |field: &Value, at: String| is(field, at, "a string", Value::is_string);
    is_text(&value["subject"], "subject".to_owned())?;
    is(&value["facts"], "facts".to_owned(), "an object", Value::is_object)?;
    for (name, fact) in value["facts"].as_object().into_iter().flatten() {
        is_text(fact, format!("facts.{name}"))?;
    }
    for list in ["tests", "costs", "notes"] {
        is(&value[list], list.to_owned(), "an array", Value::is_array)?;
        for (number, one) in value[list].as_array().into_iter().flatten().enumerate() {
            let at = format!("{list}[{number}]");
            if list == "notes" {
                is_text(one, at)?;
                continue;
            }
            is(one, at.clone(), "an object", Value::is_object)?;
            is_text(&one["name"], format!("{at}.name"))?;
            if list == "tests" {
                is_text(&one["outcome"], format!("{at}.outcome"))?;
                continue;
            }
            for key in ["slot_ns", "library_ns"] {
                let (cost, is_cost) =
                    (&one[key], |cost: &Value| cost.is_null() || cost.is_number());
                is(cost, format!("{at}.{key}"), "a number", is_cost)?;
            }
        }
    }
    Ok(())
}

/// Returns a page with the differences of two reports, and whether the outcomes of tests differ.
pub(crate) fn compare(pair: [&Value; 2]) -> Result<(String, bool), String> {
    let tests = pair.map(|value| rows(&value["tests"], |test| text(&test["outcome"])));
    if !tests[0].keys().any(|name| tests[1].contains_key(name)) {
        return Err("the reports have no test in common: they are of different components".into());
    }
    let tests: Vec<_> = beside(tests).filter(|[_, first, second]| first != second).collect();
    let is_different = !tests.is_empty();
    let costs = |key: &str| beside(pair.map(|value| rows(&value["costs"], |cost| ns(&cost[key]))));
    let costs = costs("slot_ns").zip(costs("library_ns")).map(|([name, a, b], [_, c, d])| {
        let ratio = |first: &str, second: &str| {
            let both = first.parse::<f64>().ok().zip(second.parse::<f64>().ok());
            both.map_or("-".to_owned(), |(first, second)| format!("{:.2}", second / first))
        };
        let (slots, library) = (ratio(&a, &b), ratio(&c, &d));
        [name, a, b, slots, c, d, library]
    });
    let subjects = pair.map(|value| text(&value["subject"]));
    let mut page = format!("# {} (A) and {} (B)\n", subjects[0], subjects[1]);
    let facts = beside(pair.map(|value| rows(&value["facts"], text)));
    table(&mut page, "What was tested", ["item", "A", "B"], facts);
    table(&mut page, "Tests that differ", ["test", "A", "B"], tests.into_iter());
    let head = ["operation", "slot A", "slot B", "B/A", "library A", "library B", "B/A"];
    table(&mut page, "Costs in nanoseconds", head, costs);
    Ok((page, is_different))
}

/// Returns the rows of both sides; "-" where one has none.
fn beside(pair: [BTreeMap<String, String>; 2]) -> impl Iterator<Item = [String; 3]> {
    let names: BTreeSet<String> = pair.iter().flat_map(BTreeMap::keys).cloned().collect();
    let of = |side: &BTreeMap<String, String>, name: &str| {
        side.get(name).map_or("-".to_owned(), String::clone)
    };
    names.into_iter().map(move |name| {
        let [first, second] = pair.each_ref().map(|side| of(side, &name));
        [name, first, second]
    })
}

/// Appends a table with aligned columns. Does nothing if there are no rows.
fn table<const N: usize>(
    page: &mut String,
    name: &str,
    head: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) {
    let cell = |cell: String| cell.replace(char::is_control, " ").replace('|', "\\|");
    let mut rows: Vec<[String; N]> = rows.map(|row| row.map(cell)).collect();
    if rows.is_empty() {
        return;
    }
    rows.insert(0, head.map(str::to_owned));
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    rows.insert(1, widths.map(|width| "-".repeat(width)));
    let _ = write!(page, "\n## {name}\n\n");
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!(" {cell:<width$} |"));
        let _ = writeln!(page, "|{}", cells.collect::<String>());
    }
}

#[cfg(test)]
#[path = "tests/page.rs"]
mod tests;
