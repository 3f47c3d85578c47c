//! Assembles `include/dtl.h`: preamble, sections in the order of the sources, closing macros.

use crate::source::{Item, Kind, Module, Source};
use crate::{Outcome, constants, initial, layouts, source};
use std::collections::HashMap;
use std::fmt::Write;
use std::path::Path;

/// Beginning of an annotation in cbindgen's output.
const HIDDEN: &str = "/// dtl:";
const PREAMBLE: &str = include_str!("../preamble.h");
const PLUGIN: &str = include_str!("../plugin.h");
const CLOSING: &str = include_str!("../closing.h");

/// Returns the text of `include/dtl.h`.
pub fn header(root: &Path) -> Outcome<String> {
    let source = source::read(root)?;
    let declarations = declarations(&source)?;
    let mut text = PREAMBLE.replace("@VERSION_MACROS@", &version_macros(root)?);
    for module in source.modules.iter().filter(|module| !module.items.is_empty()) {
        section(&mut text, module, &source, &declarations)?;
    }
    text.push_str(&layouts::macros(&source, PLUGIN));
    refuse_cpp_keywords(&text)?;
    text.push_str(&CLOSING.replace("@HANDLE_COMPARISONS@", &comparisons(&source)));
    Ok(text)
}

/// Returns one DTL_HANDLE_COMPARISON_ line for each handle type.
fn comparisons(source: &Source) -> String {
    source.handles().map(|name| format!("DTL_HANDLE_COMPARISON_({name})\n")).collect()
}

/// Returns the library's version from its Cargo.toml.
pub fn version(root: &Path) -> Outcome<String> {
    let manifest = std::fs::read_to_string(root.join("Cargo.toml"))?;
    let version = manifest.lines().find_map(|line| line.strip_prefix("version = "));
    Ok(version.ok_or("Cargo.toml has no version line")?.trim_matches('"').to_owned())
}

fn version_macros(root: &Path) -> Outcome<String> {
    let version = version(root)?;
    let mut text = String::new();
    for (name, number) in ["MAJOR", "MINOR", "PATCH"].iter().zip(version.split('.')) {
        writeln!(text, "#define DTL_VERSION_{name} {number}")?;
    }
    write!(text, "#define DTL_VERSION_STRING \"{version}\"")?;
    Ok(text)
}

/// Returns cbindgen's C declaration of every struct, type and function, by name.
pub fn declarations(source: &Source) -> Outcome<HashMap<String, String>> {
    let items = || source.modules.iter().flat_map(|module| &module.items);
    let mut config = cbindgen::Config {
        language: cbindgen::Language::C,
        style: cbindgen::Style::Both,
        no_includes: true,
        line_length: 98,
        tab_width: 4,
        documentation_style: cbindgen::DocumentationStyle::Cxx,
        ..Default::default()
    };
    config.sort_by = cbindgen::SortKey::None;
    config.export.include = items()
        .filter(|item| !matches!(item.kind, Kind::Function(_)))
        .map(|item| item.name.clone())
        .collect();
    config.export.item_types = vec![
        cbindgen::ItemType::Structs,
        cbindgen::ItemType::Typedefs,
        cbindgen::ItemType::Functions,
        cbindgen::ItemType::OpaqueItems,
    ];
    let builder = cbindgen::Builder::new().with_config(config);
    let builder =
        source.modules.iter().fold(builder, |builder, module| builder.with_src(&module.path));
    let mut bytes = Vec::new();
    builder.generate()?.write(&mut bytes);
    let text = String::from_utf8(bytes)?;
    let is_shown = |line: &&str| !line.trim_start().starts_with(HIDDEN);
    let text = text.lines().filter(is_shown).map(|line| format!("{line}\n")).collect::<String>();
    let chunks = text.split("\n\n").map(str::trim).filter(|chunk| !chunk.is_empty());
    Ok(chunks.filter_map(|chunk| Some((declared_name(chunk)?, tidy(chunk)))).collect())
}

/// Returns the name that a declaration introduces.
fn declared_name(chunk: &str) -> Option<String> {
    let code: Vec<&str> =
        chunk.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join(" ");
    let before = if code.starts_with("typedef struct") {
        code.rsplit_once('}')?.1.trim().trim_end_matches(';')
    } else if let Some((_, pointer)) =
        code.strip_prefix("typedef").and_then(|rest| rest.split_once("(*"))
    {
        pointer.split_once(')')?.0
    } else if code.starts_with("typedef") {
        code.trim_end_matches(';')
    } else {
        code.split_once('(')?.0
    };
    before.rsplit([' ', '*']).next().map(str::to_owned)
}

