//! Annotations: facts about parameters, fields and calls that a C signature does not express. They
//! stand in doc comments, in lines that begin with `dtl:`, which the header does not show.
//!
//! `dtl:buf out len(count*dtype) until(request)` is about the parameter `buf`, `dtl:call blocks`
//! about the call, `dtl:return lives(forever)` about the result. On a field: `dtl: opt`.

use crate::Outcome;
use std::collections::BTreeMap;

/// Facts of one item, by parameter name; `call`, `return`, and "" (a field, a type) are the others.
#[derive(Debug, Default)]
pub struct Facts(BTreeMap<String, Vec<Fact>>);

/// Fact, e.g. `len(count)`; `argument` is `None` if it has no parentheses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    pub name: String,
    pub argument: Option<String>,
}

/// Names of all facts: for parameters, fields and results, then for calls and types, then for the
/// place in the headers.
const NAMES: [&str; 23] = [
    "in",
    "out",
    "inout",
    "opt",
    "in_place",
    "len",
    "opaque",
    "address",
    "until",
    "owned",
    "borrowed",
    "lives",
    "values",
    "flags",
    "bool",
    "rank",
    "blocks",
    "collective",
    "local",
    "synchronised",
    "ends",
    "header",
    "section",
];

/// Beginning of a line of facts.
pub const MARK: &str = "dtl:";

impl Facts {
    /// Reads the facts from the lines of a doc comment.
    pub fn read<'a>(lines: impl IntoIterator<Item = &'a str>) -> Outcome<Facts> {
        let mut facts = Facts::default();
        for line in lines {
            let Some(rest) = line.strip_prefix(MARK) else { continue };
            let mut words = rest.split_whitespace();
            let is_named = !rest.starts_with(' ');
            let name = if is_named { words.next().unwrap_or_default() } else { "" };
            let found = words.map(Fact::read).collect::<Outcome<Vec<_>>>()?;
            let all = facts.0.entry(name.to_owned()).or_default();
            for fact in found {
                if all.iter().any(|other| other.name == fact.name) {
                    return Err(format!("`{line}`: {} stands twice", fact.name).into());
                }
                all.push(fact);
            }
        }
        Ok(facts)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns the facts about `name`.
    pub fn of(&self, name: &str) -> &[Fact] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// Returns the fact `fact` about `name`.
    pub fn find(&self, name: &str, fact: &str) -> Option<&Fact> {
        self.of(name).iter().find(|one| one.name == fact)
    }

    pub fn has(&self, name: &str, fact: &str) -> bool {
        self.find(name, fact).is_some()
    }
}

impl Fact {
    fn read(word: &str) -> Outcome<Fact> {
        let (name, argument) = match word.split_once('(') {
            Some((name, rest)) => {
                let inner = rest.strip_suffix(')').ok_or_else(|| format!("`{word}`: no `)`"))?;
                (name, Some(inner.to_owned()))
            }
            None => (word, None),
        };
        if !NAMES.contains(&name) {
            return Err(format!("`{word}`: unknown; known are {}", NAMES.join(", ")).into());
        }
        Ok(Fact { name: name.to_owned(), argument })
    }
}
