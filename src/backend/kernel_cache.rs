//! On-disk cache of compiled kernels. Each entry is a folder that is published atomically by a
//! rename, so any number of ranks and threads may compile the same kernel concurrently.
//!
//! | file | content |
//! |---|---|
//! | inputs | all compiler inputs, compared byte by byte; the folder's name is their hash |
//! | needs | hash, size and path of each file that the compiler read; hash of the object |
//! | log | the compiler's messages |
//! | HASH.so | the object; HASH is the hash of `needs`, because the loader caches by name |
//!
//! `host::compiler` and `cuda::modules::nvrtc` run the compilers and determine the inputs on which
//! the results depend.

use crate::abi::runtime::DTL_ABI_VERSION;
use crate::abi::status::{DTL_ERROR_LIMIT, DTL_ERROR_UNAVAILABLE};
use crate::error::{Error, Result, fail, failure};
use crate::runtime::settings;
use crate::sys::memory::buf::fnv1a;
use crate::sys::os::{dl, process};
use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Age at which temporary files and folders count as abandoned.
const ABANDONED: Duration = Duration::from_secs(24 * 3600);
/// Age below which an entry is not removed for the limit.
const RECENT: Duration = Duration::from_secs(60);
/// Maximum number of attempts to publish an entry under its final name.
const TRIES: usize = 8;
const BEGUN: &str = ".new-";
const ENDED: &str = ".old-";

/// Cache of compiled kernels in one folder.
pub(super) struct KernelCache {
    folder: PathBuf,
    /// Name of the object file during compilation. The final name has the same extension.
    object: &'static str,
    /// Maximum size of all entries together in bytes, if there is a limit; 0 = reuse none.
    limit: Option<u64>,
}

/// Serialized compiler inputs that determine the result, except files that the compiler finds by
/// itself (such as included headers).
pub(super) struct Inputs(Vec<u8>);

impl Inputs {
    /// Creates a list of inputs that contains the inputs common to all compilers: the library
    /// version and the ABI version.
    pub(super) fn new() -> Self {
        let mut inputs = Inputs(Vec::new());
        inputs.add("library", concat!(env!("CARGO_PKG_VERSION"), " ").as_bytes());
        inputs.add("interface", &DTL_ABI_VERSION.to_le_bytes());
        inputs
    }

    /// Appends a named input. The length prefix makes the serialization unambiguous.
    pub(super) fn add(&mut self, name: &str, value: &[u8]) {
        self.0.extend_from_slice(format!("{name} {}\n", value.len()).as_bytes());
        self.0.extend_from_slice(value);
        self.0.push(b'\n');
    }

    /// Appends the identity of a compiler executable: path, size, modification time and inode.
    pub(super) fn add_program(&mut self, name: &str, file: &Path) -> io::Result<()> {
        let path = fs::canonicalize(file)?;
        let about = fs::metadata(&path)?;
        self.add(name, path.as_os_str().as_bytes());
        for word in [about.size() as i64, about.mtime(), about.mtime_nsec(), about.ino() as i64] {
            self.add("stamp", &word.to_le_bytes());
        }
        Ok(())
    }

    /// Returns all inputs in serialized form; they are the key of the cache entry.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Object file of a compiled kernel, as stored in the cache.
pub(super) struct CachedObject {
    /// Path of the object file.
    pub(super) object: PathBuf,
    /// Content of the object file.
    pub(super) bytes: Vec<u8>,
    /// Messages that the compiler printed.
    pub(super) log: String,
}

/// Temporary folder, removed on drop unless it was renamed.
struct Passing(PathBuf);

impl Drop for Passing {
    fn drop(&mut self) {
        remove(&self.0); // a remaining folder is removed by a later sweep
    }
}

/// Removes the folder or file at `path`; ignores errors.
fn remove(path: &Path) {
    if fs::remove_dir_all(path).is_err() {
        let _ = fs::remove_file(path);
    }
}

impl KernelCache {
    /// Opens the cache, creating `folder` if missing; fails if other users can write to the folder.
    pub(super) fn open(folder: Option<&Path>, object: &'static str) -> Result<Self> {
        let folder = folder.ok_or_else(|| {
            failure!(
                DTL_ERROR_UNAVAILABLE,
                "there is no folder to keep compiled kernels in: set DTL_CACHE_DIR (HOME is not \
                 set, or no path from /)"
            )
        })?;
        if !folder.is_absolute() {
            return fail!(
                DTL_ERROR_UNAVAILABLE,
                "DTL_CACHE_DIR={}: give a path from /",
                folder.display()
            );
        }
        let folder = match dl::make_folder(folder) {
            Ok(folder) => folder,
            Err(dl::Refusal::System(error)) => return Err(unwritten(folder, &error)),
            Err(why) => return Err(refused(folder, &why)),
        };
        dl::check_folder(&folder).map_err(|why| refused(&folder, &why))?;
        // It is not sufficient that others cannot replace files: they must not add files either.
        match fs::metadata(&folder) {
            Ok(about) if about.mode() & 0o022 == 0 => {
                let limit = settings::current().compiler.cache_bytes;
                Ok(KernelCache { folder, object, limit })
            }
            Ok(_) => Err(refused(&folder, &"others can write to it")),
            Err(error) => Err(unwritten(&folder, &error)),
        }
    }

