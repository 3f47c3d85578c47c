//! Finds libdtl and links it dynamically, unless feature `link` is off.
//!
//! The directory is that of DTL_LIB_DIR, else what pkg-config reports for `libdtl`, else one that
//! the linker searches by itself. Crates that depend on this one directly get it as DEP_DTL_LIB_DIR.
//! A program that runs where the library is in no standard directory needs it in its run path:
//! cargo passes no such option on from here, so the program's own build script has to.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=DTL_LIB_DIR");
    println!("cargo::rerun-if-env-changed=PKG_CONFIG_PATH");
    if std::env::var_os("CARGO_FEATURE_LINK").is_none() {
        return ExitCode::SUCCESS;
    }
    // By its soname: a program never uses a library with another interface.
    let (major, minor) = (env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"));
    let file = format!("libdtl.so.{major}.{minor}");
    println!("cargo::rustc-link-lib=dylib:+verbatim={file}");
    match directory(&file) {
        Ok(Some(directory)) => {
            let directory = directory.display();
            println!("cargo::rustc-link-search=native={directory}");
            println!("cargo::metadata=lib_dir={directory}");
            // For the tests of this package.
            println!("cargo::rustc-link-arg=-Wl,-rpath,{directory}");
            ExitCode::SUCCESS
        }
        Ok(None) => {
            println!(
                "cargo::warning={file} was not found by pkg-config. To link a program, set DTL_LIB_DIR \
                 to the directory that has it, or PKG_CONFIG_PATH to the one that has libdtl.pc."
            );
            ExitCode::SUCCESS
        }
        Err(text) => {
            println!("cargo::error={text}");
            ExitCode::FAILURE
        }
    }
}

/// The directory that has the library; `None` if only the linker may know one.
fn directory(file: &str) -> Result<Option<PathBuf>, String> {
    let Some(given) = std::env::var_os("DTL_LIB_DIR") else { return Ok(installed()) };
    let given = PathBuf::from(given);
    let shown = given.display();
    // A build script runs in its package's directory, and a program in any.
    if !given.is_absolute() {
        return Err(format!("DTL_LIB_DIR is {shown}: give an absolute path"));
    }
    if !given.join(file).exists() {
        return Err(format!(
            "DTL_LIB_DIR is {shown}, which has no {file}: build or install the library"
        ));
    }
    Ok(Some(given))
}

/// The directory that libdtl.pc names.
fn installed() -> Option<PathBuf> {
    let answer = Command::new("pkg-config").args(["--variable=libdir", "libdtl"]).output().ok()?;
    let directory = String::from_utf8(answer.stdout).ok()?;
    let directory = Path::new(directory.trim());
    (answer.status.success() && directory.is_absolute()).then(|| directory.into())
}
