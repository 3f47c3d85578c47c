//! Parses the Rust sources: the items that are visible in C, in source order, with their doc
//! comments and values.

use crate::{Outcome, facts};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use syn::spanned::Spanned;

/// Generated headers: the first includes the others at its end, in this order.
pub const HEADERS: [&str; 4] = ["dtl.h", "dtl_rdma.h", "dtl_select.h", "dtl_backend.h"];

/// Sources from which the header is generated, in the order of the header.
pub struct Source {
    pub modules: Vec<Module>,
    /// Integer aliases (`pub type alias = target`), by the name of the alias, e.g. dtl_status_t =
    /// i32.
    pub aliases: HashMap<String, String>,
}

/// Rust source file, and the section of a header that is named after it.
pub struct Module {
    pub path: PathBuf,
    /// Path below `src`, without the extension: `ffi/exec/stream`.
    pub name: String,
    /// First paragraph of the file's module comment.
    pub title: String,
    /// Header in which the section stands: `dtl: header(NAME)` in the module comment.
    pub header: String,
    pub items: Vec<Item>,
}

/// Part of a header.
pub struct Section<'a> {
    pub title: &'a str,
    pub items: Vec<&'a Item>,
}

pub struct Item {
    pub name: String,
    /// Name of the module in whose section it stands: `dtl: section(NAME)` in the comment of the
    /// module, of this item, or of one before it.
    pub section: String,
    pub first_line: usize,
    pub last_line: usize,
    pub kind: Kind,
}

pub enum Kind {
    Constant(syn::ItemConst),
    Struct(syn::ItemStruct),
    Type(syn::ItemType),
    Function(Box<syn::ItemFn>),
}

impl Kind {
    fn attributes(&self) -> &[syn::Attribute] {
        match self {
            Kind::Constant(constant) => &constant.attrs,
            Kind::Struct(structure) => &structure.attrs,
            Kind::Type(alias) => &alias.attrs,
            Kind::Function(function) => &function.attrs,
        }
    }

    /// Returns the names of the interface's types that the declaration of the item names.
    pub fn mentions(&self) -> Vec<String> {
        match self {
            Kind::Constant(_) => Vec::new(),
            Kind::Struct(structure) => {
                structure.fields.iter().flat_map(|field| mentioned(&field.ty)).collect()
            }
            Kind::Type(alias) => mentioned(&alias.ty),
            Kind::Function(function) => mentioned(&function.sig.inputs),
        }
    }
}

/// Returns the names of the interface's types that occur in code.
fn mentioned(code: &impl Spanned) -> Vec<String> {
    let text = code.span().source_text().unwrap_or_default();
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("dtl_")).map(str::to_owned).collect()
}

impl Item {
    pub fn is_handle(&self) -> bool {
        let Kind::Struct(structure) = &self.kind else { return false };
        let is_id = |field: &syn::Field| field.ident.as_ref().is_some_and(|name| name == "id");
        structure.fields.len() == 1 && structure.fields.iter().all(is_id)
    }
}

impl Source {
    pub fn items(&self) -> impl Iterator<Item = &Item> {
        self.modules.iter().flat_map(|module| &module.items)
    }

    /// Returns the sections of a header, in the order of their modules.
    pub fn sections<'a>(&'a self, header: &'a str) -> impl Iterator<Item = Section<'a>> {
        let modules = self.modules.iter().filter(move |module| module.header == header);
        let sections = modules.map(|module| Section {
            title: &module.title,
            items: self.items().filter(|item| item.section == module.name).collect(),
        });
        sections.filter(|section| !section.items.is_empty())
    }

    pub fn functions(&self) -> impl Iterator<Item = &str> {
        let is_function = |item: &&Item| matches!(item.kind, Kind::Function(_));
        self.items().filter(is_function).map(|item| item.name.as_str())
    }

    pub fn find_struct(&self, name: &str) -> Option<&syn::ItemStruct> {
        self.items().find_map(|item| match &item.kind {
            Kind::Struct(structure) if item.name == name => Some(structure),
            _ => None,
        })
    }

    /// Returns the handle types: structs whose only field is `id`.
    pub fn handles(&self) -> impl Iterator<Item = &str> {
        self.items().filter(|item| item.is_handle()).map(|item| item.name.as_str())
    }
}

/// Reads the modules in `src/abi` and `src/ffi`, in the order of their `mod` lines.
pub fn read(root: &Path) -> Outcome<Source> {
    let mut source = Source { modules: Vec::new(), aliases: HashMap::new() };
    for folder in ["src/abi/mod.rs", "src/ffi/mod.rs"] {
        let path = root.join(folder);
        if path.exists() {
            read_module(root, &path, &mut source)?;
        }
    }
    for item in source.items() {
        if !source.modules.iter().any(|module| module.name == item.section) {
            return Err(format!("{}: there is no section {}", item.name, item.section).into());
        }
    }
    Ok(source)
}

