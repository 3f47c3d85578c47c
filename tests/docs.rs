//! Tests of the documents: every C block is compiled and run, every link has a target, and the list
//! of decision records is complete.
//!
//! A block ```c is a complete program. `<!-- run: dtlrun -n 4 -->` in the preceding line is the
//! command that starts it; a block ```text that follows it is its output. A block ```fortran runs
//! only with such a line (`docs/fortran.rs`). `<!-- plugin: libx.so
//! -->` before a block makes it a plugin file, which the later programs of the document find.
//! Blocks with a file name (```c pi.c) and the commands beside them need an installed library:
//! `tests/tutorial/run.py` runs those. `docs/blocks.rs` compiles blocks of other languages, and
//! `docs/shell.rs` checks the names in commands.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking and speaks to its reader"
)]

#[path = "docs/blocks.rs"]
mod blocks;
#[path = "docs/fortran.rs"]
mod fortran;
#[path = "common/programs.rs"]
mod programs;
#[path = "docs/shell.rs"]
mod shell;
#[path = "docs/site.rs"]
mod site;

use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in ["", "docs", "docs/adr", "docs/how-to", "docs/explanation", "docs/tutorial"] {
        let entries =
            std::fs::read_dir(root().join(folder)).unwrap_or_else(|e| panic!("{folder}: {e}"));
        let paths = entries.flatten().map(|entry| entry.path());
        found.extend(paths.filter(|path| path.extension().is_some_and(|ending| ending == "md")));
    }
    found.sort();
    assert!(found.len() > 12, "only {found:?}");
    found
}

struct Program {
    /// File and line of the block.
    place: String,
    source: String,
    ranks: Option<String>,
    /// Name of the file, if the block is a plugin.
    plugin: Option<String>,
    expected: Option<String>,
}

/// Returns the blocks of a document that begin with a line, for example "```c".
fn programs_in(path: &Path, fence: &str) -> Vec<Program> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut found: Vec<Program> = Vec::new();
    let mut lines = text.lines().enumerate().peekable();
    let (mut ranks, mut plugin) = (None, None);
    while let Some((number, line)) = lines.next() {
        let body = |lines: &mut dyn Iterator<Item = (usize, &str)>| {
            lines
                .map(|(_, line)| line)
                .take_while(|line| *line != "```")
                .fold(String::new(), |all, line| all + line + "\n")
        };
        if let Some(rest) = line.strip_prefix("<!-- run: dtlrun -n ") {
            ranks = Some(rest.trim_end_matches(" -->").to_owned());
        } else if let Some(rest) = line.strip_prefix("<!-- plugin: ") {
            plugin = Some(rest.trim_end_matches(" -->").to_owned());
        } else if line == fence {
            let source = body(&mut lines);
            let place = format!("{}:{}", path.strip_prefix(root()).unwrap().display(), number + 1);
            while lines.peek().is_some_and(|(_, line)| line.is_empty()) {
                lines.next();
            }
            let shows = lines.peek().is_some_and(|(_, line)| *line == "```text");
            let expected = shows.then(|| body(&mut lines.by_ref().skip(1)));
            found.push(Program {
                place,
                source,
                ranks: ranks.take(),
                plugin: plugin.take(),
                expected,
            });
        } else if line.starts_with("```") && line.len() > 3 {
            body(&mut lines);
        }
    }
    found
}

/// Creates a folder where a program finds libdtl.so and libdtl.so.0.2.
fn stage(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap();
    let candidates = [folder.join("libdtl.so"), folder.parent().unwrap().join("libdtl.so")];
    let library =
        candidates.into_iter().find(|path| path.exists()).expect("cargo builds libdtl.so");
    let stage = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    drop(std::fs::remove_dir_all(&stage));
    std::fs::create_dir_all(&stage).unwrap();
    for link in ["libdtl.so", "libdtl.so.0.2"] {
        std::os::unix::fs::symlink(&library, stage.join(link)).unwrap();
    }
    stage
}

/// Folder for the plugins of one document. Only this user can write to it; otherwise the plugins
/// would be rejected.
struct Plugins(PathBuf);

