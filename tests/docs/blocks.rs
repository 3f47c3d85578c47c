//! Tests of the blocks of C++, Python, TOML and CMake.
//!
//! A block that is not a whole program is compiled inside a file of `tests/docs/within`, which
//! includes it as "block": `<!-- within: adopt.cpp -->` in the line above the block names the file.

use super::{documents, root};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A fenced block of a document.
pub(crate) struct Block {
    /// File and line of the block.
    pub(crate) place: String,
    pub(crate) language: String,
    /// Text of the comment in the line above the block, or an empty string.
    note: String,
    pub(crate) text: String,
}

impl Block {
    /// Returns the value of the comment `NAME: VALUE` above the block.
    fn note(&self, name: &str) -> Option<&str> {
        self.note.strip_prefix(name)?.strip_prefix(": ")
    }
}

/// Returns the blocks of all documents in a language.
pub(crate) fn blocks(language: &str) -> Vec<Block> {
    let all = documents().into_iter().flat_map(|path| blocks_of(&path));
    all.filter(|block| block.language == language).collect()
}

fn blocks_of(path: &Path) -> Vec<Block> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut found = Vec::new();
    let (mut open, mut above): (Option<Block>, &str) = (None, "");
    for (number, line) in text.lines().enumerate() {
        let fence = line.trim_start().strip_prefix("```");
        match (open.as_mut(), fence) {
            (Some(_), Some("")) => found.extend(open.take()),
            (Some(block), _) => block.text += &format!("{line}\n"),
            (None, Some(info)) => {
                let note = above.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
                open = Some(Block {
                    place: format!(
                        "{}:{}",
                        path.strip_prefix(root()).unwrap().display(),
                        number + 1
                    ),
                    language: info.split(' ').next().unwrap_or_default().to_owned(),
                    note: note.unwrap_or_default().to_owned(),
                    text: String::new(),
                });
            }
            (None, None) => {}
        }
        above = line;
    }
    assert!(open.is_none(), "{}: a block has no end", path.display());
    found
}

/// Returns the folder of the files that blocks are compiled in.
pub(crate) fn within() -> PathBuf {
    root().join("tests/docs/within")
}

/// Creates an empty folder for the outputs of a test.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    drop(std::fs::remove_dir_all(&folder));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Returns whether a program starts. If it does not, reports a skip.
pub(crate) fn is_there(program: &str, package: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        println!("skipped: no {program}; apt-get install {package}");
    }
    found
}

/// Runs a command with an input. Returns its messages if it fails.
pub(crate) fn fault_of(command: &mut Command, input: &str) -> Option<String> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let outcome = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&outcome.stdout) + String::from_utf8_lossy(&outcome.stderr);
    (!outcome.status.success()).then(|| text.into_owned())
}

/// Returns the names that begin with `dtl_`, in any case, and are not part of another name.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("dtl_") || word.starts_with("DTL_")).collect()
}

/// Checks that the headers declare every name `dtl_*` and `DTL_*` of a block.
pub(crate) fn assert_declared(block: &Block) {
    let headers: String = ["dtl.h", "dtl_select.h", "dtl_backend.h", "dtl_rdma.h"]
        .iter()
        .map(|name| std::fs::read_to_string(root().join("include").join(name)).unwrap())
        .collect();
    let known = names(&headers);
    let unknown: Vec<_> = names(&block.text).difference(&known).copied().collect();
    assert!(unknown.is_empty(), "{}: not in the headers: {unknown:?}", block.place);
}

