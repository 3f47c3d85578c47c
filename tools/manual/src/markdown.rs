//! Text in Markdown, with links from the names of the interface to their places in the reference.

use crate::page::{ANY_CALL, capital};
use crate::{Block, Page};
use std::collections::BTreeMap;

/// Targets of links.
#[derive(Default)]
pub(crate) struct Links {
    /// Places of all names in the reference: file and anchor.
    pub(crate) places: BTreeMap<String, String>,
    /// Titles of the pages of `docs`, by their paths in the repository.
    pub(crate) titles: BTreeMap<String, String>,
}

impl Links {
    /// Returns true for a name of the interface, with or without "()".
    pub(crate) fn has(&self, code: &str) -> bool {
        self.places.contains_key(code.trim_end_matches("()"))
    }

    /// Returns a name as code, with a link if it is a name of the interface. `folder` leads from
    /// the page to the folder of the reference.
    pub(crate) fn name(&self, code: &str, folder: &str) -> String {
        match self.places.get(code.trim_end_matches("()")) {
            Some(place) => format!("[`{code}`]({folder}{place})"),
            None => format!("`{code}`"),
        }
    }

    /// Returns the text of an item in Markdown, with links from names and from paths of documents.
    pub(crate) fn text(&self, text: &str) -> String {
        let mut result = String::new();
        for (index, piece) in text.split('`').enumerate() {
            if index % 2 == 1 {
                result.push_str(&self.name(piece, ""));
                continue;
            }
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let letters: Vec<char> = piece.chars().collect();
            for run in letters.chunk_by(|a, b| is_part(*a) && is_part(*b)) {
                let word: String = run.iter().collect();
                match self.places.contains_key(&word) {
                    true => result.push_str(&self.name(&word, "")),
                    false => result.push_str(&escaped(&word)),
                }
            }
        }
        self.with_documents(&result)
    }

    /// Makes links of the paths of documents: the header names them from the top of the repository.
    fn with_documents(&self, text: &str) -> String {
        let mut pieces = text.split("docs/");
        let mut result = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            match piece.split_once(".md") {
                Some((path, rest)) if !path.contains([' ', '\n']) => {
                    let title = self.titles.get(&format!("docs/{path}.md"));
                    let title =
                        title.map_or_else(|| format!("docs/{path}.md"), |title| escaped(title));
                    result.push_str(&format!("[{title}](../{path}.md){rest}"));
                }
                _ => result.push_str(&format!("docs/{piece}")),
            }
        }
        result
    }

    /// Returns a cell of a table.
    pub(crate) fn cell(&self, text: &str) -> String {
        self.text(text).replace('|', "\\|").split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Returns the contents of a page, without its name.
    pub(crate) fn page(&self, page: &Page) -> String {
        let mut text = String::new();
        let mut heading = "";
        for (index, block) in page.blocks.iter().enumerate() {
            let previous = index.checked_sub(1).map(|index| &page.blocks[index]);
            let is_first = !matches!(previous, Some(Block::Term(..)));
            match block {
                Block::Heading(next) => {
                    heading = next;
                    text.push_str(&titled(next));
                }
                // The page has them all.
                _ if heading == "SEE ALSO" => {}
                // They have a page of their own.
                Block::Paragraph(words) if words.starts_with(ANY_CALL) => {
                    text.push_str("\nAlso the statuses of [any call](any-call.md).\n");
                }
                Block::Paragraph(words) if heading == "NOTES" => {
                    text.push_str(&format!("- {}\n", self.cell(words)));
                }
                Block::Paragraph(words) => text.push_str(&format!("\n{}\n", self.text(words))),
                Block::Code(lines) => text.push_str(&format!("\n```c\n{lines}\n```\n")),
                Block::Term(term, words) if heading == "PARAMETERS" => {
                    if is_first {
                        text.push_str("\n| parameter | | meaning |\n|---|---|---|\n");
                    }
                    let (name, direction) = term.split_once(" (").unwrap_or((term, ""));
                    let direction = direction.trim_end_matches(')');
                    text.push_str(&format!("| `{name}` | {direction} | {} |\n", self.cell(words)));
                }
                Block::Term(term, words) if heading == "FIELDS" => {
                    if is_first {
                        text.push_str("\n| field | meaning |\n|---|---|\n");
                    }
                    text.push_str(&format!("| `{term}` | {} |\n", self.cell(words)));
                }
                Block::Term(term, words) => {
                    text.push_str(if is_first { "\n" } else { "" });
                    text.push_str(&format!("- {}: {}\n", self.name(term, ""), self.cell(words)));
                }
            }
        }
        text
    }
}

/// Returns the line that begins a section of an item.
fn titled(heading: &str) -> String {
    match heading {
        "SYNOPSIS" | "DESCRIPTION" | "PARAMETERS" | "FIELDS" | "SEE ALSO" => String::new(),
        "NOTES" => "\n**Notes**\n\n".to_owned(),
        "FUNCTIONS" => "\n**Used by**\n".to_owned(),
        other => format!("\n**{}**\n", capital(&other.to_lowercase())),
    }
}

/// Escapes what Markdown would interpret.
fn escaped(text: &str) -> String {
    let mut result = String::new();
    for letter in text.chars() {
        if "\\*_[]<>#~&".contains(letter) {
            result.push('\\');
        }
        result.push(letter);
    }
    result
}
