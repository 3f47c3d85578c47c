//! Parameter sizes of kernels, parsed from PTX. The runtime checks launches against these sizes
//! where the driver cannot report them (before CUDA 12.4). PTX declares all parameters in a form
//! that the PTX specification defines.

use std::collections::BTreeMap;

/// Parameter sizes in bytes, keyed by kernel name.
pub(super) type Entries = BTreeMap<String, Vec<u64>>;

/// Parses the kernel declarations in PTX source `text`. A kernel with a parameter of unknown size
/// is omitted.
pub(super) fn entries(text: &[u8]) -> Entries {
    let text = bare(&String::from_utf8_lossy(text));
    let mut found = Entries::new();
    let mut rest = text.as_str();
    while let Some((_, behind)) = rest.split_once(".entry") {
        rest = behind;
        if !behind.starts_with(|letter: char| letter.is_ascii_whitespace()) {
            continue;
        }
        let behind = behind.trim_start();
        let is_of_name =
            |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '$' | '%');
        let end = behind.find(|letter| !is_of_name(letter)).unwrap_or(behind.len());
        let (name, behind) = behind.split_at(end);
        let list = behind.trim_start().strip_prefix('(').and_then(|list| list.split(')').next());
        let parameters = list.unwrap_or_default().split(',').filter(|one| !one.trim().is_empty());
        if let Some(sizes) = parameters.map(size).collect::<Option<Vec<u64>>>() {
            found.insert(name.to_owned(), sizes);
        }
    }
    found
}

/// Returns PTX source `text` without its comments and quoted strings.
fn bare(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    loop {
        let Some(at) = rest.find(['/', '"']) else {
            kept.push_str(rest);
            return kept;
        };
        let (before, from) = rest.split_at(at);
        kept.push_str(before);
        let behind = |skip: usize, end: &str| {
            from.get(skip..).and_then(|from| from.split_once(end)).map_or("", |(_, rest)| rest)
        };
        rest = if from.starts_with("//") {
            behind(2, "\n")
        } else if from.starts_with("/*") {
            behind(2, "*/")
        } else if from.starts_with('"') {
            behind_quotes(from)
        } else {
            kept.push('/');
            rest = behind(0, "/");
            continue;
        };
        kept.push(' ');
    }
}

/// Returns the text that follows the quoted string at the start of `text`. A backslash in the
/// string escapes the next character.
fn behind_quotes(text: &str) -> &str {
    let mut letters = text.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return text.get(at + 1..).unwrap_or_default(),
            '\\' => drop(letters.next()),
            _ => {}
        }
    }
    ""
}

/// Returns the size in bytes of a parameter such as ".param .align 8 .b8 name[24]".
fn size(parameter: &str) -> Option<u64> {
    let mut words = parameter.split_ascii_whitespace();
    if words.next() != Some(".param") {
        return None;
    }
    let (mut one, mut last) = (None, "");
    while let Some(word) = words.next() {
        match word {
            ".align" => drop(words.next()),
            word if word.starts_with('.') => one = one.or_else(|| size_of_type(word)),
            word => last = word,
        }
    }
    let count = match last.split_once('[') {
        Some((_, count)) => count.strip_suffix(']')?.trim().parse().ok()?,
        None => 1_u64,
    };
    one?.checked_mul(count)
}

fn size_of_type(word: &str) -> Option<u64> {
    match word {
        ".f16x2" | ".bf16x2" | ".tf32" => return Some(4),
        ".bf16" => return Some(2),
        _ => {}
    }
    let bits: u64 = word.strip_prefix(['.'])?.strip_prefix(['b', 'u', 's', 'f'])?.parse().ok()?;
    matches!(bits, 8 | 16 | 32 | 64 | 128).then_some(bits / 8)
}

#[cfg(test)]
#[path = "tests/ptx.rs"]
mod tests;
