//! Fuzz targets for the code that reads foreign bytes: plugin files, JSON, memory handles, frames.
//!
//! The package compiles the library's own files a second time, without the modules that no target
//! uses, so that targets reach private items and the library has no code for them. libFuzzer calls
//! one target, which the environment variable DTL_TEST_PARSER names. `../run.sh` runs them.
//! Each target is a function in `targets`, or beside the private items that it calls (`backend`).
#![no_main]
#![allow(dead_code, unused_imports, reason = "the library's files hold more than the targets use")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a target reports a defect by panicking"
)]

#[path = "../../../../src/abi/mod.rs"]
mod abi;
mod backend;
#[path = "../../../../src/error.rs"]
mod error;
#[path = "../../../../src/from_c.rs"]
mod from_c;
#[path = "../../../../src/hints.rs"]
mod hints;
#[path = "../../../../src/last_error.rs"]
mod last_error;
#[path = "../../../../src/runtime/mod.rs"]
mod runtime;
#[path = "../../../../src/sys/mod.rs"]
mod sys;
mod targets;

use std::sync::LazyLock;

type Target = fn(&[u8]);

const TARGETS: [(&str, Target); 9] = [
    ("elf", targets::elf),
    ("json", targets::json),
    ("handle", targets::handle),
    ("settings", targets::settings),
    ("words", backend::words),
    ("root", backend::bootstrap::root),
    ("rank", backend::bootstrap::rank),
    ("control", backend::bootstrap::control),
    ("tcp", targets::tcp),
];

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let wanted = std::env::var("DTL_TEST_PARSER").unwrap_or_default();
    let found = TARGETS.iter().find(|(name, _)| *name == wanted);
    let names: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
    found.unwrap_or_else(|| panic!("DTL_TEST_PARSER is none of {names:?}")).1
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| TARGET(data));
