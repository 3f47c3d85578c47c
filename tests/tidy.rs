//! House rules as tests: each finding names the place, the violation and the remedy.
//!
//! Only rules that the text shows are checked here; the lints in Cargo.toml check the others.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Modules of `sys` with safe interfaces, which `runtime` may name.
const SYS_FOR_RUNTIME: &[&str] = &[
    "sync::lock",
    "sync::wait",
    "handles::epoch",
    "handles::handle_table",
    "handles::slot_map",
    "memory::buf",
    "memory::heap",
    "compute::callback",
    "compute::elements",
    "compute::team",
    "os::dl",
    "os::process",
];
/// Names that may occur only in `backend`.
const VENDORS: &[&str] = &[
    "cuda",
    "nccl",
    "opencl",
    "verbs",
    "rdma",
    "mpich",
    "openmpi",
    "nvidia",
    "shm::",
    "mpi::",
    "backend::host",
];
/// Files that may exceed the maximum length, with the reason. The list is empty and should stay
/// empty.
const LONG_FILES: &[(&str, &str)] =
    &[("mpi/dtl_mpi.c", "installed as source: a user compiles exactly one file")];
/// Headers that tools/header writes.
const GENERATED_HEADERS: [&str; 4] =
    ["include/dtl.h", "include/dtl_rdma.h", "include/dtl_select.h", "include/dtl_backend.h"];
const MAX_LINES: usize = 570;
/// Maximum length of test files, which are lists of cases and may be somewhat longer.
const MAX_TEST_LINES: usize = 670;

#[path = "tidy/budgets.rs"]
mod budgets;
#[path = "tidy/cpp.rs"]
mod cpp;
#[path = "tidy/entries.rs"]
mod entries;
#[path = "tidy/glossary.rs"]
mod glossary;
#[path = "tidy/imports.rs"]
mod imports;
#[path = "tidy/lists.rs"]
mod lists;
#[path = "tidy/locks.rs"]
mod locks;
#[path = "tidy/versions.rs"]
mod versions;

struct File {
    /// Path from the top of the tree, e.g. `src/sys/memory/buf.rs`.
    path: String,
    text: String,
}

impl File {
    /// Returns the lines with their numbers, without comments.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate().map(|(index, line)| (index + 1, line));
        lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    /// Returns true for a test: `tests.rs`, or a file in a folder `tests`.
    fn is_test(&self) -> bool {
        format!("/{}", self.path).contains("/tests/") || self.path.ends_with("/tests.rs")
    }

    fn is_in(&self, folder: &str) -> bool {
        self.path.starts_with(folder)
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn collect(folder: &Path, endings: &[&str], found: &mut Vec<File>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            collect(&path, endings, found);
        } else if endings.iter().any(|ending| name.ends_with(ending)) {
            let path_from_top = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
            found.push(File { path: path_from_top, text: fs::read_to_string(&path).unwrap() });
        }
    }
}

fn sources() -> Vec<File> {
    let mut found = Vec::new();
    collect(&root().join("src"), &[".rs"], &mut found);
    assert!(found.len() > 20, "src has only {} files: is the path right?", found.len());
    found
}

/// Returns the sources of the programs and of their shared crates.
fn programs() -> Vec<File> {
    let mut found = Vec::new();
    for name in ["dtl-bench", "dtl-ctk", "dtl-info", "dtlrun", "manual", "subprocess"] {
        let before = found.len();
        collect(&root().join("tools").join(name).join("src"), &[".rs"], &mut found);
        assert!(found.len() > before, "tools/{name}/src has no file: is the path right?");
    }
    found
}

/// Returns the sources of the library and its programs.
fn all_sources() -> Vec<File> {
    let mut found = sources();
    found.extend(programs());
    found
}

/// Returns all files that people write: code, scripts, documents.
fn all_texts() -> Vec<File> {
    let mut found = sources();
    let endings =
        [".rs", ".c", ".h", ".hpp", ".cpp", ".f90", ".sh", ".cmake", ".md", "CMakeLists.txt"];
    for folder in [
        "include",
        "tests",
        "tools",
        "bindings",
        "cmake",
        "docs",
        "benches",
        "examples-c",
        "examples-cpp",
        "examples-fortran",
        "examples-plugins",
        "mpi",
    ] {
        collect(&root().join(folder), &endings, &mut found);
    }
    found
}

fn report(findings: &[String]) {
    assert!(findings.is_empty(), "{} finding(s):\n{}", findings.len(), findings.join("\n"));
}