    fn place(&self, inputs: &[u8]) -> PathBuf {
        self.folder.join(format!("{:016x}", fnv1a(inputs)))
    }

    /// Returns the object file that was compiled from `inputs`; `None` if the entry is missing or
    /// incomplete, or if a file that the compiler read has changed.
    pub(super) fn find(&self, inputs: &[u8]) -> Result<Option<CachedObject>> {
        match self.limit {
            Some(0) => Ok(None),
            _ => self.read(inputs),
        }
    }

    fn read(&self, inputs: &[u8]) -> Result<Option<CachedObject>> {
        let folder = self.place(inputs);
        if self.limit.is_some() {
            // The entries that were used last are removed last.
            let mut only_folders = OpenOptions::new(); // opening a FIFO would block
            let entry = only_folders.read(true).custom_flags(libc::O_DIRECTORY).open(&folder);
            let _ = entry.and_then(|entry| entry.set_modified(SystemTime::now()));
        }
        let read = |name: &str| read(&folder.join(name)).ok();
        if read("inputs").as_deref() != Some(inputs) {
            return Ok(None);
        }
        let (Some(needs), Some(log)) = (read("needs"), read("log")) else { return Ok(None) };
        let name = self.name_of(&needs);
        let Some(bytes) = read(&name) else { return Ok(None) };
        if !String::from_utf8(needs).is_ok_and(|needs| are_met(&needs, &bytes)) {
            return Ok(None);
        }
        let object = folder.join(name);
        match dl::check_file(&object) {
            Ok(trusted) => {
                let log = String::from_utf8_lossy(&log).into_owned();
                Ok(Some(CachedObject { object: trusted.path, bytes, log }))
            }
            Err(dl::Refusal::System(_)) => Ok(None),
            Err(why) => Err(refused(&object, &why)),
        }
    }

    /// Compiles a kernel by calling `compile`, and publishes the object file in the cache.
    /// `compile` must write the object file to the empty folder whose path it receives. It returns
    /// the files that the compiler read outside this folder, and the compiler's messages. If
    /// another process has already published the entry, returns the object file of that process.
    pub(super) fn make(
        &self,
        inputs: &[u8],
        compile: impl FnOnce(&Path) -> Result<(Vec<PathBuf>, String)>,
    ) -> Result<CachedObject> {
        self.sweep();
        if let Some(limit) = self.limit {
            self.trim(limit);
        }
        let begun = Passing(self.passing(BEGUN)?);
        let at = begun.0.as_path();
        DirBuilder::new().mode(0o700).create(at).map_err(|error| unwritten(at, &error))?;
        let (needs, log) = compile(at)?;
        let (object, list) = (at.join(self.object), at.join("needs"));
        let bytes = fs::read(&object).map_err(|error| unwritten(&object, &error))?;
        let needs = needs_of(&bytes, &needs).map_err(|error| unwritten(&list, &error))?;
        let name = self.name_of(needs.as_bytes());
        fs::rename(&object, at.join(&name)).map_err(|error| unwritten(&object, &error))?;
        write(&list, needs.as_bytes())?;
        write(&at.join("log"), log.as_bytes())?;
        write(&at.join("inputs"), inputs)?;
        let place = self.place(inputs);
        for _ in 0..TRIES {
            match fs::rename(at, &place) {
                Ok(()) => return Ok(CachedObject { object: place.join(&name), bytes, log }),
                Err(error) if is_taken(&error) => {}
                Err(error) => return Err(unwritten(&place, &error)),
            }
            if let Some(entry) = self.read(inputs)? {
                return Ok(entry); // another process published the entry first
            }
            let old = Passing(self.passing(ENDED)?);
            let _ = fs::rename(&place, &old.0); // may fail if another process renames it first
        }
        fail!(
            DTL_ERROR_UNAVAILABLE,
            "{} changes all the time; set DTL_CACHE_DIR to another folder",
            place.display()
        )
    }

    /// Returns the final name of the object file: the hash of `needs` (the content of the file
    /// `needs`), with the extension of `self.object`.
    fn name_of(&self, needs: &[u8]) -> String {
        let suffix = self.object.rsplit_once('.').map_or("", |(_, suffix)| suffix);
        format!("{:016x}.{suffix}", fnv1a(needs))
    }

    /// Returns a path for a temporary folder, with a random name that is unique across nodes.
    fn passing(&self, prefix: &str) -> Result<PathBuf> {
        let number = process::random_u64().map_err(|error| unwritten(&self.folder, &error))?;
        Ok(self.folder.join(format!("{prefix}{number:016x}")))
    }

