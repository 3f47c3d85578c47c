//! Dependency graph of the library's modules, and its cycles.
//!
//! A module is a file. It depends on another module if it imports from that module or contains a
//! path into it. An item that a `mod.rs` re-exports counts as an item of its own module: `use
//! super::Item` of such an item is an edge to the module that defines it. `mod` and `pub use` lines
//! of a mod.rs are not edges.

use super::File;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) struct Graph {
    /// For each module (such as `runtime::comm::p2p::send_recv`), the modules on which it depends.
    edges: BTreeMap<String, BTreeSet<String>>,
}

/// Returns the text between the first `{` and its `}`; `None` if a `;` comes first.
pub(crate) fn braced(text: &str) -> Option<&str> {
    let open = text.find(['{', ';']).filter(|at| text[*at..].starts_with('{'))?;
    let mut depth = 0_usize;
    for (at, c) in text[open..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => return Some(&text[open + 1..open + at]),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Returns the module of a file: `runtime::comm::p2p::send_recv` for
/// `src/runtime/comm/p2p/send_recv.rs`.
fn module_of(path: &str) -> String {
    let path = path.trim_start_matches("src/").trim_end_matches(".rs");
    path.trim_end_matches("/mod").replace('/', "::")
}

/// Returns the text without comments.
fn code_of(file: &File) -> String {
    file.code().map(|(_, line)| line.split(" // ").next().unwrap_or_default()).fold(
        String::new(),
        |mut text, line| {
            text.push_str(line);
            text.push('\n');
            text
        },
    )
}

/// Collects the leaves of a tree of imports: `a::{b, c::{d, self}}` gives a::b, a::c::d, a::c.
fn leaves(prefix: &str, body: &str, found: &mut Vec<String>) {
    let mut depth = 0_usize;
    let mut part = String::new();
    let mut parts = Vec::new();
    for c in body.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(std::mem::take(&mut part));
                continue;
            }
            _ => {}
        }
        part.push(c);
    }
    parts.push(part);
    for part in parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty()) {
        let joined = |rest: &str| match (prefix, rest) {
            ("", rest) => rest.to_owned(),
            (prefix, "self" | "*") => prefix.to_owned(),
            (prefix, rest) => format!("{prefix}::{rest}"),
        };
        match part.split_once('{') {
            Some((head, rest)) => {
                let head = head.trim().trim_end_matches("::");
                leaves(&joined(head), rest.trim_end().trim_end_matches('}'), found);
            }
            None => found.push(joined(part.split(" as ").next().unwrap_or_default().trim())),
        }
    }
}

/// Resolves a path in `module` to a path from the top of the crate; `None` for other crates.
fn resolve(path: &str, module: &str) -> Option<String> {
    let mut segments: Vec<&str> = path.split("::").collect();
    let mut base: Vec<&str> = Vec::new();
    match *segments.first()? {
        "crate" => drop(segments.remove(0)),
        "self" => {
            segments.remove(0);
            base = module.split("::").collect();
        }
        "super" => {
            base = module.split("::").collect();
            while segments.first() == Some(&"super") {
                segments.remove(0);
                base.pop();
            }
        }
        _ => return None,
    }
    base.extend(segments);
    Some(base.join("::"))
}

impl Graph {
    pub(crate) fn read<'a>(files: impl Iterator<Item = &'a File> + Clone) -> Graph {
        let modules: BTreeSet<String> = files.clone().map(|file| module_of(&file.path)).collect();
        let codes: Vec<(String, bool, String)> = files
            .map(|file| (module_of(&file.path), file.path.ends_with("/mod.rs"), code_of(file)))
            .collect();
        // What a mod.rs re-exports, by its path there.
        let mut exports: BTreeMap<String, String> = BTreeMap::new();
        for (module, _, code) in &codes {
            for statement in statements(code).filter(|(public, _)| *public) {
                let mut found = Vec::new();
                leaves("", &statement.1, &mut found);
                for path in found {
                    let Some(name) = path.rsplit("::").next() else { continue };
                    let full =
                        resolve(&path, module).unwrap_or_else(|| format!("{module}::{path}"));
                    if name != "*" && owner(&full, &modules).is_some() {
                        exports.insert(format!("{module}::{name}"), full.clone());
                    }
                }
            }
        }
        let mut edges = BTreeMap::new();
        for (module, is_folder, code) in &codes {
            let mut named = BTreeSet::new();
            let mut paths = Vec::new();
            for (public, statement) in statements(code) {
                if !(public && *is_folder) {
                    leaves("", &statement, &mut paths);
                }
            }
            paths.extend(spelled(code));
            for path in paths {
                let full = resolve(&path, module).or_else(|| child(&path, module, &modules));
                let Some(mut full) = full else { continue };
                for _ in 0..4 {
                    match exported(&full, &exports) {
                        Some(next) if next != full => full = next,
                        _ => break,
                    }
                }
                named.extend(owner(&full, &modules).filter(|owner| owner != module));
            }
            edges.insert(module.clone(), named);
        }
        Graph { edges }
    }

    /// Returns the modules under `to` on which modules under `from` depend.
    pub(crate) fn imports_from(&self, from: &str, to: &str) -> BTreeSet<String> {
        let is_under = |module: &str, top: &str| module.starts_with(&format!("{top}::"));
        let named = self.edges.iter().filter(|(module, _)| is_under(module, from));
        named.flat_map(|(_, named)| named).filter(|named| is_under(named, to)).cloned().collect()
    }

    /// Returns the groups of modules that depend on each other, directly or indirectly; the largest
    /// first.
    pub(crate) fn cycles(&self) -> Vec<Vec<String>> {
        strongly_connected(&self.edges)
    }

    /// Returns the folders that depend on each other. A folder and a folder inside it do not count
    /// as two.
    pub(crate) fn folder_cycles(&self) -> Vec<Vec<String>> {
        let folder = |module: &str| match module.rsplit_once("::") {
            // A module that has modules inside is the mod.rs of its folder.
            _ if self.edges.keys().any(|other| other.starts_with(&format!("{module}::"))) => {
                module.to_owned()
            }
            Some((folder, _)) => folder.to_owned(),
            None => String::new(),
        };
        let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (module, named) in &self.edges {
            let from = folder(module);
            for to in named.iter().map(|named| folder(named)) {
                let is_inside = |a: &str, b: &str| a.is_empty() || b.starts_with(&format!("{a}::"));
                edges.entry(to.clone()).or_default();
                if from != to && !is_inside(&from, &to) && !is_inside(&to, &from) {
                    edges.entry(from.clone()).or_default().insert(to);
                }
            }
        }
        strongly_connected(&edges)
    }
}

