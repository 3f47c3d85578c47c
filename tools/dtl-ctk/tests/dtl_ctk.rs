//! Command-line tests of dtl-ctk: exit statuses, shrinking and rerunning a failing test case; and
//! for named tests: lists and explanations, report files, expected failures, crashes and hangs.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::process::{Command, Output};
use std::time::Duration;

fn command(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dtl-ctk"));
    command.args(line.split_whitespace());
    command
}

fn run(line: &str) -> Output {
    command(line).output().expect("dtl-ctk starts")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs "dtl-ctk run" with these arguments; returns the exit status.
fn status(line: &str) -> Option<i32> {
    run(&format!("run {line}")).status.code()
}

#[test]
fn every_kind_passes() {
    for kind in ["threads", "minimal", "shm"] {
        let collectives =
            "bcast,allreduce,gatherv,alltoallv,scan,neighbor_alltoallv,p2p,probe,sendrecv";
        let output = run(&format!(
            "run --kind {kind} --ranks 3 --cases 100 --max-bytes 4KiB --only {collectives}"
        ));
        assert!(output.status.success(), "{kind}: {}", err(&output));
    }
    assert_eq!(status("--kind self --cases 100 --max-bytes 4KiB"), Some(0));
}

#[test]
fn a_failing_case_becomes_small_and_can_be_repeated() {
    let output = run("run --kind faulty --ranks 3 --cases 200 --max-bytes 64KiB");
    let text = err(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let command =
        text.lines().find_map(|line| line.strip_prefix("  dtl-ctk ")).expect("a command to repeat");
    assert!(command.contains("--shrink="), "{text}");
    let again = run(&format!("{command} --no-shrink"));
    assert_eq!(again.status.code(), Some(1), "{command}: {}", err(&again));
    // The bug is in messages of more than 1000 bytes: half of everything is fine.
    let halved = command.replace("--shrink=", "--shrink=h,");
    assert_eq!(run(&halved).status.code(), Some(0), "{halved}");
}

#[test]
fn wrong_words_and_missing_kinds_have_their_statuses() {
    assert_eq!(status("--kind self --ranks 2"), Some(2));
    assert_eq!(status("--kind shm --only broadcast"), Some(2));
    let output = run("run --kind carrier-pigeon --ranks 2 --cases 1");
    assert_eq!(output.status.code(), Some(3), "{}", err(&output));
    assert!(err(&output).contains("carrier-pigeon"), "{}", err(&output));
    assert_eq!(status("--kind self --cases 1 --digest /nowhere/there"), Some(3));
}

#[test]
fn kinds_have_the_same_digest() {
    let digest = |kind: &str| {
        let path = std::env::temp_dir().join(format!("dtl-ctk-test-{kind}-{}", std::process::id()));
        let file = path.to_string_lossy().into_owned();
        let only = "bcast,reduce,allgatherv,p2p,exscan";
        let output = run(&format!(
            "run --kind {kind} --ranks 3 --cases 50 --max-bytes 4KiB --only {only} --digest {file}"
        ));
        assert!(output.status.success(), "{kind}: {}", err(&output));
        let text = std::fs::read_to_string(&path).expect("a digest");
        std::fs::remove_file(path).expect("it is removed");
        text
    };
    let threads = digest("threads");
    assert_eq!(threads.lines().count(), 50);
    assert_eq!(threads, digest("shm"));
}

/// Temporary file of this test process, removed when this value is dropped.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new(name: &str, text: &str) -> Scratch {
        let path =
            std::env::temp_dir().join(format!("dtl-ctk-named-{name}-{}", std::process::id()));
        std::fs::write(&path, text).expect("a file");
        Scratch(path)
    }

    fn path(&self) -> String {
        self.0.to_string_lossy().into_owned()
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.0).expect("the file is there")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn tests_are_listed_and_explained() {
    let list = out(&run("list"));
    assert!(list.lines().count() >= 250, "{} tests", list.lines().count());
    let some = out(&run("list --component memory --only *.aligned_*"));
    assert!(
        some.lines().count() == 12 && some.lines().all(|line| line.starts_with("memory.")),
        "{some}"
    );
    let text = out(&run("explain exec.event.not_complete_early"));
    for part in ["checks", "slot", "exec.event_record", "the rule", "usually means"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert_eq!(run("explain exec.event.no_such_test").status.code(), Some(2));
    assert!(out(&run("list --cases")).contains("neighbor_alltoallv"));
}

#[test]
fn results_are_written_as_json_and_junit() {
    let (json, junit) = (Scratch::new("json", ""), Scratch::new("junit", ""));
    let (to, and) = (json.path(), junit.path());
    let output = run(&format!("run --backend null --only memory.host --json {to} --junit {and}"));
    assert_eq!(output.status.code(), Some(0), "{}{}", out(&output), err(&output));
    let results: serde_json::Value = serde_json::from_str(&json.text()).expect("JSON");
    let tests = results["tests"].as_array().expect("a list");
    assert!(tests.len() == 18 && tests.iter().any(|test| test["outcome"] == "pass"), "{results}");
    assert!(
        junit.text().contains("<testsuite name=\"dtl-ctk null\" tests=\"18\" failures=\"0\""),
        "{}",
        junit.text()
    );
}

/// The JSON of a report of these tests of backend sample, with the page on standard output.
fn report_of(file: &Scratch, options: &str) -> (Output, serde_json::Value) {
    let output = run(&format!("report --backend sample {options} --json {}", file.path()));
    let json = serde_json::from_str(&file.text()).expect("JSON");
    (output, json)
}

#[test]
fn a_report_has_results_machine_and_costs() {
    let file = Scratch::new("report", "");
    let (output, json) = report_of(&file, "--only memory.host,comm.p2p.one_byte_arrives --ranks 2");
    let text = out(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", err(&output));
    assert!(text.starts_with("# Conformance of sample\n"), "{text}");
    for part in ["\nmemory ", "| backend ", "| library ", "| machine: kernel ", "| device 0 "] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    assert!(json["passed"] == true && json["notes"] == serde_json::json!([]), "{json}");
    let costs = json["costs"].as_array().expect("a list");
    let names: Vec<_> = costs.iter().filter_map(|cost| cost["name"].as_str()).collect();
    for name in [
        "alloc and free, host, 4 KiB",
        "copy from host to host, 64 KiB",
        "launch of a task",
        "event, recorded and awaited",
        "message, 8 B",
        "message, 64 KiB",
        "allreduce, 8 B",
    ] {
        assert!(names.contains(&name), "no {name}: {names:?}");
    }
    let has = |key: &str| costs.iter().filter(|cost| cost[key].as_f64() > Some(0.0)).count();
    assert!(has("library_ns") == costs.len() && has("slot_ns") >= 5, "{json}");
}

#[test]
fn a_report_is_a_file_with_its_json_beside_it() {
    let folder = std::env::temp_dir().join(format!("dtl-ctk-report-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (page, json) = (folder.join("page.md"), folder.join("page.json"));
    let line = format!("report --backend null --only memory.host -o {}", page.display());
    let output = run(&line);
    assert_eq!((output.status.code(), out(&output)), (Some(0), String::new()), "{}", err(&output));
    assert!(std::fs::read_to_string(&page).unwrap().starts_with("# Conformance of null\n"));
    let same = run(&format!("compare {0} {0}", json.display()));
    assert_eq!(same.status.code(), Some(0), "{}{}", out(&same), err(&same));
    std::fs::remove_dir_all(&folder).unwrap();
    let output = run(&line);
    assert_eq!(output.status.code(), Some(3), "the folder is gone");
    assert!(err(&output).contains("page.md: No such file"), "{}", err(&output));
}

#[test]
fn reports_are_compared() {
    let (good, bad) = (Scratch::new("good", ""), Scratch::new("bad", ""));
    let only = "--only memory.host";
    assert_eq!(report_of(&good, only).0.status.code(), Some(0));
    let (output, _) = report_of(&bad, &format!("{only} --fault memory.kind_info.no_name"));
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    assert!(out(&output).contains("memory.host.named"), "{}", out(&output));
    let output = run(&format!("compare {} {}", good.path(), bad.path()));
    let text = out(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let row = text.lines().find(|line| line.contains("memory.host.named")).expect("a row");
    assert!(row.contains("pass") && row.contains("failed"), "{row}");
    assert!(text.contains("alloc and free, host"), "{text}");
    let (other, device) = (Scratch::new("other", ""), "--only device.count");
    assert_eq!(report_of(&other, device).0.status.code(), Some(0));
    let wrong = |first: &str, why: &str| {
        let output = run(&format!("compare {first} {}", good.path()));
        assert_eq!(output.status.code(), Some(2), "{first}: {}", out(&output));
        assert!(err(&output).contains(why), "{}", err(&output));
    };
    wrong(&other.path(), "no test in common");
    wrong("/no/such.json", "/no/such.json: No such file");
    wrong("/dev/zero", "/dev/zero: not a file");
    wrong(&Scratch::new("text", "hello").path(), "no JSON");
    wrong(&Scratch::new("list", "[]").path(), "not written by dtl-ctk report");
    wrong(&Scratch::new("next", "{\"dtl_ctk_report\": 7}").path(), "dtl_ctk_report 1 is missing");
    assert_eq!(run("report").status.code(), Some(2), "nothing to test");
    assert_eq!(run("report --kind self --cases 5").status.code(), Some(2));
}

#[test]
fn ranks_of_every_sort_run_named_tests() {
    for target in ["--kind self", "--kind threads", "--kind shm", "--backend sample"] {
        let output = run(&format!("run --only comm.match,comm.dup {target}"));
        let text = out(&output);
        assert_eq!(output.status.code(), Some(0), "{target}: {text}{}", err(&output));
        assert!(out(&output).contains("comm"), "{}", out(&output));
    }
}

#[test]
fn a_wrong_backend_fails_tests_by_name() {
    let output = run(
        "run --kind faulty --ranks 2 --only comm.p2p.one_byte_arrives,comm.p2p.sizes_around_4_kib",
    );
    let text = out(&output);
    assert_eq!(output.status.code(), Some(1), "{text}{}", err(&output));
    assert!(text.contains("FAIL     comm.p2p.sizes_around_4_kib: rank"), "{text}");
    assert!(!text.contains("FAIL     comm.p2p.one_byte_arrives"), "{text}");
}

#[test]
fn expected_failures_are_declared_with_reasons() {
    let only = "comm.p2p.sizes_around_4_kib,comm.p2p.one_byte_arrives";
    let from = |path: &str| run(&format!("run --kind faulty --only {only} --expect {path}"));
    let with = |text: &str| {
        let file = Scratch::new(&format!("expect-{}", text.len()), text);
        from(&file.path())
    };
    assert_eq!(
        with("\"comm.p2p.sizes_around_4_kib\" = \"its last byte is wrong\"").status.code(),
        Some(0)
    );
    let unexpected = with("\"comm.p2p.*\" = \"nothing works yet\"");
    assert_eq!(unexpected.status.code(), Some(1));
    assert!(
        out(&unexpected).contains("one_byte_arrives: it passed, but was expected to fail"),
        "{}",
        out(&unexpected)
    );
    assert_eq!(with("comm.p2p.sizes_around_4_kib = \"\"").status.code(), Some(2), "no reason");
    assert_eq!(with("comm.p2p.no_such_test = \"x\"").status.code(), Some(2), "no such test");
    let endless = from("/dev/zero");
    assert_eq!(endless.status.code(), Some(2), "{}", err(&endless));
    assert!(err(&endless).contains("/dev/zero: more than 1048576 bytes"), "{}", err(&endless));
}

#[test]
fn wrong_words_of_named_tests_have_their_statuses() {
    let output = run("run --backend no-such-backend");
    assert_eq!(
        (output.status.code(), err(&output).contains("no-such-backend")),
        (Some(3), true),
        "{}",
        err(&output)
    );
    assert_eq!(status(""), Some(2), "nothing to test");
    assert_eq!(status("--backend null --only memory.no_such_test"), Some(2));
    assert_eq!(status("--backend null --component memroy"), Some(2));
    assert_eq!(status("--backend null --kind shm"), Some(2), "two targets");
    assert_eq!(status("--component abi --json /nowhere/there"), Some(3));
    let mut left_over = command("run --backend null --only memory.host");
    left_over.env("DTL_RANK", "0");
    let output = left_over.output().expect("dtl-ctk starts");
    assert!(
        output.status.code() == Some(3) && err(&output).contains("unset DTL_RANK"),
        "{}",
        err(&output)
    );
}

#[test]
fn a_new_backend_has_nine_boxes() {
    let folder = std::env::temp_dir().join(format!("dtl-ctk-boxes-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder");
    let output = run(&format!("checklist {}", folder.display()));
    let text = out(&output);
    std::fs::remove_dir(&folder).expect("it is removed");
    assert_eq!((output.status.code(), text.lines().count()), (Some(1), 10), "{text}");
    assert!(text.ends_with("1 of 9 boxes\n"), "{text}");
    assert_eq!(run("checklist /nowhere/there").status.code(), Some(2));
}

#[test]
fn crashes_and_hangs_are_failures_of_one_test() {
    let with = |fault: &str| {
        let only = "comm.p2p.one_byte_arrives,comm.p2p.empty_message_arrives";
        let output =
            run(&format!("run -v --backend sample --fault {fault} --only {only} --timeout 2s"));
        assert_eq!(output.status.code(), Some(1), "{fault}: {}", err(&output));
        out(&output)
    };
    let wrong = out(&run("run --backend sample --fault memory.alloc.any_kind --only memory.alloc"));
    assert!(wrong.contains("FAIL     memory.alloc.unknown_kind_refused: "), "{wrong}");
    let crashed = with("comm.test.crashes");
    assert!(crashed.matches("crashed: signal 6").count() == 2, "{crashed}");
    let hung = with("comm.test.hangs");
    assert!(hung.matches("timed out after 2 s").count() == 2, "{hung}");
    assert_eq!(status("--backend sample --fault no.such.fault"), Some(2));
}

#[test]
fn the_slots_come_first_and_the_one_that_crashes_or_hangs_is_named() {
    for (component, fault, said) in [
        (
            "memory",
            "memory.alloc.crashes",
            "memory.slots.each_returns: memory.alloc crashed (signal 6)",
        ),
        // The other rank's slot may stand before it.
        ("comm", "comm.test.crashes", "comm.test (rank"),
        ("comm", "comm.test.hangs", "did not return within 3 s"),
        ("comm", "comm.test.odd_boolean", "comm.test wrote 2 into its boolean output"),
    ] {
        let output = run(&format!(
            "run --backend sample --fault {fault} --component {component} --timeout 3s"
        ));
        let text = out(&output);
        assert_eq!(output.status.code(), Some(1), "{text}{}", err(&output));
        assert_eq!(text.matches("FAIL").count(), 1, "{fault}: {text}");
        assert!(text.contains(said) && text.contains("\nnot run "), "{fault}: {text}");
    }
    // Without the first stage the place is known, too.
    let text = out(&run("run --backend sample --fault memory.alloc.crashes --only memory.host"));
    let said = "before the first test, memory.alloc in kind discovery crashed (signal 6)";
    assert!(text.contains(said) && text.matches("FAIL").count() == 1, "{text}");
}

#[test]
fn equal_failures_are_one_line_and_there_is_a_most_of_them() {
    let with = |more: &str| {
        let fault = "--fault memory.free.fails --only memory.host";
        let output = run(&format!("run --backend sample {fault} {more}"));
        assert_eq!(output.status.code(), Some(1), "{}", err(&output));
        out(&output)
    };
    let all = with("");
    assert!(all.contains(" more with the same text as memory.host."), "{all}");
    let first = with("--max-failures 1");
    assert!(
        first.matches("FAIL").count() == 1 && first.contains("1 failed (--max-failures)"),
        "{first}"
    );
    assert_eq!(status("--backend sample --max-failures 0"), Some(2));
}

#[test]
fn kernels_of_a_file_need_one() {
    assert_eq!(status("--backend sample --only exec.module --kernel add"), Some(2));
    let text = out(&run("run --backend sample --only exec.module --binary /nowhere/there"));
    assert!(text.contains("--binary /nowhere/there: No such file"), "{text}");
}

#[test]
fn a_report_that_cannot_be_written_is_no_success() {
    for line in [
        "list",
        "list --cases",
        "run --backend null --only memory.host",
        "run --kind self --cases 3",
    ] {
        let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        let code = |command: &mut Command| command.status().expect("it starts").code();
        assert_eq!(code(command(line).stdout(full())), Some(3), "{line}");
        assert_eq!(code(command(line).stdout(full()).stderr(full())), Some(3), "{line}");
        let (reader, writer) = std::os::unix::net::UnixStream::pair().expect("two ends");
        drop(reader); // as of `| head`
        let writer = std::os::fd::OwnedFd::from(writer);
        assert_eq!(code(command(line).stdout(writer)), Some(0), "{line}");
    }
}

/// Returns the number of processes whose command line contains `text`.
fn processes_with(text: &str) -> usize {
    let entries = std::fs::read_dir("/proc").expect("processes").flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(text)).count()
}

#[test]
fn who_ends_it_ends_its_ranks() {
    let cases = "run --kind shm --ranks 2 --cases 100000000";
    let named = "run --kind shm --ranks 2 --only comm.match --stress 100";
    for (number, line) in [("15", cases), ("15", named), ("9", cases)] {
        let folder =
            std::env::temp_dir().join(format!("dtl-ctk-ends-{}-{}", std::process::id(), number));
        std::fs::create_dir_all(&folder).expect("a folder");
        let place = folder.to_string_lossy().into_owned();
        let mut child = command(line).env("TMPDIR", &folder).spawn().expect("it starts");
        let soon = |what: &dyn Fn() -> bool| {
            while !what() {
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        // dtlrun and both ranks: the name of their file is one of their arguments.
        soon(&|| processes_with(&place) == 3);
        let sent =
            Command::new("kill").args([&format!("-{number}"), &child.id().to_string()]).status();
        assert!(sent.expect("kill").success());
        let ended = child.wait().expect("it ends");
        soon(&|| processes_with(&place) == 0);
        if number == "15" {
            assert_eq!(ended.code(), Some(143));
            let left = std::fs::read_dir(&folder).expect("its folder").count();
            assert_eq!(left, 0, "{line}: files are left");
        }
        std::fs::remove_dir_all(&folder).expect("it is removed");
    }
}
