//! Tests of plugin files from the user's point of view: the probe's report on bad plugins, plugins
//! built with other versions of the headers, the installed plugin folder, manifests, and programs
//! with elevated privileges. The C interface is tested in tests/c/test_plugin*.c.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking and speaks to its reader"
)]

#[path = "../../../tests/common/programs.rs"]
mod programs;

use programs::program;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Folder that only this user can write to, whatever the permissions of the build folder; removed
/// at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("dtl-plugins-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        let folder = Folder(fs::canonicalize(path).unwrap());
        folder.open_to_read(&folder.0);
        folder
    }

    fn open_to_read(&self, path: &Path) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn below(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(&path).unwrap();
        path.ancestors()
            .take_while(|above| *above != self.0)
            .for_each(|above| self.open_to_read(above));
        path
    }

    /// Compiles the file `source` from tests/plugins to the file `name` in this folder.
    fn plugin(&self, name: &str, source: &str, arguments: &[&str]) -> PathBuf {
        let file = self.0.join(name);
        let mut compiler = Command::new(if arguments.contains(&"c++") { "c++" } else { "cc" });
        compiler.args(["-O1", "-fPIC", "-shared", "-fvisibility=hidden"]).args(arguments).arg("-I");
        compiler
            .arg(root().join("include"))
            .arg(root().join("tests/plugins").join(source))
            .arg("-o")
            .arg(&file);
        let output = compiler.output().expect("a C compiler (apt-get install gcc)");
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        self.open_to_read(&file);
        file
    }

    /// Copies libdtl.so to prefix/lib in this folder, also as libdtl.so.0.2.
    fn install_library(&self) {
        let test = std::env::current_exe().unwrap();
        let near = test.parent().unwrap();
        let library = [near.join("libdtl.so"), near.parent().unwrap().join("libdtl.so")];
        let library =
            library.into_iter().find(|path| path.exists()).expect("cargo builds libdtl.so");
        let lib = self.below("prefix/lib");
        for name in ["libdtl.so", "libdtl.so.0.2"] {
            fs::copy(&library, lib.join(name)).unwrap();
        }
    }

    /// Compiles a program that uses the library in prefix/lib.
    fn program(&self, source: &Path) -> PathBuf {
        let (program, lib) = (self.0.join("main"), self.0.join("prefix/lib"));
        let mut cc = Command::new("cc");
        cc.arg("-I")
            .arg(root().join("include"))
            .arg(source)
            .arg("-o")
            .arg(&program)
            .arg("-L")
            .arg(&lib);
        cc.args(["-ldtl", "-pthread"]).arg(format!("-Wl,-rpath,{}", lib.display()));
        assert!(cc.status().unwrap().success());
        program
    }

    fn bad(&self, fault: &str) -> PathBuf {
        self.plugin(&format!("{fault}.so"), "bad.c", &[&format!("-D{fault}")])
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn run(program: &Path, arguments: &[&str], path: Option<&Path>) -> Output {
    command(program, path).args(arguments).output().expect("it starts")
}

/// Returns a command whose environment does not contain any variables of the library or of a
/// launcher, except DTL_PLUGIN_PATH if `path` is given.
fn command(program: &Path, path: Option<&Path>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if ["DTL_", "OMPI_", "PMI", "SLURM_"]
            .iter()
            .any(|prefix| name.to_string_lossy().starts_with(prefix))
        {
            command.env_remove(name);
        }
    }
    if let Some(path) = path {
        command.env("DTL_PLUGIN_PATH", path);
    }
    command
}

fn info(arguments: &[&str], path: Option<&Path>) -> Output {
    run(Path::new(env!("CARGO_BIN_EXE_dtl-info")), arguments, path)
}

