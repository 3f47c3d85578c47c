//! Assembles the headers: a template each, with its sections in the order of the sources.

use crate::source::{HEADERS, Item, Kind, Section, Source};
use crate::{Outcome, api, constants, doxygen, initial, layouts, source};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;
use std::path::Path;

/// Beginning of an annotation in cbindgen's output.
const HIDDEN: &str = "/// dtl:";

/// Templates of the headers, in the order of `HEADERS`.
const TEMPLATES: [&str; 4] = [
    include_str!("../templates/dtl.h"),
    include_str!("../templates/dtl_rdma.h"),
    include_str!("../templates/dtl_select.h"),
    include_str!("../templates/dtl_backend.h"),
];

/// Returns the template of a header.
pub fn template(header: &str) -> Option<&'static str> {
    HEADERS.iter().zip(TEMPLATES).find(|(name, _)| **name == header).map(|(_, text)| text)
}

/// Returns the text of each header.
pub fn headers(root: &Path) -> Outcome<Vec<(&'static str, String)>> {
    let source = source::read(root)?;
    let writer = Writer {
        source: &source,
        declarations: declarations(&source)?,
        directions: directions(&api::description(root)?),
        early: early(&source),
    };
    let common = [
        ("@VERSION_MACROS@", version_macros(root)?),
        ("@UNIVERSAL_STATUSES@", universal()),
        ("@INDEX@", index(&source)?),
        (
            "@EARLY@",
            writer.early.iter().map(|name| format!("typedef struct {name} {name};\n")).collect(),
        ),
    ];
    let mut headers = Vec::new();
    for (name, template) in HEADERS.into_iter().zip(TEMPLATES) {
        let sections = writer.sections(name)?;
        refuse_cpp_keywords(&sections)?;
        let mut text = template.replace("@HANDLE_COMPARISONS@", &comparisons(&source, name));
        text = layouts::macros(&source, &text).replace("@SECTIONS@", sections.trim_end());
        for (mark, value) in &common {
            text = text.replace(mark, value.trim_end());
        }
        if let Some(line) = text.lines().find(|line| !line.is_ascii()) {
            return Err(format!("{name}: not ASCII: {line}").into());
        }
        headers.push((name, text));
    }
    Ok(headers)
}

/// Returns the list of sections of all headers.
fn index(source: &Source) -> Outcome<String> {
    let mut text = String::new();
    for header in HEADERS {
        writeln!(text, " *   {header}")?;
        for section in source.sections(header) {
            let title = section.title.lines().next().unwrap_or_default();
            if title.len() > 90 || title.find('.') != Some(title.len() - 1) || title.contains('`') {
                return Err(format!("`{title}`: a title is one sentence on one line").into());
            }
            writeln!(text, " *     {}", title.trim_end_matches('.'))?;
        }
    }
    Ok(text)
}

/// Returns the universal statuses as lines of the rules.
fn universal() -> String {
    let mut lines = vec![" *    ".to_owned()];
    for (index, status) in api::UNIVERSAL.iter().enumerate() {
        let word = format!(" {status}{}", if index + 1 < api::UNIVERSAL.len() { "," } else { "." });
        if lines.last().is_some_and(|line| line.len() + word.len() > 98) {
            lines.push(" *    ".to_owned());
        }
        if let Some(line) = lines.last_mut() {
            line.push_str(&word);
        }
    }
    lines.join("\n")
}

/// Returns the structs that are declared at the top of dtl.h: all handles, and what a declaration
/// names before its definition.
fn early(source: &Source) -> Vec<String> {
    let sections = || HEADERS.into_iter().flat_map(|header| source.sections(header));
    let items: Vec<&Item> = sections().flat_map(|section| section.items).collect();
    let mut early: BTreeSet<String> = source.handles().map(str::to_owned).collect();
    let mut defined = BTreeSet::new();
    for item in &items {
        early.extend(item.kind.mentions().into_iter().filter(|name| !defined.contains(name)));
        defined.insert(item.name.clone());
    }
    let is_early =
        |item: &&&Item| matches!(item.kind, Kind::Struct(_)) && early.contains(&item.name);
    items.iter().filter(is_early).map(|item| item.name.clone()).collect()
}