/// Reports a finding for each line of code for which `bad` returns one.
fn check_lines(files: &[File], bad: impl Fn(&File, &str) -> Option<String>) {
    let mut findings = Vec::new();
    for file in files {
        for (number, line) in file.code() {
            if let Some(why) = bad(file, line) {
                findings.push(format!("{}:{number}: {why}\n    {}", file.path, line.trim()));
            }
        }
    }
    report(&findings);
}

fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| {
        !is_part(line[..at].chars().next_back()) && !is_part(line[at + word.len()..].chars().next())
    })
}

#[test]
fn runtime_is_safe() {
    check_lines(&sources(), |file, line| {
        let found = file.is_in("src/runtime") && has_word(line, "unsafe");
        found
            .then(|| "unsafe in runtime: put it behind a safe face in sys or into a backend".into())
    });
}

/// Files that post operations into scratch memory, with the owner that keeps the memory until they
/// are complete.
const POSTS_SCRATCH: &[(&str, &str)] = &[
    ("runtime/comm/posted.rs", "Posted cancels them on drop, or leaks the memory"),
    ("runtime/comm/p2p/send_recv.rs", "Posted"),
    ("runtime/comm/diagnostics/hang_report/mod.rs", "Posted"),
    ("runtime/comm/coll/schedule/mod.rs", "Schedule leaks the memory while operations are pending"),
    ("runtime/comm/p2p/p2p_staging.rs", "Staged leaks the memory while the operation is pending"),
    ("runtime/comm/rma/active_messages/mod.rs", "Posted"),
    ("runtime/comm/rma/active_messages/origin.rs", "close cancels them, or leaks the memory"),
    ("runtime/comm/rma/active_messages/target.rs", "close cancels them, or leaks the memory"),
];

/// Checks that an early return between the posting of an operation and its completion cannot free
/// the memory that it uses.
#[test]
fn posted_memory_has_an_owner() {
    let posting = ["irecv(", "isend(", "receive_matched(", "start_recv(", "start_send("];
    let mut findings = Vec::new();
    let is_meant = |file: &&File| file.is_in("src/runtime/comm/") && !file.is_test();
    for file in sources().iter().filter(is_meant) {
        let has =
            |what: &str| file.code().any(|(_, line)| line.contains(what) && !line.contains("fn "));
        let is_known = POSTS_SCRATCH.iter().any(|(path, _)| file.path.ends_with(path));
        if has("Scratch::") && posting.iter().any(|call| has(call)) && !is_known {
            findings.push(format!("{}: posts into scratch memory: use posted::Posted", file.path));
        }
    }
    report(&findings);
}

#[test]
fn boolean_outputs_of_slots_are_checked() {
    check_lines(&sources(), |file, line| {
        let reads = ["done != 0", "yes != 0"].iter().any(|read| line.contains(read));
        let found = file.is_in("src/backend/vtable_backend") && reads;
        found.then(|| {
            "a slot's boolean output: `Owner::boolean` refuses what is neither 0 nor 1".into()
        })
    });
}

#[test]
fn runtime_names_no_backend() {
    check_lines(&sources(), |file, line| {
        let lower = line.to_lowercase();
        let vendor = VENDORS.iter().find(|vendor| lower.contains(*vendor))?;
        // A text for people may name what the environment sets.
        let found = file.is_in("src/runtime") && !line.contains('"');
        found.then(|| {
            format!("runtime names `{vendor}`: ask the backend through its traits instead")
        })
    });
}

#[test]
fn runtime_uses_only_safe_faces() {
    let mut findings = Vec::new();
    for file in sources().iter().filter(|file| file.is_in("src/runtime") && !file.is_test()) {
        // An import list may go over several lines.
        let code: String = file.code().map(|(_, line)| line.trim()).collect::<Vec<_>>().join(" ");
        for wrong in ["crate::ffi", "crate::backend"] {
            if code.contains(wrong) {
                findings.push(format!(
                    "{}: uses {wrong}: only error, abi and safe faces of sys",
                    file.path
                ));
            }
        }
    }
    for name in imports::Graph::read(sources().iter().filter(|f| !f.is_test()))
        .imports_from("runtime", "sys")
    {
        // A folder, or a module inside one of these.
        let module = name.trim_start_matches("sys::");
        if !SYS_FOR_RUNTIME
            .iter()
            .any(|listed| module.starts_with(listed) || listed.starts_with(&format!("{module}::")))
        {
            findings.push(format!("runtime uses {name}: only {SYS_FOR_RUNTIME:?} are for it"));
        }
    }
    report(&findings);
}