fn json(arguments: &[&str], path: Option<&Path>) -> Value {
    let output = info(arguments, path);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Runs `dtl-info --probe` on a plugin file. Returns its exit status and its one line of output.
fn probe(file: &Path) -> (i32, String) {
    let output = info(&["--probe", file.to_str().unwrap(), "--time-limit", "20s"], None);
    let line = String::from_utf8(output.stdout).unwrap();
    assert_eq!(line.lines().count(), 1, "one line: {line}");
    (output.status.code().unwrap(), line)
}

#[test]
fn a_crash_is_a_line_that_says_where() {
    let folder = Folder::new();
    let cases = [
        ("CRASH_IN_CONSTRUCTOR", "in the dynamic loader"),
        ("CRASH_IN_ENTRY", "in its entry"),
        ("CRASH_IN_LOAD", "in its load"),
        ("CRASH_WHEN_ASKED", "in is_available of bad"),
    ];
    for (fault, place) in cases {
        let (status, line) = probe(&folder.bad(fault));
        assert!(status == 3 && line.starts_with("crashed "), "{status} {line}");
        assert!(line.contains("killed by signal 11 (SIGSEGV)") && line.contains(place), "{line}");
    }
    let (status, line) = probe(&folder.bad("EXIT_IN_LOAD"));
    assert!(
        status == 3 && line.contains("ended the process with exit status 0, in its load"),
        "{status} {line}"
    );
    let report =
        json(&["--json", "--probe", folder.0.join("CRASH_IN_LOAD.so").to_str().unwrap()], None);
    assert_eq!(
        (&report["result"], &report["signal"], &report["step"]),
        (&"crashed".into(), &11.into(), &"its load".into())
    );
}

#[test]
fn a_crash_leaves_no_core_dump() {
    let folder = Folder::new();
    let (crashing, telling) = (folder.bad("CRASH_IN_LOAD"), folder.bad("TELLS_CORE_LIMIT"));
    let here = folder.below("here");
    let probe = |file: &Path| {
        let mut command = command(Path::new("sh"), None);
        let limit = "ulimit -S -c $(ulimit -H -c); exec \"$0\" --probe \"$1\"";
        command.args(["-c", limit, env!("CARGO_BIN_EXE_dtl-info")]).arg(file).current_dir(&here);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert!(probe(&crashing).starts_with("crashed "));
    // Where the kernel writes dumps to the current folder there is none …
    assert_eq!(fs::read_dir(&here).unwrap().count(), 0);
    // … and where it pipes them to a program the limit of 1 forbids that.
    let line = probe(&telling);
    let allowed = ["cores of 1 bytes, at most 1", "cores of 0 bytes, at most 0"];
    assert!(allowed.iter().any(|text| line.contains(text)), "{line}");
}

#[test]
fn a_hang_ends_at_the_time_limit() {
    let folder = Folder::new();
    for (fault, place) in [("HANG_IN_ENTRY", "in its entry"), ("HANG_IN_LOAD", "in its load")] {
        let file = folder.bad(fault);
        let output = info(&["--probe", file.to_str().unwrap(), "--time-limit", "500ms"], None);
        let line = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(4), "{line}");
        assert!(
            line.starts_with("hung ") && line.contains("500ms") && line.contains(place),
            "{line}"
        );
    }
    let output = info(&["--probe", "--time-limit", "2s", "x"], None);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains("Usage: dtl-info --probe FILE [--time-limit TIME], for example:"),
        "{text}"
    );
    let output = info(&["--probe", "x", "--time-limit", "soon"], None);
    assert!(output.status.code() == Some(2) && !output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_refusal_has_the_reason_and_a_good_one_its_backends() {
    let folder = Folder::new();
    let (status, line) = probe(&folder.bad("TOO_NEW"));
    assert!(status == 1 && line.starts_with("refused "), "{status} {line}");
    assert!(line.contains("it speaks ABI versions 4 to 5, this library 2 to 2"), "{line}");
    let good = folder.plugin("good.so", "good.c", &["-std=c11", "-D_POSIX_C_SOURCE=200809L"]);
    let (status, line) = probe(&good);
    let expected =
        format!("ok       {}: good 1.2, ABI 2: good (memory), good-too (memory)\n", good.display());
    assert_eq!((status, line), (0, expected));
    let cpp = folder.plugin(
        "cpp.so",
        "good.c",
        &["-x", "c++", "-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror"],
    );
    assert_eq!(probe(&cpp).0, 0);
}

#[test]
fn a_crash_at_the_end_is_seen_by_probe_and_kit() {
    let folder = Folder::new();
    let file = folder.bad("ABORT_AT_END");
    let (status, line) = probe(&file);
    assert!(
        status == 3 && line.contains("signal 6 (SIGABRT), in the end of the process"),
        "{status} {line}"
    );
    let output = run(
        &program("dtl-ctk"),
        &["run", "--only", "device.*", "--plugin", file.to_str().unwrap()],
        None,
    );
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("behind it, at the end of the process, crashed: signal 6"), "{text}");
}

#[test]
fn who_closes_what_is_not_its_own() {
    let folder = Folder::new();
    let (status, line) = probe(&folder.plugin("three.so", "bad.c", &["-DCLOSES_UP_TO=3"]));
    assert!(status == 0 && line.contains(": bad, ABI 2: bad (device)"), "{status} {line}");
    let (status, line) = probe(&folder.plugin("all.so", "bad.c", &["-DCLOSES_UP_TO=1024"]));
    let expected = "it closed descriptors that are not its own, in its load";
    assert!(status == 3 && line.contains(expected), "{status} {line}");
}

#[test]
fn texts_of_a_plugin_are_lines() {
    let folder = Folder::new();
    let file = folder.bad("ODD_TEXTS");
    let (status, line) = probe(&file);
    assert!(status == 0 && line.contains(": bad 1 2, ABI 2: bad (device)"), "{status} {line}");
    let report = json(&["--json", "--probe", file.to_str().unwrap()], None);
    assert_eq!(report["plugin"]["description"], "a bell   [31m and more");
}

#[test]
fn an_exception_out_of_load_is_a_crash_and_out_of_a_slot_is_named() {
    let folder = Folder::new();
    let file =
        folder.plugin("throws.so", "bad.c", &["-x", "c++", "-std=c++17", "-DTHROWS", "-lstdc++"]);
    let (status, line) = probe(&file);
    assert!(status == 3 && line.contains("in its load"), "{status} {line}");
    folder.plugin("throws.so", "bad.c", &["-x", "c++", "-DTHROWS_IN_SLOT", "-lstdc++"]);
    let text = String::from_utf8(info(&[], Some(&folder.0)).stderr).unwrap();
    assert!(text.contains("backend bad: an exception left device.count"), "{text}");
    let file =
        folder.plugin("throws.so", "bad.c", &["-x", "c++", "-DTHROWS_IN_DESTROY", "-lstdc++"]);
    let text = String::from_utf8(info(&["--probe", file.to_str().unwrap()], None).stderr).unwrap();
    assert!(text.contains("backend bad: an exception left destroy"), "{text}");
}

#[test]
fn a_file_is_named_before_anything_of_it_runs() {
    let folder = Folder::new();
    let file = folder.bad("CRASH_IN_CONSTRUCTOR");
    let output = command(Path::new(env!("CARGO_BIN_EXE_dtl-info")), Some(&folder.0))
        .env("DTL_LOG", "debug")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code().is_none() && text.contains(&format!("loading {}", file.display())),
        "{text}"
    );
}

