//! Signatures of kernels (strings with one letter for each argument), and the check of a launch's
//! argument sizes against the signature.
//!
//! The documentation of `dtl_kernel_get` explains the letters.

use crate::error::{Error, Result, fail, failure};

/// Letters of a signature, each with the size in bytes of the argument that it denotes.
const LETTERS: [(char, u64); 12] = [
    ('p', 8),
    ('b', 1),
    ('B', 1),
    ('h', 2),
    ('H', 2),
    ('i', 4),
    ('I', 4),
    ('l', 8),
    ('L', 8),
    ('e', 2),
    ('f', 4),
    ('d', 8),
];

/// Argument of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Argument {
    /// Size in bytes; 0 = unknown, which matches any size.
    pub(super) size: u64,
    /// Type name as written in the signature; empty if only the size is known.
    text: String,
}

impl Argument {
    /// Creates an argument for which only the size is known.
    pub(super) fn of_size(size: u64) -> Self {
        Argument { size, text: String::new() }
    }

    /// Returns true if a value of `size` bytes may be passed for the argument.
    fn takes(&self, size: u64) -> bool {
        self.size == size || self.size == 0
    }

    fn describe(&self) -> String {
        if self.text.is_empty() {
            format!("{} bytes", self.size)
        } else {
            format!("{} bytes ({})", self.size, self.text)
        }
    }
}

/// Parses a signature.
pub(super) fn parse(signature: &str) -> Result<Vec<Argument>> {
    let mut arguments = Vec::new();
    let mut rest = signature;
    while let Some(first) = rest.chars().next() {
        let letter = LETTERS.iter().find(|(letter, _)| *letter == first);
        let letter = letter.map(|&(letter, size)| (Argument { size, text: letter.to_string() }, 1));
        let found = letter.or_else(|| bytes(rest));
        let (argument, length) = found.ok_or_else(|| misread(signature, rest))?;
        arguments.push(argument);
        rest = rest.get(length..).unwrap_or_default();
    }
    Ok(arguments)
}

/// Returns one flag for each argument of the signature: true if the argument is a pointer. Used by
/// backends that must distinguish pointers from other arguments.
pub fn pointers(signature: &str) -> Result<Vec<bool>> {
    Ok(parse(signature)?.iter().map(|argument| argument.text == "p").collect())
}

/// Parses an argument such as "[24]" (24 bytes of any type) at the start of `rest`. Returns the
/// argument and the number of bytes parsed; `None` if there is no valid size.
fn bytes(rest: &str) -> Option<(Argument, usize)> {
    let (number, _) = rest.strip_prefix('[')?.split_once(']')?;
    let size = number.parse::<u64>().ok().filter(|size| *size > 0 && number.len() <= 9)?;
    let length = number.len() + 2;
    Some((Argument { size, text: format!("[{number}]") }, length))
}

fn misread(signature: &str, rest: &str) -> Error {
    let letters: Vec<_> =
        LETTERS.iter().map(|(letter, size)| format!("{letter} ({size})")).collect();
    failure!(
        DTL_ERROR_INVALID_ARGUMENT,
        "signature \"{signature}\" at \"{rest}\": an argument is one of the letters {} with \
         these sizes in bytes, or [n] for n bytes",
        letters.join(", ")
    )
}

/// Checks the arguments of a signature against the argument sizes in the kernel's source. A size of
/// 0 in `known` means unknown.
pub(super) fn fit(kernel: &str, declared: &[Argument], known: &[u64]) -> Result<()> {
    let (wanted, count) = (declared.len(), known.len());
    if wanted != count {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "the signature has {wanted} arguments; kernel '{kernel}' has {count} in its source"
        );
    }
    let wrong = declared
        .iter()
        .zip(known)
        .enumerate()
        .find(|(_, (one, size))| **size != 0 && one.size != **size);
    let Some((index, (argument, size))) = wrong else { return Ok(()) };
    let what = argument.describe();
    fail!(
        DTL_ERROR_INVALID_ARGUMENT,
        "the signature says {what} for argument {index} of kernel '{kernel}', which has {size} \
         bytes in its source"
    )
}

/// Checks the argument sizes of a launch against the arguments of the kernel.
pub(super) fn check(kernel: &str, arguments: &[Argument], sizes: &[u64]) -> Result<()> {
    let (wanted, count) = (arguments.len(), sizes.len());
    if wanted != count {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{count} arguments for kernel '{kernel}', which takes {wanted}"
        );
    }
    let wrong = arguments.iter().zip(sizes).enumerate().find(|(_, (one, size))| !one.takes(**size));
    let Some((index, (argument, size))) = wrong else { return Ok(()) };
    let what = argument.describe();
    fail!(
        DTL_ERROR_INVALID_ARGUMENT,
        "argument {index} of kernel '{kernel}' is passed with {size} bytes and has {what}"
    )
}

#[cfg(test)]
#[path = "tests/signature.rs"]
mod tests;
