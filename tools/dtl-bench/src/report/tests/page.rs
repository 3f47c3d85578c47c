//! Tests of `page`.

use super::*;

#[test]
fn a_page_has_all_its_parts() {
    let text = r#"{"measured": "copy", "version": "1", "machine": {"cpu": "X"}, "peer": {"name": "memcpy"}, "rows":
        [{"test": "copy", "bytes": 8, "unit": "ns", "regimes": {"any": {"dtl": {"p10_ns": 10, "count": 9},
        "memcpy": {"p10_ns": 5, "count": 9}}}}]}"#;
    let runs = [Run::of_text(text).expect("a run")];
    let (missing, pictures) =
        (["MPI: none".to_owned()], [("a plot".to_owned(), "p/a.svg".to_owned())]);
    let page = super::text(&Parts {
        runs: &runs,
        missing: &missing,
        notes: &Notes::default(),
        pictures: &pictures,
    });
    for part in [
        "![a plot](p/a.svg)",
        "\n## X, null core(s), null of null processor(s) usable\n",
        "### Copies\n",
        "| memcpy |",
        "| copy | 8 B | ns | 10.00 | 5.000 (2.00) |",
        "- MPI: none",
    ] {
        assert!(page.contains(part), "no {part} in\n{page}");
    }
}

#[test]
fn machines_have_sections_with_their_class() {
    let run = |cpu: &str, auto: u64| {
        let text = format!(
            r#"{{"measured": "comm", "kind": "shm", "ranks": 2, "version": "1", "machine": {{"cpu": "{cpu}"}},
            "round_trip_ns": 128, "peer": {{"name": "methods"}}, "rows": [{{"test": "latency", "bytes": 1048576, "unit": "us",
            "regimes": {{"near": {{"dtl": {{"p10_ns": {auto}, "count": 20}}, "cells": {{"p10_ns": 52429}},
            "cma_get": {{"p10_ns": 104858}}, "cma_split": {{"p10_ns": 60000}}, "prototype": {{"p10_ns": 50000}}}}}}}}]}}"#
        );
        Run::of_text(&text).expect("a run")
    };
    let runs = [run("X", 53_000), run("Y", 90_000)];
    let page =
        super::text(&Parts { runs: &runs, missing: &[], notes: &Notes::default(), pictures: &[] });
    let rates =
        "near: cache line 128 ns, cells 20.0 GB/s, cma_get 10.0 GB/s, cma_split 17.5 GB/s\n";
    for part in [
        &format!("\n## X, null core(s), null of null processor(s) usable; {rates}"),
        &format!("\n## Y, null core(s), null of null processor(s) usable; {rates}"),
        "\n### Choice of the copy method, kind shm, near\n",
        "| best forced method | bare prototype |",
        "| latency | 1 MiB | us | 53.00 | 52.43 (1.01) | 50.00 (1.06) |",
        "1 of 1 targets are met",
        "0 of 1 targets are met",
        "1 of 1 rows (100 %) take at most 1.05 of the time of the best forced method; the largest",
        "the largest ratio is 1.72. The bound (95 % within 1.05, all within 1.15) is **missed**.",
        // The prototype decides only rows that are compared with other libraries.
        "- No reason is noted for:\n  - copy method: latency 1 MiB near: 90.00 us, 1.72 of best \
         forced method, target 1.05\n",
        "## Targets on all machines\n\n0 of 1 targets are met on every machine",
        "| copy method: latency | 1 MiB | near | met | **missed** |",
    ] {
        assert!(page.contains(part), "no {part} in\n{page}");
    }
}
