//! Generates the four headers of C in `include/`, `include/dtl-api.json`, `src/abi/layouts.rs`,
//! `bindings/rust/dtl-sys/src/items.rs`, the modules in `bindings/fortran` and the raw layer in
//! `bindings/python` (and, on request, the frozen symbol list) from `src/abi` and `src/ffi`.
//!
//! cbindgen turns structs, types and functions into C; this tool reads the same sources for
//! everything that cbindgen cannot express (declarations grouped by object, suffixed constants,
//! `_NULL` and `_INIT` macros). Maintainers run it; `--check` verifies that the committed files are
//! current. A user's build never runs it. docs/adr/0002 gives the reasons.

mod api;
mod calls;
mod cases;
mod constants;
mod doxygen;
mod emit;
mod facts;
mod fortran;
mod initial;
mod layouts;
mod macros;
mod python;
mod rust;
mod source;
#[cfg(test)]
mod tests;
mod texts;
mod types;

use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const USAGE: &str =
    "usage: cargo run -p dtl-header [-- --check | --calls FILE | --cases FILE | --symbols]
  (nothing)   write the headers and dtl-api.json in include/, src/abi/layouts.rs,
              bindings/rust/dtl-sys/src/items.rs, the modules in bindings/fortran and the raw layer
              in bindings/python
  --check     fail, and show the difference, if they are not what the sources say
  --calls F   write the table of calls that tests/fuzz draws from to the file F
  --cases F   write the wrappers that tests/fuzz/facts.c calls to the file F
  --symbols   add the functions that are new to tests/dtl.symbols (never removes one)";

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => write(),
        ["--check"] => check(),
        ["--calls", file] => calls::table(&root()).and_then(|text| Ok(std::fs::write(file, text)?)),
        ["--cases", file] => cases::table(&root()).and_then(|text| Ok(std::fs::write(file, text)?)),
        ["--symbols"] => symbols(),
        _ => Err(USAGE.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dtl-header: {error}");
            ExitCode::FAILURE
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the generated files with their expected contents.
fn wanted() -> Outcome<Vec<(String, String)>> {
    let root = root();
    let headers = emit::headers(&root)?.into_iter();
    let mut files: Vec<_> = headers.map(|(name, text)| (format!("include/{name}"), text)).collect();
    files.push(("include/dtl-api.json".into(), api::text(&root)?));
    files.push(("src/abi/layouts.rs".into(), layouts::table(&source::read(&root)?)));
    files.push(("bindings/rust/dtl-sys/src/items.rs".into(), rust::items(&root)?));
    files.extend(python::files(&root)?);
    files.extend(fortran::files(&root)?);
    Ok(files)
}

fn write() -> Outcome<()> {
    for (file, text) in wanted()? {
        std::fs::write(root().join(&file), text)?;
        println!("wrote {file}");
    }
    Ok(())
}

fn check() -> Outcome<()> {
    for (file, text) in wanted()? {
        let committed = root().join(&file);
        if std::fs::read_to_string(&committed).unwrap_or_default() == text {
            println!("{file} is what the sources say");
            continue;
        }
        let name = committed.file_name().unwrap_or_default().to_string_lossy();
        let fresh = std::env::temp_dir().join(format!("{}-{name}", std::process::id()));
        std::fs::write(&fresh, text)?;
        let shown = Command::new("diff").arg("-u").arg(&committed).arg(&fresh).status();
        std::fs::remove_file(&fresh)?;
        shown?;
        return Err(format!(
            "{file} is out of date. Run `cargo run -p dtl-header` and commit the result."
        )
        .into());
    }
    Ok(())
}

/// Adds symbols to the frozen list. Removing a symbol breaks programs, so it is done by hand, with
/// an ADR that gives the reason.
fn symbols() -> Outcome<()> {
    let path = root().join("tests/dtl.symbols");
    let mut frozen: BTreeSet<String> =
        std::fs::read_to_string(&path).unwrap_or_default().lines().map(str::to_owned).collect();
    let before = frozen.len();
    frozen.extend(source::read(&root())?.functions().map(str::to_owned));
    let text: String = frozen.iter().map(|name| format!("{name}\n")).collect();
    std::fs::write(&path, text)?;
    println!("tests/dtl.symbols: {} added, {} in all", frozen.len() - before, frozen.len());
    Ok(())
}
