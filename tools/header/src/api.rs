//! Writes `include/dtl-api.json`: the interface as data, for bindings, manual pages and checks.
//!
//! Everything that the signatures say is taken from them; the rest comes from the doc comments
//! (`texts`) and their annotations (`facts`). Missing and contradictory annotations are errors.

use crate::facts::{Fact, Facts};
use crate::source::{HEADERS, Item, Kind, Source, docs, path_name, plain, shown};
use crate::texts::{self, Text};
use crate::{Outcome, emit, initial, macros, source, types};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

/// Statuses that any function may return, beside those of its own.
pub const UNIVERSAL: [&str; 6] = [
    "DTL_ERROR_INVALID_HANDLE",
    "DTL_ERROR_NULL_POINTER",
    "DTL_ERROR_INVALID_STATE",
    "DTL_ERROR_FORKED",
    "DTL_ERROR_OUT_OF_MEMORY",
    "DTL_ERROR_INTERNAL",
];

/// Returns the text of `dtl-api.json`.
pub fn text(root: &Path) -> Outcome<String> {
    let mut text = String::new();
    layout(&description(root)?, 0, 0, &mut text);
    Ok(text + "\n")
}

/// Appends a value: on one line if it fits on the rest of a line, otherwise one member on each.
/// `column` is where the value begins, `depth` how far its lines are indented.
fn layout(value: &Value, column: usize, depth: usize, text: &mut String) {
    const WIDTH: usize = 100;
    let line = value.to_string();
    let (open, close, members): (_, _, Vec<(String, &Value)>) = match value {
        Value::Object(object) => {
            let members = object.iter().map(|(name, value)| (format!("\"{name}\": "), value));
            ('{', '}', members.collect())
        }
        Value::Array(array) => ('[', ']', array.iter().map(|v| (String::new(), v)).collect()),
        _ => return text.push_str(&line),
    };
    if column + line.len() < WIDTH || members.is_empty() {
        return text.push_str(&line);
    }
    text.push(open);
    for (index, (name, value)) in members.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let indent = " ".repeat(depth + 1);
        text.push_str(&format!("{comma}\n{indent}{name}"));
        layout(value, depth + 1 + name.len(), depth + 1, text);
    }
    text.push_str(&format!("\n{}{close}", " ".repeat(depth)));
}

/// Returns the description of the interface.
pub fn description(root: &Path) -> Outcome<Value> {
    let source = source::read(root)?;
    let writer = Writer::new(&source)?;
    let (mut sections, mut wrong) = (Vec::new(), Vec::new());
    for header in HEADERS {
        for section in source.sections(header) {
            let mut items = Vec::new();
            for item in section.items {
                match writer.item(item, header) {
                    Ok(item) => items.push(item),
                    Err(error) => wrong.push(format!("{}: {error}", item.name)),
                }
            }
            sections.push(json!({ "title": section.title.replace('\n', " "), "items": items }));
        }
        sections.extend(macros::section(root, &source, header)?);
    }
    wrong.extend(clashes(&source));
    if !wrong.is_empty() {
        return Err(format!("{} items lack a fact:\n  {}", wrong.len(), wrong.join("\n  ")).into());
    }
    let version = emit::version(root)?;
    Ok(json!({
        "$schema": "dtl-api.schema.json",
        "version": version,
        "pointer_bytes": 8,
        "universal_statuses": UNIVERSAL,
        "sections": sections,
    }))
}

/// Version in which an item appeared that says nothing else: the first.
const SINCE: &str = "0.2";

struct Writer<'a> {
    source: &'a Source,
    declarations: HashMap<String, String>,
    texts: BTreeMap<String, Text>,
}