#[test]
fn an_unknown_name_says_where_plugins_are_searched_for() {
    let folder = Folder::new();
    let good = folder.plugin("good.so", "good.c", &["-std=c11", "-D_POSIX_C_SOURCE=200809L"]);
    let dtl_info = Path::new(env!("CARGO_BIN_EXE_dtl-info"));
    let output = command(dtl_info, Some(&folder.0)).env("DTL_BACKEND", "zeta").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains(&format!("searched for in DTL_PLUGIN_PATH ({}) and /", folder.0.display())),
        "{text}"
    );
    assert!(
        text.contains(&format!("plugins that are loaded: {} (good, good-too)", good.display())),
        "{text}"
    );
}

/// Checks that dtl-info does not run any code from a shared library that is in the plugin search
/// path but is not a plugin.
#[test]
fn what_is_no_plugin_is_not_even_loaded() {
    let folder = Folder::new();
    folder.plugin("libother.so", "bad.c", &["-DNO_ENTRY", "-DCRASH_IN_CONSTRUCTOR"]);
    let output = info(&["--json"], Some(&folder.0));
    let all: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    assert!(
        all["plugins"][0]["reason"].as_str().unwrap().contains("it exports no dtl_plugin_entry_v1"),
        "{all:#}"
    );
}

#[test]
fn a_plugin_links_nothing_of_ours() {
    let folder = Folder::new();
    let good = folder.plugin("good.so", "good.c", &[]);
    let output = Command::new("nm")
        .args(["-D", "--undefined-only"])
        .arg(&good)
        .output()
        .expect("nm (binutils)");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("posix_memalign") && !text.contains("dtl_"), "{text}");
}

