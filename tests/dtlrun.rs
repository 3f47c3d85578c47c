//! dtlrun: exit statuses, messages, environment, input, output, signals.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking and speaks to its reader"
)]

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn dtlrun(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dtlrun"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    dtlrun(arguments).output().expect("dtlrun starts")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn sorted_lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn the_environment_of_each_rank() {
    let script = "echo $DTL_RANK/$DTL_SIZE $DTL_LOCAL_RANK/$DTL_LOCAL_SIZE ${#DTL_JOB}";
    let output = run(&["-n", "3", "sh", "-c", script]);
    assert!(output.status.success());
    assert_eq!(sorted_lines(&out(&output)), ["0/3 0/3 39", "1/3 1/3 39", "2/3 2/3 39"]);
    let job = |output: &Output| out(output);
    let jobs: Vec<String> = (0..2).map(|_| job(&run(&["-n", "1", "sh", "-c", "echo $DTL_JOB"]))).collect();
    assert_ne!(jobs[0], jobs[1]);
}

#[test]
fn exit_statuses_and_who_died_of_what() {
    let output = run(&["-n", "3", "--on-failure=continue", "sh", "-c", "test $DTL_RANK != 1 || exit 7"]);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(err(&output), "dtlrun: rank 1 exited with status 7\n");
    let output = run(&["-n", "3", "--on-failure=continue", "sh", "-c", "test $DTL_RANK != 2 || kill -9 $$"]);
    assert_eq!(output.status.code(), Some(137));
    assert_eq!(err(&output), "dtlrun: rank 2 was killed by signal 9 (SIGKILL)\n");
    let first = "test $DTL_RANK = 0 && exit 3; sleep 0.5; exit 4";
    assert_eq!(run(&["-n", "2", "sh", "-c", first]).status.code(), Some(3), "the first failure counts");
}

#[test]
fn a_program_that_cannot_be_started() {
    let output = run(&["-n", "2", "no-such-program"]);
    assert_eq!(output.status.code(), Some(127));
    assert!(err(&output).starts_with("dtlrun: no-such-program: program not found"), "{}", err(&output));
    let output = run(&["-n", "2", "/etc/passwd"]);
    assert_eq!(output.status.code(), Some(126));
    assert!(err(&output).contains("/etc/passwd: cannot be run"), "{}", err(&output));
    assert_eq!(run(&["-n", "0", "true"]).status.code(), Some(2));
    assert_eq!(run(&["-n", "2", "--on-failure=perhaps", "true"]).status.code(), Some(2));
}

#[test]
fn what_happens_to_the_others() {
    let hang = "test $DTL_RANK = 0 && exit 3; exec sleep 30";
    let started = Instant::now();
    let output = run(&["-n", "3", "--on-failure=kill", "sh", "-c", hang]);
    assert!(started.elapsed() < Duration::from_secs(2));
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(err(&output), "dtlrun: rank 0 exited with status 3\ndtlrun: ending rank 1, 2\n");

    let started = Instant::now();
    assert_eq!(run(&["-n", "2", "--on-failure=wait:700ms", "sh", "-c", hang]).status.code(), Some(3));
    assert!(started.elapsed() > Duration::from_millis(700) && started.elapsed() < Duration::from_secs(3));

    // Deaf to SIGTERM: SIGKILL after two seconds.
    let deaf = "test $DTL_RANK = 0 && { sleep 0.3; exit 3; }; trap '' TERM; while :; do sleep 0.1; done";
    let started = Instant::now();
    assert_eq!(run(&["-n", "2", "--on-failure=kill", "sh", "-c", deaf]).status.code(), Some(3));
    assert!(started.elapsed() > Duration::from_secs(2) && started.elapsed() < Duration::from_secs(6));

    // Who ends in time is left alone.
    let slow = "test $DTL_RANK = 0 && exit 3; sleep 0.5; echo done";
    let output = run(&["-n", "2", "sh", "-c", slow]);
    assert_eq!((output.status.code(), out(&output).as_str()), (Some(3), "done\n"));
}

