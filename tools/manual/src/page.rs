//! Contents of manual pages, without a format.

use crate::statuses::Returns;
use crate::{Api, Item, list, words};
use serde_json::Value;

/// First paragraph about the result of a function that returns a status.
const SUCCESS: &str =
    "DTL_SUCCESS, or another status; dtl_last_error() then returns the text of the failure.";

/// Begins the list of statuses of any call.
pub(crate) const ANY_CALL: &str = "Also the statuses of any call";

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
            "macro" | "inline" => page.add_equivalent(item.item),
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
            "function" | "callback" | "macro" | "inline" => {
                broken(of["declaration"].as_str().unwrap_or_default())
            }
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
        let parameters: Vec<&Value> = list(&item["parameters"]).collect();
        if parameters.is_empty() {
            return;
        }
        self.add(Block::Heading("PARAMETERS"));
        for one in &parameters {
            let name = one["name"].as_str().unwrap_or_default();
            let term = match one["direction"].as_str() {
                Some("inout") => format!("{name} (in, out)"),
                Some(direction) => format!("{name} ({direction})"),
                None => name.to_owned(),
            };
            self.add(Block::Term(term, explained(one, &words::unexplained(one, &parameters))));
        }
    }

    fn add_function(&mut self, api: &Api, function: &Value) {
        self.add_parameters(function);
        let returns = &function["returns"];
        let is_status = returns["type"]["name"] == "dtl_status_t";
        if is_status {
            let mut text = Returns::read(returns["text"].as_str().unwrap_or_default());
            text.complete(api, function);
            self.add(Block::Heading("RETURN VALUE"));
            self.add(Block::Paragraph(SUCCESS.to_owned()));
            for general in [text.before, text.after].iter().filter(|text| !text.is_empty()) {
                self.add(Block::Paragraph(capital(general)));
            }
            let reasons = text.reasons.into_iter();
            reasons.for_each(|(status, reason)| self.add(Block::Term(status, reason)));
            let all: Vec<&str> = api.universal_statuses().collect();
            self.add(Block::Paragraph(format!("{ANY_CALL}: {}.", all.join(", "))));
        } else if !explained(returns, "").is_empty() {
            self.add(Block::Heading("RETURN VALUE"));
            self.add(Block::Paragraph(explained(returns, "")));
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
            self.add(Block::Term(name, explained(field, "")));
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

    fn add_equivalent(&mut self, item: &Value) {
        if let Some(equivalent) = item["equivalent"].as_str() {
            self.add(Block::Heading("NOTES"));
            self.add(Block::Paragraph(format!("Equivalent: {equivalent}.")));
        }
    }

    /// Adds the functions that the texts name; to a function also the others of its section, up to
    /// twelve in all.
    fn add_see_also(&mut self, api: &Api, item: Item<'_>) {
        let is_page = |one: &Item<'_>| matches!(one.kind(), "function" | "inline" | "macro");
        let mut others: Vec<&str> = Vec::new();
        let texts = self.blocks.iter().filter_map(|block| match block {
            Block::Paragraph(text) | Block::Term(_, text) if !text.starts_with(ANY_CALL) => {
                Some(text)
            }
            _ => None,
        });
        // Lists of functions are there already.
        let texts = texts.filter(|text| !text.starts_with("dtl_"));
        for word in
            texts.flat_map(|text| text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'))
        {
            let named = api.get(word).filter(&is_page);
            others.extend(named.map(|one| one.name()).filter(|name| *name != item.name()));
        }
        let is_near = |one: &Item<'_>| one.title == item.title && item.kind() == "function";
        let near = api.items().filter(|one| is_near(one) && one.kind() == "function");
        others.extend(near.map(|one| one.name()).filter(|name| *name != item.name()));
        let mut seen = std::collections::HashSet::new();
        others.retain(|name| seen.insert(*name));
        // The function that every text names has its reason.
        others.retain(|name| *name != "dtl_last_error");
        others.truncate(12);
        if !others.is_empty() {
            self.add(Block::Heading("SEE ALSO"));
            self.add(Block::Paragraph(others.join("(3), ") + "(3)"));
        }
    }
}

/// Returns true for a line of an example.
fn is_code(line: &str) -> bool {
    line.starts_with("  ")
}

/// Returns the text of a parameter or `other` if it has none, with the sentences of its facts that
/// the text does not state.
fn explained(one: &Value, other: &str) -> String {
    let text = one["text"].as_str().unwrap_or(other);
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

/// Returns true for a type, and for a pointer to it.
pub(crate) fn mentions(ty: &Value, name: &str) -> bool {
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