    /// Removes the entries that were not used for the longest time, until the rest fits the limit.
    /// Keeps entries that were used within the last minute, because another process may be about to
    /// load their objects. Never touches other files: compilations in progress, and whatever else
    /// the folder contains if DTL_CACHE_DIR names a folder that the program uses for more.
    fn trim(&self, limit: u64) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        let entry = |entry: fs::DirEntry| {
            if !is_entry(&entry.file_name()) {
                return None;
            }
            let used = entry.metadata().and_then(|about| about.modified()).ok()?;
            let files = fs::read_dir(entry.path()).ok()?.flatten();
            let size: u64 = files.filter_map(|file| Some(file.metadata().ok()?.len())).sum();
            Some((used, size, entry.path()))
        };
        let mut entries: Vec<_> = entries.flatten().filter_map(entry).collect();
        entries.sort_unstable();
        let mut total: u64 = entries.iter().map(|(_, size, _)| size).sum();
        for (used, size, path) in entries {
            let is_recent = used.elapsed().is_ok_and(|age| age < RECENT);
            if total <= limit || is_recent {
                break;
            }
            remove(&path);
            total -= size;
        }
    }

    /// Removes temporary folders older than `ABANDONED`: processes that were killed have left them
    /// behind.
    fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let changed = entry.metadata().and_then(|about| about.modified());
            let age = changed.ok().and_then(|time| time.elapsed().ok());
            let is_old = age.is_some_and(|age| age > ABANDONED);
            if is_old && (name.starts_with(BEGUN) || name.starts_with(ENDED)) {
                remove(&entry.path());
            }
        }
    }
}

/// Returns true if a file has the name of an entry: a hash of 16 hexadecimal digits.
fn is_entry(name: &OsStr) -> bool {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    name.len() == 16 && name.as_bytes().iter().all(is_digit)
}

fn refused(path: &Path, why: &dyn Display) -> Error {
    failure!(
        DTL_ERROR_UNAVAILABLE,
        "compiled kernels are not taken from {}: {why}; set DTL_CACHE_DIR to a folder of your own \
         (mode 0700)",
        path.display()
    )
}

/// Creates the error for a cache file that cannot be written. The status and the error message
/// depend on `error`.
pub(super) fn unwritten(path: &Path, error: &io::Error) -> Error {
    let status = match error.raw_os_error() {
        Some(libc::EFBIG) => return too_large(path),
        Some(libc::ENOSPC | libc::EDQUOT | libc::EMFILE | libc::ENFILE) => DTL_ERROR_LIMIT,
        _ => DTL_ERROR_UNAVAILABLE,
    };
    let text = format!(
        "what kernels are compiled to cannot be kept: {}: {error}; set DTL_CACHE_DIR to a folder \
         that can be written",
        path.display()
    );
    Error::new(status, text)
}

/// Creates the error for a cache file that would exceed the process' limit on file size.
pub(super) fn too_large(path: &Path) -> Error {
    failure!(
        DTL_ERROR_LIMIT,
        "what kernels are compiled to cannot be kept: {} would be more than the largest file that \
         this process may make ({} bytes); raise that limit (ulimit -f)",
        path.display(),
        process::file_size_limit()
    )
}

/// Writes a cache file, unless it would exceed the process' limit on file size.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    if bytes.len() as u64 > process::file_size_limit() {
        return Err(too_large(path)); // the kernel would kill the process (SIGXFSZ)
    }
    fs::write(path, bytes).map_err(|error| unwritten(path, &error))
}

/// Reads a regular file. Fails for other file types, because reading a FIFO or device may block.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns true if `error` means that a folder or file already exists at the target path.
fn is_taken(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EEXIST | libc::ENOTEMPTY | libc::ENOTDIR))
}

/// Formats a line of the file `needs`: hash of a file, its size in bytes, and its path.
fn line(bytes: &[u8], path: &str) -> String {
    format!("{:016x} {} {path}\n", fnv1a(bytes), bytes.len())
}

/// Formats the contents of the file `needs`: one line for the object file and one line for each
/// file that the compiler read.
fn needs_of(object: &[u8], paths: &[PathBuf]) -> io::Result<String> {
    let mut lines = line(object, "");
    for path in paths {
        // Skips files that are not regular, such as /dev/null.
        let text = path.to_str().filter(|text| !text.contains('\n') && path.is_file());
        let Some(text) = text else { continue };
        lines.push_str(&line(&read(path)?, text));
    }
    Ok(lines)
}

/// Returns true if the object file and all files listed in `needs` are unchanged.
fn are_met(needs: &str, object: &[u8]) -> bool {
    let is_same = |wanted: &str| {
        let path = wanted.splitn(3, ' ').nth(2)?;
        let now = match path {
            "" => line(object, path),
            path => line(&read(Path::new(path)).ok()?, path),
        };
        (now.trim_end_matches('\n') == wanted).then_some(())
    };
    !needs.is_empty() && needs.lines().all(|wanted| is_same(wanted).is_some())
}
