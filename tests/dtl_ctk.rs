//! dtl-ctk: exit statuses, the small form of a failing case, the command that repeats it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dtl-ctk")).args(arguments).output().expect("dtl-ctk starts")
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Arguments after "dtl-ctk run".
fn status(arguments: &[&str]) -> Option<i32> {
    run(&[&["run"], arguments].concat()).status.code()
}

#[test]
fn every_kind_passes() {
    for kind in ["threads", "minimal", "shm"] {
        let collectives = "bcast,allreduce,gatherv,alltoallv,scan,neighbor_alltoallv,p2p,probe,sendrecv";
        let output = run(&[
            "run",
            "--kind",
            kind,
            "--ranks",
            "3",
            "--cases",
            "100",
            "--max-bytes",
            "4KiB",
            "--only",
            collectives,
        ]);
        assert!(output.status.success(), "{kind}: {}", err(&output));
    }
    assert_eq!(status(&["--kind", "self", "--cases", "100", "--max-bytes", "4KiB"]), Some(0));
}

#[test]
fn a_failing_case_becomes_small_and_can_be_repeated() {
    let output = run(&["run", "--kind", "faulty", "--ranks", "3", "--cases", "200", "--max-bytes", "64KiB"]);
    let text = err(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let command = text.lines().find_map(|line| line.strip_prefix("  dtl-ctk ")).expect("a command to repeat");
    assert!(command.contains("--shrink="), "{text}");
    let words: Vec<&str> = command.split(' ').chain(["--no-shrink"]).collect();
    let again = run(&words);
    assert_eq!(again.status.code(), Some(1), "{command}: {}", err(&again));
    // The bug is in messages of more than 1000 bytes: half of everything is fine.
    let halved = command.replace("--shrink=", "--shrink=h,");
    let words: Vec<&str> = halved.split(' ').collect();
    assert_eq!(run(&words).status.code(), Some(0), "{halved}");
}

#[test]
fn wrong_words_and_missing_kinds_have_their_statuses() {
    assert_eq!(status(&["--kind", "self", "--ranks", "2"]), Some(2));
    assert_eq!(status(&["--kind", "shm", "--only", "broadcast"]), Some(2));
    let output = run(&["run", "--kind", "carrier-pigeon", "--ranks", "2", "--cases", "1"]);
    assert_eq!(output.status.code(), Some(3), "{}", err(&output));
    assert!(err(&output).contains("carrier-pigeon"), "{}", err(&output));
    assert_eq!(status(&["--kind", "self", "--cases", "1", "--digest", "/nowhere/there"]), Some(3));
}

#[test]
fn kinds_have_the_same_digest() {
    let digest = |kind: &str| {
        let path = std::env::temp_dir().join(format!("dtl-ctk-test-{kind}-{}", std::process::id()));
        let file = path.to_string_lossy().into_owned();
        let only = "bcast,reduce,allgatherv,p2p,exscan";
        let output = run(&[
            "run",
            "--kind",
            kind,
            "--ranks",
            "3",
            "--cases",
            "50",
            "--max-bytes",
            "4KiB",
            "--only",
            only,
            "--digest",
            &file,
        ]);
        assert!(output.status.success(), "{kind}: {}", err(&output));
        let text = std::fs::read_to_string(&path).expect("a digest");
        std::fs::remove_file(path).expect("it is removed");
        text
    };
    let threads = digest("threads");
    assert_eq!(threads.lines().count(), 50);
    assert_eq!(threads, digest("shm"));
}
