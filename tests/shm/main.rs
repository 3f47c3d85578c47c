//! Tests of kind "shm" with real processes: each test starts this program as ranks, mostly through
//! dtlrun.
//!
//! A rank runs `worker` (an ignored test, with the case in DTL_TEST_CASE). `cases` has the code of
//! the ranks. This file starts the ranks and checks how they end.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking and speaks to its reader"
)]

mod cases;
mod deaths;
mod forbid;
mod large;
mod late;
mod namespaces;
mod old_kernel;
mod parts;
#[path = "../common/programs.rs"]
mod programs;
mod rank;
mod reduced;

use programs::program;
use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Runs the case of a rank; does nothing if this process was not started as a rank. It tests nothing
/// by itself: the other tests start this program again, with `--ignored worker`, once for each rank.
#[test]
#[ignore = "run as a rank by the other tests"]
fn worker() {
    if let Ok(case) = std::env::var("DTL_TEST_CASE") {
        cases::run(&case);
    }
}

fn myself(command: &mut Command) -> &mut Command {
    command.args(["worker", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
}

fn exe() -> std::path::PathBuf {
    std::env::current_exe().expect("own path")
}

fn dtlrun(ranks: u32, case: &str, options: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program("dtlrun"));
    command.args(["-n", &ranks.to_string()]).args(options).arg(exe());
    myself(&mut command).env("DTL_TEST_CASE", case).envs(env.iter().copied());
    command.output().expect("dtlrun starts")
}

fn text(output: &Output) -> String {
    format!(
        "{}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Runs a case on this number of ranks. All ranks must succeed and report that.
fn passes(ranks: u32, case: &str, env: &[(&str, &str)]) {
    let output = dtlrun(ranks, case, &["--on-failure=kill"], env);
    let text = text(&output);
    assert!(output.status.success(), "{case} on {ranks}: {text}");
    assert_eq!(text.matches("case passed").count(), ranks as usize, "{case} on {ranks}: {text}");
}

/// Starts one rank without a launcher.
fn by_hand(job: &str, rank: u32, size: u32, timeout_ms: u32, case: &str) -> Child {
    by_hand_with(job, rank, size, timeout_ms, case, &[])
}

fn by_hand_with(
    job: &str,
    rank: u32,
    size: u32,
    timeout_ms: u32,
    case: &str,
    env: &[(&str, &str)],
) -> Child {
    let mut command = Command::new(exe());
    myself(&mut command).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
        .env("DTL_TEST_CASE", case)
        .env("DTL_JOB", job)
        .env("DTL_TEST_TIMEOUT_MS", timeout_ms.to_string());
    command
        .env("DTL_RANK", rank.to_string())
        .env("DTL_SIZE", size.to_string())
        .envs(env.iter().copied());
    command.spawn().expect("a rank starts")
}

/// Starts ranks (rank, size) without a launcher; returns the output of each.
fn all_by_hand(name: &str, timeout_ms: u32, places: &[(u32, u32)], case: &str) -> Vec<String> {
    let job = job(name);
    let children: Vec<Child> =
        places.iter().map(|&(r, size)| by_hand(&job, r, size, timeout_ms, case)).collect();
    children.into_iter().map(|child| text(&child.wait_with_output().expect("ends"))).collect()
}

/// Runs a case with each copy method of large messages.
fn passes_with_each_method(ranks: u32, case: &str) {
    for method in ["cells", "cells_nt", "cma_get", "cma_split"] {
        passes(ranks, case, &[("DTL_SHM_COPY", method)]);
    }
}

fn job(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

#[test]
fn random_traffic() {
    for ranks in [1, 2, 3, 4, 8] {
        passes(ranks, "traffic", &[]);
    }
    passes_with_each_method(3, "traffic");
}

#[test]
fn floods_all_ways() {
    passes(2, "flood", &[]);
    passes_with_each_method(4, "flood");
}

#[test]
fn big_messages() {
    passes(2, "big", &[]);
    passes_with_each_method(2, "big");
}

#[test]
fn a_sender_that_is_away_keeps_nobody_waiting() {
    passes(2, "sender_away", &[]);
    passes(2, "reading_is_forbidden_later", &[]);
    for method in ["cma_get", "cma_split"] {
        passes(2, "sender_away", &[("DTL_SHM_COPY", method)]);
        passes(2, "reading_is_forbidden_later", &[("DTL_SHM_COPY", method)]);
    }
}

#[test]
fn ranks_with_different_copy_methods() {
    passes(4, "different_copy_methods", &[]);
}

#[test]
fn messages_are_reduced_as_they_arrive() {
    passes(2, "reduced_pairs", &[]);
    passes(1, "reduced", &[]);
    passes(3, "reduced", &[]);
    passes_with_each_method(2, "reduced");
    passes(4, "reduced_by_different_methods", &[]);
    for method in ["auto", "cma_get", "cma_split"] {
        passes(2, "reduced_without_reads", &[("DTL_SHM_COPY", method)]);
    }
}

#[test]
fn messages_that_do_not_fit_are_reduced_in_part() {
    passes(2, "reduced_and_truncated", &[]);
    passes_with_each_method(2, "reduced_and_truncated");
}

#[test]
fn a_reduced_message_is_canceled_in_full_or_not_at_all() {
    passes(2, "reduced_and_canceled", &[]);
    passes_with_each_method(2, "reduced_and_canceled");
}

#[test]
fn a_written_message_is_reduced_step_by_step() {
    passes(2, "reduced_step_by_step", &[("DTL_SHM_COPY", "cma_split")]);
}

#[test]
fn an_allreduce_ends_at_its_time_limit_if_a_rank_is_late() {
    passes(3, "late", &[]);
    passes_with_each_method(2, "late");
}

#[test]
fn an_allreduce_ends_if_a_rank_is_late_in_the_middle() {
    passes(2, "late_in_the_middle", &[]);
    passes_with_each_method(2, "late_in_the_middle");
}

#[test]
fn an_allreduce_continues_after_a_wait_with_a_time_limit() {
    passes(2, "late_for_a_wait", &[]);
    passes_with_each_method(2, "late_for_a_wait");
}

#[test]
fn an_allreduce_of_different_counts_is_refused() {
    passes(2, "other_count", &[]);
    passes_with_each_method(2, "other_count");
}

#[test]
fn a_sender_that_may_not_write() {
    passes(2, "writing_is_forbidden", &[("DTL_SHM_COPY", "cma_split")]);
}

#[test]
fn each_rank_reads_what_the_other_sends_at_the_same_time() {
    passes(2, "both_ways", &[("DTL_SHM_COPY", "cma_get")]);
    passes(2, "both_ways", &[("DTL_SHM_COPY", "cma_split")]);
}

#[test]
fn the_choice_of_the_copy_method_is_explained() {
    passes(2, "chosen_method", &[]);
}

#[test]
fn messages_without_a_receive_stay_in_their_cells() {
    passes(2, "received_in_turn", &[("DTL_SHM_COPY", "cells")]);
}

#[test]
fn large_messages_without_memory_for_cells() {
    passes(2, "no_cells", &[]);
    passes_with_each_method(2, "no_cells");
}

#[test]
fn more_large_messages_than_cells() {
    passes(4, "crowded", &[]);
    passes_with_each_method(3, "crowded");
}

#[test]
fn what_was_sent_is_received_when_its_sender_has_left() {
    passes(2, "sent_and_left", &[]);
}

/// Messages whose sizes do not fit in 32 bits. Not in every run, because two ranks hold 4 GiB each:
/// `cargo test --test shm -- --ignored more_than_4_gib`.
#[test]
#[ignore = "takes 8 GiB of memory"]
fn more_than_4_gib() {
    passes(2, "huge", &[]);
    passes(2, "huge", &[("DTL_SHM_COPY", "cells")]);
}

/// Tests ranks that the launcher of an MPI has started.
#[test]
fn under_other_launchers() {
    let openmpi = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"];
    for launcher in [&openmpi[..], &["mpirun.mpich"]] {
        let mut command = Command::new(launcher[0]);
        command.args(&launcher[1..]).args(["-n", "3"]).arg(exe());
        match myself(&mut command).env("DTL_TEST_CASE", "any_source").output() {
            Err(error) => println!("skipped: {}: {error}", launcher[0]),
            Ok(output) => {
                let text = text(&output);
                assert!(output.status.success(), "{text}");
                assert_eq!(text.matches("case passed").count(), 3, "{text}");
            }
        }
    }
}

#[test]
fn any_source() {
    passes(4, "any_source", &[]);
}

#[test]
fn truncation() {
    passes(2, "truncation", &[]);
    passes_with_each_method(2, "truncation");
}

#[test]
fn synchronous_sends() {
    passes(2, "synchronous", &[]);
    passes_with_each_method(2, "synchronous");
}

#[test]
fn taken_messages() {
    passes(2, "taken", &[]);
    passes_with_each_method(2, "taken");
}

#[test]
fn cancel() {
    passes(2, "cancel", &[]);
}

#[test]
fn several_communicators_and_reopening() {
    passes(3, "reopen", &[]);
    passes(2, "retry", &[]);
}

#[test]
fn several_threads() {
    passes(2, "threads", &[]);
}

#[test]
fn a_forked_child_disturbs_nobody() {
    passes(2, "fork", &[]);
}

#[test]
fn a_rank_that_leaves() {
    passes(3, "leave", &[]);
}

#[test]
fn a_stopped_rank_is_not_dead() {
    passes(2, "stopped", &[]);
}

#[test]
fn without_permission_to_read() {
    passes(2, "unprivileged", &[]);
}

#[test]
fn mixed_permissions() {
    passes(2, "one_off", &[]);
}

#[test]
fn a_malformed_setting_is_named() {
    passes(1, "bad_setting", &[("DTL_SHM_COPY", "maybe")]);
}

#[test]
fn a_killed_rank_is_seen_by_all() {
    let [cells, nt, get, split] =
        ["cells", "cells_nt", "cma_get", "cma_split"].map(|method| [("DTL_SHM_COPY", method)]);
    let cases: [(&str, &[(&str, &str)]); 19] = [
        ("killed_idle", &[]),
        ("killed_in_send", &[]),
        ("killed_in_stream", &cells),
        ("killed_in_stream", &nt),
        ("killed_while_taken", &[]),
        ("killed_while_receiving", &[]),
        ("killed_while_receiving", &cells),
        ("killed_while_receiving", &nt),
        ("killed_while_receiving", &get),
        ("killed_while_receiving", &split),
        ("killed_while_sending", &[]),
        ("killed_while_sending", &cells),
        ("killed_while_sending", &get),
        ("killed_while_sending", &split),
        ("killed_while_reduced", &cells),
        ("killed_while_reduced", &nt),
        ("killed_while_reduced", &get),
        ("killed_while_reduced", &split),
        ("killed_with_lock", &[]),
    ];
    for (case, env) in cases {
        let output = dtlrun(4, case, &["--on-failure=continue"], env);
        let text = text(&output);
        assert_eq!(output.status.code(), Some(137), "{case}: {text}");
        assert!(text.contains("dtlrun: rank 1 was killed by signal 9 (SIGKILL)"), "{case}: {text}");
        assert_eq!(text.matches("case passed").count(), 3, "{case}: {text}");
    }
}

#[test]
fn missing_ranks_are_named() {
    let said = all_by_hand("missing", 700, &[(0, 4), (2, 4)], "open_only");
    for text in &said {
        assert!(text.contains("DTL_ERROR_TIMEOUT: rank 1, 3 of 4 missing"), "{text}");
    }
    let said = all_by_hand("missing0", 300, &[(1, 2)], "open_only");
    assert!(said[0].contains("DTL_ERROR_TIMEOUT: rank 0 is missing"), "{}", said[0]);
}

#[test]
fn a_duplicate_rank_is_refused_and_the_others_go_on() {
    let said = all_by_hand("duplicate", 60_000, &[(1, 2), (1, 2), (0, 2)], "open_and_stay");
    let refused =
        said.iter().filter(|text| text.contains("DTL_ERROR_ALREADY_EXISTS: process")).count();
    let opened = said.iter().filter(|text| text.contains("case passed")).count();
    assert_eq!((refused, opened), (1, 2), "{said:?}");
    assert!(said[2].contains("case passed"));
}

#[test]
fn a_disagreement_on_the_size_is_told_to_all() {
    let said = all_by_hand("sizes", 5000, &[(0, 3), (1, 3), (2, 4)], "open_only");
    for text in &said {
        let told = "DTL_ERROR_INVALID_ARGUMENT: the ranks disagree on their number: rank 2 says 4, rank 0 says 3";
        assert!(text.contains(told), "{text}");
    }
}

#[test]
fn a_rank_that_dies_while_opening_is_told_to_all() {
    let attempt = |pause: u64| {
        let job = job(&format!("opening{pause}"));
        let zero = by_hand(&job, 0, 3, 30_000, "open_only");
        let mut one = by_hand(&job, 1, 3, 30_000, "open_only");
        std::thread::sleep(Duration::from_secs(pause));
        one.kill().expect("kill");
        one.wait().expect("reap");
        let said = text(&zero.wait_with_output().expect("ends"));
        assert!(said.contains("DTL_ERROR_"), "{said}");
        said.contains("DTL_ERROR_RANK_FAILURE: rank 1 ended")
    };
    // Before rank 1 is killed it must have told rank 0 who it is: on a busy machine that takes a while.
    assert!([1, 5, 20].into_iter().any(attempt), "rank 0 does not report the death");
}

/// Returns the name under which rank 0 of a job listens, computed as the library does.
fn meeting_of(job: &str) -> String {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
    let hash = [0_u8].into_iter().chain(job.bytes()).fold(0xCBF2_9CE4_8422_2325_u64, step);
    // SAFETY: geteuid cannot fail.
    let uid = unsafe { libc::geteuid() };
    format!("dtl-{uid}-{hash:016x}-open1")
}

#[test]
fn garbage_from_strangers_breaks_nothing() {
    let job = job("garbage");
    let zero = by_hand(&job, 0, 2, 60_000, "open_only");
    let address = SocketAddr::from_abstract_name(meeting_of(&job)).expect("name");
    let mut held = Vec::new();
    while held.len() < 200 {
        let Ok(mut stream) = UnixStream::connect_addr(&address) else { continue };
        match held.len() % 4 {
            0 => drop(stream.write_all(&[0xA5; 4096])),
            1 => drop(stream.write_all(b"GET / HTTP/1.0\r\n\r\n")),
            2 => drop(stream.shutdown(std::net::Shutdown::Both)),
            _ => {}
        }
        held.push(stream);
    }
    let one = by_hand(&job, 1, 2, 60_000, "open_only");
    for child in [zero, one] {
        let said = text(&child.wait_with_output().expect("ends"));
        assert!(said.contains("case passed"), "{said}");
    }
}

/// Returns the names that the library has left anywhere; all its names contain the hash of the job.
fn leftovers(job: &str) -> Vec<String> {
    let hash = meeting_of(job).trim_end_matches("-open1").to_string();
    let sockets = std::fs::read_to_string("/proc/net/unix").expect("sockets");
    let mut found: Vec<String> =
        sockets.lines().filter(|line| line.contains(&hash)).map(str::to_string).collect();
    for folder in ["/dev/shm", "/tmp", "/run"] {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        found.extend(names.filter(|name| name.contains(&hash)));
    }
    found
}

#[test]
fn nothing_is_left_behind_even_when_killed() {
    let job = job("leftover");
    let mut ranks: Vec<Child> =
        (0..2).map(|rank| by_hand(&job, rank, 2, 60_000, "open_and_hang")).collect();
    while leftovers(&job).len() < 2 {
        std::thread::sleep(Duration::from_millis(10));
    }
    for rank in &mut ranks {
        rank.kill().expect("kill");
        rank.wait().expect("reap");
    }
    assert_eq!(leftovers(&job), Vec::<String>::new());
}

/// Tests that all ranks fail if one rank cannot allocate its part after all have joined.
#[test]
fn a_failure_of_one_rank_is_one_of_all() {
    let job = job("one-rank");
    let filter = [("DTL_TEST_FORBID", "fallocate ENOSPC")];
    let start = |rank| {
        by_hand_with(&job, rank, 3, 10_000, "no_memory", if rank == 1 { &filter } else { &[] })
    };
    let ranks: Vec<Child> = (0..3).map(start).collect();
    let said = ranks.into_iter().map(|rank| text(&rank.wait_with_output().expect("ends")));
    let said: Vec<String> = said.collect();
    if said.iter().any(|said| said.contains("skipped: ")) {
        println!("{}", said.concat());
        return;
    }
    for (rank, said) in said.iter().enumerate() {
        let whose = if rank == 1 { "" } else { "rank 1: " };
        let expected = format!("DTL_ERROR_OUT_OF_MEMORY: {whose}memory for small collectives");
        assert!(said.contains(&expected), "{said}");
    }
}

#[test]
fn missing_memory_for_a_ring_is_a_status_of_the_send() {
    let job = job("no-ring");
    let ranks: Vec<Child> = (0..2).map(|rank| by_hand(&job, rank, 2, 60_000, "no_ring")).collect();
    for rank in ranks {
        let said = text(&rank.wait_with_output().expect("ends"));
        assert!(said.contains("case passed") || said.contains("skipped: "), "{said}");
    }
    assert_eq!(leftovers(&job), Vec::<String>::new());
}

#[test]
fn all_ranks_use_the_memory_of_all() {
    for ranks in [1, 2, 4] {
        passes(ranks, "parts", &[]);
    }
}

#[test]
fn memory_for_all_that_cannot_be_had_is_a_status() {
    let job = job("no-parts");
    let said = text(&by_hand(&job, 0, 1, 60_000, "no_parts").wait_with_output().expect("ends"));
    assert!(said.contains("case passed") || said.contains("skipped: "), "{said}");
    assert_eq!(leftovers(&job), Vec::<String>::new());
}

#[test]
fn ranks_die_with_their_launcher() {
    let mut command = Command::new(program("dtlrun"));
    command.args(["-n", "2"]).arg(exe());
    myself(&mut command).env("DTL_TEST_CASE", "open_and_hang").stdout(Stdio::null());
    let marker = format!("{}-{:?}", std::process::id(), Instant::now());
    let mut launcher = command.env("DTL_TEST_MARKER", &marker).spawn().expect("dtlrun starts");
    let count = || with_environment(&format!("DTL_TEST_MARKER={marker}"));
    while count() < 3 {
        std::thread::sleep(Duration::from_millis(10));
    }
    launcher.kill().expect("kill");
    launcher.wait().expect("reap");
    while count() > 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the number of processes whose environment has this entry.
fn with_environment(entry: &str) -> usize {
    let processes = std::fs::read_dir("/proc").expect("proc").flatten();
    let has = |path: std::path::PathBuf| {
        let environment = std::fs::read(path.join("environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|found| found == entry.as_bytes())
    };
    processes.filter(|process| has(process.path())).count()
}