#[test]
fn input_goes_to_rank_0_alone() {
    let mut command = dtlrun(&["-n", "3", "sh", "-c", "cat | sed \"s/^/$DTL_RANK /\""]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
    child.stdin.take().expect("input").write_all(b"hello\n").expect("write");
    let output = child.wait_with_output().expect("ends");
    assert_eq!((output.status.code(), out(&output).as_str()), (Some(0), "0 hello\n"));
}

#[test]
fn prefixes_on_whole_lines() {
    let script = "printf 'a\\nb'; printf 'x\\n' >&2; test $DTL_RANK = 0 || seq 1 20000 >&2";
    let output = run(&["-n", "2", "--prefix", "sh", "-c", script]);
    assert!(output.status.success());
    assert_eq!(sorted_lines(&out(&output)), ["[0] a", "[0] b", "[1] a", "[1] b"]);
    let text = err(&output);
    assert_eq!(text.lines().count(), 20_002);
    assert!(text.lines().all(|line| line.starts_with("[0] x") || line.starts_with("[1] ")), "{text}");
    assert!(text.ends_with("[1] 20000\n"));
}

#[test]
fn output_that_cannot_be_written_is_no_success() {
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let mut command = dtlrun(&["-n", "2", "--prefix", "sh", "-c", "echo here"]);
    let output = command.stdout(full()).stderr(Stdio::piped()).spawn().expect("starts");
    let output = output.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(125));
    assert!(err(&output).starts_with("dtlrun: output of the ranks is lost: No space"), "{}", err(&output));
    let mut command = dtlrun(&["-n", "2", "--prefix", "sh", "-c", "echo here; exit 3"]);
    assert_eq!(command.stdout(full()).stderr(Stdio::null()).status().expect("ends").code(), Some(3));
}

#[test]
fn output_that_nobody_reads_up_to_its_end_does_not_hang() {
    // A grandchild keeps the pipe open; the rank has ended.
    let started = Instant::now();
    let output =
        dtlrun(&["-n", "1", "--prefix", "sh", "-c", "sleep 3 & echo here"]).output().expect("starts");
    assert_eq!(out(&output), "[0] here\n");
    assert!(started.elapsed() < Duration::from_secs(2));
}

#[test]
fn signals_reach_every_rank() {
    for (number, name) in [(libc::SIGTERM, "TERM"), (libc::SIGINT, "INT")] {
        let script =
            format!("trap 'echo got $DTL_RANK; exit 0' {name}; echo up; while :; do sleep 0.05; done");
        let mut child =
            dtlrun(&["-n", "2", "sh", "-c", &script]).stdout(Stdio::piped()).spawn().expect("starts");
        let mut lines = BufReader::new(child.stdout.take().expect("output")).lines();
        for _ in 0..2 {
            assert_eq!(lines.next().expect("a line").expect("text"), "up");
        }
        // SAFETY: a signal to the child that this test started and has not reaped.
        unsafe { libc::kill(child.id() as i32, number) };
        let mut got: Vec<String> = lines.map(|line| line.expect("text")).collect();
        got.sort_unstable();
        assert_eq!(got, ["got 0", "got 1"]);
        assert_eq!(child.wait().expect("ends").code(), Some(0));
    }
}

#[test]
fn ranks_on_cores() {
    let output = run(&["-n", "1", "--bind=core", "sh", "-c", "grep Cpus_allowed_list /proc/self/status"]);
    let text = out(&output);
    let list = text.split_whitespace().nth(1).expect("a list");
    assert!(list.parse::<u32>().is_ok(), "one processor, not {list}");
    let output = run(&["-n", "1024", "--bind=core", "true"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(err(&output).contains("1024 ranks but"), "{}", err(&output));
}

#[test]
fn the_help_reads_well() {
    let output = run(&["--help"]);
    let text = out(&output);
    for word in ["Usage: dtlrun", "--on-failure", "--prefix", "--bind", "DTL_RANK", "Exit status", "Example"]
    {
        assert!(text.contains(word), "{word} is missing in {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}
