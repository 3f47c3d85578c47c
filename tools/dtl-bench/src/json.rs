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
            let values = (0..).zip(&summaries).map(|(side, of)| {
                let ratio = if side > 0 { line.ratio(side, regime) } else { None };
                summary(of, ratio)
            });
            let sides: Map<String, Value> = names.zip(values).collect();
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

/// Converts the statistics of an implementation. `ratio` is the library's time divided by its time,
/// and the number of rounds of which that is the median.
fn summary(summary: &Summary, ratio: Option<(f64, usize)>) -> Value {
    json!({
        "time_ratio": ratio.map(|ratio| ratio.0),
        "rounds": ratio.map(|ratio| ratio.1),
        "count": summary.count,
        "best_ns": summary.best,
        "p10_ns": summary.p10,
        "median_ns": summary.median,
    })
}
