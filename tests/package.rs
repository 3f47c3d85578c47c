//! Tests of the package: exported symbols, required libraries, hardening, crates.
//!
//! They examine the libdtl.so that cargo builds for the tests. Its dynamic symbols and required
//! libraries are those of the release build. How the package is installed is tested by
//! tests/consumer/run.sh.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "golden/compare.rs"]
mod golden;

const NEEDED: &[&str] =
    &["libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the shared library beside this test program.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap();
    let candidates = [folder.join("libdtl.so"), folder.parent().unwrap().join("libdtl.so")];
    let found = candidates.into_iter().find(|path| path.exists());
    found.expect("libdtl.so is not beside the tests: run them with cargo, which builds it")
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(root()).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}; install binutils"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn exported() -> BTreeSet<String> {
    let text = output("nm", &["-D", "--defined-only", library().to_str().unwrap()]);
    text.lines().filter_map(|line| line.split_whitespace().last()).map(str::to_owned).collect()
}

/// Returns the text of all headers.
fn header() -> String {
    let read = |name| std::fs::read_to_string(root().join("include").join(name)).unwrap();
    ["dtl.h", "dtl_rdma.h", "dtl_select.h", "dtl_backend.h"].map(read).concat()
}

/// Returns the names that the headers declare as functions.
fn declared() -> BTreeSet<String> {
    let header = header();
    let mut names = BTreeSet::new();
    let is_code = |line: &&str| {
        !line.starts_with(['/', ' ', '#', '}', '{', '*', '\n']) && !line.starts_with("typedef")
    };
    let is_code = |line: &&str| is_code(line) && !line.starts_with("static inline");
    for line in header.lines().filter(is_code) {
        if let Some((before, _)) = line.split_once('(') {
            let name = before.rsplit([' ', '*']).next().unwrap();
            if name.starts_with("dtl_") {
                names.insert(name.to_owned());
            }
        }
    }
    names
}

fn difference(a: &BTreeSet<String>, b: &BTreeSet<String>) -> Vec<String> {
    a.difference(b).cloned().collect()
}

#[test]
fn header_and_library_have_the_same_functions() {
    let (exported, declared) = (exported(), declared());
    assert!(exported.len() > 30, "nm saw only {exported:?}");
    let hidden = difference(&exported, &declared);
    assert!(
        hidden.is_empty(),
        "exported but in no header (made by a macro? run `./run header`): {hidden:?}"
    );
    let missing = difference(&declared, &exported);
    assert!(missing.is_empty(), "in a header but not exported (run `./run header`): {missing:?}");
}

/// Relocations are resolved and made read-only before the library runs, no memory is both writable
/// and executable, and no code is changed by the loader.
#[test]
fn the_library_is_hardened() {
    let library = library();
    let headers = output("readelf", &["-dlW", library.to_str().unwrap()]);
    let segments = |name: &str| -> Vec<&str> {
        headers.lines().filter(|line| line.trim_start().starts_with(name)).collect()
    };
    assert_eq!(segments("GNU_RELRO").len(), 1, "{headers}");
    assert!(headers.contains("BIND_NOW"), "{headers}");
    assert!(!headers.contains("TEXTREL"), "{headers}");
    let stack = segments("GNU_STACK");
    assert!(stack.len() == 1 && !stack[0].contains('E'), "{headers}");
    assert!(segments("LOAD").iter().all(|line| !line.contains(" RWE ")), "{headers}");
    // Libraries are searched where the system says, not in a folder of the machine that built this.
    assert!(!headers.contains("(RPATH)") && !headers.contains("(RUNPATH)"), "{headers}");
}

#[test]
fn symbols_are_frozen() {
    let frozen = std::fs::read_to_string(root().join("tests/dtl.symbols")).unwrap();
    let frozen: BTreeSet<String> = frozen.lines().map(str::to_owned).collect();
    let exported = exported();
    let gone = difference(&frozen, &exported);
    assert!(gone.is_empty(), "these were promised and are gone, which breaks programs: {gone:?}");
    let new = difference(&exported, &frozen);
    assert!(new.is_empty(), "new symbols; if they are to stay, run `./run header`: {new:?}");
}

/// dpkg-gensymbols compares the list when the Debian packages are made, which is seldom.
#[test]
fn debian_lists_the_same_symbols() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let debian = read("packaging/debian/libdtl0.2.symbols");
    let listed = debian.lines().filter_map(|line| line.strip_prefix(' ')?.split_once("@DTL_0.2 "));
    // One line is for the symbol version itself.
    let listed = listed.map(|(name, _)| name.to_owned()).filter(|name| name.starts_with("dtl_"));
    let listed: BTreeSet<String> = listed.collect();
    let frozen: BTreeSet<String> = read("tests/dtl.symbols").lines().map(str::to_owned).collect();
    let unlisted = difference(&frozen, &listed);
    assert!(
        unlisted.is_empty(),
        "add ` NAME@DTL_0.2 VERSION` to packaging/debian/libdtl0.2.symbols for {unlisted:?}"
    );
    assert_eq!(listed, frozen, "packaging/debian/libdtl0.2.symbols has names that are gone");
}

