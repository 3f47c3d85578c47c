//! Maintainers' notes on rows of the report's table of targets: the reasons why targets are missed.
//! The notes are in a file next to the report's page. `report` does not change this file.
//!
//! ```toml
//! [[note]]
//! rows = ["latency"]         # as in the page's table of targets
//! sizes = ["64 KiB"]         # none: any
//! regime = "near"            # none: any
//! text = "What was tried, in numbers, and what limits it."
//! ```

use crate::out::Outcome;
use crate::stats::Regime;
use std::io::ErrorKind;
use std::path::Path;
use toml::{Table, Value};

/// Name of the file with the notes.
pub(crate) const FILE: &str = "performance-notes.toml";

/// All notes of a folder.
#[derive(Default)]
pub(crate) struct Notes {
    notes: Vec<Note>,
}

struct Note {
    rows: Vec<String>,
    sizes: Vec<String>,
    regime: Option<String>,
    text: String,
}

impl Notes {
    /// Reads the notes file in `folder`. Returns an empty `Notes` if there is no such file.
    pub(crate) fn read(folder: &Path) -> Outcome<Notes> {
        let file = folder.join(FILE);
        let within = |why: String| format!("{}: {why}", file.display());
        match std::fs::read_to_string(&file) {
            Ok(text) => Notes::of(&text).map_err(within),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Notes::default()),
            Err(error) => Err(within(error.to_string())),
        }
    }

    pub(crate) fn of(text: &str) -> Outcome<Notes> {
        let all: Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
        let list = |key: &str| all.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
        let notes: Option<Vec<Note>> = list("note").iter().map(note).collect();
        Ok(Notes {
            notes: notes
                .ok_or("a [[note]] wants rows and text; rows and sizes are lists of texts")?,
        })
    }

    /// Returns the note on a row, with its position among the notes.
    pub(crate) fn of_row(&self, row: &str, size: &str, regime: Regime) -> Option<(usize, &str)> {
        let is_its = |note: &Note| {
            note.rows.iter().any(|known| known == row)
                && (note.sizes.is_empty() || note.sizes.iter().any(|known| known == size))
                && note.regime.as_ref().is_none_or(|known| known == regime.name())
        };
        let place = self.notes.iter().position(is_its)?;
        Some((place, &self.notes[place].text))
    }
}

fn text(value: &Value, key: &str) -> Option<String> {
    value.get(key)?.as_str().map(str::to_owned)
}

fn note(value: &Value) -> Option<Note> {
    let list = |key: &str| match value.get(key) {
        Some(list) => list.as_array()?.iter().map(|one| one.as_str().map(str::to_owned)).collect(),
        None => Some(Vec::new()),
    };
    let rows = list("rows").filter(|rows| !rows.is_empty());
    Some(Note {
        rows: rows?,
        sizes: list("sizes")?,
        regime: text(value, "regime"),
        text: text(value, "text")?,
    })
}

#[cfg(test)]
#[path = "tests/notes.rs"]
mod tests;
