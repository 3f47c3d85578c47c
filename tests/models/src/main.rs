//! Models of the lock-free and concurrent parts of the library: loom tries every interleaving of a
//! few threads, and every value that the memory model allows a load to return.
//!
//! The models compile the library's own files a second time. Only the modules below them
//! (`sys::sync` with its locks and `tls`, the memory of rings) are replaced by modules over loom.
//! The models are not a part of the library's build; `./run models` runs them.
//! docs/explanation/concurrency.md lists what each model covers.
//!
//!     dtl-models [PART OF A NAME]
#![allow(dead_code, unused_imports, reason = "the library's files hold more than the models use")]

#[path = "../../../src/abi/mod.rs"]
mod abi;
mod backend;
#[path = "../../../src/error.rs"]
mod error;
#[path = "../../../src/hints.rs"]
mod hints;
mod runtime;
mod sys;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

type Model = (&'static str, fn());

/// Maximum number of preemptions of a runnable thread in one execution. According to loom's
/// authors, 2 or 3 find most errors in a fraction of the time.
const PREEMPTIONS: usize = 3;

fn check((name, body): Model) -> bool {
    let begin = Instant::now();
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.max_branches = 10_000;
    let result = catch_unwind(AssertUnwindSafe(|| {
        builder.check(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            body();
        });
    }));
    let runs = runs.load(Ordering::Relaxed);
    // One order alone means that the threads never met: such a model shows nothing.
    let passed = result.is_ok() && runs > 1;
    let word = if passed { "PASS" } else { "FAIL" };
    println!("{word} {name}: {runs} executions, {:.1} s", begin.elapsed().as_secs_f64());
    passed
}

fn main() {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let models = [
        backend::coll_mailbox_model::ALL,
        backend::shm::model::ALL,
        sys::model::ALL,
        sys::memory::heap::ALL,
        sys::journal_model::ALL,
        sys::team_model::ALL,
        sys::window_model::ALL,
        runtime::comm::model::ALL,
        runtime::policy::ALL,
    ]
    .concat();
    let chosen: Vec<Model> =
        models.into_iter().filter(|(name, _)| name.contains(&wanted)).collect();
    let failed = chosen.iter().filter(|model| !check(**model)).count();
    if failed > 0 || chosen.is_empty() {
        println!("{failed} of {} models failed", chosen.len());
        std::process::exit(1);
    }
}