/// Returns the direction of each parameter of each function and callback: `[in,out]` and so on.
fn directions(description: &Value) -> HashMap<String, HashMap<String, String>> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let items =
        list(&description["sections"]).into_iter().flat_map(|section| list(&section["items"]));
    let parameters = |item: &Value| {
        let parameters = list(&item["parameters"]).into_iter().map(|one| {
            let direction = match one["direction"].as_str() {
                Some("inout") => "in,out",
                Some("out") => "out",
                _ => "in",
            };
            (text(&one["name"]), direction.to_owned())
        });
        parameters.collect()
    };
    items.map(|item| (text(&item["name"]), parameters(&item))).collect()
}

/// Returns one DTL_HANDLE_COMPARISON_ line for each handle type of a header.
fn comparisons(source: &Source, header: &str) -> String {
    let items = source.sections(header).flat_map(|section| section.items);
    let handles = items.filter(|item| item.is_handle());
    handles.map(|item| format!("DTL_HANDLE_COMPARISON_({})\n", item.name)).collect()
}

/// Returns the library's version from its Cargo.toml.
pub fn version(root: &Path) -> Outcome<String> {
    let manifest = std::fs::read_to_string(root.join("Cargo.toml"))?;
    let version = manifest.lines().find_map(|line| line.strip_prefix("version = "));
    Ok(version.ok_or("Cargo.toml has no version line")?.trim_matches('"').to_owned())
}

pub fn version_macros(root: &Path) -> Outcome<String> {
    let version = version(root)?;
    let mut text = String::from(
        "/// Version of this header. dtl_version_string returns that of the library.\n",
    );
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

struct Writer<'a> {
    source: &'a Source,
    declarations: HashMap<String, String>,
    directions: HashMap<String, HashMap<String, String>>,
    early: Vec<String>,
}

impl Writer<'_> {
    fn sections(&self, header: &str) -> Outcome<String> {
        let mut text = String::new();
        for section in self.source.sections(header) {
            self.section(&mut text, &section)?;
        }
        Ok(text)
    }

    fn section(&self, text: &mut String, section: &Section) -> Outcome<()> {
        writeln!(text, "\n/* {}", "-".repeat(95))?;
        for line in section.title.lines() {
            writeln!(text, " * {line}")?;
        }
        writeln!(text, " * {} */", "-".repeat(92))?;
        let mut last: Option<&Item> = None;
        for item in &section.items {
            let is_constant = |item: &Item| matches!(item.kind, Kind::Constant(_));
            let close = last.is_some_and(|last| {
                let gap = item.first_line.saturating_sub(last.last_line);
                is_constant(last) && is_constant(item) && gap == 1
            });
            if !close {
                text.push('\n');
            }
            text.push_str(&self.declaration(item)?);
            last = Some(item);
        }
        Ok(())
    }

    fn declaration(&self, item: &Item) -> Outcome<String> {
        if let Kind::Constant(constant) = &item.kind {
            return constants::define(constant, self.source);
        }
        // cbindgen drops what it cannot express (array parameters, say) without failing.
        let c = self.declarations.get(&item.name);
        let c =
            c.ok_or_else(|| format!("cbindgen left out {}: use plain C types in it", item.name))?;
        let mut text = match self.directions.get(&item.name) {
            Some(directions) => doxygen::parameters(c, directions)?,
            None => c.clone(),
        };
        if let Kind::Struct(structure) = &item.kind {
            if self.early.contains(&item.name) {
                let begin = format!("struct {} {{", item.name);
                text = text.replacen(&format!("typedef {begin}"), &begin, 1);
                text = text.replacen(&format!("}} {};", item.name), "};", 1);
            }
            if item.is_handle() {
                write!(text, "\n{}", constants::null_handle(&item.name))?;
            } else if let Some(initial) = initial::macro_of(structure, self.source) {
                write!(text, "\n{initial}")?;
            }
        }
        Ok(text)
    }
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