impl<'a> Writer<'a> {
    fn new(source: &'a Source) -> Outcome<Writer<'a>> {
        let functions = source.items().filter_map(|item| match &item.kind {
            Kind::Function(function) => {
                Some((item.name.clone(), texts::read(&shown(&function.attrs))))
            }
            _ => None,
        });
        let texts = functions.collect();
        Ok(Writer { source, declarations: emit::declarations(source)?, texts })
    }

    fn item(&self, item: &Item, header: &str) -> Outcome<Value> {
        let mut object = match &item.kind {
            Kind::Constant(constant) => self.constant(constant)?,
            Kind::Type(alias) => self.alias(item, alias)?,
            Kind::Struct(structure) if item.is_handle() => self.handle(item, structure)?,
            Kind::Struct(structure) => self.structure(structure)?,
            Kind::Function(function) => self.function(item, function)?,
        };
        let mut named = Map::from_iter([("name".to_owned(), item.name.clone().into())]);
        named.insert("header".into(), header.into());
        named.append(&mut object);
        Ok(Value::Object(named))
    }

    fn constant(&self, constant: &syn::ItemConst) -> Outcome<Map<String, Value>> {
        let text = texts::read(&shown(&constant.attrs));
        let value = types::number(&constant.expr).ok_or("a value that is not a number")?;
        let value = serde_json::Number::from_i128(value).ok_or("a number of more than 64 bits")?;
        object(json!({
            "kind": "constant",
            "type": path_name(&constant.ty).as_deref().map(types::c_name),
            "value": value,
            "text": text.body,
            "equivalent": text.equivalent,
        }))
    }

    fn alias(&self, item: &Item, alias: &syn::ItemType) -> Outcome<Map<String, Value>> {
        let text = texts::read(&shown(&alias.attrs));
        let ty = types::structure(&alias.ty, self.source)?;
        if ty["kind"] != "function" {
            let of = &ty["name"];
            let Text { body, equivalent, .. } = text;
            let item =
                json!({ "kind": "integer", "of": of, "text": body, "equivalent": equivalent });
            return object(item);
        }
        let facts = facts(&alias.attrs)?;
        let declaration = self.declaration(item)?;
        let mut parameters = Vec::new();
        for parameter in ty["parameters"].as_array().into_iter().flatten() {
            let name = parameter["name"].as_str().unwrap_or_default();
            let mut one = object(parameter.clone())?;
            if let Some(text) = text.parameters.get(name) {
                one.insert("text".into(), text.clone().into());
            }
            insert_facts(&mut one, facts.of(name));
            parameters.push(Value::Object(one));
        }
        refuse_strangers(&facts, &parameters)?;
        self.complete_all(&mut parameters, &facts)?;
        let returns = object(json!({ "type": ty["returns"], "text": text.returns }))?;
        object(json!({
            "kind": "callback",
            "declaration": declaration,
            "parameters": parameters,
            "returns": returns,
            "text": text.body,
            "equivalent": text.equivalent,
        }))
    }

    fn handle(&self, item: &Item, structure: &syn::ItemStruct) -> Outcome<Map<String, Value>> {
        let facts = facts(&structure.attrs)?;
        let ends = facts.find("", "ends").ok_or("which function ends it? (dtl: ends(...))")?;
        let ends: Vec<&str> = ends
            .argument
            .iter()
            .flat_map(|list| list.split('|'))
            .filter(|s| !s.is_empty())
            .collect();
        for end in &ends {
            self.check_function(end)?;
        }
        let text = texts::read(&shown(&structure.attrs));
        object(json!({
            "kind": "handle",
            "null": initial::null_name(&item.name),
            "ends": ends,
            "text": text.body,
            "equivalent": text.equivalent,
        }))
    }

    fn structure(&self, structure: &syn::ItemStruct) -> Outcome<Map<String, Value>> {
        let (offsets, layout) = types::offsets(structure, self.source)?;
        let values = initial::values(structure);
        let mut fields = Vec::new();
        for (field, offset) in structure.fields.iter().zip(offsets) {
            let name = field.ident.as_ref().map(plain).unwrap_or_default();
            let ty = types::structure(&field.ty, self.source)?;
            let facts = facts(&field.attrs).map_err(|error| format!("{name}: {error}"))?;
            let size = types::layout(&ty, self.source)?.size;
            let text = texts::read(&shown(&field.attrs)).body;
            let initial = values.iter().flatten().find(|(other, _)| other.ident == field.ident);
            let initial = initial.and_then(|(_, value)| initial_text(value));
            let mut one = object(json!({
                "name": name, "type": ty, "offset": offset, "size": size, "initial": initial,
                "text": text,
            }))?;
            insert_facts(&mut one, facts.of(""));
            fields.push(Value::Object(one));
        }
        let init = values.map(|_| initial::macro_name(&structure.ident.to_string()));
        let text = texts::read(&shown(&structure.attrs));
        object(json!({
            "kind": "struct",
            "size": layout.size,
            "align": layout.align,
            "init": init,
            "fields": fields,
            "text": text.body,
            "equivalent": text.equivalent,
        }))
    }

    fn function(&self, item: &Item, function: &syn::ItemFn) -> Outcome<Map<String, Value>> {
        let facts = facts(&function.attrs)?;
        let text = self.texts.get(&item.name).ok_or("no text")?;
        let mut parameters = Vec::new();
        for input in &function.sig.inputs {
            let syn::FnArg::Typed(input) = input else { return Err("self in a function".into()) };
            let syn::Pat::Ident(name) = &*input.pat else { return Err("an odd parameter".into()) };
            let name = plain(&name.ident);
            let name = name.as_str();
            let ty = types::structure(&input.ty, self.source)?;
            let mut one = object(json!({
                "name": name, "type": ty, "text": text.parameters.get(name),
            }))?;
            insert_facts(&mut one, facts.of(name));
            parameters.push(Value::Object(one));
        }
        refuse_strangers(&facts, &parameters)?;
        self.complete_all(&mut parameters, &facts)?;
        for name in text.parameters.keys() {
            if !parameters.iter().any(|one| one["name"] == name.as_str()) {
                return Err(format!("@param {name}: there is no such parameter").into());
            }
        }
        let returned = types::returns(&function.sig.output, self.source)?;
        let mut returns = object(json!({ "type": returned, "text": text.returns }))?;
        insert_facts(&mut returns, facts.of("return"));
        if is_string(&returned) && !facts.has("return", "lives") {
            return Err("how long does the returned string live? (dtl:return lives(...))".into());
        }
        let statuses: Vec<String> = if returned["name"] == "dtl_status_t" {
            self.statuses(&item.name, 8).into_iter().collect()
        } else {
            Vec::new()
        };
        let mut object = object(json!({
            "kind": "function",
            "declaration": self.declaration(item)?,
            "parameters": parameters,
            "returns": returns,
            "statuses": statuses,
            "equivalent": text.equivalent,
            "threads": if text.threads.is_empty() { "any" } else { text.threads.as_str() },
            "since": SINCE,
            "text": text.body,
        }))?;
        insert_facts(&mut object, facts.of("call"));
        Ok(object)
    }

    /// Completes all parameters, and checks the expressions of their facts.
    fn complete_all(&self, parameters: &mut [Value], facts: &Facts) -> Outcome<()> {
        let names: Vec<String> =
            parameters.iter().filter_map(|one| one["name"].as_str()).map(str::to_owned).collect();
        for one in parameters.iter_mut().filter_map(Value::as_object_mut) {
            let name = one["name"].as_str().unwrap_or_default().to_owned();
            let result =
                self.complete(&name, one, facts).and_then(|()| self.check(&name, facts, &names));
            result.map_err(|error| format!("{name}: {error}"))?;
        }
        Ok(())
    }

    /// Fails if an expression names no parameter, or a fact no constant or function.
    fn check(&self, name: &str, facts: &Facts, parameters: &[String]) -> Outcome<()> {
        const WORDS: [&str; 5] = ["size", "sum", "length", "dtype", "rank"];
        let constants =
            || self.source.items().filter(|item| matches!(item.kind, Kind::Constant(_)));
        for Fact { name, argument } in facts.of(name) {
            let argument = argument.as_deref().unwrap_or_default();
            match name.as_str() {
                "len" | "opt" | "in_place" => {
                    let words = argument.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                    let is_name = |word: &&str| word.starts_with(|c: char| c.is_ascii_lowercase());
                    for word in words.filter(is_name).filter(|word| !WORDS.contains(word)) {
                        if !parameters.iter().any(|other| other == word) {
                            return Err(
                                format!("{name}({argument}): {word} is no parameter").into()
                            );
                        }
                    }
                }
                "values" | "flags" => {
                    for part in argument.split('|') {
                        let fits = |other: &str| {
                            if part.ends_with('_') {
                                other.starts_with(part)
                            } else {
                                other == part
                            }
                        };
                        if !constants().any(|item| fits(&item.name)) {
                            return Err(format!("{name}({argument}): {part} is no constant").into());
                        }
                    }
                }
                "until" => {
                    if let Some(functions) = argument.strip_prefix("call_of:") {
                        self.check_function(functions)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Adds the facts about a parameter that its type and name imply, and fails if one that they do
    /// not imply is missing.
    fn complete(&self, name: &str, one: &mut Map<String, Value>, facts: &Facts) -> Outcome<()> {
        let ty = one["type"].clone();
        let is_callback = ty["name"].as_str().is_some_and(|name| name.ends_with("_fn_t"));
        if is_callback && !facts.has(name, "until") {
            return Err("until when may it be called? (until(...))".into());
        }
        if ty["kind"] != "pointer" {
            return Ok(());
        }
        let (to, is_const) = (ty["to"].clone(), ty["const"] == true);
        let has = |fact: &str| facts.has(name, fact);
        if has("opaque") || has("address") {
            return Ok(());
        }
        let given = ["in", "out", "inout"].into_iter().find(|direction| has(direction));
        let is_out = name == "out" || name.starts_with("out_");
        let direction = match (given, is_const, is_out) {
            (Some(given), ..) => given,
            (None, true, _) => "in",
            (None, false, true) => "out",
            _ => return Err("in, out or inout?".into()),
        };
        // The caller sets struct_size of a struct that the library fills in.
        let structure = to["name"].as_str().and_then(|name| self.source.find_struct(name));
        let first = structure.and_then(|structure| structure.fields.iter().next());
        let is_sized =
            first.and_then(|field| field.ident.as_ref()).is_some_and(|name| name == "struct_size");
        let is_filled = direction == "out" && is_sized;
        one.insert("direction".into(), if is_filled { "inout" } else { direction }.into());
        if to["name"] == "void" && !has("len") {
            return Err("how long is it? (len(...), opaque or address)".into());
        }
        if to["name"] == "char" && direction != "in" && !has("len") {
            return Err("how long is the text's buffer? (len(...))".into());
        }
        let is_handle = self.source.handles().any(|handle| to["name"] == handle);
        if is_handle && direction == "out" && !has("owned") && !has("borrowed") {
            return Err("whose is it? (owned(...) or borrowed)".into());
        }
        if let Some(end) = facts.find(name, "owned").and_then(|fact| fact.argument.as_deref()) {
            self.check_function(end)?;
        }
        if is_string(&to) && direction == "out" && !has("lives") {
            return Err("how long does the string live? (lives(...))".into());
        }
        Ok(())
    }

    fn check_function(&self, name: &str) -> Outcome<()> {
        let is_known = name.split('|').all(|name| self.texts.contains_key(name));
        if is_known { Ok(()) } else { Err(format!("{name}: there is no such function").into()) }
    }

    fn declaration(&self, item: &Item) -> Outcome<String> {
        let text = self.declarations.get(&item.name).ok_or("no declaration")?;
        let code = text.lines().filter(|line| !line.starts_with("//"));
        let code = code.map(str::trim).collect::<Vec<_>>().join(" ");
        Ok(code.trim_start_matches("DTL_NODISCARD ").to_owned())
    }

    /// Returns the statuses that the `@return` of `name` names ("without" takes one away), and those
    /// of the functions that it refers to. `depth` ends circles.
    fn statuses(&self, name: &str, depth: u32) -> BTreeSet<String> {
        let Some(text) = self.texts.get(name).filter(|_| depth > 0) else { return BTreeSet::new() };
        let mut found = BTreeSet::new();
        for mark in ["as dtl_", " and dtl_"] {
            for other in references(&text.returns, mark) {
                found.extend(self.statuses(&format!("dtl_{other}"), depth - 1));
            }
        }
        found.extend(texts::words(&text.returns, "DTL_ERROR_").map(str::to_owned));
        for status in references(&text.returns, "without DTL_ERROR_") {
            found.remove(&format!("DTL_ERROR_{status}"));
        }
        found
    }
}

/// Returns the rests of the words of a text after `mark`.
fn references<'a>(text: &'a str, mark: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(mark).skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        rest.get(..end.unwrap_or(rest.len())).unwrap_or_default()
    })
}

/// Returns the facts in a doc comment.
fn facts(attributes: &[syn::Attribute]) -> Outcome<Facts> {
    let lines = docs(attributes);
    Facts::read(lines.iter().map(String::as_str))
}

/// Adds facts as members: `opt` becomes `"opt": true`, `len(count)` becomes `"len": "count"`.
fn insert_facts(object: &mut Map<String, Value>, facts: &[Fact]) {
    for Fact { name, argument } in facts {
        if matches!(name.as_str(), "in" | "out" | "inout") {
            object.insert("direction".into(), name.clone().into());
        } else {
            let value = argument.clone().map_or(Value::Bool(true), Value::String);
            object.insert(name.clone(), value);
        }
    }
}

/// Fails if a fact is about a parameter that does not exist.
fn refuse_strangers(facts: &Facts, parameters: &[Value]) -> Outcome<()> {
    for name in facts.names().filter(|name| !matches!(*name, "call" | "return" | "")) {
        if !parameters.iter().any(|one| one["name"] == name) {
            return Err(format!("dtl:{name}: there is no such parameter").into());
        }
    }
    Ok(())
}

/// Returns the names of the interface that differ from another one only in case.
fn clashes(source: &Source) -> Vec<String> {
    let nulls = source.handles().map(initial::null_name);
    let (mut seen, mut found) = (BTreeMap::new(), Vec::new());
    for name in source.items().map(|item| item.name.clone()).chain(nulls) {
        let other: Option<String> = seen.insert(name.to_lowercase(), name.clone());
        if let Some(other) = other {
            found.push(format!("{other} and {name} differ only in case: rename one"));
        }
    }
    found
}

fn is_string(ty: &Value) -> bool {
    ty["kind"] == "pointer" && ty["const"] == true && ty["to"]["name"] == "char"
}

/// Returns the initial value of a field in C; `None` if it is 0.
fn initial_text(value: &initial::Value) -> Option<String> {
    match value {
        initial::Value::Size => Some("SIZE".to_owned()),
        initial::Value::AbiVersion => Some("DTL_ABI_VERSION".to_owned()),
        initial::Value::Zero => None,
        initial::Value::Given(text) => Some(text.clone()),
    }
}

fn object(value: Value) -> Outcome<Map<String, Value>> {
    match value {
        Value::Object(object) => {
            Ok(object.into_iter().filter(|(_, value)| !is_empty(value)).collect())
        }
        _ => Err("not an object".into()),
    }
}

fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_str().is_some_and(str::is_empty)
}
