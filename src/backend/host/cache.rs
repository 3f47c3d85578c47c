//! Compiled kernels on disk: a folder for each, which appears whole (by a rename) or not at all, so that any number of
//! ranks and threads may compile the same at once.
//!
//! | file | what |
//! |---|---|
//! | inputs | everything that was compiled from; compared byte by byte, the folder's name is only a hash of it |
//! | needs | hash and path of each file that the source includes, and the object's hash: compared at each use |
//! | log | what the compiler said |
//! | HASH.so | the object, named by `needs`: the loader takes an object of the same name for the same object |
//!
//! Not here: the compiler (`compiler`).

use super::compiler::{HEADER, NEEDS, OBJECT, SOURCE, said, unwritten};
use crate::abi::status::DTL_ERROR_UNAVAILABLE;
use crate::error::{Error, Result, fail};
use crate::sys::{hash, process, trust};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What belongs to nobody any more after so long.
const ABANDONED: Duration = Duration::from_secs(24 * 3600);
/// How often a place is fought for before one goes without.
const TRIES: usize = 8;
const BEGUN: &str = ".new-";
const ENDED: &str = ".old-";

/// The folder of all.
pub(super) struct Cache(PathBuf);

/// A compiled source.
pub(super) struct Entry {
    /// The shared object.
    pub(super) object: PathBuf,
    /// What the compiler said.
    pub(super) log: String,
}

/// A folder that is gone in the end, unless it got another name.
struct Passing(PathBuf);

impl Drop for Passing {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // what is left is taken for abandoned later
    }
}

impl Cache {
    pub(super) fn open(folder: Option<&Path>) -> Result<Self> {
        let Some(folder) = folder else {
            return fail!(
                DTL_ERROR_UNAVAILABLE,
                "there is no folder to keep compiled kernels in: set DTL_CACHE_DIR (HOME is not set)"
            );
        };
        if !folder.is_absolute() {
            return fail!(DTL_ERROR_UNAVAILABLE, "DTL_CACHE_DIR={}: give a path from /", folder.display());
        }
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        let folder =
            made.and_then(|()| fs::canonicalize(folder)).map_err(|error| unwritten(folder, &error))?;
        if let Err(why) = trust::check_folder(&folder) {
            return Err(refused(&folder, &said(&why)));
        }
        // That others cannot replace files is not enough: they must not put new ones there.
        match fs::metadata(&folder) {
            Ok(about) if about.mode() & 0o022 == 0 => Ok(Cache(folder)),
            Ok(_) => Err(refused(&folder, "others can write to it")),
            Err(error) => Err(unwritten(&folder, &error)),
        }
    }

    fn place(&self, inputs: &[u8]) -> PathBuf {
        self.0.join(format!("{:016x}", hash::of(inputs)))
    }

    /// What was made of these inputs before, if it is whole and nothing has changed.
    pub(super) fn find(&self, inputs: &[u8]) -> Result<Option<Entry>> {
        let folder = self.place(inputs);
        let read = |name: &str| fs::read(folder.join(name)).ok();
        if read("inputs").as_deref() != Some(inputs) {
            return Ok(None);
        }
        let (Some(needs), Some(log)) = (read("needs"), read("log")) else { return Ok(None) };
        let object = folder.join(name_of(&needs));
        let Some(needs) = String::from_utf8(needs).ok().filter(|needs| are_met(needs, &object)) else {
            return Ok(None);
        };
        drop(needs);
        match trust::check_file(&object) {
            Ok(trusted) => {
                let log = String::from_utf8_lossy(&log).into_owned();
                Ok(Some(Entry { object: trusted.path, log }))
            }
            Err(trust::Refusal::System(_)) => Ok(None),
            Err(why) => Err(refused(&object, &said(&why))),
        }
    }

