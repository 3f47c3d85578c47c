//! JSON output: one object with the properties of the run (the fields of `head`) and the list of
//! rows. Times are in nanoseconds per operation.

use crate::stats::Summary;
use crate::table::{Line, Table, Unit};
use serde_json::{Map, Value, json};

/// Converts the results of a run to a JSON object.
pub(crate) fn table(table: &Table) -> Value {
    let mut all = table.head.clone();
    all["rows"] = table.lines.iter().map(line).collect();
    all
}

fn line(line: &Line) -> Value {
    let regimes: Map<String, Value> = line
        .regimes()
        .into_iter()
        .map(|(regime, summaries)| {
            let names = line.sides.iter().map(|side| side.0.clone());
            let sides: Map<String, Value> = names.zip(summaries.iter().map(summary)).collect();
            (regime.name().to_owned(), Value::Object(sides))
        })
        .collect();
    let bytes_per_operation = match line.unit {
        Unit::Bandwidth(bytes) => Some(bytes),
        _ => None,
    };
    json!({
        "test": line.test,
        "bytes": line.bytes,
        "unit": line.unit.name(),
        "bytes_per_operation": bytes_per_operation,
        "more_is_better": line.unit.grows(),
        "regimes": regimes,
    })
}

fn summary(summary: &Summary) -> Value {
    json!({
        "count": summary.count,
        "best_ns": summary.best,
        "p10_ns": summary.p10,
        "median_ns": summary.median,
    })
}