/// Checks that programs use the library as programs of users do, and everything else through listed
/// items.
#[test]
fn programs_use_the_c_interface() {
    check_lines(&programs(), |_, line| {
        let mut names = line.match_indices("dtl::").filter(|(at, _)| {
            let before = &line[..*at];
            let is_in_text = before.matches('"').count() % 2 == 1;
            !is_in_text && !before.ends_with(|c: char| c.is_alphanumeric() || c == '_')
        });
        let is_other = names.any(|(at, _)| !line[at..].starts_with("dtl::tooling"));
        is_other.then(|| {
            "a program names the library's modules: use dtl_sys, or add to src/tooling.rs why not"
                .into()
        })
    });
}

#[test]
fn only_ffi_exports() {
    check_lines(&all_sources(), |file, line| {
        let found = line.contains("no_mangle") || line.contains("export_name");
        (found && !file.is_in("src/ffi"))
            .then(|| "an exported symbol outside of ffi: move the entry to src/ffi".into())
    });
}

/// Checks that texts are read by dtl::detail::text_of only: a length that a C function reports is
/// easily mistaken for a text that it has written.
#[test]
fn texts_of_dtl_hpp_come_through_text_of() {
    let mut files = Vec::new();
    collect(&root().join("include"), &[".hpp"], &mut files);
    check_lines(&files, |file, line| {
        let found = line.contains("DTL_ERROR_BUFFER_TOO_SMALL") || line.contains("nullptr, 0, &");
        (found && file.path != "include/dtl/error.hpp")
            .then(|| "fetch the text with detail::text_of".into())
    });
}

/// Checks that the test of struct sizes covers every struct of the header that callers pass.
#[test]
fn every_versioned_struct_is_tried_with_every_size() {
    // Filled in by the library, by a plugin's entry, for the host's table, read by a backend (the tests in `from_c` cover
    // them), and a status.
    const OTHERS: [&str; 5] = ["TRACE_EVENT", "PLUGIN", "TRACE_SPAN", "RDMA_CONFIG", "ERROR"];
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let cases = read("tests/c/test_struct_size.c");
    let header = GENERATED_HEADERS.map(read).concat();
    let defined =
        header.lines().filter_map(|line| line.strip_prefix("#define DTL_")?.split_once("_INIT"));
    let missing: Vec<String> = defined
        .map(|(name, _)| name)
        .filter(|name| !OTHERS.contains(name) && !cases.contains(&format!("    X({name}, ")))
        .map(|name| format!("tests/c/test_struct_size.c: give DTL_{name}_INIT a line in ALL"))
        .collect();
    assert!(header.matches("_INIT").count() > 40);
    report(&missing);
}

#[test]
fn foreign_calls_stay_below() {
    let below = ["src/backend", "src/sys", "tools/subprocess", "tools/dtl-ctk/src/kit/malloc.rs"];
    check_lines(&all_sources(), |file, line| {
        let block = line.trim_start().starts_with("unsafe extern \"C\" {");
        let foreign = block || calls_libc(line);
        let allowed = below.iter().any(|folder| file.is_in(folder));
        (foreign && !allowed).then(|| {
            "a foreign call outside of backend and sys: give sys (tools/subprocess) a safe face"
                .into()
        })
    });
}

/// Returns true for `libc::name(...)` or an import. Constants (`libc::SIGTERM`) are data.
fn calls_libc(line: &str) -> bool {
    let calls = |rest: &str| {
        let name =
            rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
        rest[name.len()..].starts_with('(')
    };
    line.contains("use libc") || line.split("libc::").skip(1).any(calls)
}

#[test]
fn files_are_short() {
    let mut findings = Vec::new();
    for file in all_texts() {
        let lines = file.text.lines().count();
        let path = file.path.as_str();
        let is_header = GENERATED_HEADERS.contains(&path);
        let generated = is_header
            || path == "bindings/rust/dtl-sys/src/items.rs"
            || path == "bindings/python/raw/cdef.h"
            || path == "bindings/fortran/dtl_c.f90"
            || path == "bindings/fortran/dtl.f90"
            || path == "docs/explanation/performance.md";
        let known = LONG_FILES.iter().any(|(path, _)| *path == file.path);
        let limit = if file.is_test() { MAX_TEST_LINES } else { MAX_LINES };
        if lines > limit && !generated && !known {
            findings.push(format!("{}: {lines} lines; split it (limit {limit})", file.path));
        }
    }
    report(&findings);
}

