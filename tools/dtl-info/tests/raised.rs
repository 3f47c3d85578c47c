//! Tests of dtl-info with elevated privileges: environment variables that name code to load have no
//! effect.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking, and says why it was skipped"
)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Folder with a copy of dtl-info; removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("dtl-raised-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        mode(&path, 0o755);
        let folder = Folder(fs::canonicalize(path).unwrap());
        fs::copy(env!("CARGO_BIN_EXE_dtl-info"), folder.program()).unwrap();
        folder
    }

    fn program(&self) -> PathBuf {
        self.0.join("dtl-info")
    }

    /// Makes the copy of dtl-info a set-uid program that another user owns.
    fn raise(&self) {
        chown(self.program(), Some(65534), None).unwrap();
        mode(&self.program(), 0o4755);
    }

    /// Runs this folder's copy of dtl-info with the library's environment variable `name` set to
    /// `value`.
    fn run(&self, argument: &str, name: &str, value: &Path) -> Output {
        let mut command = Command::new(self.program());
        for (name, _) in std::env::vars_os() {
            let name_text = name.to_string_lossy();
            if ["DTL_", "OMPI_", "PMI", "SLURM_"].iter().any(|one| name_text.starts_with(one)) {
                command.env_remove(&name);
            }
        }
        command.arg(argument).env(name, value).output().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn texts(output: Output) -> [String; 2] {
    [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap())
}

/// Returns the reason why this test cannot create a set-uid program, or why the set-uid bit has no
/// effect here; `None` if set-uid programs can be created and take effect.
fn no_set_uid() -> Option<&'static str> {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let value = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_whitespace().nth(1).unwrap_or_default().to_owned()
    };
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let is_nosuid = |mount: &str| {
        let mut words = mount.split_whitespace().skip(1);
        let is_ours = ["/", "/tmp"].contains(&words.next().unwrap_or_default());
        is_ours && words.nth(1).is_some_and(|options| options.split(',').any(|one| one == "nosuid"))
    };
    if value("Uid:") != "0" {
        return Some("only root can make a set-uid program of another user");
    }
    let has_effect = value("NoNewPrivs:") != "1" && !mounts.lines().any(is_nosuid);
    (!has_effect).then_some("set-uid programs have no effect here")
}

#[test]
fn a_program_with_raised_privileges_ignores_the_mpi_library() {
    if let Some(why) = no_set_uid() {
        println!("skipped: {why}");
        return;
    }
    let folder = Folder::new("mpi");
    let library = Path::new("/no/such/libmpi.so");
    let said = || texts(folder.run("--json", "DTL_MPI_LIBRARY", library));
    let [facts, warnings] = said();
    assert!(facts.contains("/no/such/libmpi.so") && warnings.is_empty(), "{facts} {warnings}");
    folder.raise();
    let [facts, warnings] = said();
    assert!(!facts.contains("/no/such/libmpi.so"), "{facts}");
    let warning = "DTL_MPI_LIBRARY is ignored: this program runs with raised privileges";
    assert!(warnings.contains(warning), "{warnings}");
}

#[test]
fn a_program_with_raised_privileges_ignores_the_path() {
    if let Some(why) = no_set_uid() {
        println!("skipped: {why}");
        return;
    }
    let folder = Folder::new("path");
    let plugins = folder.0.join("plugins");
    fs::create_dir(&plugins).unwrap();
    mode(&plugins, 0o755);
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-I"]).arg(root.join("include"));
    cc.arg(root.join("tests/plugins/good.c")).arg("-o").arg(plugins.join("good.so"));
    assert!(cc.status().expect("a C compiler (apt-get install gcc)").success());
    mode(&plugins.join("good.so"), 0o755);
    let said = || {
        let [facts, warnings] = texts(folder.run("--json", "DTL_PLUGIN_PATH", &plugins));
        let all: serde_json::Value =
            serde_json::from_str(&facts).unwrap_or_else(|error| panic!("{error}: {facts}"));
        (all["plugins"].as_array().unwrap().len(), warnings)
    };
    assert_eq!(said(), (1, String::new()));
    folder.raise();
    let (count, warnings) = said();
    assert_eq!(count, 0);
    let warning = "DTL_PLUGIN_PATH is ignored: this program runs with raised privileges";
    assert!(warnings.contains(warning), "{warnings}");
    let [variables, _] = texts(folder.run("--env", "DTL_PLUGIN_PATH", &plugins));
    assert!(variables.contains("warning: DTL_PLUGIN_PATH is ignored"), "{variables}");
}
