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
        "- X, null core(s)",
        "## Copies, X\n",
        "| memcpy |",
        "| copy | 8 B | ns | 10.00 | 5.000 (2.00) |",
        "- MPI: none",
    ] {
        assert!(page.contains(part), "no {part} in\n{page}");
    }
}

#[test]
fn kinds_of_machine_have_their_rates_and_their_own_tables() {
    let run = |cpu: &str, auto: u64| {
        let text = format!(
            r#"{{"measured": "comm", "kind": "shm", "ranks": 2, "version": "1", "machine": {{"cpu": "{cpu}"}},
            "round_trip_ns": 128, "peer": {{"name": "methods"}}, "rows": [{{"test": "latency", "bytes": 1048576, "unit": "us",
            "regimes": {{"near": {{"dtl": {{"p10_ns": {auto}, "count": 20}}, "cells": {{"p10_ns": 52429}},
            "cma_get": {{"p10_ns": 104858}}, "cma_split": {{"p10_ns": 60000}}}}}}}}]}}"#
        );
        Run::of_text(&text).expect("a run")
    };
    let runs = [run("X", 53_000), run("Y", 90_000)];
    let page =
        super::text(&Parts { runs: &runs, missing: &[], notes: &Notes::default(), pictures: &[] });
    for part in [
        "near: cells 20.0 GB/s, cma_get 10.0 GB/s, cma_split 17.5 GB/s; round trip of a cache line 128 ns",
        "## Choice of the copy method, kind shm, X, near\n",
        "## Choice of the copy method, kind shm, Y, near\n",
        "| best forced method |",
        "| latency | 1 MiB | us | 53.00 | 52.43 (1.01) |",
        // The target is met on each kind of machine, or missed.
        "0 of 1 targets are met",
    ] {
        assert!(page.contains(part), "no {part} in\n{page}");
    }
}
