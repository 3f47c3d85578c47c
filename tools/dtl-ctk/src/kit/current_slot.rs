//! Records, in one file for each rank, which function of a backend's function table or which plugin
//! loading step a worker is executing. The supervising process reads the files when the worker has
//! crashed or hangs.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Size in bytes of a rank's file, which contains the name of the slot (function of a backend's
/// table) or loading step that the rank executes. If the file begins with a space, the rank
/// executes neither.
const RECORD: usize = 96;

thread_local! {
    static FILE: RefCell<Option<File>> = const { RefCell::new(None) };
}

/// Creates a file for this rank next to the report file. [`enter`] and [`within`] write to it the
/// name of the slot (function in a backend's table) or plugin loading step that the calling thread
/// executes.
pub(crate) fn write_beside(report: &Path, rank: i32) {
    let file =
        OpenOptions::new().write(true).create(true).truncate(true).open(place(report, rank)).ok();
    FILE.set(file);
}

fn place(report: &Path, rank: i32) -> std::path::PathBuf {
    report.with_extension(rank.to_string())
}

/// Records the slot (function of a backend's table) or loading step that this thread enters. An
/// empty string means that the thread has left it.
pub(crate) fn enter(what: &str) {
    FILE.with_borrow(|file| {
        let Some(file) = file else { return };
        let record = format!("{what:RECORD$.RECORD$}");
        // If the write fails, a crash is reported without its place.
        let _ = file.write_all_at(record.as_bytes(), 0);
    });
}

/// Runs `call`, and records for its duration that this thread executes the slot (function of a
/// backend's table) `what`.
pub(crate) fn within<T>(what: &str, call: impl FnOnce() -> T) -> T {
    enter(what);
    let result = call();
    FILE.with_borrow(|file| file.as_ref().map(|file| file.write_all_at(b" ", 0)));
    result
}

/// Returns the slot (function pointer in a backend's vtable) or loading step that each rank is
/// executing, or was executing when it ended. Omits ranks that executed neither.
pub(crate) fn read(report: &Path, ranks: usize) -> Vec<(i32, String)> {
    let of = |rank: i32| std::fs::read_to_string(place(report, rank)).unwrap_or_default();
    (0..ranks as i32)
        .map(|rank| (rank, of(rank)))
        .filter(|(_, text)| !text.is_empty() && !text.starts_with(' '))
        .map(|(rank, text)| (rank, text.trim_end().to_owned()))
        .collect()
}

#[cfg(test)]
#[path = "tests/current_slot.rs"]
mod tests;
