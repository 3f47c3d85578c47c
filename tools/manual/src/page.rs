//! Contents of manual pages, without a format.

use crate::{Api, Item, list, words};
use serde_json::Value;
use std::collections::BTreeSet;

/// Manual page.
#[derive(Debug)]
pub struct Page {
    /// Name of the item.
    pub name: String,
    /// First sentence of its text, without the full stop.
    pub brief: String,
    /// Contents after the name.
    pub blocks: Vec<Block>,
}

/// Part of a page.
#[derive(Debug)]
pub enum Block {
    /// Begins a section.
    Heading(&'static str),
    /// Running text.
    Paragraph(String),
    /// Lines that are shown as they are.
    Code(String),
    /// Term, and the text that explains it.
    Term(String, String),
}

impl Page {
    /// Makes the page of an item.
    pub fn of(api: &Api, item: Item<'_>) -> Page {
        let mut page =
            Page { name: item.name().to_owned(), brief: brief(item.item), blocks: Vec::new() };
        page.add_synopsis(item);
        page.add_description(item);
        match item.kind() {
            "function" => page.add_function(api, item.item),
            "callback" => page.add_parameters(item.item),
            "struct" => page.add_fields(item.item),
            "constant" => page.add_uses(api, item),
            _ => {}
        }
        if matches!(item.kind(), "handle" | "struct" | "callback" | "integer") {
            page.add_functions(api, item);
        }
        page.add_see_also(api, item);
        page
    }

    fn add(&mut self, block: Block) {
        self.blocks.push(block);
    }

    fn add_synopsis(&mut self, item: Item<'_>) {
        let name = item.name();
        let of = item.item;
        let text = match item.kind() {
            "function" | "callback" => broken(of["declaration"].as_str().unwrap_or_default()),
            "constant" => format!("#define {name} {}", of["value"]),
            "integer" => format!("typedef {} {name};", of["of"].as_str().unwrap_or_default()),
            "handle" => format!("typedef struct {{ uint64_t id; }} {name};"),
            _ => {
                let fields = list(&of["fields"]).map(|field| {
                    let name = field["name"].as_str().unwrap_or_default();
                    format!("    {};\n", declared(&field["type"], name))
                });
                format!("typedef struct {name} {{\n{}}} {name};", fields.collect::<String>())
            }
        };
        self.add(Block::Heading("SYNOPSIS"));
        let header = of["header"].as_str().unwrap_or_default();
        self.add(Block::Code(format!("#include <{header}>\n\n{text}")));
        if let Some(null) = of["null"].as_str() {
            self.add(Block::Code(format!("#define {null} /* the null {name} */")));
        }
        if let Some(init) = of["init"].as_str() {
            self.add(Block::Code(format!("#define {init} /* initial value of a {name} */")));
        }
    }

    fn add_description(&mut self, item: Item<'_>) {
        let text = item.item["text"].as_str().unwrap_or_default();
        if !text.is_empty() {
            self.add(Block::Heading("DESCRIPTION"));
            let lines: Vec<&str> = text.lines().collect();
            for run in lines.chunk_by(|a, b| is_code(a) == is_code(b) && !b.is_empty()) {
                let text = run.join("\n");
                match run.first() {
                    _ if text.trim().is_empty() => {}
                    Some(first) if is_code(first) => self.add(Block::Code(text)),
                    _ => self.add(Block::Paragraph(text.trim().to_owned())),
                }
            }
        }
    }

    fn add_parameters(&mut self, item: &Value) {
        let parameters = list(&item["parameters"]).filter(|one| !explained(one).is_empty());
        let parameters: Vec<&Value> = parameters.collect();
        if parameters.is_empty() {
            return;
        }
        self.add(Block::Heading("PARAMETERS"));
        for one in parameters {
            let name = one["name"].as_str().unwrap_or_default();
            let term = match one["direction"].as_str() {
                Some("inout") => format!("{name} (in, out)"),
                Some(direction) => format!("{name} ({direction})"),
                None => name.to_owned(),
            };
            self.add(Block::Term(term, explained(one)));
        }
    }

    fn add_function(&mut self, api: &Api, function: &Value) {
        self.add_parameters(function);
        let returns = &function["returns"];
        let is_status = returns["type"]["name"] == "dtl_status_t";
        let text = explained(returns);
        if !text.is_empty() || is_status {
            self.add(Block::Heading("RETURN VALUE"));
            if is_status {
                let text = "DTL_SUCCESS, or a status; dtl_last_error() then says what was wrong.";
                self.add(Block::Paragraph(text.to_owned()));
            }
            if !text.is_empty() {
                self.add(Block::Paragraph(capital(&text)));
            }
        }
        if is_status {
            self.add(Block::Heading("ERRORS"));
            let own = list(&function["statuses"]).filter_map(Value::as_str);
            let all: BTreeSet<&str> = own.chain(api.universal_statuses()).collect();
            for status in all {
                let text = api.find(status).map_or(String::new(), |item| brief(item.item) + ".");
                self.add(Block::Term(status.to_owned(), text));
            }
        }
        self.add(Block::Heading("NOTES"));
        for sentence in words::of_call(function) {
            self.add(Block::Paragraph(sentence));
        }
    }