/// Compiles the valid plugin `good.c` with modified headers. `change` gets their texts as one.
fn with_header(folder: &Folder, name: &str, change: impl Fn(String) -> String) -> PathBuf {
    const HEADERS: [&str; 4] = ["dtl.h", "dtl_rdma.h", "dtl_select.h", "dtl_backend.h"];
    let include = folder.below(&format!("include-{name}"));
    let read = |file| fs::read_to_string(root().join("include").join(file)).unwrap();
    let header = HEADERS.map(read).join("\x0c");
    let changed = change(header.clone());
    assert_ne!(header, changed, "the header has changed: adapt this test");
    for (file, text) in HEADERS.iter().zip(changed.split('\x0c')) {
        fs::write(include.join(file), text).unwrap();
    }
    folder.plugin(&format!("{name}.so"), "good.c", &["-I", include.to_str().unwrap()])
}

const ISEND: &str = "    dtl_status_t (*isend)(";
const LAST: &str = "    dtl_status_t (*mem_deregister)(";

#[test]
fn a_header_with_another_layout_is_refused_by_struct_and_field() {
    let folder = Folder::new();
    let inserted = |header: String| header.replace(ISEND, &format!("    void *intruder;\n{ISEND}"));
    let (status, line) = probe(&with_header(&folder, "inserted", inserted));
    assert_eq!(status, 1, "{line}");
    let text = "dtl_comm_vtable_t.isend lies at offset 40 (8 bytes) in the plugin and at 32 (8 bytes) in this library";
    assert!(line.contains(text), "{line}");
}

/// Replaces the string `from` in the header with `to`. Panics if the header does not contain
/// `from`.
fn swap(header: &str, from: &str, to: &str) -> String {
    assert!(header.contains(from), "the header has no `{from}` any more: adapt this test");
    header.replace(from, to)
}

/// Returns the part of the header from the first occurrence of `begins` to the end of the next
/// occurrence of `ends`.
fn piece<'a>(header: &'a str, begins: &str, ends: &str) -> &'a str {
    let begin = header.find(begins).expect("the header has changed: adapt this test");
    let end = header[begin..].find(ends).expect("the header has changed: adapt this test");
    &header[begin..begin + end + ends.len()]
}

