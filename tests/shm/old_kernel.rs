//! Kernels that lack system calls, and filters that deny them (containers): DTL_TEST_FORBID makes the
//! calls fail.

use super::{by_hand_with, dtlrun, exe, job, leftovers, passes, program, text};
use std::process::{Child, Command};

/// System calls of Linux 3.2 and later that the library, its programs or the C library may use.
const NEWER: &str = "clone3 close_range copy_file_range faccessat2 membarrier openat2 pidfd_open \
                     pidfd_send_signal process_vm_readv process_vm_writev statx";

/// Before Linux 5.3 there are no pidfds. The tests forbid the call, as such a kernel does.
#[test]
fn a_kernel_without_pidfds() {
    let old = [("DTL_TEST_FORBID", "pidfd_open ENOSYS")];
    for (ranks, case) in [(3, "leave"), (2, "stopped"), (3, "reopen")] {
        passes(ranks, case, &old);
    }
    for case in ["killed_idle", "killed_in_send", "killed_while_receiving", "killed_while_taken"] {
        let output = dtlrun(4, case, &["--on-failure=continue"], &old);
        let text = text(&output);
        assert_eq!(output.status.code(), Some(137), "{case}: {text}");
        assert_eq!(text.matches("case passed").count(), 3, "{case}: {text}");
    }
}

#[test]
fn a_kernel_without_newer_calls() {
    let old = format!("{NEWER} getrandom ENOSYS");
    for (ranks, case) in [(2, "traffic"), (2, "threads"), (3, "leave"), (2, "any_source")] {
        passes(ranks, case, &[("DTL_TEST_FORBID", &old)]);
    }
}

/// A filter of a container answers ENOSYS or EPERM, from the start of each program. Not EPERM for
/// clone3: glibc would start no thread.
#[test]
fn programs_without_newer_calls() {
    let rank = format!("{} worker --exact --ignored --nocapture", exe().display());
    let commands = [
        format!("{} -n 2 {rank}", program("dtlrun").display()),
        format!("{} --json", program("dtl-info").display()),
        format!("{} run --kind shm --ranks 2 --only comm.p2p.small*", program("dtl-ctk").display()),
    ];
    for errno in ["ENOSYS", "EPERM"] {
        let calls = if errno == "EPERM" { NEWER.trim_start_matches("clone3 ") } else { NEWER };
        for command in &commands {
            let mut process = Command::new(exe());
            super::myself(&mut process).env("DTL_TEST_CASE", "program");
            process.env("DTL_TEST_FORBID", format!("{calls} {errno}"));
            // PoCL aborts the process if a filter answers EPERM for faccessat2.
            process.env("OCL_ICD_VENDORS", "/no/such/folder");
            let output = process.env("DTL_TEST_PROGRAM", command).output().expect("starts");
            let text = text(&output);
            assert!(output.status.success(), "{errno}: {command}: {text}");
        }
    }
}

/// Tests unavailable shared memory: every rank reports the reason, no rank is ended by a signal,
/// and nothing is left.
#[test]
fn missing_shared_memory_is_told_to_all() {
    let all = [
        (
            "memfd_create ENOSYS",
            "DTL_ERROR_UNAVAILABLE: kind \"shm\": no memory to share (memfd_create, Linux 3.17): \
             Function not implemented (os error 38); in a container, permit",
        ),
        (
            "memfd_create EPERM",
            "DTL_ERROR_UNAVAILABLE: kind \"shm\": no memory to share (memfd_create, Linux 3.17): \
             Operation not permitted (os error 1); in a container, permit",
        ),
        (
            "ftruncate ENOSPC",
            "DTL_ERROR_UNAVAILABLE: kind \"shm\": no memory to share (memfd_create): No space left",
        ),
        (
            "fallocate ENOSPC",
            "DTL_ERROR_OUT_OF_MEMORY: rank 0: allocating shared memory: No space left on device",
        ),
    ];
    for (filter, expected) in all {
        let job = job(&filter.replace(' ', "-"));
        let start =
            |rank| by_hand_with(&job, rank, 3, 60_000, "no_memory", &[("DTL_TEST_FORBID", filter)]);
        let ranks: Vec<Child> = (0..3).map(start).collect();
        for rank in ranks {
            let output = rank.wait_with_output().expect("ends");
            let said = text(&output);
            if said.contains("skipped: ") {
                println!("{said}");
                continue;
            }
            assert_eq!(output.status.code(), Some(3), "{filter}: {said}");
            assert!(said.contains(expected), "{filter}: {said}");
        }
        assert_eq!(leftovers(&job), Vec::<String>::new(), "{filter}");
    }
}