    fn add_fields(&mut self, structure: &Value) {
        self.add(Block::Heading("FIELDS"));
        for field in list(&structure["fields"]) {
            let name = field["name"].as_str().unwrap_or_default().to_owned();
            self.add(Block::Term(name, explained(field)));
        }
    }

    /// Adds the functions and fields that take a constant.
    fn add_uses(&mut self, api: &Api, item: Item<'_>) {
        let name = item.name();
        let returned: Vec<&str> = api
            .items()
            .filter(|one| list(&one.item["statuses"]).any(|status| status == name))
            .map(|one| one.name())
            .collect();
        if api.universal_statuses().any(|status| status == name) {
            self.add(Block::Heading("RETURNED BY"));
            self.add(Block::Paragraph("Any function that returns a status.".to_owned()));
        } else if !returned.is_empty() {
            self.add(Block::Heading("RETURNED BY"));
            self.add(Block::Paragraph(returned.join(", ") + "."));
        }
    }

    /// Adds the functions that take or return a type.
    fn add_functions(&mut self, api: &Api, item: Item<'_>) {
        let name = item.name();
        let takes = |one: &Item<'_>| {
            one.kind() == "function"
                && list(&one.item["parameters"]).any(|p| mentions(&p["type"], name))
        };
        let functions: Vec<&str> = api.items().filter(takes).map(|one| one.name()).collect();
        if !functions.is_empty() {
            self.add(Block::Heading("FUNCTIONS"));
            self.add(Block::Paragraph(functions.join(", ") + "."));
        }
    }

    /// Adds the other functions of the section, at most twelve.
    fn add_see_also(&mut self, api: &Api, item: Item<'_>) {
        let is_other = |one: &Item<'_>| {
            one.title == item.title && one.kind() == "function" && one.name() != item.name()
        };
        let others: Vec<&str> =
            api.items().filter(is_other).map(|one| one.name()).take(12).collect();
        if !others.is_empty() && item.kind() == "function" {
            self.add(Block::Heading("SEE ALSO"));
            self.add(Block::Paragraph(others.join("(3), ") + "(3)"));
        }
    }
}

/// Returns true for a line of an example.
fn is_code(line: &str) -> bool {
    line.starts_with("  ")
}

/// Returns the text of a parameter, with the sentences of its facts.
fn explained(one: &Value) -> String {
    let text = one["text"].as_str().unwrap_or_default();
    let mut sentences = vec![capital(text)];
    if !text.is_empty() && !text.ends_with(['.', ':']) {
        sentences = vec![capital(text) + "."];
    }
    sentences.extend(words::of_parameter(one));
    sentences.retain(|sentence| !sentence.is_empty());
    sentences.join(" ")
}

/// Returns the first sentence of an item's text, without its full stop.
pub(crate) fn brief(item: &Value) -> String {
    let text = item["text"].as_str().unwrap_or_default();
    let first = text.split("\n\n").next().unwrap_or_default();
    // An ellipsis ends no sentence.
    let ends = first.match_indices(". ").map(|(at, _)| at);
    let end = ends.into_iter().find(|at| !first.get(..*at).is_some_and(|text| text.ends_with('.')));
    first.get(..end.unwrap_or(first.len())).unwrap_or_default().trim_end_matches('.').to_owned()
}

/// Makes the first letter a capital one, unless it begins a name.
pub(crate) fn capital(text: &str) -> String {
    let first_word = text.split(' ').next().unwrap_or_default();
    let is_name = first_word.contains(['_', '`', '[', '(']);
    let mut letters = text.chars();
    match letters.next() {
        Some(first) if !is_name => first.to_uppercase().chain(letters).collect(),
        _ => text.to_owned(),
    }
}

fn mentions(ty: &Value, name: &str) -> bool {
    ty["name"] == name || (ty["kind"] == "pointer" && mentions(&ty["to"], name))
}

/// Returns the C declaration of a name of a type.
fn declared(ty: &Value, name: &str) -> String {
    match ty["kind"].as_str() {
        Some("pointer") => {
            let to = &ty["to"];
            match (ty["const"] == true, to["kind"] == "pointer") {
                (true, true) => declared(to, &format!("const *{name}")),
                (true, false) => format!("const {}", declared(to, &format!("*{name}"))),
                (false, _) => declared(to, &format!("*{name}")),
            }
        }
        Some("array") => declared(&ty["of"], &format!("{name}[{}]", ty["length"])),
        Some("function") => {
            let parameters = list(&ty["parameters"])
                .map(|one| declared(&one["type"], one["name"].as_str().unwrap_or_default()));
            let parameters = parameters.collect::<Vec<_>>().join(", ");
            declared(&ty["returns"], &format!("(*{name})({parameters})"))
        }
        _ => format!("{} {name}", ty["name"].as_str().unwrap_or_default()).trim_end().to_owned(),
    }
}

/// Breaks a declaration into lines of at most 78 columns, after commas.
fn broken(declaration: &str) -> String {
    let mut lines = vec![String::new()];
    for part in declaration.split_inclusive(", ") {
        let used = lines.last().map_or(0, String::len);
        if used > 0 && used + part.trim_end().len() > 78 {
            lines.push("    ".to_owned());
        }
        if let Some(last) = lines.last_mut() {
            last.push_str(part);
        }
    }
    lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
}
