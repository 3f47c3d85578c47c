//! The loaded MPI by itself, in a process that no launcher started: what its errors become, what a call costs
//! to ask for, and how it ends. Prints `skipped: …` where there is no MPI.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking, and says why it was skipped"
)]

use dtl::abi::status::*;
use dtl::backend::mpi::session::{self, Hold};
use dtl::runtime::settings;
use std::time::Instant;

/// One test: MPI is started once in a process.
#[test]
fn from_the_beginning_to_the_end() {
    // DTL_MPI_LIBRARY may name another one.
    settings::install(settings::from_environment(&std::env::vars().collect()).unwrap());
    let mpi = match session::loaded() {
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

fn errors_have_class_and_text(mpi: &session::Mpi) {
    let _turn = mpi.enter().unwrap();
    let mut rank = 0;
    // SAFETY: MPI runs; MPI_COMM_NULL is an error that the world's handler returns.
    let code = unsafe { (mpi.call.MPI_Comm_rank)(mpi.k.comm_null, &raw mut rank) };
    assert_ne!(code, 0);
    let error = mpi.check("MPI_Comm_rank", code).expect_err("an error of MPI's");
    assert_eq!(error.status(), DTL_ERROR_MPI);
    assert!(error.text().starts_with("MPI_Comm_rank: MPI error class 5: "), "{error}");
    assert!(error.text().to_lowercase().contains("comm") && !error.text().contains('\n'), "{error}");
    let error = mpi.failure("MPI_Send", mpi.k.err_no_mem);
    assert_eq!(error.status(), DTL_ERROR_OUT_OF_MEMORY, "{error}");
    mpi.check("MPI_Send", 0).unwrap();
}

fn asking_costs_little(mpi: &session::Mpi) {
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
