//! Tests of dtlrun: exit statuses, messages, environment, input, output, signals.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking and speaks to its reader"
)]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::os::unix::process::CommandExt;
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
    let jobs: Vec<String> =
        (0..2).map(|_| job(&run(&["-n", "1", "sh", "-c", "echo $DTL_JOB"]))).collect();
    assert_ne!(jobs[0], jobs[1]);
}

/// Sends a line to a dtlrun, whose socket has this name, and returns the connection.
fn connect(name: &str, line: &str) -> BufReader<UnixStream> {
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let mut stream = UnixStream::connect_addr(&address).expect("dtlrun listens");
    stream.write_all(line.as_bytes()).unwrap();
    BufReader::new(stream)
}

/// Returns the next line of a dtlrun.
fn next_line(stream: &mut BufReader<UnixStream>) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

#[test]
fn ranks_may_request_more() {
    // The first process waits for a line of its input; those that start later have none and fail.
    let script = "echo $DTL_LAUNCHER $DTL_RANK/$DTL_SIZE $DTL_LOCAL_RANK/$DTL_LOCAL_SIZE \
                  $DTL_JOB $DTL_COMM; read line; test $DTL_RANK = 0";
    let mut child = dtlrun(&["-n", "1", "--prefix", "sh", "-c", script])
        .env_remove("DTL_COMM")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.next().unwrap();
    let name = first.split(' ').nth(1).unwrap().to_owned();
    assert_eq!(first, format!("[0] {name} 0/1 0/1 {name}"));
    // A process that says nothing delays the others, but not for long.
    let silent = UnixStream::connect_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let mut again = connect(&name, "start again 1 3 shm\n");
    assert_eq!(next_line(&mut again), "started");
    drop(silent);
    let mut more: Vec<String> = (0..2).map(|_| lines.next().unwrap()).collect();
    more.sort();
    let expected = |number: u32| format!("[{number}] {name} {number}/3 {number}/3 again shm");
    assert_eq!(more, [expected(1), expected(2)]);
    // Both end without joining.
    let mut ends = [next_line(&mut again), next_line(&mut again)];
    ends.sort();
    assert!(ends.iter().zip(1..).all(|(end, rank)| end.starts_with(&format!("ended {rank} "))));
    // Numbers continue where the last ones were, whatever the rank is.
    let mut third = connect(&name, "start third 1 2 shm\n");
    assert_eq!(next_line(&mut third), "started");
    assert_eq!(lines.next().unwrap(), format!("[3] {name} 1/2 1/2 third shm"));
    let mut joining = connect(&name, "join third 1\n");
    while next_line(&mut third) != "joined 1" {}
    third.get_mut().write_all(b"go\n").unwrap();
    assert_eq!(next_line(&mut joining), "go");
    // The connection of a request that failed is closed before "go".
    let mut failed = connect(&name, "start fourth 1 2 shm\n");
    assert_eq!(next_line(&mut failed), "started");
    let mut joining = connect(&name, "join fourth 1\n");
    while next_line(&mut failed) != "joined 1" {}
    drop(failed);
    assert!(next_line(&mut joining).contains("has failed"));
    for (line, part) in [
        ("start job 2 2 shm\n", "new_ranks 0: "),
        ("start job 1 1025 shm\n", "at most 1024"),
        ("start job one 2 shm\n", "not numbers"),
        ("join job 1\n", "has failed"),
        ("hello\n", "does not support"),
        ("\n", "does not support"),
    ] {
        let reply = next_line(&mut connect(&name, line));
        assert!(reply.contains(part), "{line}: {reply}");
    }
    // The processes that failed were no failure of the job, because no request has succeeded.
    third.get_mut().write_all(b"ok\n").unwrap();
    while !next_line(&mut connect(&name, "start sixth 1 2 shm\n")).contains("a rank has failed") {}
    child.stdin.take().unwrap().write_all(b"end\n").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[test]
fn arguments_that_are_not_utf_8_reach_the_program() {
    let odd = std::ffi::OsStr::from_bytes(b"caf\xe9");
    let output = dtlrun(&["-n", "1", "printf", "%s"]).arg(odd).output().unwrap();
    assert_eq!(output.stdout, odd.as_bytes(), "{}", err(&output));
}

#[test]
fn exit_statuses_and_who_died_of_what() {
    let output =
        run(&["-n", "3", "--on-failure=continue", "sh", "-c", "test $DTL_RANK != 1 || exit 7"]);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(err(&output), "dtlrun: rank 1 exited with status 7\n");
    let output =
        run(&["-n", "3", "--on-failure=continue", "sh", "-c", "test $DTL_RANK != 2 || kill -9 $$"]);
    assert_eq!(output.status.code(), Some(137));
    assert_eq!(err(&output), "dtlrun: rank 2 was killed by signal 9 (SIGKILL)\n");
    let first = "test $DTL_RANK = 0 && exit 3; sleep 0.5; exit 4";
    assert_eq!(
        run(&["-n", "2", "sh", "-c", first]).status.code(),
        Some(3),
        "the first failure counts"
    );
}

#[test]
fn a_program_that_cannot_be_started() {
    let output = run(&["-n", "2", "no-such-program"]);
    assert_eq!(output.status.code(), Some(127));
    assert!(
        err(&output).starts_with("dtlrun: no-such-program: program not found"),
        "{}",
        err(&output)
    );
    let output = run(&["-n", "2", "/etc/passwd"]);
    assert_eq!(output.status.code(), Some(126));
    assert!(err(&output).contains("/etc/passwd: cannot be run"), "{}", err(&output));
    assert_eq!(run(&["-n", "0", "true"]).status.code(), Some(2));
    assert_eq!(run(&["-n", "2", "--on-failure=perhaps", "true"]).status.code(), Some(2));
}

#[test]
fn what_happens_to_the_others() {
    let hang = "test $DTL_RANK = 0 && exit 3; exec sleep infinity";
    let output = run(&["-n", "3", "--on-failure=kill", "sh", "-c", hang]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(err(&output), "dtlrun: rank 0 exited with status 3\ndtlrun: ending rank 1, 2\n");

    let started = Instant::now();
    assert_eq!(
        run(&["-n", "2", "--on-failure=wait:700ms", "sh", "-c", hang]).status.code(),
        Some(3)
    );
    assert!(started.elapsed() > Duration::from_millis(700));

    // Deaf to SIGTERM: SIGKILL after two seconds.
    let deaf =
        "test $DTL_RANK = 0 && { sleep 0.3; exit 3; }; trap '' TERM; while :; do sleep 0.1; done";
    let started = Instant::now();
    assert_eq!(run(&["-n", "2", "--on-failure=kill", "sh", "-c", deaf]).status.code(), Some(3));
    assert!(started.elapsed() > Duration::from_secs(2));

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
    assert!(
        text.lines().all(|line| line.starts_with("[0] x") || line.starts_with("[1] ")),
        "{text}"
    );
    // Rank 0 may be the last one to write.
    let last = text.lines().rfind(|line| line.starts_with("[1] "));
    assert!(last == Some("[1] 20000") && text.ends_with('\n'));
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    // The rank goes on to its end, and the loss is said once.
    let mut command =
        dtlrun(&["-n", "1", "--prefix", "sh", "-c", "echo 1; sleep 0.1; echo 2; echo end >&2"]);
    let output = command.stdout(full()).stderr(Stdio::piped()).output().expect("starts");
    let text = err(&output);
    assert_eq!(output.status.code(), Some(125), "{text}");
    assert!(text.contains("dtlrun: standard output: No space left on device"), "{text}");
    assert!(text.matches("dtlrun").count() == 1 && text.contains("[0] end"), "{text}");
    // A rank's own failure says more.
    let mut command = dtlrun(&["-n", "1", "--prefix", "sh", "-c", "echo 1; exit 7"]);
    assert_eq!(
        command.stdout(full()).stderr(Stdio::null()).status().expect("starts").code(),
        Some(7)
    );
    // What is not asked for is not missed.
    let mut command = dtlrun(&["-n", "1", "--prefix", "true"]);
    assert_eq!(command.stdout(full()).status().expect("starts").code(), Some(0));
    // Closed: with a prefix dtlrun says so, without one the rank cannot write itself.
    let closed = |options: &[&str], script: &str| {
        let own = env!("CARGO_BIN_EXE_dtlrun");
        let line = "exec \"$@\" >&-";
        let mut command = Command::new("sh");
        command.args(["-c", line, "sh", own, "-n", "1"]).args(options).args(["sh", "-c", script]);
        let output = command.stdout(Stdio::piped()).output().expect("starts");
        (output.status.code(), err(&output))
    };
    let (status, text) = closed(&["--prefix"], "echo 1");
    assert!(status == Some(125) && text.contains("standard output: Bad file descriptor"), "{text}");
    let (status, text) = closed(&[], "echo 1 || exit 9; exit 8");
    assert_eq!(status, Some(9), "{text}");
    let (status, text) = closed(&[], "exit 0");
    assert_eq!((status, text.as_str()), (Some(0), ""));
}

#[test]
fn a_rank_has_all_its_standard_streams() {
    let own = env!("CARGO_BIN_EXE_dtlrun");
    for closed in ["<&- >&- 2>&-", "<&-", ">&-", "2>&-"] {
        // Otherwise what a rank opens would be its standard error.
        let script =
            "for fd in 0 1 2; do test -e /proc/self/fd/$fd || exit 9; done; echo x || exit 8";
        let line = format!("exec \"$@\" {closed}");
        let mut command = Command::new("sh");
        command.args(["-c", &line, "sh", own, "-n", "2", "sh", "-c", script]);
        let status = command.output().expect("starts").status.code();
        assert_eq!(
            status,
            Some(if closed.contains(" >&-") || closed == ">&-" { 8 } else { 0 }),
            "{closed}"
        );
    }
}

#[test]
fn a_reader_that_goes_ends_the_ranks_quietly() {
    let mut command = dtlrun(&["-n", "2", "--prefix", "yes"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let mut line = String::new();
    let mut reader = BufReader::new(child.stdout.take().expect("output"));
    reader.read_line(&mut line).expect("a line");
    drop(reader);
    let output = child.wait_with_output().expect("ends");
    assert!(line == "[0] y\n" || line == "[1] y\n", "{line}");
    assert_eq!((output.status.code(), err(&output).as_str()), (Some(141), ""));
}

#[test]
fn ranks_are_waited_for_where_sigchld_is_ignored() {
    let mut command = dtlrun(&["-n", "2", "sh", "-c", "exit 3"]);
    let ignore = || {
        // SAFETY: a system call that takes numbers only.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
        Ok(())
    };
    // SAFETY: the hook makes one system call between fork and exec.
    unsafe { command.pre_exec(ignore) };
    assert_eq!(command.stderr(Stdio::null()).status().expect("it ends").code(), Some(3));
}

#[test]
fn output_that_nobody_reads_up_to_its_end_does_not_hang() {
    // A grandchild keeps the pipe open; the rank has ended.
    let output = dtlrun(&["-n", "1", "--prefix", "sh", "-c", "sleep 600 & echo $!"])
        .output()
        .expect("starts");
    let grandchild =
        out(&output).strip_prefix("[0] ").and_then(|text| text.trim_end().parse().ok());
    let grandchild: i32 = grandchild.unwrap_or_else(|| panic!("{output:?}"));
    // SAFETY: a system call that takes numbers only.
    let killed = unsafe { libc::kill(grandchild, libc::SIGKILL) };
    assert_eq!(killed, 0, "dtlrun ended only after the grandchild");
}

#[test]
fn signals_reach_every_rank() {
    for (number, name) in [(libc::SIGTERM, "TERM"), (libc::SIGINT, "INT")] {
        let script = format!(
            "trap 'echo got $DTL_RANK; exit 0' {name}; echo up; while :; do sleep 0.05; done"
        );
        let mut command = dtlrun(&["-n", "2", "sh", "-c", &script]);
        // A shell starts background jobs with SIGINT ignored, which dtlrun and its ranks would inherit.
        let reset = move || {
            // SAFETY: signal() is async-signal-safe, and the child is about to call exec.
            unsafe { libc::signal(number, libc::SIG_DFL) };
            Ok(())
        };
        // SAFETY: `reset` only makes a system call; it neither allocates nor takes a lock.
        unsafe { command.pre_exec(reset) };
        let mut child = command.stdout(Stdio::piped()).spawn().expect("starts");
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
    let output =
        run(&["-n", "1", "--bind=core", "sh", "-c", "grep Cpus_allowed_list /proc/self/status"]);
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
    for word in [
        "Usage: dtlrun",
        "--on-failure",
        "--prefix",
        "--bind",
        "DTL_RANK",
        "Exit status",
        "Example",
    ] {
        assert!(text.contains(word), "{word} is missing in {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}
