//! Insertion of included files into the source text for a driver's compiler, and sizes of OpenCL C
//! types.
//!
//! OpenCL does not search for headers. clCompileProgram accepts headers, but on PoCL the kernel
//! arguments of a program that is compiled in this way and then linked cannot be queried. Therefore
//! the text of `dtl_kernel.h`, or of a file that is passed with the source, replaces the `#include`
//! line.

use crate::error::{Result, fail};
use crate::runtime::component::{KERNEL_HEADER, SourceFile};

/// Name of the header that every source may include.
const HEADER_NAME: &str = "dtl_kernel.h";

/// Maximum size, in bytes, of a source text into which all included files have been inserted.
const MOST_BYTES: usize = 256 << 20;

/// Inserts the included files into `text` and returns the text for the compiler. Compiler messages
/// refer to the names and lines of the caller's files.
pub(super) fn complete(text: &[u8], name: &str, files: &[SourceFile]) -> Result<Vec<u8>> {
    let mut whole = Whole { files, path: Vec::new(), text: Vec::new() };
    whole.add(text, name)?;
    Ok(whole.text)
}

struct Whole<'a> {
    files: &'a [SourceFile],
    /// Files that are being inserted, outermost first.
    path: Vec<&'a str>,
    text: Vec<u8>,
}

impl<'a> Whole<'a> {
    fn add(&mut self, text: &[u8], name: &str) -> Result<()> {
        let name = name.replace('\\', "\\\\").replace('"', "\\\"");
        self.text.extend_from_slice(format!("#line 1 \"{name}\"\n").as_bytes());
        let mut in_comment = false;
        for (line, number) in text.split_inclusive(|byte| *byte == b'\n').zip(1..) {
            let included = included(line).filter(|_| !in_comment);
            match included.and_then(|(wanted, rest)| Some((self.known(wanted)?, rest))) {
                Some(((file, text), rest)) => {
                    self.include(file, text)?;
                    self.text
                        .extend_from_slice(format!("\n#line {number} \"{name}\"\n").as_bytes());
                    self.text.extend_from_slice(rest);
                }
                None => self.text.extend_from_slice(line),
            }
            in_comment = ends_in_comment(line, in_comment);
        }
        self.text.push(b'\n');
        if self.text.len() > MOST_BYTES {
            return fail!(
                DTL_ERROR_LIMIT,
                "{name}: with its files in their places the text has more than {MOST_BYTES} bytes"
            );
        }
        Ok(())
    }

    /// Inserts a file. A file that includes itself, directly or indirectly, is skipped, as with an
    /// include guard.
    fn include(&mut self, file: &'a str, text: &'a [u8]) -> Result<()> {
        if self.path.contains(&file) {
            return Ok(());
        }
        self.path.push(file);
        self.add(text, file)?;
        self.path.pop();
        Ok(())
    }

    /// Finds `wanted` among the passed files, relative to the including file or by its full name.
    /// Returns `None` if `wanted` is neither a passed file nor the library's header.
    fn known(&self, wanted: &[u8]) -> Option<(&'a str, &'a [u8])> {
        let wanted = std::str::from_utf8(wanted).ok()?;
        let folder =
            self.path.last().and_then(|file| file.rsplit_once('/')).map(|(folder, _)| folder);
        let beside = folder.map(|folder| format!("{folder}/{wanted}"));
        let named = |name: &str| self.files.iter().find(|file| file.name == name);
        match beside.and_then(|name| named(&name)).or_else(|| named(wanted)) {
            Some(file) => Some((&file.name, file.text.as_bytes())),
            None => (wanted == HEADER_NAME).then_some((HEADER_NAME, KERNEL_HEADER.to_bytes())),
        }
    }
}

/// Returns the file name of an `#include` line and the text after it; `None` for any other line.
fn included(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest =
        line.trim_ascii_start().strip_prefix(b"#")?.trim_ascii_start().strip_prefix(b"include")?;
    let (first, rest) = rest.trim_ascii_start().split_first()?;
    let end = match first {
        b'"' => b'"',
        b'<' => b'>',
        _ => return None,
    };
    let length = rest.iter().position(|byte| *byte == end)?;
    Some((rest.get(..length)?, rest.get(length + 1..)?))
}

/// Returns true if a comment is still open after `line`. `inside` is true if a comment is open
/// before `line`.
fn ends_in_comment(line: &[u8], mut inside: bool) -> bool {
    let mut rest = line;
    let mut quote = None;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        match (inside, quote) {
            (true, _) if *first == b'*' && behind.starts_with(b"/") => {
                inside = false;
                rest = behind.get(1..).unwrap_or_default();
            }
            (true, _) => {}
            (false, Some(_)) if *first == b'\\' => rest = behind.get(1..).unwrap_or_default(),
            (false, Some(mark)) if *first == mark => quote = None,
            (false, Some(_)) => {}
            (false, None) if matches!(first, b'"' | b'\'') => quote = Some(*first),
            (false, None) if *first == b'/' && behind.starts_with(b"/") => return false,
            (false, None) if *first == b'/' && behind.starts_with(b"*") => {
                inside = true;
                rest = behind.get(1..).unwrap_or_default();
            }
            (false, None) => {}
        }
    }
    inside
}

/// Returns the size of an OpenCL C type in bytes; 0 if `name` is not a known built-in type.
pub(super) fn size_of_type(name: &str) -> u64 {
    let lanes_at = name.find(|letter: char| letter.is_ascii_digit()).unwrap_or(name.len());
    let (base, lanes) = name.split_at(lanes_at);
    let size = match base {
        "char" | "uchar" => 1,
        "short" | "ushort" | "half" => 2,
        "int" | "uint" | "float" => 4,
        "long" | "ulong" | "double" => 8,
        _ => 0,
    };
    let lanes = match lanes {
        "" => 1,
        "2" => 2,
        "3" | "4" => 4,
        "8" => 8,
        "16" => 16,
        _ => 0,
    };
    size * lanes
}

#[cfg(test)]
#[path = "tests/source.rs"]
mod tests;