/// Returns the header with one field appended to (`step` 1) or removed from (`step` -1) the end of
/// the struct `dtl_comm_vtable_t`.
fn resized(header: &str, step: i32) -> String {
    let init = piece(header, "#define DTL_COMM_VTABLE_INIT", "}\n");
    let last = piece(header, LAST, ");\n");
    let count =
        header.split("#define DTL_LAYOUT_COUNT ").nth(1).unwrap().split('u').next().unwrap();
    let rows = count.parse::<i32>().unwrap() + step;
    let header =
        swap(header, &format!("DTL_LAYOUT_COUNT {count}u"), &format!("DTL_LAYOUT_COUNT {rows}u"));
    let row = "DTL_LAYOUT_FIELD(dtl_comm_vtable_t, mem_deregister),";
    if step < 0 {
        let header = swap(&swap(&header, row, ""), last, "");
        return swap(&header, init, &swap(init, ", NULL}", "}"));
    }
    let header = swap(&header, row, &format!("{row} DTL_LAYOUT_FIELD(dtl_comm_vtable_t, probe),"));
    let header = swap(&header, last, &format!("{last}    void *probe;\n"));
    let header = swap(&header, init, &swap(init, ", NULL}", ", NULL, NULL}"));
    swap(&header, "DTL_ABI_VERSION 2u", "DTL_ABI_VERSION 3u")
}

#[test]
fn an_older_and_a_newer_header_pass() {
    let folder = Folder::new();
    let (status, line) = probe(&with_header(&folder, "older", |header| resized(&header, -1)));
    assert!(status == 0, "{line}");
    let (status, line) = probe(&with_header(&folder, "newer", |header| resized(&header, 1)));
    assert!(status == 0 && line.contains("ABI 2:"), "{line}");
}

#[test]
fn manifests_are_read_and_nothing_is_loaded() {
    let folder = Folder::new();
    // Loading it would end dtl-info.
    let file = folder.bad("CRASH_IN_CONSTRUCTOR");
    let manifest = "name = \"crasher\"\nfile = \"CRASH_IN_CONSTRUCTOR.so\"\nentry = \"dtl_plugin_entry_v1\"\n\
                    abi = [2, 2]\ncomponents = [\"device\"]\nenvironments = [\"openblas\"]\ndescription = \"crashes\"\n";
    fs::write(file.with_extension("dtl.toml"), manifest).unwrap();
    fs::write(folder.0.join("text.so"), "text").unwrap();
    fs::write(folder.0.join("text.dtl.toml"), "name = \"text\"\nabi = [7, 9]\n").unwrap();
    let all = json(&["--plugins", "--json"], Some(&folder.0));
    let plugins = all["plugins"].as_array().unwrap();
    assert_eq!(plugins.len(), 2);
    assert_eq!(plugins[0]["manifest"]["name"], "crasher");
    assert_eq!(plugins[0]["manifest"]["abi"], serde_json::json!([2, 2]));
    assert_eq!(
        (&plugins[0]["fault"], &plugins[0]["origin"]),
        (&Value::Null, &"DTL_PLUGIN_PATH".into())
    );
    assert!(plugins[1]["fault"].as_str().unwrap().contains("no shared object"));
    assert_eq!(all["folders"][0]["fault"], Value::Null);
    let output = info(&["--plugins"], Some(&folder.0));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success()
            && text.contains("crasher: ABI 2 to 2; device; needs openblas; crashes"),
        "{text}"
    );
    // One beside a good file that cannot go with this library.
    folder.plugin("far.so", "good.c", &[]);
    fs::write(folder.0.join("far.dtl.toml"), "name = \"far\"\nabi = [7, 9]\n").unwrap();
    let all = json(&["--plugins", "--json"], Some(&folder.0));
    let far = all["plugins"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["manifest"]["name"] == "far")
        .unwrap();
    assert!(far["fault"].as_str().unwrap().contains("ABI versions 7 to 9"), "{far}");
}

