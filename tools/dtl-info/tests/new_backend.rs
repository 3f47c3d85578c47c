//! Tests of `dtl-info new-backend`: its files compile without a warning, in C and C++, with gcc and
//! clang; the plugin loads and reports that it cannot run yet, except for the exec component, which
//! works as written; no file is overwritten.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking and speaks to its reader"
)]

#[path = "../../../tests/common/programs.rs"]
mod programs;

use programs::program;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const ALL: &str = "device,memory,transfer,exec,comm";

/// Folder of this test that only this user can write to; removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("dtl-new-backend-{}-{name}", std::process::id()));
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Folder(path)
    }

    fn dtl_info(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dtl-info"));
        command.current_dir(&self.0).env_remove("DTL_PLUGIN_PATH").args(arguments).output().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn sources(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    files.filter(|path| path.extension().is_some_and(|found| found == ending)).collect()
}

/// Compiles the sources in `folder` with strict warnings. Returns the path of the plugin, or `None`
/// if the compiler is not installed.
fn compile(compiler: &str, standard: &str, folder: &Path, ending: &str) -> Option<PathBuf> {
    let file = folder.join(format!("{compiler}.so"));
    let mut command = Command::new(compiler);
    command.args([
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        "-O2",
        "-fPIC",
        "-shared",
        "-fvisibility=hidden",
    ]);
    command.args([standard, "-DDTL_BACKEND_PRIORITY=(0)", "-pthread", "-I"]);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include"));
    let Ok(output) = command.args(sources(folder, ending)).arg("-o").arg(&file).output() else {
        println!("skipped: {compiler} is not installed");
        return None;
    };
    assert!(output.status.success(), "{compiler}: {}", said(&output));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    Some(file)
}

#[test]
fn the_template_compiles_and_loads() {
    let folder = Folder::new("loads");
    let languages = [
        ("c", "c", "-std=c11", ["gcc", "clang"]),
        ("c++", "cpp", "-std=c++17", ["g++", "clang++"]),
    ];
    for (language, ending, standard, compilers) in languages {
        let arguments = [
            "new-backend",
            "my-dev.2",
            "--components",
            ALL,
            "--language",
            language,
            "--dir",
            language,
        ];
        let output = folder.dtl_info(&arguments);
        assert!(output.status.success(), "{}", said(&output));
        for compiler in compilers {
            let Some(file) = compile(compiler, standard, &folder.0.join(language), ending) else {
                continue;
            };
            let probed = folder.dtl_info(&["--probe", file.to_str().unwrap()]);
            let said = said(&probed);
            let wanted = "my-dev.2 (device, memory, transfer, exec, comm; cannot run here: its slots are still";
            assert!(probed.status.success() && said.contains(wanted), "{compiler}: {said}");
        }
    }
}

/// Runs the conformance tests of the exec component. Kernels are those of a binary: a file, and the
/// name of a kernel that adds an int to each element.
fn conformance(plugin: &Path, binary: &Path) -> Output {
    let mut command = Command::new(program("dtl-ctk"));
    command.args(["run", "--component", "exec", "--kernel", "add", "--signature", "pi"]);
    command.arg("--plugin").arg(plugin).arg("--binary").arg(binary);
    command.output().unwrap()
}

#[test]
fn exec_works_as_written() {
    let folder = Folder::new("exec");
    for (language, ending, standard, compiler) in
        [("c", "c", "-std=c11", "gcc"), ("c++", "cpp", "-std=c++17", "g++")]
    {
        let arguments =
            ["new-backend", "queue", "--components", "exec", "--language", language, "--dir"];
        let written = folder.dtl_info(&[&arguments[..], &[language]].concat());
        assert!(written.status.success(), "{}", said(&written));
        assert!(said(&written).contains("It runs on host threads"), "{}", said(&written));
        let sources = folder.0.join(language);
        let Some(file) = compile(compiler, standard, &sources, ending) else { continue };
        let output = conformance(&file, &sources.join("builtin.bin"));
        assert!(output.status.success(), "{language}: {}", said(&output));
    }
}

/// Prints what the backend "ram" answers to a kernel without a signature and to launches that it
/// must refuse.
const REFUSED: &str = r#"
#include <dtl.h>
#include <stdio.h>

static void say(dtl_status_t status)
{
    printf("%s: %s\n", dtl_status_name(status), status == DTL_SUCCESS ? "" : dtl_last_error());
}

int main(void)
{
    dtl_backend_t ram;
    dtl_source_t source = DTL_SOURCE_INIT;
    dtl_launch_t launch = DTL_LAUNCH_INIT;
    dtl_module_t module;
    dtl_kernel_t kernel;
    dtl_stream_t stream;
    int32_t number = 0, *to = &number;
    const void *args[] = {&to, &number};
    const uint64_t sizes[] = {sizeof to, sizeof number};
    source.text = "ram:builtin";
    source.language = DTL_LANGUAGE_BINARY;
    DTL_CHECK(dtl_backend_get("ram", &ram));
    DTL_CHECK(dtl_stream_create(ram, 0, 0, &stream));
    DTL_CHECK(dtl_module_compile(ram, 0, &source, &module));
    say(dtl_kernel_get(module, "add", NULL, &kernel));
    DTL_CHECK(dtl_kernel_get(module, "add", "pi", &kernel));
    say(dtl_kernel_launch(stream, kernel, &launch, args, sizes, 1));
    launch.shared_bytes = 64;
    say(dtl_kernel_launch(stream, kernel, &launch, args, sizes, 2));
    DTL_CHECK(dtl_kernel_destroy(kernel));
    DTL_CHECK(dtl_module_destroy(module));
    DTL_CHECK(dtl_stream_destroy(stream));
    return 0;
}
"#;

/// Compiles and runs a program that finds the plugin. Returns what it prints.
fn run_with(folder: &Path, plugin: &Path, source: &str) -> String {
    let near = program("dtl-ctk").parent().unwrap().to_owned();
    let library = [near.join("libdtl.so"), near.join("deps/libdtl.so")];
    let library = library.into_iter().find(|path| path.exists()).expect("cargo builds libdtl.so");
    for name in ["libdtl.so", "libdtl.so.0.2"] {
        std::os::unix::fs::symlink(&library, folder.join(name)).unwrap();
    }
    fs::write(folder.join("program.c"), source).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
    let mut command = Command::new("gcc");
    command.arg("-I").arg(include).args(["program.c", "-L.", "-ldtl", "-Wl,-rpath,$ORIGIN"]);
    let compiled = command.args(["-o", "program"]).current_dir(folder).output().unwrap();
    assert!(compiled.status.success(), "{}", said(&compiled));
    let mut command = Command::new(folder.join("program"));
    let output = command.env("DTL_PLUGIN_PATH", plugin).output().unwrap();
    assert!(output.status.success(), "{:?}: {}", output.status, said(&output));
    said(&output)
}

/// With memory the kernels of the template compute, whether built in or from a file. Without a
/// signature there are none, and a launch that the kernels do not take is refused.
#[test]
fn kernels_of_the_template_compute() {
    let folder = Folder::new("kernels");
    let components = "device,memory,transfer,exec";
    let written = folder.dtl_info(&["new-backend", "ram", "--components", components]);
    assert!(written.status.success(), "{}", said(&written));
    let sources = folder.0.join("ram");
    let steps = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples-plugins/steps/ram");
    for entry in fs::read_dir(steps).unwrap().flatten() {
        fs::copy(entry.path(), sources.join(entry.file_name())).unwrap();
    }
    let plugin = sources.join("plugin.c");
    let text = fs::read_to_string(&plugin).unwrap();
    fs::write(&plugin, text.replace("*out_yes = 0;", "*out_yes = 1;")).unwrap();
    let Some(file) = compile("gcc", "-std=c11", &sources, "c") else { return };
    let kernel = folder.0.join("add.c");
    let text = "#include <stdint.h>\n\
        void add(const uint64_t position[3], const void *const *args)\n\
        {\n    (*(int32_t *const *)args[0])[position[0]] += *(const int32_t *)args[1];\n}\n";
    fs::write(&kernel, text).unwrap();
    let binary = folder.0.join("add.bin");
    let mut command = Command::new("gcc");
    command.args(["-fPIC", "-shared"]).arg(&kernel).arg("-o").arg(&binary);
    let compiled = command.output().unwrap();
    assert!(compiled.status.success(), "{}", said(&compiled));
    for binary in [sources.join("builtin.bin"), binary] {
        let output = conformance(&file, &binary);
        let text = said(&output);
        assert!(output.status.success() && !text.contains("no memory"), "{text}");
    }
    let text = run_with(&folder.0, &file, REFUSED);
    let refused = [
        ("DTL_ERROR_INVALID_ARGUMENT", "kernel \"add\" needs a signature: the binary has no types"),
        ("DTL_ERROR_INVALID_ARGUMENT", "1"),
        ("DTL_ERROR_NOT_SUPPORTED", "shared_bytes of the launch is 64"),
    ];
    assert_eq!(text.lines().count(), refused.len(), "{text}");
    for (line, (status, words)) in text.lines().zip(refused) {
        assert!(line.starts_with(status) && line.contains(words), "{line}");
    }
}

#[test]
fn what_cannot_run_here_has_its_own_exit_status() {
    let folder = Folder::new("ctk");
    let output = folder.dtl_info(&["new-backend", "away", "--components", "device,memory,comm"]);
    assert!(output.status.success(), "{}", said(&output));
    let Some(file) = compile("gcc", "-std=c11", &folder.0.join("away"), "c") else { return };
    let run = |arguments: &[&str]| {
        let mut command = Command::new(program("dtl-ctk"));
        let output =
            command.arg("run").args(arguments).env("DTL_PLUGIN_PATH", &file).output().unwrap();
        (output.status.code(), said(&output))
    };
    let plugin = file.to_str().unwrap();
    for arguments in [
        ["--plugin", plugin, "--component", "comm"],
        ["--plugin", plugin, "--component", "memory"],
        ["--backend", "away", "--component", "comm"],
        ["--backend", "away", "--component", "device,memory"],
        ["--kind", "away", "--cases", "1"],
    ] {
        let (status, text) = run(&arguments);
        assert!(
            status == Some(3) && text.contains("cannot run here: its slots are still"),
            "{text}"
        );
    }
    let (status, text) = run(&["--plugin", plugin]);
    assert!(status == Some(3) && text.contains("\nabi "), "{text}");
    // Where nothing needs it to run it is not missed, and what fails comes first.
    assert_eq!(run(&["--plugin", plugin, "--component", "abi"]).0, Some(0));
    let wrong = folder.0.join("wrong.toml");
    fs::write(&wrong, "\"device.available.asking_succeeds\" = \"it does not\"").unwrap();
    assert_eq!(run(&["--plugin", plugin, "--expect", wrong.to_str().unwrap()]).0, Some(1));
}

#[test]
fn forms_that_nobody_filled_in_tick_no_box() {
    let folder = Folder::new("forms");
    let made = folder.dtl_info(&["new-backend", "mine", "--components", ALL]);
    assert!(made.status.success(), "{}", said(&made));
    let mut command = Command::new(program("dtl-ctk"));
    let text = said(&command.arg("checklist").arg(folder.0.join("mine")).output().unwrap());
    for form in ["backend.md is still the form", "adr.md is still the form"] {
        assert!(text.lines().any(|line| line.starts_with("NO ") && line.contains(form)), "{text}");
    }
    assert!(text.ends_with("6 of 9 boxes\n"), "licence, page and record are missing: {text}");
}

#[test]
fn each_component_stands_alone() {
    let folder = Folder::new("alone");
    for component in ALL.split(',') {
        let output = folder.dtl_info(&["new-backend", component, "--components", component]);
        assert!(output.status.success(), "{}", said(&output));
        let Some(file) = compile("gcc", "-std=c11", &folder.0.join(component), "c") else { return };
        let probed = folder.dtl_info(&["--probe", file.to_str().unwrap()]);
        assert!(probed.status.success(), "{}", said(&probed));
    }
}

#[test]
fn nothing_is_overwritten() {
    let folder = Folder::new("overwritten");
    fs::create_dir(folder.0.join("mine")).unwrap();
    fs::write(folder.0.join("mine/memory.c"), "precious").unwrap();
    let output = folder.dtl_info(&["new-backend", "mine"]);
    assert!(
        !output.status.success() && said(&output).contains("mine has memory.c already"),
        "{}",
        said(&output)
    );
    assert_eq!(fs::read_to_string(folder.0.join("mine/memory.c")).unwrap(), "precious");
    assert!(!folder.0.join("mine/plugin.c").exists(), "all or nothing");
}

#[test]
fn what_cannot_be_written_whole_is_not_begun() {
    let folder = Folder::new("half");
    fs::create_dir(folder.0.join("mine")).unwrap();
    fs::write(folder.0.join("mine/docs"), "a file, no folder").unwrap();
    let output = folder.dtl_info(&["new-backend", "mine"]);
    assert!(
        !output.status.success() && said(&output).contains("mine/docs/backend.md: "),
        "{}",
        said(&output)
    );
    assert_eq!(fs::read_dir(folder.0.join("mine")).unwrap().count(), 1, "only what was there");
    fs::create_dir(folder.0.join("link")).unwrap();
    std::os::unix::fs::symlink("nowhere", folder.0.join("link/plugin.c")).unwrap();
    let output = folder.dtl_info(&["new-backend", "link"]);
    assert!(
        !output.status.success() && said(&output).contains("link has plugin.c already"),
        "{}",
        said(&output)
    );
    assert_eq!(fs::read_dir(folder.0.join("link")).unwrap().count(), 1, "only what was there");
}

#[test]
fn what_is_wrong_is_named() {
    let folder = Folder::new("wrong");
    let cases: [(&[&str], &str); 7] = [
        (&["new-backend", ".."], "\"..\""),
        (&["new-backend", "dtl"], "\"dtl\""),
        (&["new-backend", "a/b"], "\"a/b\""),
        (&["new-backend", "shm"], "the library has one of this name"),
        (&["new-backend", "x", "--components", "memories"], "'memories'"),
        (&["new-backend", "x", "--language", "ada"], "'ada'"),
        (&["new-backend", "x", "--dir", "/proc/nowhere"], "/proc/nowhere"),
    ];
    for (arguments, text) in cases {
        let output = folder.dtl_info(arguments);
        assert!(
            !output.status.success() && said(&output).contains(text),
            "{arguments:?}: {}",
            said(&output)
        );
    }
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0);
}