    /// Makes it with `compile`, which is given an empty folder and leaves the object there, and keeps it.
    pub(super) fn make(&self, inputs: &[u8], compile: impl FnOnce(&Path) -> Result<String>) -> Result<Entry> {
        self.sweep();
        let begun = Passing(self.passing(BEGUN)?);
        let at = begun.0.as_path();
        DirBuilder::new().mode(0o700).create(at).map_err(|error| unwritten(at, &error))?;
        let log = compile(at)?;
        let put = |from: io::Result<()>, name: &str| from.map_err(|error| unwritten(&at.join(name), &error));
        let object = fs::read(at.join(OBJECT)).map_err(|error| unwritten(&at.join(OBJECT), &error))?;
        let needs = needs_of(at, &object).map_err(|error| unwritten(&at.join(NEEDS), &error))?;
        let name = name_of(needs.as_bytes());
        put(fs::rename(at.join(OBJECT), at.join(&name)), OBJECT)?;
        put(fs::write(at.join("needs"), &needs), "needs")?;
        put(fs::write(at.join("log"), &log), "log")?;
        put(fs::write(at.join("inputs"), inputs), "inputs")?;
        for done in [HEADER, NEEDS, SOURCE] {
            let _ = fs::remove_file(at.join(done));
        }
        let place = self.place(inputs);
        for _ in 0..TRIES {
            match fs::rename(at, &place) {
                Ok(()) => return Ok(Entry { object: place.join(&name), log }),
                Err(error) if is_taken(&error) => {}
                Err(error) => return Err(unwritten(&place, &error)),
            }
            if let Some(entry) = self.find(inputs)? {
                return Ok(entry); // somebody else was faster
            }
            let old = Passing(self.passing(ENDED)?);
            let _ = fs::rename(&place, &old.0); // if another one does that first, fine
        }
        fail!(
            DTL_ERROR_UNAVAILABLE,
            "{} changes all the time; set DTL_CACHE_DIR to another folder",
            place.display()
        )
    }

    /// A name that nobody else has, on any node.
    fn passing(&self, prefix: &str) -> Result<PathBuf> {
        let number = process::random_u64().map_err(|error| unwritten(&self.0, &error))?;
        Ok(self.0.join(format!("{prefix}{number:016x}")))
    }

    /// Removes what processes that were killed have left.
    fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.0) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let age = entry.metadata().and_then(|about| about.modified()).map(|time| time.elapsed());
            let is_old = age.is_ok_and(|age| age.is_ok_and(|age| age > ABANDONED));
            if is_old && (name.starts_with(BEGUN) || name.starts_with(ENDED)) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

#[cold]
fn refused(path: &Path, why: &str) -> Error {
    let text = format!(
        "compiled kernels are not taken from {}: {why}; set DTL_CACHE_DIR to a folder of your own (mode 0700)",
        path.display()
    );
    Error::new(DTL_ERROR_UNAVAILABLE, text)
}

fn is_taken(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EEXIST | libc::ENOTEMPTY))
}

/// The object's name.
fn name_of(needs: &[u8]) -> String {
    format!("{:016x}.so", hash::of(needs))
}

/// A line of `needs`.
fn line(bytes: &[u8], path: &str) -> String {
    format!("{:016x} {} {path}\n", hash::of(bytes), bytes.len())
}

/// The lines for the object and for each file that was included, but for those of the folder itself.
fn needs_of(folder: &Path, object: &[u8]) -> io::Result<String> {
    let rule = fs::read_to_string(folder.join(NEEDS))?;
    let here = std::env::current_dir().unwrap_or_default();
    let mut lines = line(object, "");
    for path in prerequisites(&rule) {
        let path = here.join(path);
        if path.starts_with(folder) {
            continue;
        }
        let Some(text) = path.to_str().filter(|text| !text.contains('\n')) else { continue };
        lines.push_str(&line(&fs::read(&path)?, text));
    }
    Ok(lines)
}

/// Whether the object and all files are as they were.
fn are_met(needs: &str, object: &Path) -> bool {
    let is_same = |wanted: &str| {
        let path = wanted.splitn(3, ' ').nth(2)?;
        let bytes = fs::read(if path.is_empty() { object } else { Path::new(path) }).ok()?;
        (line(&bytes, path).trim_end_matches('\n') == wanted).then_some(())
    };
    !needs.is_empty() && needs.lines().all(|wanted| is_same(wanted).is_some())
}

/// What stands behind the colon of a rule as compilers write it for make.
fn prerequisites(rule: &str) -> Vec<String> {
    let rule = rule.replace("\\\n", " ");
    let Some((_, list)) = rule.split_once(": ") else { return Vec::new() };
    let (mut paths, mut path) = (Vec::new(), String::new());
    let mut letters = list.lines().next().unwrap_or_default().chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, letters.peek()) {
            ('\\', Some(&next @ (' ' | '#'))) | ('$', Some(&next @ '$')) => {
                path.push(next);
                letters.next();
            }
            (' ' | '\t', _) => paths.push(std::mem::take(&mut path)),
            _ => path.push(letter),
        }
    }
    paths.push(path);
    paths.retain(|path| !path.is_empty());
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read() {
        let rule = "/tmp/a b/kernels.so: /tmp/s.c \\\n  /usr/include/x.h \\\n /a\\ b/c.h /d$$e.h /f\\#g.h\n\n/usr/include/x.h:\n";
        let paths = prerequisites(&rule.replace("a b/kernels", "k"));
        assert_eq!(paths, ["/tmp/s.c", "/usr/include/x.h", "/a b/c.h", "/d$e.h", "/f#g.h"]);
        assert!(prerequisites("").is_empty());
    }
}
