//! Checks of the glossary: each row has a term, a definition, an existing location, and a source.
//! Each word in the name of a file, folder or public type is a word of a term or an ordinary word.

use super::{root, sources};
use std::collections::BTreeSet;

/// Maximum number of rows whose source is this project.
const OWN_TERMS: usize = 15;
/// Maximum number of words in [`COMMON`].
const MOST_COMMON: usize = 300;
/// Ordinary words of English and of programming, which names may use without a row in the glossary.
/// Words to which this project gives a special meaning do not belong here. Singular forms, sorted.
const COMMON: &str = "
    access action advance aligned allocation allowed argument arithmetic array arrival
    availability axes begin block body bound builder builtin byte cached call candidate capture
    card chain change channel check child choice chooser claim clock close code combine command
    compiled compiler complex compute connect connection constant control current custom
    data deadline demand describe described description diagnostics direction end enumeration
    explain extra family fault field find float folder found framed from gate global guarded
    handler head header hint hold hot identity include inline input instance interest
    interface job journal key label layout leaf library lifecycle limit link list live
    located location locked log lookup loop mark matcher member method missing mode name
    nesting net non note notice null number object offer on once open opener option other
    outcome output over own owner pack part pending phase piece plan point poll position post
    process program property query range reader ready reconnect record recovery refusal region
    registered release repair replaced requester requirement resource result retained role
    router row rule runtime scope scratch secure select selector send server set setup shadow
    share shutdown side signature simulation sleep small snapshot source spare stage
    standard start started state status step submit sum taken
    teardown test tester text ticket time timer token tooling transfer trial trusted try type
    update usable usage user value variable vendor version view wait watch watcher word
    worker
";
/// Section of the public names that cannot change; their words do not count as terms.
const FROZEN: &str = "Frozen public names";

/// Row of a table of docs/glossary.md.
struct Row {
    /// Line number in the file.
    number: usize,
    /// Heading of its section; empty for the first table.
    section: String,
    cells: Vec<String>,
}

fn rows() -> Vec<Row> {
    let text = std::fs::read_to_string(root().join("docs/glossary.md")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let mut section = String::new();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        if let Some(heading) = line.strip_prefix("## ") {
            heading.clone_into(&mut section);
        }
        let is_head = lines.get(index + 1).is_some_and(|next| next.starts_with("|---"));
        if line.starts_with("| ") && !is_head {
            let cells = line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned());
            let cells = cells.collect();
            found.push(Row { number: index + 1, section: section.clone(), cells });
        }
    }
    found
}

#[test]
fn glossary_rows_are_complete() {
    let mut findings = Vec::new();
    let mut terms = BTreeSet::new();
    let mut own = 0;
    for Row { number, cells, .. } in rows() {
        let [term, definition, place, source] = &cells[..] else {
            findings.push(format!("docs/glossary.md:{number}: {} cells, not 4", cells.len()));
            continue;
        };
        let path = place.trim_matches('`');
        let folders = ["src/", ""].map(|top| root().join(format!("{top}{path}")));
        let exists = folders.iter().any(|at| at.exists() || at.with_extension("rs").exists());
        if !exists {
            findings.push(format!("docs/glossary.md:{number}: no {place} for {term}"));
        }
        if definition.is_empty() || source.is_empty() || !terms.insert(term.to_lowercase()) {
            findings.push(format!("docs/glossary.md:{number}: {term}: incomplete or twice"));
        }
        own += usize::from(source == "libdtl");
    }
    assert!(terms.len() > 100, "only {} terms: is the table read?", terms.len());
    if own > OWN_TERMS {
        findings.push(format!("{own} terms are our own, at most {OWN_TERMS}: find the field's"));
    }
    super::report(&findings);
}

/// Returns true if a file has declarations of another library. The types in it must have the names
/// that the vendor's documentation has, so only the file's own name is checked.
fn is_vendors(path: &str) -> bool {
    path.ends_with("_sys.rs")
        || path == "src/backend/rdma/verbs/types.rs"
        || path == "src/backend/mpi/library/functions.rs"
}

/// Returns the name of the public type that a line declares. Names that begin with `dtl_` are those
/// of the header, which are frozen.
fn public_type(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub")?;
    let rest = match rest.strip_prefix('(') {
        Some(inner) => inner.split_once(')')?.1,
        None => rest,
    };
    let rest = rest.strip_prefix(' ')?;
    let (kind, rest) = rest.strip_prefix("unsafe ").unwrap_or(rest).split_once(' ')?;
    if !["struct", "enum", "union", "trait", "type"].contains(&kind) {
        return None;
    }
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (!name.is_empty() && !name.starts_with("dtl_")).then_some(name)
}

