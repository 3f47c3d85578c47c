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

fn text(runs: &[Run], notes: &Notes) -> String {
    super::text(&runs.iter().collect::<Vec<_>>(), notes)
}

/// Adds the time of the bare prototype to a run of [`run`].
fn with_prototype(run: &Run, prototype: f64) -> Run {
    let values = format!(r#""near":{{"prototype":{{"p10_ns":{prototype}}},"#);
    Run::of_text(&run.head.to_string().replace(r#""near":{"#, &values)).expect("a run")
}

#[test]
fn a_row_holds_if_it_is_close_to_the_prototype() {
    let runs = [run("shm", "A", 100.0, 110.0), run("shm", "B", 100.0, 120.0)];
    let close = runs.each_ref().map(|run| with_prototype(run, 92.0));
    let all = text(&close, &Notes::default());
    let line = "| 0.1000 us | 0.1100 us | A | 0.91 | ≤ 0.8 | 0.0920 us | 1.09 | met |";
    assert!(all.contains(line) && !all.contains("Missed targets"), "{all}");
    assert_eq!(missed(&close[0]), []);
    // It must be close in each run: the harder peer A is not the one that decides.
    let [near, far] = [(&runs[0], 92.0), (&runs[1], 50.0)].map(|(run, at)| with_prototype(run, at));
    let all = text(&[near, far], &Notes::default());
    assert!(all.contains("| B | 0.83 | ≤ 0.8 | 0.0500 us | 2.00 | **missed** |"), "{all}");
    let line =
        "  - latency 8 B near: 0.1000 us, 0.83 of B, target 0.8; bare prototype 0.0500 us (2.00)";
    assert!(all.contains(line), "{all}");
}

#[test]
fn a_second_run_counts() {
    let first = run("shm", "A", 100.0, 110.0);
    let keys = missed(&first);
    assert_eq!(keys, [("latency".to_owned(), Some(8), Regime::Near)]);
    let second = first.with_second(&run("shm", "A", 80.0, 110.0), &keys).expect("merged");
    let all = text(&[second], &Notes::default());
    assert!(all.contains("| 0.0800 us | 0.1100 us | A | 0.73 | ≤ 0.8 |  |  | met, second run |"));
    // A row is measured twice at most, and values of other regimes stay.
    let second = first.with_second(&run("shm", "A", 99.0, 110.0), &keys).expect("merged");
    assert_eq!(missed(&second), []);
    let other = run_in("far", "shm", "A", 80.0, 110.0);
    assert_eq!(missed(&first.with_second(&other, &keys).expect("merged")), keys);
}

#[test]
fn the_best_peer_counts() {
    let runs = [
        run("shm", "A", 100.0, 500.0),
        run("shm", "B", 100.0, 110.0),
        run("shm", "C", 100.0, 200.0),
    ];
    let all = text(&runs, &Notes::default());
    let line =
        "| latency | 8 B | near | 0.1000 us | 0.1100 us | B | 0.91 | ≤ 0.8 |  |  | **missed** |";
    assert!(all.contains(line) && all.contains("0 of 1 targets are met"), "{all}");
    assert!(
        all.contains(
            "- No reason is noted for:\n  - latency 8 B near: 0.1000 us, 0.91 of B, target 0.8\n"
        ),
        "{all}"
    );
    assert!(!all.contains("Not seen"), "{all}");
    let all = text(&runs[..1], &Notes::default());
    assert!(
        all.contains("| 0.20 | ≤ 0.8 |  |  | met |") && !all.contains("Missed targets"),
        "{all}"
    );
}

#[test]
fn who_was_not_seen_is_named() {
    let runs = [run("shm", "A", 100.0, 500.0), run_in("far", "shm", "B", 100.0, 110.0)];
    let all = text(&runs, &Notes::default());
    assert!(all.contains("too few batches near: B (all)."), "{all}");
    assert!(all.contains("too few batches far: A (all)."), "{all}");
}

#[test]
fn notes_are_shown() {
    let notes = "[[note]]\nrows = [\"latency\"]\ntext = \"\"\"it is\n  hard\"\"\"\n";
    let all = text(&[run("shm", "A", 100.0, 110.0)], &Notes::of(notes).expect("notes"));
    assert!(all.contains("- it is hard\n  - latency 8 B near: 0.1000 us, 0.91 of A"), "{all}");
    assert!(!all.contains("No reason is noted"), "{all}");
}

#[test]
fn what_is_added_to_an_mpi() {
    let all = text(&[run("mpi", "A", 112.0, 100.0)], &Notes::default());
    let line = "| kind mpi: latency | 8 B | near | 0.1120 us | 0.1000 us | A | +12.0 ns | ≤ \
        +10 ns |  |  | **missed** |";
    assert!(all.contains(line), "{all}");
}