#[test]
fn the_report_shows_what_was_loaded_and_what_was_not() {
    let folder = Folder::new();
    folder.plugin("good.so", "good.c", &[]);
    folder.plugin("needy.so", "environment.c", &[]);
    folder.bad("ENTRY_FAILS");
    let output = info(&["--json"], Some(&folder.0));
    assert!(output.status.success(), "a bad plugin is no failure of the report: {output:?}");
    let warning = String::from_utf8(output.stderr).unwrap();
    assert!(
        warning.contains("dtl warning: plugin ") && warning.contains("no licence file"),
        "{warning}"
    );
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    let plugins = all["plugins"].as_array().unwrap();
    assert_eq!(
        (&plugins[0]["state"], &plugins[0]["status"]),
        (&"failed".into(), &"DTL_ERROR_UNAVAILABLE".into())
    );
    assert_eq!((&plugins[1]["state"], &plugins[1]["name"]), (&"loaded".into(), &"good".into()));
    let backends = all["backends"].as_array().unwrap();
    let good = backends.iter().find(|backend| backend["name"] == "good-too").unwrap();
    assert_eq!(good["plugin"], plugins[1]["path"]);
    // Of the kinds of memory also the one that the plugin has registered.
    let kinds: Vec<_> =
        good["memory_kinds"].as_array().unwrap().iter().map(|kind| &kind["kind"]).collect();
    assert_eq!(kinds, ["host", "good_Scratch"]);
    let environments = all["environments"].as_array().unwrap();
    let of = |name: &str| environments.iter().find(|one| one["name"] == name).unwrap();
    let (plug, programs) = (of("plug"), of("programs"));
    assert_eq!(
        (&plug["version"], &plug["state"], &plug["available"]),
        (&"2.10".into(), &"idle".into(), &true.into())
    );
    assert_eq!((&plug["depends"][0], &plug["backends"][0]), (&"plug.base".into(), &"needy".into()));
    assert_eq!((&programs["state"], &programs["available"]), (&"unknown".into(), &false.into()));
    let needy = backends.iter().find(|backend| backend["name"] == "needy").unwrap();
    for reason in [&programs["reason"], &needy["reason"]] {
        assert!(
            reason.as_str().unwrap().contains("environment programs is not registered"),
            "{reason}"
        );
    }
    let text = String::from_utf8(info(&[], Some(&folder.0)).stdout).unwrap();
    assert!(
        text.contains("loaded  good 1.2; backends good, good-too; host memory, for tests"),
        "{text}"
    );
    assert!(text.contains("failed  DTL_ERROR_UNAVAILABLE: its entry:"), "{text}");
    assert!(
        text.contains("Environments")
            && text.contains("programs: environment programs is not registered"),
        "{text}"
    );
}

#[test]
fn installed_plugins_are_found_wherever_the_prefix_is() {
    let folder = Folder::new();
    let (bin, backends) = (folder.below("prefix/bin"), folder.below("prefix/lib/dtl/backends"));
    let good = folder.plugin("good.so", "good.c", &[]);
    fs::rename(good, backends.join("libgood.so")).unwrap();
    // A program that the library is linked into …
    let program = bin.join("dtl-info");
    fs::copy(env!("CARGO_BIN_EXE_dtl-info"), &program).unwrap();
    let output = run(&program, &["--json"], None);
    let all: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    assert_eq!(
        (&all["plugins"][0]["origin"], &all["plugins"][0]["state"]),
        (&"installed".into(), &"loaded".into())
    );
    // … and one that loads libdtl.so, from elsewhere.
    folder.install_library();
    let source = folder.0.join("main.c");
    let text = "#include <dtl.h>\nint main(void) { dtl_backend_t b; DTL_CHECK(dtl_backend_get(\"good\", &b)); return 0; }\n";
    fs::write(&source, text).unwrap();
    let program = folder.program(&source);
    let output = run(&program, &[], None);
    assert!(output.status.success(), "{output:?}");
    // Taken away, it is not found, and the folder that is not there is no complaint.
    fs::remove_dir_all(folder.0.join("prefix/lib/dtl")).unwrap();
    let output = run(&program, &[], None);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("no backend is named \"good\""), "{said}");
    assert!(!said.contains("warning"), "{said}");
}