#[test]
fn files_say_what_they_are() {
    let mut findings = Vec::new();
    for file in all_texts() {
        let mut text = file.text.trim_start();
        if text.starts_with("#!/") {
            text = text.split_once('\n').map_or("", |(_, rest)| rest);
        }
        let start = if file.path.ends_with(".rs") {
            &["//!"][..]
        } else {
            &["/*", "//", "! ", "# ", "#ifdef", "<!--"][..]
        };
        if !start.iter().any(|start| text.starts_with(start)) {
            findings.push(format!(
                "{}: begin with a comment: what it is, what it is not, where next",
                file.path
            ));
        }
    }
    report(&findings);
}

/// Files that git tracks have names that people choose: a mistyped redirection of a script creates
/// others, and `git add -A` adds them.
#[test]
fn file_names_are_words() {
    let listed = Command::new("git").arg("-C").arg(root()).args(["ls-files", "-z"]).output();
    let names = listed.map(|output| output.stdout).unwrap_or_default(); // empty in an archive
    let names = String::from_utf8_lossy(&names);
    let is_word = |name: &str| {
        name.starts_with(|first: char| first.is_ascii_alphabetic() || "._".contains(first))
    };
    // Error reports, decision records and pages of machines begin with a number.
    let may_be_number = ["docs/", "proptest-regressions/"];
    let odd = names.split_terminator('\0').filter(|path| {
        !may_be_number.iter().any(|folder| path.starts_with(folder))
            && !path.split('/').all(is_word)
    });
    let findings: Vec<_> = odd.map(|path| format!("{path}: is this file meant?")).collect();
    report(&findings);
}

#[test]
fn nothing_is_left_to_do() {
    let marks = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("X", "XX"),
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
    ];
    let mut findings = Vec::new();
    for file in all_texts() {
        for (index, line) in file.text.lines().enumerate() {
            if let Some(mark) = marks.iter().find(|mark| has_word(line, mark.trim_end_matches('(')))
            {
                findings.push(format!(
                    "{}:{}: {mark}: do it, or open an issue",
                    file.path,
                    index + 1
                ));
            }
        }
    }
    report(&findings);
}

/// Checks for deprecated items, because the lints run with a pinned compiler, which does not report
/// what newer compilers deprecate.
#[test]
fn nothing_is_deprecated() {
    check_lines(&all_sources(), |_, line| {
        line.contains(".fetch_update(")
            .then(|| "deprecated since Rust 1.99: use sys::sync::AtomicUpdate".into())
    });
}

/// Returns true for an assertion that an elapsed time is short.
fn bounds_time(line: &str) -> bool {
    let is_assertion = line.contains("assert!(") || line.contains("CHECK(");
    let clocks = ["elapsed() <", "now_ms() - ", "now_us() - ", "now_ns() - ", "seconds() - "];
    let is_short = |clock: &str| {
        line.split_once(clock).is_some_and(|(_, rest)| clock.ends_with('<') || rest.contains(" < "))
    };
    is_assertion && clocks.into_iter().any(is_short)
}

#[test]
fn tests_do_not_bound_time() {
    let mut files = sources();
    for folder in ["tests", "tools"] {
        collect(&root().join(folder), &[".rs", ".c", ".h", ".cpp", ".hpp"], &mut files);
    }
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.path != "tests/tidy.rs") {
        for (index, line) in file.text.lines().enumerate().filter(|(_, line)| bounds_time(line)) {
            findings.push(format!(
                "{}:{}: fails on a busy machine: order events, see CONTRIBUTING.md\n    {}",
                file.path,
                index + 1,
                line.trim()
            ));
        }
    }
    report(&findings);
}

#[test]
fn tidy_sees_what_it_looks_for() {
    let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
    let code = file("src/runtime/x.rs", "//! x\nlet a = 1; // unsafe\n// unsafe");
    assert_eq!(code.code().count(), 1);
    assert_eq!(entries::name_passed("    Entry(\"dtl_a\").call(|inside| {"), Some("dtl_a"));
    assert!(calls_libc("libc::kill(pid, libc::SIGTERM)") && !calls_libc("let a = libc::SIGTERM;"));
    let locks = file(
        "src/a.rs",
        "pub(super) static A: Mutex<u8> = Mutex::new(0);\n    static B: OnceLock<u8> =\nlet c: Mutex<u8>;",
    );
    assert_eq!(locks::static_locks(&locks), ["a.rs A", "a.rs B"]);
    assert!(
        bounds_time("CHECK(now_ms() - began < 2000);")
            && bounds_time("assert!(start.elapsed() < LIMIT);")
    );
    assert!(
        !bounds_time("CHECK(now_ms() - began >= 29);")
            && !bounds_time("while start.elapsed() < LIMIT {")
    );
    assert!(has_word("unsafe {", "unsafe") && !has_word("unsafe_code", "unsafe"));
}