/// Returns C text without comments and blank lines. The header has no comment delimiters in
/// strings.
fn without_comments(mut text: &str) -> Vec<String> {
    let mut code = String::new();
    while let Some(begin) = [text.find("/*"), text.find("//")].into_iter().flatten().min() {
        code.push_str(&text[..begin]);
        let end = if text[begin..].starts_with("/*") { "*/" } else { "\n" };
        let comment =
            text[begin..].split_once(end).map_or(text.len(), |(comment, _)| begin + comment.len());
        text = text[comment..].trim_start_matches("*/");
    }
    code.push_str(text);
    let lines = code.lines().map(|line| line.trim_end().to_owned());
    lines.filter(|line| !line.is_empty()).collect()
}

#[test]
fn header_is_as_recorded() {
    let text = "int a; /* one\n two */ int b; // three\n\n/// four // five\n#define C 1\n";
    assert_eq!(without_comments(text), ["int a;  int b;", "#define C 1"]);
    golden::compare("dtl.h.txt", &without_comments(&header()), |_| String::new());
}

/// Checks that symbols are plain functions: another type would change how programs are linked. What
/// cargo links has no symbol version; that of the library that CMake links is tested by
/// tests/consumer/run.sh.
#[test]
fn symbols_are_functions() {
    let text = output("readelf", &["-W", "--dyn-syms", library().to_str().unwrap()]);
    let ours =
        |line: &&str| line.split_whitespace().nth(7).is_some_and(|name| name.starts_with("dtl_"));
    let lines: Vec<&str> = text.lines().filter(ours).collect();
    assert_eq!(lines.len(), exported().len());
    for line in lines {
        let is_plain = line.contains(" FUNC    GLOBAL DEFAULT ") && !line.contains('@');
        assert!(is_plain, "not a global function: {line}");
    }
}

#[test]
fn every_symbol_is_ours() {
    let foreign: Vec<_> = exported().into_iter().filter(|name| !name.starts_with("dtl_")).collect();
    assert!(foreign.is_empty(), "only dtl_ names may be exported: {foreign:?}");
}

#[test]
fn library_needs_only_the_c_library() {
    let text = output("readelf", &["-d", library().to_str().unwrap()]);
    let in_brackets = |line: &str| Some(line.split_once('[')?.1.split_once(']')?.0.to_owned());
    let needed: Vec<_> =
        text.lines().filter(|line| line.contains("(NEEDED)")).filter_map(in_brackets).collect();
    assert!(!needed.is_empty());
    for name in needed {
        assert!(
            NEEDED.contains(&name.as_str()),
            "libdtl.so needs {name}: load it at run time instead"
        );
    }
    assert!(text.contains("soname: [libdtl.so.0.2]"), "programs look for libdtl.so.0.2");
    assert!(text.contains("NODELETE"), "the library must not be unloaded");
}

/// Checks the size of the thread-local variables. They are in a block that the loader has allocated
/// before, and a program that loads the library late (dlopen, Python) has little room left in that
/// block.
#[test]
fn threads_own_variables_are_few() {
    let text = output("readelf", &["-lW", library().to_str().unwrap()]);
    let line = text.lines().find(|line| line.trim_start().starts_with("TLS")).unwrap();
    let size = line.split_whitespace().nth(5).unwrap().trim_start_matches("0x");
    let bytes = u64::from_str_radix(size, 16).unwrap();
    assert!(bytes <= 512, "{bytes} bytes for each thread: put what is large behind a Box");
}

/// Checks that docs/explanation/dependencies.md lists the crates of the library, in these versions.
/// Their licences are checked by tools/deny.sh.
#[test]
fn the_page_of_crates_is_current() {
    let tree = output(
        env!("CARGO"),
        &["tree", "--locked", "-p", "dtl", "-e", "normal", "--prefix", "none", "-f", "{p}"],
    );
    let linked = tree.lines().filter_map(|line| {
        let (name, version) = line.trim_end_matches(" (*)").split_once(" v")?;
        (name != "dtl").then(|| format!("{name} {version}"))
    });
    let linked: BTreeSet<String> = linked.collect();
    assert!(linked.len() > 5, "cargo tree gave only {linked:?}");
    let page = std::fs::read_to_string(root().join("docs/explanation/dependencies.md")).unwrap();
    let table = page.split("<!-- crates: ").nth(1).unwrap().split("\n\n").next().unwrap();
    let row = |line: &str| {
        let mut cells = line.split('|').map(str::trim);
        Some(format!("{} {}", cells.nth(1)?, cells.next()?))
    };
    let listed: BTreeSet<String> = table.lines().skip(3).filter_map(row).collect();
    let missing = difference(&linked, &listed);
    assert!(missing.is_empty(), "read these, then add them to the page: {missing:?}");
    let gone = difference(&listed, &linked);
    assert!(gone.is_empty(), "these rows of the page are of no crate in the library: {gone:?}");
}