/// Creates a folder with one valid plugin and several invalid ones, and a program that probes them.
/// Returns the test folder, the program and the plugin folder.
fn to_be_probed() -> (Folder, PathBuf, PathBuf) {
    let folder = Folder::new();
    folder.install_library();
    let program = folder.program(&root().join("tests/plugins/probing.c"));
    let plugins = folder.below("plugins");
    for (name, source, fault) in [
        ("crash", "bad.c", "-DCRASH_IN_LOAD"),
        ("hang", "bad.c", "-DHANG_IN_ENTRY"),
        ("good", "good.c", "-DGOOD"),
    ] {
        let file = folder.plugin(&format!("{name}.so"), source, &[fault]);
        fs::rename(file, plugins.join(format!("{name}.so"))).unwrap();
    }
    fs::write(plugins.join("text.so"), "text").unwrap();
    folder.open_to_read(&plugins.join("text.so"));
    (folder, program, plugins)
}

#[test]
fn a_probing_program_outlives_plugins_that_crash_and_hang() {
    let (folder, program, plugins) = to_be_probed();
    fs::copy(env!("CARGO_BIN_EXE_dtl-info"), folder.below("prefix/bin").join("dtl-info")).unwrap();
    let crashing = plugins.join("crash.so");
    for how in ["plain", "ignore", "reap"] {
        let mut command = command(&program, Some(&plugins));
        let output =
            command.env("DTL_PLUGIN_PROBE", "3s").arg(how).arg(&crashing).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success(),
            "{how}: {said} {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let crash = "crash.so: the probe: crashed: killed by signal 11 (SIGSEGV), in its load";
        let hang = "hang.so: the probe: hung: no end within 3s, in its entry";
        assert_eq!(said.matches(crash).count(), 2, "{how}: {said}");
        assert!(
            said.contains(hang) && said.contains("text.so: it is no shared object"),
            "{how}: {said}"
        );
    }
    // dtl-info probes too if it is told to, and its probe does not probe.
    let mut command = command(&folder.0.join("prefix/bin/dtl-info"), Some(&plugins));
    let output = command.env("DTL_PLUGIN_PROBE", "3s").arg("--json").output().unwrap();
    let all: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    let outcome =
        |at: usize| (all["plugins"][at]["state"].as_str(), all["plugins"][at]["reason"].as_str());
    let crash = "the probe: crashed: killed by signal 11 (SIGSEGV), in its load";
    assert_eq!(outcome(0), (Some("failed"), Some(crash)));
    assert_eq!(outcome(1).0, Some("loaded"));
    assert_eq!(
        outcome(2),
        (Some("failed"), Some("the probe: hung: no end within 3s, in its entry"))
    );
}

#[test]
fn what_cannot_be_probed_is_not_loaded() {
    let (folder, program, plugins) = to_be_probed();
    let said = |variables: &[(&str, &str)]| {
        let mut command = command(&program, Some(&plugins));
        let output = command.envs(variables.iter().copied()).args(["plain", "x"]).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (status, text) = said(&[("DTL_PLUGIN_PROBE", "1")]);
    let bin = folder.0.join("prefix/lib/../bin/dtl-info");
    assert!(status == Some(1) && text.contains(&format!("finds no {}", bin.display())), "{text}");
    assert!(text.contains("good.so: ") && text.contains("or unset DTL_PLUGIN_PROBE"), "{text}");
    let (_, text) = said(&[("DTL_PLUGIN_PROBE", "1"), ("DTL_STRICT", "1")]);
    assert!(text.contains("refused because DTL_STRICT=1"), "{text}");
    // Something is there, and it is not what it should be.
    let bin = folder.below("prefix/bin").join("dtl-info");
    fs::copy("/bin/true", &bin).unwrap();
    let (status, text) = said(&[("DTL_PLUGIN_PROBE", "1")]);
    assert!(status == Some(1) && text.contains("dtl-info gave no verdict"), "{text}");
    fs::write(&bin, "no program").unwrap();
    let (status, text) = said(&[("DTL_PLUGIN_PROBE", "1")]);
    assert!(status == Some(1) && text.contains("it cannot be probed"), "{text}");
    let (status, text) = said(&[("DTL_PLUGIN_PROBE", "perhaps")]);
    assert!(status == Some(1) && text.contains("DTL_PLUGIN_PROBE=perhaps"), "{text}");
}
