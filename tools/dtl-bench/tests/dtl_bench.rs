//! Tests of dtl-bench: they run each subcommand for a short time, and check its table, its JSON
//! output and its error messages. They do not check its speed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking, and says why it was skipped"
)]

#[path = "../../../tests/common/programs.rs"]
mod programs;

use programs::program;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const BENCH: &str = env!("CARGO_BIN_EXE_dtl-bench");

/// Runs dtl-bench without the environment variables of the library and of launchers.
fn run_by(launcher: &[&str], arguments: &[&str]) -> Output {
    let words: Vec<&str> =
        launcher.iter().copied().chain([BENCH]).chain(arguments.iter().copied()).collect();
    let mut command = Command::new(words[0]);
    let ours = ["DTL_", "STEPMESH_", "OMPI_", "PMI", "MPI_", "SLURM_", "OMP_NUM"];
    for (name, _) in std::env::vars_os() {
        if ours.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    command.args(&words[1..]).stdin(Stdio::null()).output().expect("it starts")
}

/// Runs dtl-bench under dtlrun with `ranks` ranks.
fn run_ranks(ranks: &str, arguments: &[&str]) -> Output {
    run_by(&[&program("dtlrun").to_string_lossy(), "-n", ranks], arguments)
}

fn run(arguments: &[&str]) -> Output {
    run_by(&[], arguments)
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the JSON that a run has printed. The run must have succeeded.
fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_str(&out(output)).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Checks that there are `count` rows, and that each row has at least one regime (class of the
/// distance between the processors) and, in each regime, plausible times for each implementation in
/// `sides`.
fn check_rows(all: &Value, count: usize, sides: &[&str]) {
    let rows = all["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), count, "{all:#}");
    for row in rows {
        let regimes = row["regimes"].as_object().expect("regimes");
        assert!(
            !regimes.is_empty() && row["test"].is_string() && row["unit"].is_string(),
            "{row:#}"
        );
        for values in regimes.values() {
            let names: Vec<&String> = values.as_object().expect("sides").keys().collect();
            assert_eq!(names, sides, "{row:#}");
            for side in sides {
                let of = |key: &str| values[side][key].as_f64().expect("a number");
                assert!(of("count") >= 1.0 && of("best_ns") > 0.0, "{row:#}");
                assert!(
                    of("best_ns") <= of("p10_ns") && of("p10_ns") <= of("median_ns"),
                    "{row:#}"
                );
            }
        }
    }
}

#[test]
fn comm_between_processes() {
    let arguments = ["comm", "-n", "2", "--quick", "--json", "--sizes", "8,4KiB,128KiB"];
    let all = json(&run(&arguments));
    check_rows(&all, 2 + 3 * 8, &["dtl"]);
    assert_eq!(
        (&all["kind"], &all["ranks"], &all["peer"]),
        (&"shm".into(), &2.into(), &Value::Null)
    );
    assert!(
        all["machine"]["cpu"].is_string() && all["machine"]["cpus"].as_u64() >= Some(1),
        "{all:#}"
    );
}

#[test]
fn comm_between_threads_and_more_ranks() {
    let common = ["comm", "--quick", "--no-pin", "--sizes", "64"];
    let threads = run(&[&common[..], &["--kind", "threads", "-n", "3", "--rounds", "2"]].concat());
    let text = out(&threads);
    assert!(threads.status.success() && text.contains("threads, 3 ranks"), "{threads:?}");
    let rows = [
        "latency",
        "bandwidth",
        "bidirectional",
        "rate",
        "barrier",
        "allreduce",
        "bcast",
        "alltoall",
    ];
    for row in rows {
        assert!(text.lines().any(|line| line.starts_with(row)), "no {row} in\n{text}");
    }
    let three = json(&run_ranks("3", &[&common[..], &["--json", "--only", "allgather"]].concat()));
    check_rows(&three, 1, &["dtl"]);
}

#[test]
fn comm_against_mpi() {
    for name in ["openmpi", "mpich"] {
        let mpirun = format!("mpirun.{name}");
        let is_there = Command::new(&mpirun).arg("--version").output().is_ok();
        if !is_there {
            println!("skipped: {mpirun} is not installed");
            continue;
        }
        let arguments = ["comm", "--vs", "mpi", "--quick", "--json", "--sizes", "64,32KiB"];
        let first = run_by(&[&mpirun, "-n", "2"], &arguments);
        if err(&first).contains("is rank 0 of 1 for") {
            // Ubuntu 24.04's MPICH: its library expects PMIx, its mpirun offers PMI.
            println!("skipped: {mpirun} starts each rank as a job of its own");
            continue;
        }
        let all = json(&first);
        check_rows(&all, 2 + 2 * 8, &["dtl", "mpi"]);
        assert!(all["peer"]["version"].as_str().expect("a text").len() > 5, "{all:#}");
        // The library over the same MPI.
        let arguments =
            [&arguments[..], &["--kind", "mpi", "--only", "latency,allreduce"]].concat();
        let all = json(&run_by(&[&mpirun, "-n", "2"], &arguments));
        check_rows(&all, 4, &["dtl", "mpi"]);
        assert_eq!(all["kind"], "mpi");
    }
    // Each rank is alone for MPI.
    let wrong = run_ranks("2", &["comm", "--vs", "mpi", "--quick"]);
    assert_eq!(wrong.status.code(), Some(1), "{wrong:?}");
    assert!(
        err(&wrong).contains("start all with that MPI's own mpirun")
            || err(&wrong).contains("no MPI"),
        "{wrong:?}"
    );
}

#[test]
fn within_this_process() {
    let quick = ["--quick", "--json"];
    let of = |arguments: &[&str]| json(&run(&[arguments, &quick[..]].concat()));
    check_rows(&of(&["alloc", "--sizes", "64,64KiB,1MiB"]), 3 + 3 + 2 + 2, &["dtl", "malloc"]);
    check_rows(&of(&["launch"]), 2, &["dtl"]);
    let dtlrun = program("dtlrun");
    let other = of(&["launch", "--mpirun", &format!("A=1 {} --bind none", dtlrun.display())]);
    check_rows(&other, 2, &["dtl", "mpirun"]);
    check_rows(&of(&["call"]), 5, &["dtl", "bare"]);
    check_rows(&of(&["copy", "--sizes", "1,4KiB", "--no-pin"]), 2, &["dtl", "memcpy"]);
    check_rows(&of(&["select", "--no-pin"]), 7, &["dtl", "both"]);
    check_rows(&of(&["dispatch", "--no-pin"]), 5, &["dtl", "bare"]);
    let gomp = run(&[&["parallel_for", "--vs", "libgomp"], &quick[..]].concat());
    if err(&gomp).contains("libgomp.so.1") {
        println!("skipped: libgomp.so.1 is not installed");
        check_rows(&of(&["parallel_for", "--threads", "3", "--no-pin"]), 3, &["dtl"]);
    } else {
        check_rows(&json(&gomp), 3, &["dtl", "libgomp"]);
    }
    let tbb = run(&[&["parallel_for", "--vs", "tbb"], &quick[..]].concat());
    if err(&tbb).contains("--vs tbb: ") {
        println!("skipped: {}", err(&tbb).trim());
    } else {
        check_rows(&json(&tbb), 3, &["dtl", "tbb"]);
    }
}

/// Compares with the bare prototype, whose data are verified over each of its ways.
#[test]
fn comm_against_the_prototype() {
    let sizes = ["--vs", "prototype", "--quick", "--json", "--sizes", "0,64,1KiB,20KiB,300KiB"];
    let all = json(&run(&[&["comm", "-n", "2"], &sizes[..]].concat()));
    check_rows(&all, 2 + 6 * 5 + 2 * 4, &["dtl", "prototype"]);
    let rows =
        ["--rows", "bcast:64KiB,latency:8", "--vs", "methods,prototype", "--quick", "--json"];
    let all = json(&run(&[&["comm", "-n", "2"], &rows[..]].concat()));
    let methods = ["cells", "cells_nt", "cma_get", "cma_split"];
    check_rows(&all, 2, &[&["dtl"], &methods[..], &["prototype"]].concat());
    assert_eq!(
        (&all["rows"][0]["test"], &all["peer"]["name"]),
        (&"bcast".into(), &"methods".into())
    );
    let three = run_ranks("3", &["comm", "--vs", "prototype", "--quick"]);
    assert!(err(&three).contains("it has 2 ranks, not 3"), "{three:?}");
}

#[test]
fn comm_against_ucx() {
    let arguments = ["comm", "-n", "2", "--vs", "ucx", "--quick", "--json", "--sizes", "8"];
    if Command::new("ucx_perftest").arg("-h").output().is_err() {
        println!("skipped: ucx_perftest is not installed");
        return;
    }
    let all = json(&run(&arguments));
    check_rows(&all, 2, &["dtl", "ucx"]);
    assert_eq!(all["peer"]["name"], "ucx");
}

/// Temporary folder, removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("dtl-bench-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_report_of_files() {
    let folder = Folder::new("files");
    let sizes = ["--sizes", "1KiB,4KiB,64KiB,256KiB", "--only", "latency,bandwidth,barrier"];
    fs::write(folder.file("call.json"), &run(&["call", "--quick", "--json"]).stdout).unwrap();
    let files = [folder.file("comm.json"), folder.file("call.json")];
    let measured = run(&[&["comm", "-n", "2", "--quick", "--json"], &sizes[..]].concat());
    let mut comm: Value = serde_json::from_slice(&measured.stdout).unwrap();
    // A plot needs two sizes at one distance of the processors, near or far. This machine may have
    // measured them at others: the values stay, and the distance is called far.
    for row in comm["rows"].as_array_mut().unwrap() {
        let regimes = row["regimes"].as_object_mut().unwrap();
        let values = std::mem::take(regimes).into_iter().next().unwrap().1;
        regimes.insert("far".to_owned(), values);
    }
    fs::write(&files[0], comm.to_string()).unwrap();
    let output = run(&["report", &files[0], &files[1], "--output", &folder.file("out")]);
    assert!(output.status.success() && err(&output).is_empty(), "{output:?}");
    let page = folder.text("out/performance.md");
    for part in [
        "# Performance",
        "kind shm, 2 ranks",
        "| barrier |",
        "| latency | 256 KiB | us |",
        "| event_record |",
    ] {
        assert!(page.contains(part), "no {part} in\n{page}");
    }
    let links = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let named: Vec<&str> = links.filter(|link| !link.starts_with('#')).collect();
    assert!(named.len() >= 2 && named.iter().any(|file| file.contains("latency")), "{page}");
    for file in named {
        let picture = folder.text(&format!("out/{file}"));
        assert!(
            picture.starts_with("<svg") && picture.contains("dtl") && picture.contains(" KiB"),
            "{picture}"
        );
    }
    // What is no such file.
    fs::write(folder.file("other.json"), "{}").unwrap();
    let refused = run(&["report", &folder.file("other.json"), "--output", &folder.file("out")]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(err(&refused).contains("other.json: not what dtl-bench writes"), "{refused:?}");
}

#[test]
fn a_report_that_runs_its_parts() {
    let folder = Folder::new("parts");
    let arguments = ["report", "--quick", "--only", "call,copy", "--output", &folder.file("")];
    let output = run(&arguments);
    assert!(output.status.success() && err(&output).contains("2 runs, about"), "{output:?}");
    let page = folder.text("performance.md");
    assert!(
        page.contains("### Copies\n")
            && page.contains("| memcpy |")
            && page.contains("| stream_query |"),
        "{page}"
    );
    check_rows(
        &serde_json::from_str(&folder.text("performance/copy.json")).unwrap(),
        8,
        &["dtl", "memcpy"],
    );
    // A launcher that fails is named with what it said; nothing is left of it.
    let failing = [
        "report",
        "--quick",
        "--only",
        "comm",
        "--mpirun",
        "A=1 /bin/false",
        "--output",
        &folder.file(""),
    ];
    let output = run(&failing);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        err(&output).contains("`A=1 /bin/false -n 2") && err(&output).contains("nothing could be"),
        "{output:?}"
    );
    assert!(!folder.0.join("performance/mpi-1.json").exists());
    // What is there is not run again, what fails is on the page, and notes stay.
    let kept = folder.text("performance/copy.json");
    fs::write(
        folder.file("performance-notes.toml"),
        "[[note]]\nrows = [\"barrier\"]\ntext = \"why\"\n",
    )
    .unwrap();
    let again = [
        "report",
        "--quick",
        "--resume",
        "--only",
        "copy,mpi",
        "--mpirun",
        "/bin/false",
        "--output",
        &folder.file(""),
    ];
    let output = run(&again);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(folder.text("performance/copy.json"), kept);
    assert!(
        folder.text("performance.md").contains("- mpi-1-over: exit status: 1"),
        "{}",
        folder.text("performance.md")
    );
    fs::write(folder.file("performance-notes.toml"), "[[note]]").unwrap();
    let output = run(&again);
    assert!(
        output.status.code() == Some(2) && err(&output).contains("a [[note]] wants rows and text"),
        "{output:?}"
    );
}

/// Checks that a launcher that `report` has started ends its ranks even if the `report` process is
/// killed.
#[test]
fn a_report_that_is_killed_ends_its_launcher() {
    let folder = Folder::new("killed");
    let (launcher, begun, ended) =
        (folder.file("launcher"), folder.0.join("begun"), folder.0.join("ended"));
    let script = format!(
        "#!/bin/sh\nsleep 60 &\ntrap 'kill $!; echo > {}; exit' TERM\necho > {}\nwait\n",
        ended.display(),
        begun.display()
    );
    fs::write(&launcher, script).unwrap();
    let words =
        ["report", "--quick", "--only", "comm", "--mpirun", &format!("sh {launcher}"), "--output"];
    let mut command = Command::new(BENCH);
    command.args(words).arg(&folder.0).stdin(Stdio::null()).stderr(Stdio::null());
    let mut report = command.spawn().unwrap();
    let is_begun = comes(&begun);
    report.kill().unwrap();
    report.wait().unwrap();
    assert!(is_begun && comes(&ended), "begun: {is_begun}");
}

/// Checks that `report` reports an error and keeps the existing page if a file cannot be written
/// because the disk is full (simulated with /dev/full), and that it rejects a truncated result
/// file.
#[test]
fn a_report_on_a_full_disk() {
    let folder = Folder::new("full");
    let full = |name: &str| symlink("/dev/full", folder.file(name)).unwrap();
    let report = |arguments: &[&str]| {
        let output = run(&[&["report", "--output", &folder.file("")], arguments].concat());
        assert!(err(&output).contains("No space left"), "{output:?}");
        output
    };
    fs::create_dir(folder.file("performance")).unwrap();
    fs::write(folder.file("performance.md"), "older").unwrap();
    fs::write(folder.file("call.json"), &run(&["call", "--quick", "--json"]).stdout).unwrap();
    // Nothing is measured if there is no room.
    full("performance/.room");
    let output = report(&["--only", "call"]);
    assert!(
        output.status.code() == Some(2) && err(&output).starts_with("dtl-bench: --output"),
        "{output:?}"
    );
    // A part says why it failed.
    full("performance/copy.json");
    full("performance/copy.err");
    let output = report(&["--quick", "--only", "copy"]);
    assert!(
        output.status.code() == Some(1) && err(&output).contains("standard output: No space"),
        "{output:?}"
    );
    // The older page stays.
    full("performance.new~");
    let output = report(&[&folder.file("call.json")]);
    assert!(
        output.status.code() == Some(1) && err(&output).contains("performance.md: No space"),
        "{output:?}"
    );
    assert!(
        folder.text("performance.md") == "older" && !folder.0.join("performance.new~").exists()
    );
    // A file that was cut.
    fs::write(folder.file("call.json"), "{\"measured\": ").unwrap();
    let output = run(&["report", "--output", &folder.file(""), &folder.file("call.json")]);
    assert!(err(&output).contains("call.json: its end is missing"), "{output:?}");
}

fn comes(file: &Path) -> bool {
    let begin = Instant::now();
    while !file.exists() && begin.elapsed() < Duration::from_secs(30) {
        sleep(Duration::from_millis(5));
    }
    file.exists()
}

/// Checks the results of `model` for up to 4096 ranks. The model does not send any messages, so the
/// test does not start ranks.
#[test]
fn a_model() {
    let common = [
        "model",
        "--op",
        "allreduce,gatherv,barrier",
        "--ranks",
        "2..100,4096",
        "--bytes",
        "8,1MiB",
    ];
    let all = json(&run(&[&common[..], &["--json"]].concat()));
    let rows = all["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), (2 * 2 + 1) * 8, "{all:#}");
    let of = |op: &str, ranks: u64, bytes: u64| {
        let is_it =
            |row: &&Value| row["op"] == op && row["ranks"] == ranks && row["bytes"] == bytes;
        rows.iter().find(is_it).unwrap_or_else(|| panic!("no {op} of {ranks} in {all:#}"))
    };
    let row = of("allreduce", 4096, 8);
    assert_eq!(
        (&row["algorithm"], &row["steps"]),
        (&"recursive doubling".into(), &12.into()),
        "{row:#}"
    );
    assert_eq!(
        (&row["messages"]["total"], &row["messages"]["most"]),
        (&(12 * 4096).into(), &12.into()),
        "{row:#}"
    );
    assert!((row["time_ns"].as_f64().unwrap() - 12.0 * 1400.28).abs() < 1e-6, "{row:#}");
    assert_eq!(of("gatherv", 100, 1 << 20)["message_bytes"]["most"], 99 << 20);
    let memory = |ranks| of("barrier", ranks, 0)["memory_bytes"]["comm"].as_u64().unwrap();
    assert_eq!(memory(4096) - memory(2), 8 * 4094, "8 bytes for each rank");
    let within = &all["within_node"];
    assert_eq!(
        (&within["latency_ns"], &within["gap_per_byte_ns"]),
        (&300.0.into(), &0.1.into()),
        "{within:#}"
    );
    // Rows of collectives over mailboxes are marked.
    let near =
        ["model", "--kind", "shm", "--ranks", "64,128", "--bytes", "8", "--op", "allreduce,scan"];
    let marked = json(&run(&[&near[..], &["--json"]].concat()));
    let marks: Vec<_> =
        marked["rows"].as_array().expect("rows").iter().map(|row| &row["uses_mailboxes"]).collect();
    assert_eq!(marks, [true, false, false, false], "{marked:#}");
    let text = out(&run(&near));
    assert_eq!(text.matches("recursive doubling *").count(), 1, "{text}");
    assert!(text.contains("* uses mailboxes"), "{text}");
    // Slower networks, nodes.
    let more = ["--latency", "5us", "--overhead", "1us", "--per-node", "16", "--op", "allreduce"];
    let text = out(&run(&[&["model", "--ranks", "64"], &more[..]].concat()));
    assert!(
        text.contains("two levels")
            && text.contains("L 5000 ns")
            && text.contains("16 ranks on each node"),
        "{text}"
    );
    let folder = Folder::new("model");
    let output = run(&[&common[..], &["--output", &folder.file("out")]].concat());
    assert!(output.status.success() && out(&output).contains("40 row(s)"), "{output:?}");
    assert!(folder.text("out/tables.md").contains("## gatherv, 1048576 bytes"));
    for picture in ["steps-trees-8B.svg", "time-blocks-1MiB.svg", "communicator.svg"] {
        assert!(folder.text(&format!("out/{picture}")).starts_with("<svg"), "{picture}");
    }
}

/// Checks, for invalid command lines, the exit status and that the error message names the problem.
#[test]
fn what_it_refuses() {
    let refused = |arguments: &[&str], status: i32, text: &str| {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {output:?}");
        assert!(
            err(&output).contains(text) && out(&output).is_empty(),
            "{arguments:?}: {output:?}"
        );
    };
    refused(&[], 2, "Usage");
    refused(&["nothing"], 2, "nothing");
    refused(&["comm"], 2, "-n 2");
    refused(&["comm", "-n", "1"], 2, "1 is not in 2..");
    refused(&["comm", "-n", "2", "--only", "latency,nothing"], 2, "nothing");
    refused(&["comm", "-n", "2", "--sizes", "9GiB"], 2, "at most 1GiB");
    refused(&["comm", "-n", "2", "--sizes", "7", "--only", "reduce"], 2, "multiples of 4");
    refused(&["comm", "-n", "2", "--seconds", "0"], 2, "0.001");
    refused(&["comm", "-n", "2", "--rounds", "0"], 2, "0 is not in 1..");
    refused(&["comm", "-n", "2", "--vs", "pvm"], 2, "pvm");
    refused(&["comm", "-n", "2", "--vs", "mpi"], 2, "mpirun -n 2 dtl-bench comm --vs mpi");
    refused(&["comm", "--kind", "threads", "--vs", "mpi"], 2, "leave --kind threads out");
    refused(&["comm", "-n", "2", "--kind", "pigeons"], 1, "pigeons");
    refused(
        &["comm", "-n", "2", "--kind", "self"],
        2,
        "--kind self has 1 rank, but a message needs 2: --kind threads",
    );
    refused(&["alloc", "--sizes", "0"], 2, "at least 1 byte");
    refused(&["copy", "--sizes", "many"], 2, "expected a size");
    refused(&["call", "--sizes", "8"], 2, "--sizes");
    refused(&["parallel_for", "--threads", "0"], 2, "0 is not in 1..");
    refused(&["parallel_for", "--vs", "cilk"], 2, "cilk");
    refused(
        &["comm", "-n", "2", "--vs", "ucx", "--only", "barrier"],
        2,
        "only latency and bandwidth",
    );
    refused(&["launch", "--mpirun", "/bin/false"], 1, "`/bin/false` started no two processes");
    refused(&["report", "--mpirun", "A=1"], 2, "names no program");
    refused(&["report", "--only", "everything"], 2, "everything");
    refused(&["report", "/nowhere/a.json", "--output", "/proc"], 2, "--output /proc");
    refused(
        &["report", "/nowhere/a.json", "--output", env!("CARGO_TARGET_TMPDIR")],
        2,
        "/nowhere/a.json",
    );
    refused(&["report", "a.json", "--mpirun", "mpirun"], 2, "--mpirun");
    refused(&["model", "--op", "allredduce"], 2, "all, barrier, bcast");
    refused(&["model", "--op", "fence"], 2, "all, barrier, bcast");
    refused(&["model", "--ranks", "1"], 2, "expected 2 to 4194304 ranks");
    refused(&["model", "--ranks", "64..8"], 2, "8..64?");
    refused(&["model", "--bytes", "12"], 2, "whole elements of 8 bytes (--element)");
    refused(&["model", "--root", "2"], 2, "2 ranks have the roots 0 to 1");
    refused(&["model", "--latency", "3"], 2, "expected a time as 1.5us");
    refused(&["model", "--within", "1us,1us,1us,1ns"], 2, "--per-node");
    refused(&["model", "--per-node", "4", "--within", "1us,1us"], 2, "expected four times");
    refused(&["model", "--kind", "shm", "--ranks", "2..2048"], 2, "at most 1024 ranks");
    refused(&["model", "--kind", "shm", "--per-node", "4"], 2, "leave --per-node out");
    refused(&["model", "--output", "/proc/x", "--ranks", "2"], 2, "--output /proc/x");
    let alone = run_ranks("1", &["comm"]);
    assert_eq!(alone.status.code(), Some(1), "{alone:?}");
    assert!(err(&alone).contains("start two or more"), "{alone:?}");
    let other = run_ranks("2", &["comm", "-n", "4", "--quick"]);
    assert_eq!(other.status.code(), Some(2), "{other:?}");
    assert!(err(&other).contains("-n 4, but the launcher started 2 rank(s)"), "{other:?}");
}
