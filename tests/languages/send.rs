//! A send of 8 bytes through the safe Rust interface, counted by instructions.sh.

use dtl_binding::{Comm, Error, sys};
use std::io::Write;

#[cold]
fn fail(error: &Error) {
    // Nobody can be told that standard error is closed.
    let _ = writeln!(std::io::stderr(), "send: {error}");
    std::process::abort();
}

fn send(comm: &Comm, x: f64) {
    comm.send(&x, sys::DTL_PROC_NULL, 1).unwrap_or_else(|error| fail(&error));
}

#[inline(never)]
fn row_rust(comm: &Comm) {
    for _ in 0..1000 {
        send(comm, 1.0);
    }
}

fn main() {
    let comm = Comm::from_raw(sys::DTL_COMM_SELF);
    send(&comm, 1.0); // what happens once is not counted
    row_rust(&comm);
}
