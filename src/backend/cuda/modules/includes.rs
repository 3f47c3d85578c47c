//! Header files that CUDA C++ source may include. NVRTC does not report which files it reads.
//! Therefore the file of every `#include`, even of one that a condition excludes, is searched for
//! in every folder that NVRTC could search. Each file that is found, and each path at which no file
//! exists, is an input of the compilation. A superfluous input may cause a superfluous compilation.
//! A missing input would yield a cached kernel that does not match the current header file.
//!
//! If only the compiler can resolve a file name (a macro instead of a name, or precompiled
//! headers), this module cannot determine the inputs, and the source is compiled each time.

use crate::backend::kernel_cache::Inputs;
use crate::runtime::component::Source;
use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Maximum number of header files of one source, and maximum total size of these files in bytes. A
/// source that exceeds a limit is compiled each time, because its inputs are not determined.
const MOST_FILES: usize = 20_000;
const MOST_BYTES: usize = 256 << 20;

/// Adds to `inputs` all header files that `source` may include. Returns false if the files cannot
/// be determined.
pub(super) fn add(inputs: &mut Inputs, source: &Source) -> bool {
    let options: Vec<&[u8]> = source.options.iter().map(|option| option.as_bytes()).collect();
    let Some(options) = read_options(&options) else { return false };
    inputs.add("folder", std::env::current_dir().unwrap_or_default().as_os_str().as_bytes());
    let name = Path::new(OsStr::from_bytes(source.name.as_bytes()));
    let home = name.parent().unwrap_or(Path::new("")).to_path_buf();
    let mut walk = Walk {
        inputs,
        folders: options.folders,
        seen: BTreeSet::new(),
        waiting: VecDeque::new(),
        bytes: 0,
    };
    // NVRTC also searches the current folder for files that the options name.
    let first =
        options.names.iter().all(|name| walk.look(Path::new(""), name) && walk.look(&home, name));
    // Files that are passed with the source are inputs already; the files that they include may be
    // on disk.
    let files = source.files.iter();
    let followed = files.map(|file| (home.join(&file.name), file.text.as_bytes()));
    let mut followed =
        followed.map(|(path, text)| (path.parent().unwrap_or(&home).to_path_buf(), text));
    first
        && walk.follow(&home, source.bytes())
        && followed.all(|(folder, text)| walk.follow(&folder, text) && walk.follow(&home, text))
        && walk.finish()
}

struct Walk<'a> {
    inputs: &'a mut Inputs,
    folders: Vec<PathBuf>,
    seen: BTreeSet<PathBuf>,
    waiting: VecDeque<(PathBuf, Vec<u8>)>,
    bytes: usize,
}

impl Walk<'_> {
    fn finish(&mut self) -> bool {
        while let Some((folder, text)) = self.waiting.pop_front() {
            if !self.follow(&folder, &text) {
                return false;
            }
        }
        true
    }

    /// Searches for every file that `text` includes; `folder` is the folder of the including file.
    /// Returns false if the files cannot be determined.
    fn follow(&mut self, folder: &Path, text: &[u8]) -> bool {
        names(text).is_some_and(|names| names.iter().all(|name| self.look(folder, name)))
    }

    fn look(&mut self, folder: &Path, name: &[u8]) -> bool {
        let name = Path::new(OsStr::from_bytes(name));
        let beside = folder.join(name);
        let others: Vec<PathBuf> = self.folders.iter().map(|folder| folder.join(name)).collect();
        std::iter::once(beside).chain(others).all(|path| self.take(path))
    }

    fn take(&mut self, path: PathBuf) -> bool {
        if !self.seen.insert(path.clone()) {
            return true;
        }
        if self.seen.len() > MOST_FILES {
            return false;
        }
        let (key, room) = (path.as_os_str().as_bytes(), MOST_BYTES - self.bytes);
        let Some(text) = read(&path, room) else {
            self.inputs.add("absent", key);
            return true;
        };
        if text.len() > room {
            return false;
        }
        self.bytes += text.len();
        self.inputs.add("file", key);
        self.inputs.add("text", &text);
        self.waiting.push_back((path.parent().unwrap_or(Path::new("")).to_path_buf(), text));
        true
    }
}

/// Reads the first `most` + 1 bytes of a file; `None` if the file cannot be read or is not a
/// regular file, because reading a pipe or a device could block.
fn read(path: &Path, most: usize) -> Option<Vec<u8>> {
    fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let mut text = Vec::new();
    fs::File::open(path).ok()?.take(most as u64 + 1).read_to_end(&mut text).ok()?;
    Some(text)
}

/// Include directories and included files that the compiler options name.
struct IncludeOptions {
    folders: Vec<PathBuf>,
    names: Vec<Vec<u8>>,
}

fn read_options(options: &[&[u8]]) -> Option<IncludeOptions> {
    let mut found = IncludeOptions { folders: Vec::new(), names: Vec::new() };
    let mut options = options.iter();
    while let Some(&option) = options.next() {
        let value =
            |long: &[u8]| option.strip_prefix(long).and_then(|rest| rest.strip_prefix(b"="));
        let place = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
        if let Some(folder) = value(b"--include-path") {
            found.folders.push(place(folder));
        } else if let Some(name) = value(b"--pre-include").or_else(|| value(b"-include")) {
            found.names.push(name.to_vec());
        } else if option == b"--include-path" || option == b"-I" {
            found.folders.push(place(options.next()?));
        } else if option == b"--pre-include" || option == b"-include" {
            found.names.push(options.next()?.to_vec());
        } else if let Some(folder) = option.strip_prefix(b"-I") {
            found.folders.push(place(folder.trim_ascii_start()));
            found.folders.extend(folder.strip_prefix(b"=").map(place));
        } else if names_a_file(option) {
            return None;
        }
    }
    Some(found)
}