impl Plugins {
    fn new(number: usize) -> Self {
        let path = std::env::temp_dir().join(format!("dtl-docs-{}-{number}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        Plugins(path)
    }

    fn compile(&self, program: &Program, name: &str) {
        let (source, output) = (self.0.join("plugin.c"), self.0.join(name));
        std::fs::write(&source, &program.source).unwrap();
        let mut cc = Command::new("cc");
        cc.args([
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-fPIC",
            "-shared",
            "-fvisibility=hidden",
        ]);
        cc.arg("-I").arg(root().join("include")).arg(&source).arg("-o").arg(&output);
        compiled(&mut cc, &program.place);
        std::fs::set_permissions(&output, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

impl Drop for Plugins {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn compile(program: &Program, stage: &Path) -> PathBuf {
    let (source, output) = (stage.join("program.c"), stage.join("program"));
    std::fs::write(&source, &program.source).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread", "-I"])
        .arg(root().join("include"));
    cc.arg(&source).arg("-o").arg(&output).arg("-L").arg(stage).arg("-ldl").arg("-ldtl");
    cc.arg(format!("-Wl,-rpath,{}", stage.display()));
    compiled(&mut cc, &program.place);
    output
}

/// Runs a compiler. Panics with its messages if it fails.
fn compiled(compiler: &mut Command, place: &str) {
    let outcome = compiler.output().unwrap();
    let complaints = String::from_utf8_lossy(&outcome.stderr);
    assert!(outcome.status.success(), "{place} does not compile:\n{complaints}");
}

fn run(program: &Program, file: &Path, plugins: &Plugins) {
    let mut command = match &program.ranks {
        None => Command::new(file),
        Some(ranks) => {
            let mut command = Command::new(programs::program("dtlrun"));
            command.args(["-n", ranks]).arg(file);
            command
        }
    };
    // A program of the documents may write files.
    command.current_dir(&plugins.0);
    command.env("DTL_PLUGIN_PATH", &plugins.0).env("DTL_CACHE_DIR", plugins.0.join("kernels"));
    let outcome = command.output().unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&outcome.stdout), String::from_utf8_lossy(&outcome.stderr));
    assert!(outcome.status.success(), "{}: {}\n{out}{err}", program.place, outcome.status);
    if let Some(expected) = &program.expected {
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&out), sorted(expected), "{}: it prints something else", program.place);
    }
}

#[test]
fn every_program_shown_compiles_and_runs() {
    if Command::new("cc").arg("--version").output().is_err() {
        println!("skipped: no C compiler (cc); apt-get install gcc");
        return;
    }
    let mut count = 0;
    for (document, path) in documents().iter().enumerate() {
        let plugins = Plugins::new(document);
        for program in programs_in(path, "```c") {
            if let Some(name) = &program.plugin {
                plugins.compile(&program, name);
                continue;
            }
            assert!(
                program.source.contains("int main("),
                "{}: show a whole program",
                program.place
            );
            let file = compile(&program, &stage(&format!("docs-{count}")));
            run(&program, &file, &plugins);
            count += 1;
        }
    }
    assert!(count >= 3, "only {count} programs: is the path right?");
}

#[test]
fn every_link_leads_somewhere() {
    let mut broken = Vec::new();
    for path in documents() {
        let text = std::fs::read_to_string(&path).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            let is_elsewhere = target.is_empty() || target.contains("://");
            // Pages of the site alone; its own test follows them.
            let is_elsewhere =
                is_elsewhere || target.trim_start_matches("../").starts_with("reference/");
            if !is_elsewhere && !path.parent().unwrap().join(target).exists() {
                broken.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "links to nothing: {broken:#?}");
}

/// Checks that the pages for MPI users name only existing functions, and cover all functions that
/// the serial stubs of two large MPI codes declare. mpi_f08 has other names for the removed ones.
#[test]
fn the_way_from_mpi_is_complete() {
    from_mpi_is_complete("from-mpi.md", "Type_hvector Type_struct Address");
    from_mpi_is_complete("from-mpi-f08.md", "Type_create_hvector Type_create_struct Get_address");
}

fn from_mpi_is_complete(name: &str, renamed: &str) {
    let page = std::fs::read_to_string(root().join("docs/how-to").join(name)).unwrap();
    let headers: String = ["dtl.h", "dtl_select.h", "dtl_backend.h", "dtl_rdma.h", "dtl_mpi.h"]
        .iter()
        .map(|name| std::fs::read_to_string(root().join("include").join(name)).unwrap())
        .collect();
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words: std::collections::BTreeSet<&str> = page.split(|c| !is_part(c)).collect();
    let known: std::collections::BTreeSet<&str> = headers.split(|c| !is_part(c)).collect();
    let files = ["dtl_mpi", "dtl_", "dtl_text"]; // dtl_text is Fortran's alone
    let unknown: Vec<_> = words
        .iter()
        .filter(|word| {
            (word.starts_with("dtl_") || word.starts_with("DTL_")) && !known.contains(**word)
        })
        .filter(|word| !files.contains(word) && **word != "DTL_" && **word != "DTL_TIMEOUT")
        .collect();
    assert!(unknown.is_empty(), "{name}: not in the headers: {unknown:?}");
    let stubs = "Init Initialized Finalize Finalized Get_version Get_library_version Abort Wtime Wtick Get_processor_name Comm_rank Comm_size \
        Comm_dup Comm_split Comm_split_type Comm_free Comm_group Comm_create Comm_c2f Comm_f2c Group_incl \
        Group_free Cart_create Cart_get Cart_rank Cart_shift Send Rsend Irsend Recv Sendrecv Isend Irecv \
        Send_init Recv_init Startall Request_free Probe Iprobe Get_count Wait Test Waitall Waitany Testall \
        Barrier Bcast Reduce Allreduce Scan Reduce_scatter Gather Gatherv Scatter Scatterv Allgather \
        Allgatherv Alltoall Alltoallv Op_create Op_free Type_size Type_contiguous Type_vector \
        Type_commit Type_free Info_create Info_free";
    let missing: Vec<_> = stubs
        .split_whitespace()
        .chain(renamed.split_whitespace())
        .filter(|name| !words.contains(format!("MPI_{name}").as_str()))
        .collect();
    assert!(missing.is_empty(), "{name}: not on the page: {missing:?}");
}

/// Checks that the page on collectives has the rows of the table in the code, in the same order.
#[test]
fn the_table_of_algorithms_is_that_of_the_code() {
    let page = std::fs::read_to_string(root().join("docs/explanation/collectives.md")).unwrap();
    let code =
        std::fs::read_to_string(root().join("src/runtime/comm/coll/algorithms/choice.rs")).unwrap();
    let shown: Vec<&str> = page
        .lines()
        .filter(|line| {
            line.matches('|').count() == 6
                && !line.starts_with("|---")
                && !line.contains("| algorithm |")
        })
        .collect();
    let table = code.split("const TABLE").nth(1).unwrap().split("];").next().unwrap();
    let rows: Vec<String> = table
        .lines()
        .filter(|line| line.contains("row(Kind::"))
        .map(|line| as_shown(line, &code))
        .collect();
    assert!(rows.len() > 20, "only {rows:?}: has the table another form now?");
    assert_eq!(shown, rows);
}

/// Returns a row of the table in `code` in the form of the page.
fn as_shown(line: &str, code: &str) -> String {
    let inside = line.split("row(").nth(1).unwrap().split(')').next().unwrap();
    let parts: Vec<&str> = inside.split(", ").collect();
    let [kind, ranks, from, below, algorithm] = parts[..] else { panic!("{line}: five parts") };
    let bytes = |text: &str| match text.strip_suffix(" << 10") {
        Some(kibi) => format!("{kibi} KiB"),
        None => format!("{text} bytes"),
    };
    let range = match (from, below) {
        ("0", "ANY") => "any".to_owned(),
        ("0", _) => format!("below {}", bytes(below)),
        (_, "ANY") => format!("{} and more", bytes(from)),
        _ => format!("{} to {}", bytes(from), bytes(below)),
    };
    let many = if ranks == "0" { "any".to_owned() } else { format!("{ranks} and more") };
    let operation = if line.contains(".commuting()") { "commutes" } else { "any" };
    let variant = algorithm.trim_start_matches("Algorithm::");
    let named = code.split(&format!("    {variant}: \"")).nth(1);
    let name = named.and_then(|rest| rest.split('"').next()).expect(variant);
    let mut collective = String::new();
    for letter in kind.trim_start_matches("Kind::").chars() {
        if letter.is_uppercase() && !collective.is_empty() {
            collective.push('_');
        }
        collective.extend(letter.to_lowercase());
    }
    format!("| {collective} | {many} | {range} | {operation} | {name} |")
}
