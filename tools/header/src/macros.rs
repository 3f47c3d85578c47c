//! Macros and inline functions of the headers, which the templates define: those with a comment.

use crate::{Outcome, emit, layouts, source::Source, texts};
use serde_json::{Value, json};
use std::path::Path;

/// Title of their section in dtl.h. In the other headers it is that of the last banner.
const TITLE: &str = "versions, handles, statuses";

/// Returns the section of a header, or `None` if the header defines none.
pub fn section(root: &Path, source: &Source, header: &str) -> Outcome<Option<Value>> {
    let template = emit::template(header).ok_or("no template")?;
    let text = template.replace("@VERSION_MACROS@", &emit::version_macros(root)?);
    let text = layouts::macros(source, &text);
    let items = items(&text, header);
    let rest = text.split("@SECTIONS@").nth(1).unwrap_or_default();
    let banner = rest.split("/* ---").nth(1).and_then(|rest| rest.lines().nth(1));
    let title = match banner.map(|line| line.trim_start_matches([' ', '*'])) {
        Some(line) if header != "dtl.h" => {
            let first = line.split(['.', ',']).next().unwrap_or_default();
            first
                .chars()
                .take(1)
                .flat_map(char::to_lowercase)
                .chain(first.chars().skip(1))
                .collect()
        }
        _ => TITLE.to_owned(),
    };
    let title = format!("Macros and inline functions: {title}.");
    Ok((!items.is_empty()).then(|| json!({ "title": title, "items": items })))
}

/// Returns the descriptions of the macros and inline functions. A comment holds up to the next blank
/// line. A name that ends with "_" is internal.
pub fn items(text: &str, header: &str) -> Vec<Value> {
    let (mut found, mut comment): (Vec<Value>, Vec<String>) = (Vec::new(), Vec::new());
    for line in text.lines() {
        if let Some(words) = line.strip_prefix("///") {
            comment.push(words.strip_prefix(' ').unwrap_or(words).to_owned());
        }
        let rest = line.strip_prefix("#define ").or_else(|| line.strip_prefix("static inline "));
        let Some(rest) = rest.filter(|_| !comment.is_empty()) else {
            if line.is_empty() {
                comment.clear();
            }
            continue;
        };
        let is_macro = line.starts_with('#');
        let before = rest.split('(').next().unwrap_or_default();
        let name = match is_macro {
            true => before.split(' ').next(),
            false => before.rsplit([' ', '*']).next(),
        };
        let name = name.unwrap_or_default();
        // A name with several definitions: which one holds depends on the compiler.
        if let Some(earlier) = found.iter_mut().find(|one| one["name"] == name) {
            earlier["declaration"] = format!("#define {name}").into();
        } else if !name.ends_with('_') {
            let declaration = match (is_macro, line.strip_suffix('\\')) {
                (true, Some(line)) => line.trim_end().to_owned(),
                (true, None) => line.to_owned(),
                (false, _) => rest.replace("DTL_CONSTEXPR ", "") + ";",
            };
            let text = texts::read(&comment);
            let mut one = json!({
                "name": name, "header": header, "kind": if is_macro { "macro" } else { "inline" },
                "declaration": declaration, "text": text.body,
            });
            if !text.equivalent.is_empty() {
                one["equivalent"] = text.equivalent.into();
            }
            found.push(one);
        }
    }
    found
}
