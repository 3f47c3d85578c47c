//! Tests of `run`.

use super::*;

#[test]
fn a_file_is_read_or_refused() {
    let text = r#"{"measured": "comm", "peer": {"name": "mpi", "version": "MPICH Version: 4.0.2"}, "rows": [
        {"test": "bandwidth", "bytes": 1024, "unit": "GB/s", "bytes_per_operation": 1024.0, "regimes":
        {"near": {"dtl": {"p10_ns": 100.0, "count": 9},
        "mpi": {"p10_ns": 200.0, "count": 9, "time_ratio": 0.25, "rounds": 3},
        "prototype": {"p10_ns": 90.0, "count": 9}}}}]}"#;
    let run = Run::of_text(text).expect("a run");
    let pair = run.rows[0].at(Regime::Near).expect("near");
    assert_eq!(
        (pair, run.rows[0].ratio(pair)),
        (
            Pair {
                ours: 100.0,
                theirs: Some(200.0),
                prototype: Some(90.0),
                ratio: Some(0.25),
                of_prototype: Some(100.0 / 90.0),
                rounds: 3,
                count: 9,
                is_second: false
            },
            Some(4.0)
        )
    );
    assert_eq!((run.rows[0].at(Regime::Far), run.peer().as_deref()), (None, Some("MPICH 4.0.2")));
    for bad in ["", "{}", "[]", r#"{"measured": "comm"}"#, &text.replace("GB/s", "miles")] {
        assert!(Run::of_text(bad).is_err(), "{bad}");
    }
}

#[test]
fn names() {
    assert_eq!(short("Open MPI v4.1.4, package: Debian"), "Open MPI v4.1.4");
    assert_eq!(
        short("Intel(R) MPI Library 2021.19.0 for Linux* OS"),
        "Intel MPI Library 2021.19.0"
    );
    assert_eq!(
        (size(0), size(8), size(65536), size(16 << 20), size(1500)),
        ("0 B".into(), "8 B".into(), "64 KiB".into(), "16 MiB".into(), "1500 B".into())
    );
}
