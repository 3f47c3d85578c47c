//! Tests of the loaded MPI in a process without a launcher: conversion of its errors, permission to
//! call it, and its finalization. Prints `skipped: ...` if there is no MPI.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking, and says why it was skipped"
)]

use dtl::abi::status::*;
use dtl::backend::mpi::library::abi::Int;
use dtl::backend::mpi::library::mpi_library::{self, Hold};
use dtl::runtime::settings::{self, Settings};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Folder of this test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("dtl-mpi-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        mode(&path, 0o755);
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Checks that a library that other users could have written is not loaded, even if DTL_MPI_LIBRARY
/// names it.
fn a_library_that_others_can_write_is_refused() {
    let folder = Folder::new("writable");
    let (file, link) = (folder.0.join("libmpi.so.40"), folder.0.join("link.so"));
    fs::write(&file, "no library").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    for (path, folder_mode, file_mode, said) in [
        (&file, 0o755, 0o666, "refused: the file can be written by everybody: chmod o-w"),
        (&link, 0o755, 0o646, "refused: the file can be written by everybody: chmod o-w"),
        (&file, 0o777, 0o644, "refused: the folder "),
        // A site's group may. It is the file that is looked at, not what it is called by.
        (&link, 0o775, 0o664, "libmpi.so.40: "),
        (&folder.0, 0o755, 0o644, "refused: it is no regular file"),
        (&folder.0.join("none"), 0o755, 0o644, "No such file"),
    ] {
        mode(&folder.0, folder_mode);
        mode(&file, file_mode);
        let name = path.display().to_string();
        settings::install(Settings { mpi_library: Some(name.clone()), ..Settings::default() });
        let error = mpi_library::loaded().err().expect("no library");
        assert_eq!(error.status(), DTL_ERROR_UNAVAILABLE);
        assert!(error.text().starts_with(&format!("no MPI: DTL_MPI_LIBRARY={name}: ")), "{error}");
        assert!(error.text().contains(said), "{error}");
    }
}

/// Tests everything in one function, because MPI can be initialized only once in a process.
#[test]
fn from_the_beginning_to_the_end() {
    a_library_that_others_can_write_is_refused();
    // DTL_MPI_LIBRARY may name another one.
    settings::install(settings::from_environment(&std::env::vars().collect()).unwrap());
    let mpi = match mpi_library::loaded() {
        Ok(mpi) => mpi,
        Err(error) => {
            println!("skipped: {error}");
            return;
        }
    };
    assert_eq!(mpi.enter().err().expect("not started").status(), DTL_ERROR_INVALID_STATE);
    assert_eq!(mpi.start_running().expect_err("not started").status(), DTL_ERROR_INVALID_STATE);
    let hold = Hold::new();
    let other = Hold::new();
    mpi.start().expect("started");
    mpi.start().expect("it runs already");
    assert!(mpi.is_running().unwrap() && !mpi.is_over());
    errors_have_class_and_text(mpi);
    asking_costs_little(mpi);
    drop(other);
    assert!(mpi.is_running().unwrap(), "somebody holds it");
    drop(hold);
    assert!(mpi.is_over() && !mpi.is_running().unwrap());
    let error = mpi.enter().err().expect("over");
    assert_eq!(error.status(), DTL_ERROR_INVALID_STATE);
    assert!(error.text().contains("MPI is finalised"), "{error}");
    assert!(mpi.enter_unless_over().unwrap().is_none());
    assert_eq!(mpi.start().expect_err("once only").status(), DTL_ERROR_INVALID_STATE);
}

fn errors_have_class_and_text(mpi: &mpi_library::Mpi) {
    let _turn = mpi.enter().unwrap();
    let mut rank = 0;
    // SAFETY: MPI runs; MPI_COMM_NULL is an error that the world's handler returns.
    let code = unsafe { (mpi.call.MPI_Comm_rank)(mpi.k.comm_null, &raw mut rank) };
    assert_ne!(code, 0);
    let error = mpi.check("MPI_Comm_rank", code).expect_err("an error of MPI's");
    assert_eq!(error.status(), DTL_ERROR_MPI);
    assert!(error.text().starts_with("MPI_Comm_rank: MPI error class 5: "), "{error}");
    assert!(
        error.text().to_lowercase().contains("comm") && !error.text().contains('\n'),
        "{error}"
    );
    let error = mpi.failure("MPI_Send", mpi.abi.int(Int::ErrNoMem));
    assert_eq!(error.status(), DTL_ERROR_OUT_OF_MEMORY, "{error}");
    mpi.check("MPI_Send", 0).unwrap();
}

fn asking_costs_little(mpi: &mpi_library::Mpi) {
    const CALLS: u32 = 1_000_000;
    let begin = Instant::now();
    for _ in 0..CALLS {
        drop(std::hint::black_box(mpi.enter()).unwrap());
    }
    println!(
        "{:.1} ns to enter at {:?}",
        begin.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS),
        mpi.level()
    );
}
