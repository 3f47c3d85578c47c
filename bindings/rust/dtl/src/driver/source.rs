//! Arguments of the slots for modules: source text, and arguments of a launch.

use super::kernel_header;
use super::slot::size;
use crate::{Error, Result, sys};
use std::collections::hash_map::RandomState;
use std::ffi::{CStr, c_char, c_void};
use std::hash::{BuildHasher, Hasher};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, fs, io, process, slice};

/// Source to compile.
#[derive(Debug)]
pub struct SourceText<'a> {
    source: &'a sys::dtl_source_t,
    name: &'a str,
    options: Vec<&'a str>,
    files: Vec<(&'a str, &'a [u8])>,
}

impl<'a> SourceText<'a> {
    /// # Safety
    /// The arrays and texts of the source must be valid while the value exists.
    pub(super) unsafe fn new(source: &'a sys::dtl_source_t) -> Result<Self> {
        // SAFETY: the text lives through the call.
        let text = |text: *const c_char| unsafe { utf8(text) };
        // SAFETY: an array of this size.
        let options = unsafe { array(source.options, u64::from(source.option_count)) };
        // SAFETY: an array of this size.
        let files = unsafe { array(source.files, u64::from(source.file_count)) };
        let file = |file: &'a sys::dtl_source_file_t| {
            // SAFETY: the text of the file has this many bytes.
            let bytes = unsafe { array(file.text.cast::<u8>(), file.size_bytes) };
            Ok((text(file.name)?, bytes))
        };
        Ok(SourceText {
            source,
            name: text(source.name)?,
            options: options.iter().map(|option| text(*option)).collect::<Result<_>>()?,
            files: files.iter().map(file).collect::<Result<_>>()?,
        })
    }

    /// Returns the language, DTL_LANGUAGE_..., or 0 for the backend's own one with dtl_kernel.h (see
    /// [`kernel_header`](super::kernel_header)).
    #[must_use]
    pub fn language(&self) -> sys::dtl_enum_word_t {
        self.source.language
    }

    /// Returns the bytes of the text or binary, at least one.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        // SAFETY: the source has this many bytes, by the promise of `new`.
        unsafe { array(self.source.text.cast(), self.source.size_bytes) }
    }

    /// Returns the name of the source for messages of the compiler; empty if it has none.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// Returns the options of the compiler, one command-line argument each.
    #[must_use]
    pub fn options(&self) -> &[&'a str] {
        &self.options
    }

    /// Returns the names and bytes of the files that the source may include. dtl_kernel.h is not
    /// among them.
    #[must_use]
    pub fn files(&self) -> &[(&'a str, &'a [u8])] {
        &self.files
    }
}

/// Directory with the files that a source may include, for compilers that read headers from
/// directories (option -I). It is removed when dropped.
#[derive(Debug)]
pub struct Headers(PathBuf);

impl Headers {
    /// Writes dtl_kernel.h and the files of a source into a new directory for temporary files.
    ///
    /// # Errors
    /// DTL_ERROR_UNAVAILABLE if the directory or a file cannot be written: the text has the reason of
    /// the operating system. DTL_ERROR_INVALID_ARGUMENT if the name of a file is not a relative path
    /// inside the directory.
    pub fn write(source: &SourceText<'_>) -> Result<Headers> {
        let is_inside = |name: &str| {
            let is_below = |part| matches!(part, Component::Normal(_) | Component::CurDir);
            Path::new(name).components().all(is_below)
        };
        if let Some((name, _)) = source.files().iter().find(|(name, _)| !is_inside(name)) {
            let text = format!("file {name}: use a relative path without \"..\" as the name");
            return Err(Error::new(sys::DTL_ERROR_INVALID_ARGUMENT, text));
        }
        let unavailable = |at: &Path, error: io::Error| {
            let text = format!("{}: {error}: set TMPDIR to a writable directory", at.display());
            Error::new(sys::DTL_ERROR_UNAVAILABLE, text)
        };
        let parent = env::temp_dir();
        let headers = Headers::create(&parent).map_err(|error| unavailable(&parent, error))?;
        headers.fill(source).map_err(|error| unavailable(&headers.0, error))?;
        Ok(headers)
    }

    /// Creates an empty directory. It must be new: another user could have put other headers into an
    /// existing one.
    fn create(parent: &Path) -> io::Result<Headers> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let random = RandomState::new().build_hasher().finish();
            let path = parent.join(format!("dtl-{}-{number}-{random:016x}", process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Headers(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn fill(&self, source: &SourceText<'_>) -> io::Result<()> {
        fs::write(self.0.join("dtl_kernel.h"), kernel_header())?;
        for (name, text) in source.files() {
            let path = self.0.join(name);
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            fs::write(path, text)?;
        }
        Ok(())
    }

    /// Returns the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Headers {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // what remains is a temporary file
    }
}

/// Arguments of a launch.
#[derive(Debug)]
pub struct Arguments<'a> {
    values: &'a [*const c_void],
    sizes: &'a [u64],
}

impl<'a> Arguments<'a> {
    /// # Safety
    /// Both arrays must have `count` elements, and each value must have its size in bytes, while the
    /// result exists.
    pub(super) unsafe fn new(
        values: *const *const c_void,
        sizes: *const u64,
        count: usize,
    ) -> Self {
        // SAFETY: the caller's contract.
        let values = unsafe { array(values, count as u64) };
        // SAFETY: the caller's contract.
        let sizes = unsafe { array(sizes, count as u64) };
        Arguments { values, sizes }
    }

    /// Returns the number of arguments.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns true if there is no argument.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns the bytes of each argument, in order.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        // SAFETY: each value has its size in bytes, by the promise of `new`.
        self.values
            .iter()
            .zip(self.sizes)
            .map(|(value, size)| unsafe { array(value.cast(), *size) })
    }
}

/// Parameter of a kernel in a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parameter {
    /// A pointer, letter "p".
    Pointer,
    /// A value of this size in bytes.
    Value(usize),
}

/// Converts the signature of `dtl_kernel_get`, whose letters the library has checked.
pub(super) fn parameters(signature: &str) -> Vec<Parameter> {
    let mut rest = signature.chars();
    let mut next = || {
        Some(match rest.next()? {
            'p' => Parameter::Pointer,
            'b' | 'B' => Parameter::Value(1),
            'h' | 'H' | 'e' => Parameter::Value(2),
            'i' | 'I' | 'f' => Parameter::Value(4),
            '[' => {
                let digits: String = rest.by_ref().take_while(|letter| *letter != ']').collect();
                Parameter::Value(digits.parse().unwrap_or_default())
            }
            _ => Parameter::Value(8),
        })
    };
    std::iter::from_fn(&mut next).collect()
}

/// Converts an array of C, in which NULL is empty.
///
/// # Safety
/// `first` must be NULL, or have `count` elements that do not change while the result exists.
unsafe fn array<'a, T>(first: *const T, count: u64) -> &'a [T] {
    if first.is_null() {
        return &[];
    }
    // SAFETY: the caller's contract.
    unsafe { slice::from_raw_parts(first, size(count)) }
}

/// # Safety
/// `text` must be NULL, or end with NUL and not change while the result exists.
unsafe fn utf8<'a>(text: *const c_char) -> Result<&'a str> {
    if text.is_null() {
        return Ok("");
    }
    // SAFETY: the caller's contract.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| {
        let text = "the names and options of a source have to be UTF-8";
        Error::new(sys::DTL_ERROR_INVALID_ARGUMENT, text)
    })
}
