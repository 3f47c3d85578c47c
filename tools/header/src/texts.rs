//! Doc comments of functions, taken apart: text, parameters, result, statuses, equivalents.

use std::collections::BTreeMap;

/// Parts of a doc comment.
#[derive(Debug, Default)]
pub struct Text {
    /// What the function does: paragraphs, and lines of examples that begin with two spaces.
    pub body: String,
    /// Texts of parameters. A text about several parameters is that of each.
    pub parameters: BTreeMap<String, String>,
    /// Text after `@return`.
    pub returns: String,
    /// Corresponding function of an established interface.
    pub equivalent: String,
    /// Text after `Threads:`.
    pub threads: String,
}

/// Part that the lines that follow belong to.
enum Part {
    Body,
    Parameters(Vec<String>),
    Returns,
    Equivalent,
    Threads,
}

/// Takes the lines of a doc comment apart.
pub fn read(lines: &[String]) -> Text {
    let mut text = Text::default();
    let mut part = Part::Body;
    for line in lines {
        // Marks stand anywhere in a line: "... Equivalent: MPI_Bcast."
        for (index, piece) in pieces(line).into_iter().enumerate() {
            let is_indented = index == 0 && line.starts_with(' ');
            part = add(&mut text, part, piece, is_indented);
        }
    }
    text.body = text.body.trim().to_owned();
    text
}

/// Splits a line before each mark.
fn pieces(line: &str) -> Vec<&str> {
    const MARKS: [&str; 4] = ["@param", "@return", "Equivalent:", "Threads:"];
    let mut cuts: Vec<usize> =
        MARKS.iter().flat_map(|mark| line.match_indices(mark).map(|(at, _)| at)).collect();
    cuts.push(0);
    cuts.push(line.len());
    cuts.sort_unstable();
    cuts.dedup();
    match cuts.len() {
        1 => vec![line],
        _ => cuts.windows(2).filter_map(|pair| line.get(pair[0]..pair[1])).collect(),
    }
}

fn add(text: &mut Text, part: Part, piece: &str, is_indented: bool) -> Part {
    let trimmed = piece.trim();
    if let Some(rest) = trimmed.strip_prefix("@param") {
        let (names, rest) = names(rest);
        for name in &names {
            text.parameters.insert(name.clone(), rest.to_owned());
        }
        return Part::Parameters(names);
    }
    if let Some(rest) = trimmed.strip_prefix("@return") {
        join(&mut text.returns, rest);
        return Part::Returns;
    }
    if let Some(rest) = trimmed.strip_prefix("Equivalent:") {
        return add_equivalent(text, rest);
    }
    if let Some(rest) = trimmed.strip_prefix("Threads:") {
        join(&mut text.threads, rest);
        return Part::Threads;
    }
    match part {
        Part::Parameters(names) if is_indented => {
            for name in &names {
                join(text.parameters.entry(name.clone()).or_default(), trimmed);
            }
            Part::Parameters(names)
        }
        Part::Returns if !trimmed.is_empty() => {
            join(&mut text.returns, trimmed);
            Part::Returns
        }
        Part::Equivalent if !trimmed.is_empty() => add_equivalent(text, trimmed),
        Part::Threads if !trimmed.is_empty() => {
            join(&mut text.threads, trimmed);
            Part::Threads
        }
        _ => {
            let is_after_code = text.body.lines().last().is_some_and(is_code);
            if trimmed.is_empty() {
                text.body.push_str("\n\n");
            } else if is_code(piece) {
                text.body.push_str(&format!("\n{piece}"));
            } else {
                text.body.push_str(if is_after_code { "\n" } else { "" });
                join(&mut text.body, trimmed);
            }
            Part::Body
        }
    }
}

/// Returns true for a line that is shown as it is: an example.
fn is_code(line: &str) -> bool {
    line.starts_with("  ") && !line.trim().is_empty()
}

/// Adds to the name of the equivalent, which ends with a full stop, or with the parenthesis that it
/// stands in. What comes after it belongs to the text.
fn add_equivalent(text: &mut Text, rest: &str) -> Part {
    let rest = rest.trim();
    let is_in_parentheses = text.body.ends_with('(');
    let split = if is_in_parentheses {
        text.body.truncate(text.body.trim_end_matches(['(', ' ']).len());
        rest.split_once(')')
    } else {
        rest.split_once(". ")
    };
    let (name, after) = split.unwrap_or((rest, ""));
    let name = name.trim_end_matches('.');
    let is_open = name.contains('(') || !name.ends_with(')');
    join(&mut text.equivalent, if is_open { name } else { name.trim_end_matches(')') });
    if after.starts_with(['.', ',', ';', ':']) {
        text.body.push_str(after);
    } else {
        join(&mut text.body, after);
    }
    if split.is_some() || rest.ends_with('.') { Part::Body } else { Part::Equivalent }
}

/// Splits `[in] a, b  text` into the names and the text.
pub fn names(rest: &str) -> (Vec<String>, &str) {
    let mut rest = rest.trim_start();
    if let Some(after) = rest.strip_prefix('[') {
        rest = after.split_once(']').map_or(after, |(_, after)| after).trim_start();
    }
    let (list, text) =
        rest.split_once("  ").unwrap_or_else(|| rest.split_once(' ').unwrap_or((rest, "")));
    let names = list.split(',').map(|name| name.trim().to_owned());
    (names.collect(), text.trim())
}

fn join(text: &mut String, more: &str) {
    if !text.is_empty() && !text.ends_with('\n') && !more.trim().is_empty() {
        text.push(' ');
    }
    text.push_str(more.trim());
}

/// Returns the words of a text that begin with `prefix`, each once, in order.
pub fn words<'a>(text: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let mut seen = Vec::new();
    words.filter(move |word| {
        let is_new = word.starts_with(prefix) && !seen.contains(word);
        if is_new {
            seen.push(*word);
        }
        is_new
    })
}
