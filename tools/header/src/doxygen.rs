//! `@param` lines of the headers as Doxygen reads them: one parameter each, with its direction.

use crate::{Outcome, texts};
use std::collections::HashMap;

const PARAM: &str = "/// @param";
const WIDTH: usize = 98;

/// Returns a declaration with the `@param` lines of its comment rewritten. A text about several
/// parameters is repeated for each.
pub fn parameters(declaration: &str, directions: &HashMap<String, String>) -> Outcome<String> {
    let explained =
        declaration.lines().filter_map(|line| Some(texts::names(line.strip_prefix(PARAM)?).0));
    let widths =
        explained.flatten().map(|name| name.len() + directions.get(&name).map_or(0, String::len));
    let column = "@param[] ".len() + widths.max().unwrap_or_default() + 1;
    let mut text = String::new();
    let mut lines = declaration.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(rest) = line.strip_prefix(PARAM) else {
            text.push_str(&format!("{line}\n"));
            continue;
        };
        let (names, first) = texts::names(rest);
        let mut words: Vec<&str> = first.split_whitespace().collect();
        while let Some(more) = lines.next_if(|line| line.starts_with("///  ")) {
            words.extend(more.trim_start_matches('/').split_whitespace());
        }
        for name in names {
            let direction = directions.get(&name).ok_or_else(|| format!("@param {name}: none"))?;
            text.push_str(&filled(&format!("@param[{direction}] {name}"), column, &words));
        }
    }
    Ok(text)
}

/// Returns `head` and the words after it, in lines whose text begins at `column`.
fn filled(head: &str, column: usize, words: &[&str]) -> String {
    let mut text = String::new();
    let mut line = format!("{head:column$}");
    for word in words {
        if line.trim_end().len() > column && line.len() + word.len() + 5 > WIDTH {
            text.push_str(&format!("/// {}\n", line.trim_end()));
            line = " ".repeat(column);
        }
        line.push_str(if line.len() > column { " " } else { "" });
        line.push_str(word);
    }
    text + &format!("/// {}\n", line.trim_end())
}