#[test]
fn every_cpp_block_compiles() {
    if !is_there("c++", "g++") {
        return;
    }
    let folder = scratch("docs-cpp");
    let found = blocks("cpp");
    for block in &found {
        std::fs::write(folder.join("block"), &block.text).unwrap();
        let source = match block.note("within") {
            Some(name) => within().join(name),
            None => folder.join("block"),
        };
        let mut compiler = Command::new("c++");
        compiler.args(["-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]);
        compiler.arg("-I").arg(&folder).arg("-I").arg(within());
        compiler.arg("-I").arg(root().join("include")).args(["-x", "c++"]).arg(source);
        if let Some(text) = fault_of(&mut compiler, "") {
            panic!("{} does not compile:\n{text}", block.place);
        }
    }
    assert!(found.len() >= 8, "only {}: is the search right?", found.len());
}

#[test]
fn every_python_block_compiles() {
    if !is_there("python3", "python3") {
        return;
    }
    let found = blocks("python");
    for block in &found {
        let mut python = Command::new("python3");
        python.args(["-c", "import sys; compile(sys.stdin.read(), 'block', 'exec')"]);
        if let Some(text) = fault_of(&mut python, &block.text) {
            panic!("{} does not compile:\n{text}", block.place);
        }
        assert_declared(block);
    }
    assert!(!found.is_empty(), "no block: is the search right?");
}

/// Checks every TOML block, except the expected outputs of the tutorials, which are abridged;
/// `tests/tutorial` compares those.
#[test]
fn every_toml_block_parses() {
    if !is_there("python3", "python3") {
        return;
    }
    if fault_of(Command::new("python3").args(["-c", "import tomllib"]), "").is_some() {
        println!("skipped: Python before 3.11 has no tomllib");
        return;
    }
    let mut count = 0;
    for block in blocks("toml").iter().filter(|block| !block.place.starts_with("docs/tutorial/")) {
        let mut python = Command::new("python3");
        python.args(["-c", "import sys, tomllib; tomllib.loads(sys.stdin.read())"]);
        if let Some(text) = fault_of(&mut python, &block.text) {
            panic!("{} does not parse:\n{text}", block.place);
        }
        count += 1;
    }
    assert!(count >= 3, "only {count}: is the search right?");
}

/// Checks that CMake blocks call only functions that the package has, with keywords that they
/// accept, and search for a version of the package that its version file accepts.
#[test]
fn cmake_blocks_name_what_the_package_has() {
    let sources: String = ["DtlAddBackend", "DtlAddEnvironment"]
        .iter()
        .map(|name| {
            let path = root().join("cmake").join(name).with_extension("cmake");
            std::fs::read_to_string(path).unwrap()
        })
        .collect();
    let version: Vec<&str> = env!("CARGO_PKG_VERSION").split('.').collect();
    let wanted = format!("find_package(dtl {}.{}", version[0], version[1]);
    let mut count = 0;
    for block in blocks("cmake") {
        assert_eq!(
            block.text.matches("find_package(dtl").count(),
            block.text.matches(&wanted).count(),
            "{}: the version of this package is {}",
            block.place,
            env!("CARGO_PKG_VERSION")
        );
        for call in block.text.split("\ndtl_").skip(1) {
            let (name, arguments) = call.split_once('(').unwrap();
            let body = sources
                .split(&format!("function(dtl_{name})"))
                .nth(1)
                .unwrap_or_else(|| panic!("{}: no function dtl_{name}", block.place));
            let accepted = body.split("cmake_parse_arguments(").nth(1).unwrap();
            let accepted = accepted.split(')').next().unwrap().to_owned()
                + sources.split("set(forms ").nth(1).unwrap().split(')').next().unwrap();
            let accepted: BTreeSet<&str> =
                accepted.split(|c: char| !c.is_ascii_uppercase() && c != '_').collect();
            let mut keyword = "";
            for word in outside_quotes(arguments.split("\n\n").next().unwrap()) {
                if accepted.contains(word) {
                    keyword = word;
                } else if word.chars().all(|c| c.is_ascii_uppercase() || c == '_') {
                    // Names of packages are upper case, too.
                    let is_name = keyword == "PACKAGES";
                    assert!(is_name, "{}: dtl_{name} has no {word}", block.place);
                }
            }
            count += 1;
        }
    }
    assert!(count >= 4, "only {count}: is the search right?");
}

/// Returns the words of a call's arguments up to its closing parenthesis, without quoted ones.
fn outside_quotes(arguments: &str) -> Vec<&str> {
    let plain = arguments.split('"').step_by(2);
    plain.flat_map(|part| part.split(')').next().unwrap_or_default().split_whitespace()).collect()
}

/// Checks that each paragraph of a block marked `<!-- part of: FILE -->` is in that file of the
/// finished `ram` backend. Labels `SLOT:`, comments and spaces are not compared.
#[test]
fn bodies_of_slots_are_those_of_the_example() {
    let mut count = 0;
    for block in blocks("") {
        let Some(file) = block.note("part of") else { continue };
        let path = root().join("examples-plugins/steps/ram").join(file);
        let source = plain(&std::fs::read_to_string(path).unwrap());
        for paragraph in block.text.split("\n\n") {
            let label = paragraph.split(' ').next().filter(|word| word.ends_with(':'));
            let body = plain(&paragraph[label.map_or(0, str::len)..]);
            assert!(source.contains(&body), "{}: not in {file}:\n{paragraph}", block.place);
            count += 1;
        }
    }
    assert!(count >= 7, "only {count} paragraphs: is the search right?");
}

/// Returns C source without comments and spaces.
fn plain(source: &str) -> String {
    let parts = source.split("/*").enumerate();
    let parts = parts.filter_map(|(index, part)| match index {
        0 => Some(part),
        _ => part.split_once("*/").map(|(_, rest)| rest),
    });
    parts.flat_map(|part| part.chars().filter(|letter| !letter.is_whitespace())).collect()
}
