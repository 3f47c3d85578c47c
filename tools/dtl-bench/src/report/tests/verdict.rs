//! Tests of `verdict`.

use super::*;

fn run(kind: &str, peer: &str, ours: f64, theirs: f64) -> Run {
    run_in("near", kind, peer, ours, theirs)
}

fn run_in(regime: &str, kind: &str, peer: &str, ours: f64, theirs: f64) -> Run {
    let text = format!(
        r#"{{"measured": "comm", "version": "1", "kind": "{kind}", "ranks": 2, "machine": {{"cpu": "X"}},
        "peer": {{"name": "mpi", "version": "{peer}"}}, "rows": [{{"test": "latency", "bytes": 8, "unit": "us",
        "regimes": {{"{regime}": {{"dtl": {{"p10_ns": {ours}, "count": 10}}, "mpi": {{"p10_ns": {theirs}, "count": 10}}}}}}}}]}}"#
    );
    Run::of_text(&text).expect("a run")
}

#[test]
fn the_best_peer_counts() {
    let runs = [
        run("shm", "A", 100.0, 500.0),
        run("shm", "B", 100.0, 110.0),
        run("shm", "C", 100.0, 200.0),
    ];
    let all = text(&runs, &Notes::default());
    let line = "| latency | 8 B | near | 0.1000 us | 0.1100 us | B | 0.91 | ≤ 0.6 | **missed** |";
    assert!(all.contains(line) && all.contains("0 of 1 targets are met"), "{all}");
    assert!(
        all.contains("- No reason is noted for: latency 8 B near (0.91, target 0.6)."),
        "{all}"
    );
    assert!(!all.contains("Not seen"), "{all}");
    let all = text(&runs[..1], &Notes::default());
    assert!(all.contains("| 0.20 | ≤ 0.6 | met |") && !all.contains("Missed targets"), "{all}");
}

#[test]
fn who_was_not_seen_is_named() {
    let runs = [run("shm", "A", 100.0, 500.0), run_in("far", "shm", "B", 100.0, 110.0)];
    let all = text(&runs, &Notes::default());
    assert!(all.contains("while the processors were near: B (no row)."), "{all}");
    assert!(all.contains("while the processors were far: A (no row)."), "{all}");
}

#[test]
fn notes_are_shown() {
    let notes = "[[note]]\nrows = [\"latency\"]\ntext = \"\"\"it is\n  hard\"\"\"\n";
    let all = text(&[run("shm", "A", 100.0, 110.0)], &Notes::of(notes).expect("notes"));
    assert!(all.contains("- **latency 8 B near (0.91, target 0.6)**: it is hard\n"), "{all}");
    assert!(!all.contains("No reason is noted"), "{all}");
}

#[test]
fn what_is_added_to_an_mpi() {
    let all = text(&[run("mpi", "A", 112.0, 100.0)], &Notes::default());
    let line = "| kind mpi: latency | 8 B | near | 0.1120 us | 0.1000 us | A | +12.0 ns | ≤ \
        +10 ns | **missed** |";
    assert!(all.contains(line), "{all}");
}