fn read_module(root: &Path, path: &Path, source: &mut Source) -> Outcome<()> {
    let text = std::fs::read_to_string(path)?;
    let file = syn::parse_file(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    let name = path.strip_prefix(root.join("src"))?.with_extension("").display().to_string();
    let title =
        shown(&file.attrs).into_iter().take_while(|line| !line.is_empty()).collect::<Vec<_>>();
    let header = stated(&file.attrs, "header")?.unwrap_or_else(|| HEADERS[0].to_owned());
    if !HEADERS.contains(&header.as_str()) {
        return Err(format!("{name}: there is no header {header}").into());
    }
    let mut section = stated(&file.attrs, "section")?.unwrap_or_else(|| name.clone());
    let title = title.join("\n");
    let mut module = Module { path: path.into(), name, title, header, items: Vec::new() };
    let mut children = Vec::new();
    for item in file.items {
        let span = item.span();
        let (name, kind) = match item {
            syn::Item::Mod(child) if child.attrs.iter().any(|a| a.path().is_ident("cfg")) => {
                continue;
            }
            syn::Item::Mod(child) if child.content.is_none() => {
                children.push(child_path(path, &child.ident.to_string())?);
                continue;
            }
            syn::Item::Const(constant) if is_public(&constant.vis) => {
                (constant.ident.to_string(), Kind::Constant(constant))
            }
            syn::Item::Struct(structure) if is_public(&structure.vis) => {
                (structure.ident.to_string(), Kind::Struct(structure))
            }
            syn::Item::Type(alias) if is_public(&alias.vis) => {
                if let Some(target) = path_name(&alias.ty) {
                    source.aliases.insert(alias.ident.to_string(), target);
                }
                (alias.ident.to_string(), Kind::Type(alias))
            }
            syn::Item::Fn(function) if is_exported(&function) => {
                (function.sig.ident.to_string(), Kind::Function(Box::new(function)))
            }
            _ => continue,
        };
        section = stated(kind.attributes(), "section")?.unwrap_or(section);
        let (first_line, last_line) = (span.start().line, span.end().line);
        module.items.push(Item { name, section: section.clone(), first_line, last_line, kind });
    }
    module.items.retain(|item| item.name.to_lowercase().starts_with("dtl_"));
    source.modules.push(module);
    children.iter().try_for_each(|child| read_module(root, child, source))
}

/// Returns the argument of the fact `fact` in a doc comment: the header or section that it states.
fn stated(attributes: &[syn::Attribute], fact: &str) -> Outcome<Option<String>> {
    let lines = docs(attributes);
    let facts = facts::Facts::read(lines.iter().map(String::as_str))?;
    Ok(facts.find("", fact).and_then(|fact| fact.argument.clone()))
}

fn child_path(parent: &Path, name: &str) -> Outcome<PathBuf> {
    let folder = match parent.file_name().and_then(|file| file.to_str()) {
        Some("mod.rs") => parent.parent().unwrap_or(parent).to_path_buf(),
        _ => parent.with_extension(""),
    };
    let candidates = [folder.join(format!("{name}.rs")), folder.join(name).join("mod.rs")];
    candidates
        .into_iter()
        .find(|path| path.exists())
        .ok_or_else(|| format!("{}: no file for `mod {name}`", parent.display()).into())
}

fn is_public(visibility: &syn::Visibility) -> bool {
    matches!(visibility, syn::Visibility::Public(_))
}

/// Returns true if a function has `#[unsafe(no_mangle)]`.
fn is_exported(function: &syn::ItemFn) -> bool {
    function.attrs.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("unsafe") => {
            list.tokens.to_string().contains("no_mangle")
        }
        meta => meta.path().is_ident("no_mangle"),
    })
}

/// Returns the name of a plain path type, e.g. `i32`; `None` for pointers, functions, generics.
pub fn path_name(ty: &syn::Type) -> Option<String> {
    match ty {
        syn::Type::Path(path) => {
            let last = path.path.segments.last()?;
            last.arguments.is_empty().then(|| last.ident.to_string())
        }
        _ => None,
    }
}

/// Returns the lines of a doc comment.
pub fn docs(attributes: &[syn::Attribute]) -> Vec<String> {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    });
    lines.map(|line| line.strip_prefix(' ').unwrap_or(&line).trim_end().to_owned()).collect()
}

/// Returns the lines of a doc comment that readers see: all but those for generators.
pub fn shown(attributes: &[syn::Attribute]) -> Vec<String> {
    let is_hidden = |line: &String| line.starts_with("cbindgen:") || line.starts_with(facts::MARK);
    docs(attributes).into_iter().filter(|line| !is_hidden(line)).collect()
}

/// Returns a name as in C: without the marks of names that are keywords of Rust.
pub fn plain(name: &syn::Ident) -> String {
    let name = name.to_string();
    name.trim_start_matches("r#").trim_end_matches('_').to_owned()
}