/// Splits a name in `snake_case` or `CamelCase` into words in lower case: `P2pTransport` is "p2p"
/// and "transport". Numbers alone are not words.
fn words(name: &str) -> Vec<String> {
    let chars: Vec<char> = name.chars().collect();
    let mut found = vec![String::new()];
    for (index, c) in chars.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|at| chars.get(at));
        let ends_word = before.is_some_and(|before| !before.is_uppercase());
        let begins_word = chars.get(index + 1).is_some_and(|next| next.is_lowercase());
        if *c == '_' || c.is_uppercase() && (ends_word || begins_word) {
            found.push(String::new());
        }
        if *c != '_' {
            found.last_mut().unwrap().extend(c.to_lowercase());
        }
    }
    found.retain(|word| word.chars().any(char::is_alphabetic));
    found
}

/// Returns the word and the words of which it may be the plural.
fn forms(word: &str) -> Vec<String> {
    let mut found = vec![word.to_owned()];
    found.extend(word.strip_suffix("ies").map(|stem| format!("{stem}y")));
    found.extend(word.strip_suffix("es").map(str::to_owned));
    found.extend(word.strip_suffix('s').map(str::to_owned));
    found
}

/// Collects the names of files, folders and public types of the library, each with its place.
fn names() -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for file in sources() {
        let parts: Vec<&str> = file.path.trim_end_matches(".rs").split('/').collect();
        for (index, part) in parts.iter().enumerate().skip(1) {
            found.insert((parts[..=index].join("/"), (*part).to_owned()));
        }
        if is_vendors(&file.path) {
            continue;
        }
        for (index, line) in file.text.lines().enumerate() {
            if let Some(name) = public_type(line) {
                found.insert((format!("{}:{}", file.path, index + 1), name.to_owned()));
            }
        }
    }
    found
}

#[test]
fn words_of_names_are_known() {
    let terms: BTreeSet<String> = rows()
        .iter()
        .filter(|row| row.section != FROZEN)
        .filter_map(|row| row.cells.first())
        .flat_map(|term| term.split(|c: char| !c.is_alphanumeric()))
        .flat_map(|word| forms(&word.to_lowercase()))
        .collect();
    let common: Vec<&str> = COMMON.split_whitespace().collect();
    let mut findings = Vec::new();
    let mut needed = BTreeSet::new();
    for (place, name) in names() {
        for word in words(&name) {
            let forms = forms(&word);
            if forms.iter().any(|form| terms.contains(form)) {
                continue;
            }
            let known: Vec<String> =
                forms.into_iter().filter(|form| common.contains(&form.as_str())).collect();
            if known.is_empty() {
                findings.push(format!(
                    "{place}: {name}: unknown word \"{word}\": use the field's word, add a row to \
                     docs/glossary.md, or, if it is ordinary English, add it to COMMON"
                ));
            }
            needed.extend(known);
        }
    }
    for pair in common.windows(2).filter(|pair| pair[0] >= pair[1]) {
        findings.push(format!("COMMON: {} stands before {}: sort it", pair[0], pair[1]));
    }
    for word in common.iter().filter(|word| !needed.contains(**word)) {
        findings.push(format!("COMMON: no name needs \"{word}\": remove it"));
    }
    if common.len() > MOST_COMMON {
        findings.push(format!("COMMON: {} words, at most {MOST_COMMON}", common.len()));
    }
    super::report(&findings);
}

#[test]
fn names_are_split_into_words() {
    assert_eq!(words("append_only_table"), ["append", "only", "table"]);
    assert_eq!(words("P2pTransport"), ["p2p", "transport"]);
    assert_eq!(words("MPIHandle"), ["mpi", "handle"]);
    assert_eq!(words("CArgs"), ["c", "args"]);
    assert_eq!(public_type("    pub(in crate::sys) struct Rcu<T> {"), Some("Rcu"));
    assert_eq!(public_type("pub unsafe trait Described {"), Some("Described"));
    assert_eq!(public_type("pub struct dtl_comm_t {"), None);
    assert_eq!(public_type("pub fn new() {"), None);
    assert!(forms("policies").contains(&"policy".to_owned()));
}