/// Returns the `use` statements: whether each is public, and what it imports.
fn statements(code: &str) -> impl Iterator<Item = (bool, String)> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find("use ") {
        let before = &rest[..at];
        let line = before.rsplit('\n').next().unwrap_or_default().trim();
        rest = &rest[at + 4..];
        let is_use = line.is_empty() || line == "pub" || line.starts_with("pub(");
        let Some(end) = rest.find(';').filter(|_| is_use) else { continue };
        let body = rest[..end].split_whitespace().collect::<Vec<_>>().join(" ");
        found.push((line.starts_with("pub"), body));
        rest = &rest[end..];
    }
    found.into_iter()
}

/// Returns the paths in the code that begin with `crate` or `super`.
fn spelled(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            if before.is_none_or(|c| c != ':' && c != '$' && !c.is_alphanumeric()) {
                let path: String = code[at..]
                    .chars()
                    .take_while(|c| c.is_alphanumeric() || *c == '_' || *c == ':')
                    .collect();
                // Of a list in braces the folder alone stands here: `leaves` reads its members.
                if !code[at + path.len()..].starts_with('{') {
                    found.push(path.trim_end_matches(':').to_owned());
                }
            }
        }
    }
    found
}

/// Resolves a path that begins with the name of a module inside `module`.
fn child(path: &str, module: &str, modules: &BTreeSet<String>) -> Option<String> {
    let full = format!("{module}::{path}");
    let first = path.split("::").next()?;
    modules.contains(&format!("{module}::{first}")).then_some(full)
}

/// Resolves a path whose beginning is re-exported by a `mod.rs` to the defining module.
fn exported(path: &str, exports: &BTreeMap<String, String>) -> Option<String> {
    let mut head = path;
    loop {
        if let Some(next) = exports.get(head) {
            return Some(format!("{next}{}", &path[head.len()..]));
        }
        head = head.rsplit_once("::")?.0;
    }
}

/// Returns the innermost module of a path.
fn owner(path: &str, modules: &BTreeSet<String>) -> Option<String> {
    let mut path = path;
    loop {
        if modules.contains(path) {
            return Some(path.to_owned());
        }
        path = path.rsplit_once("::")?.0;
    }
}

/// Returns the groups of two or more nodes that reach each other, the largest first (Kosaraju's
/// algorithm).
fn strongly_connected(edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let mut reversed: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (from, named) in edges {
        for to in named {
            reversed.entry(to).or_default().push(from);
        }
    }
    let mut order = Vec::new();
    let mut seen = BTreeSet::new();
    for start in edges.keys() {
        // A node is put into `order` when everything that it reaches has been.
        let mut stack = vec![(start.as_str(), false)];
        while let Some((node, is_done)) = stack.pop() {
            if is_done {
                order.push(node);
            } else if seen.insert(node) {
                stack.push((node, true));
                let next = edges.get(node).into_iter().flatten();
                stack.extend(next.map(|next| (next.as_str(), false)));
            }
        }
    }
    let mut groups = Vec::new();
    let mut taken = BTreeSet::new();
    for start in order.into_iter().rev() {
        let mut group = Vec::new();
        let mut stack = vec![start];
        while let Some(node) = stack.pop() {
            if taken.insert(node) {
                group.push(node.to_owned());
                stack.extend(reversed.get(node).into_iter().flatten());
            }
        }
        if group.len() > 1 {
            group.sort();
            groups.push(group);
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
    groups
}

#[test]
fn imports_are_seen() {
    let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
    let files = [
        file("src/a/mod.rs", "mod b;\nmod c;\npub use b::Item;\n"),
        file("src/a/b.rs", "use super::c::{self, Other as O};\n"),
        file("src/a/c.rs", "use super::Item; // not crate::d\n"),
        file("src/d.rs", "fn x() { crate::a::c::y() }\n"),
    ];
    let graph = Graph::read(files.iter());
    assert_eq!(graph.cycles(), [["a::b", "a::c"]]);
    assert_eq!(graph.edges["d"].iter().collect::<Vec<_>>(), ["a::c"]);
    assert!(graph.folder_cycles().is_empty());
}