/// Converts cbindgen's output to the header's style: replaces `self_` by `self`, which is a keyword
/// in Rust; removes `struct` before the names of typedefs; and marks functions that return a
/// status, so that ignoring the status causes a warning.
fn tidy(chunk: &str) -> String {
    let chunk = replace_word(chunk, "self_", "self");
    let is_comment = |line: &&str| line.starts_with("//");
    let comment: String =
        chunk.lines().take_while(is_comment).map(|line| format!("{line}\n")).collect();
    let code: Vec<&str> = chunk.lines().skip_while(is_comment).collect();
    if let Some(body) = code.first().and_then(|first| first.strip_prefix("typedef struct")) {
        let rest = code.get(1..).unwrap_or_default().join("\n").replace("struct dtl_", "dtl_");
        return format!("{comment}typedef struct{body}\n{rest}\n");
    }
    let words: Vec<&str> = code.iter().flat_map(|line| line.split_whitespace()).collect();
    let code = words.join(" ").replace("struct dtl_", "dtl_");
    let must_use = if code.starts_with("dtl_status_t") { "DTL_NODISCARD " } else { "" };
    comment + &fill(&format!("{must_use}{code}"))
}

/// Breaks a declaration after commas into lines of at most WIDTH characters.
fn fill(code: &str) -> String {
    const WIDTH: usize = 98;
    let mut lines = vec![String::new()];
    for part in code.split_inclusive(", ") {
        let last = lines.last().map_or(0, |line| line.len());
        if last > 0 && last + part.trim_end().len() > WIDTH {
            lines.push("    ".into());
        }
        if let Some(line) = lines.last_mut() {
            line.push_str(part);
        }
    }
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

fn replace_word(text: &str, word: &str, by: &str) -> String {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(word) {
        let (before, after) = (&rest[..at], &rest[at + word.len()..]);
        out.push_str(before);
        let inside = is_part(before.chars().next_back()) || is_part(after.chars().next());
        out.push_str(if inside { word } else { by });
        rest = after;
    }
    out + rest
}

fn section(
    text: &mut String,
    module: &Module,
    source: &Source,
    declarations: &HashMap<String, String>,
) -> Outcome<()> {
    writeln!(text, "\n/* {}", "-".repeat(95))?;
    for line in module.title.lines() {
        writeln!(text, " * {line}")?;
    }
    writeln!(text, " * {} */", "-".repeat(92))?;
    let mut last: Option<&Item> = None;
    for item in &module.items {
        let is_constant = |item: &Item| matches!(item.kind, Kind::Constant(_));
        let close = last.is_some_and(|last| {
            is_constant(last) && is_constant(item) && last.last_line + 1 >= item.first_line
        });
        if !close {
            text.push('\n');
        }
        text.push_str(&declaration(item, source, declarations)?);
        last = Some(item);
    }
    Ok(())
}

fn declaration(
    item: &Item,
    source: &Source,
    declarations: &HashMap<String, String>,
) -> Outcome<String> {
    if let Kind::Constant(constant) = &item.kind {
        return constants::define(constant, source);
    }
    // cbindgen drops what it cannot express (array parameters, say) without failing.
    let c = declarations.get(&item.name);
    let mut text = c
        .ok_or_else(|| format!("cbindgen left out {}: use plain C types in it", item.name))?
        .clone();
    if let Kind::Struct(structure) = &item.kind {
        if item.is_handle() {
            write!(text, "\n{}", constants::null_handle(&item.name))?;
        } else if let Some(initial) = initial::macro_of(structure, source) {
            write!(text, "\n{initial}")?;
        }
    }
    Ok(text)
}

/// Rejects names of struct fields and parameters that are keywords of C++.
fn refuse_cpp_keywords(text: &str) -> Outcome<()> {
    const KEYWORDS: &[&str] = &[
        "export",
        "template",
        "class",
        "new",
        "delete",
        "this",
        "operator",
        "private",
        "namespace",
        "using",
        "try",
        "catch",
        "throw",
        "typename",
        "virtual",
        "friend",
        "explicit",
        "mutable",
        "default",
        "register",
    ];
    let is_code = |line: &&str| !line.trim_start().starts_with(['/', '*', '#']);
    for line in text.lines().filter(is_code) {
        for word in line.split(|c: char| !c.is_alphanumeric() && c != '_') {
            if KEYWORDS.contains(&word) {
                return Err(
                    format!("`{word}` is a C++ keyword; rename it in: {}", line.trim()).into()
                );
            }
        }
    }
    Ok(())
}