/// Returns true if `option`, which is not an include option, may name a file: the option refers to
/// precompiled headers or a trace, or the option itself or its value (after `=`) is the path of an
/// existing file.
fn names_a_file(option: &[u8]) -> bool {
    let has = |word: &[u8]| option.windows(word.len()).any(|part| part == word);
    let is_file = |name: &[u8]| !name.is_empty() && Path::new(OsStr::from_bytes(name)).is_file();
    let value = option.iter().position(|byte| *byte == b'=').and_then(|at| option.get(at + 1..));
    has(b"pch") || has(b"trace") || is_file(option) || value.is_some_and(is_file)
}

/// Returns the file names in all `#include` directives and `__has_include` expressions of `text`.
/// The result also contains names in comments, which can only cause a superfluous compilation.
/// Returns `None` if only the compiler can resolve one of the names.
fn names(text: &[u8]) -> Option<Vec<Vec<u8>>> {
    if text.windows(3).any(|part| part == b"??=") {
        return None;
    }
    let text = &joined(text);
    let mut names = Vec::new();
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let (is_directive, length) = if rest.starts_with(b"#") {
            (true, 1)
        } else if rest.starts_with(b"%:") {
            (true, 2)
        } else if rest.starts_with(b"__has_include") || rest.starts_with(b"__has_embed") {
            (false, 11)
        } else {
            at += 1;
            continue;
        };
        let before = text.get(..at).unwrap_or_default();
        at += length;
        let behind = rest.get(length..).unwrap_or_default();
        let wanted = if is_directive { directive(behind, before) } else { question(behind) };
        match wanted {
            IncludeTarget::Nothing => {}
            IncludeTarget::Name(name) => names.push(name),
            IncludeTarget::Unknown => return None,
        }
    }
    Some(names)
}

enum IncludeTarget {
    Nothing,
    Name(Vec<u8>),
    Unknown,
}

/// Parses a possible include directive. `behind` is the text after the '#', and `before` is the
/// text before it.
fn directive(behind: &[u8], before: &[u8]) -> IncludeTarget {
    let behind = skip_blanks(behind);
    let is_word = |word: &[u8]| behind.starts_with(word);
    if !is_word(b"include") && !is_word(b"import") && !is_word(b"embed") {
        return IncludeTarget::Nothing;
    }
    let length = behind.iter().take_while(|byte| is_of_word(**byte)).count();
    let (word, argument) = behind.split_at(length);
    if word == b"include" {
        if let Some(name) = name(skip_blanks(argument)) {
            return IncludeTarget::Name(name);
        }
    }
    // Comments and string literals can contain a text like a directive, but not at the beginning of
    // a line.
    let line = before.rsplit(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
    if line.is_empty() || line.ends_with(b"*/") {
        IncludeTarget::Unknown
    } else {
        IncludeTarget::Nothing
    }
}

/// Parses the operand of `__has_include` or `__has_embed`. `behind` is the source text after the
/// first 11 bytes of the operator, so it starts with "de" if the operator is `__has_include`.
fn question(behind: &[u8]) -> IncludeTarget {
    let length = behind.iter().take_while(|byte| is_of_word(**byte)).count();
    let (word, rest) = behind.split_at(length);
    match skip_blanks(rest).strip_prefix(b"(") {
        None => IncludeTarget::Nothing, // a test for the operator itself
        Some(argument) if word == b"de" => match name(skip_blanks(argument)) {
            Some(name) => IncludeTarget::Name(name),
            None => IncludeTarget::Unknown,
        },
        Some(_) => IncludeTarget::Unknown,
    }
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Parses a file name in the form "name" or <name>.
fn name(text: &[u8]) -> Option<Vec<u8>> {
    let (first, rest) = text.split_first()?;
    let end = match first {
        b'"' => b'"',
        b'<' => b'>',
        _ => return None,
    };
    let line = rest.split(|byte| *byte == b'\n').next()?;
    let length = line.iter().position(|byte| *byte == end)?;
    line.get(..length).map(<[u8]>::to_vec)
}

/// Returns `text` without the blanks and block comments at its start. Does not skip a line end
/// outside a comment.
fn skip_blanks(mut text: &[u8]) -> &[u8] {
    loop {
        match text {
            [b' ' | b'\t' | b'\r' | b'\x0b' | b'\x0c', rest @ ..] => text = rest,
            [b'/', b'*', rest @ ..] => match rest.windows(2).position(|pair| pair == b"*/") {
                Some(end) => text = rest.get(end + 2..).unwrap_or_default(),
                None => return &[],
            },
            _ => return text,
        }
    }
}

/// Joins each line that ends in a backslash with the line that follows it.
fn joined(text: &[u8]) -> Vec<u8> {
    let mut lines = Vec::with_capacity(text.len());
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        lines.extend_from_slice(line.trim_ascii_end().strip_suffix(b"\\").unwrap_or(line));
    }
    lines
}

#[cfg(test)]
#[path = "tests/includes.rs"]
mod tests;
