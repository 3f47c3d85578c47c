//! Which slot a worker is in, or which part of loading: a file for each rank, read by the process
//! that watches when the worker has crashed or hangs.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of a record. One that begins with a space says that the rank is in none.
const RECORD: usize = 96;

thread_local! {
    static FILE: RefCell<Option<File>> = const { RefCell::new(None) };
}

/// The calling thread's steps go to a file beside the report.
pub(crate) fn write_beside(report: &Path, rank: i32) {
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(place(report, rank)).ok();
    FILE.set(file);
}

fn place(report: &Path, rank: i32) -> std::path::PathBuf {
    report.with_extension(rank.to_string())
}

/// From here on the thread does this; an empty text ends it.
pub(crate) fn enter(what: &str) {
    FILE.with_borrow(|file| {
        let Some(file) = file else { return };
        let record = format!("{what:RECORD$.RECORD$}");
        // Without a record a crash is reported without its place.
        let _ = file.write_all_at(record.as_bytes(), 0);
    });
}

/// Calls a slot; `what` names it.
pub(crate) fn within<T>(what: &str, call: impl FnOnce() -> T) -> T {
    enter(what);
    let result = call();
    FILE.with_borrow(|file| file.as_ref().map(|file| file.write_all_at(b" ", 0)));
    result
}

/// Where ranks are or ended: rank and step, without ranks that are in none.
pub(crate) fn read(report: &Path, ranks: usize) -> Vec<(i32, String)> {
    let of = |rank: i32| std::fs::read_to_string(place(report, rank)).unwrap_or_default();
    (0..ranks as i32)
        .map(|rank| (rank, of(rank)))
        .filter(|(_, text)| !text.is_empty() && !text.starts_with(' '))
        .map(|(rank, text)| (rank, text.trim_end().to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_rank_within_a_step_is_reported() {
        let report = std::env::temp_dir().join(format!("dtl-ctk-step-{}", std::process::id()));
        write_beside(&report, 1);
        assert!(read(&report, 2).is_empty());
        let inside = within("memory.alloc", || read(&report, 2));
        assert_eq!(inside, [(1, "memory.alloc".to_owned())]);
        assert!(read(&report, 2).is_empty());
        std::fs::remove_file(place(&report, 1)).expect("it is removed");
    }
}
