//! Pages of nouns: `dtl_comm` lists what a program does with communicators, by task, with the types
//! and constants for it.

use crate::page::{brief, mentions};
use crate::{Api, Block, Item, Page, list};
use std::collections::BTreeSet;

/// Returns all nouns: the types `dtl_NOUN_t`, and the names that several functions begin with. What
/// is itself the name of an item has its page already.
pub fn all(api: &Api) -> BTreeSet<String> {
    let noun = |name: &str| name.split('_').take(2).collect::<Vec<_>>().join("_");
    let of_kind = |kind| api.items().filter(move |item| item.kind() == kind).map(|one| one.name());
    let functions = of_kind("function").chain(of_kind("inline")).map(noun);
    let functions: Vec<String> = functions.collect();
    let several = |noun: &&String| functions.iter().filter(|other| other == noun).count() > 1;
    let mut nouns: BTreeSet<String> = functions.iter().filter(several).cloned().collect();
    nouns.extend(of_kind("handle").map(|name| name.trim_end_matches("_t").to_owned()));
    nouns.retain(|noun| api.items().all(|item| item.name() != noun));
    nouns
}

/// Makes the page of a noun, e.g. `dtl_comm`; `None` if it is none.
pub fn page(api: &Api, noun: &str) -> Option<Page> {
    all(api).get(noun)?;
    let (prefix, ty) = (format!("{noun}_"), format!("{noun}_t"));
    let is_own = |item: &Item<'_>| item.name().starts_with(&prefix);
    let takes = |item: &Item<'_>| {
        list(&item.item["parameters"]).any(|one| mentions(&one["type"], &ty)) || is_own(item)
    };
    let is_function = |item: &Item<'_>| matches!(item.kind(), "function" | "inline");
    let functions: Vec<Item<'_>> =
        api.items().filter(|item| is_function(item) && takes(item)).collect();
    let types: Vec<Item<'_>> = api
        .items()
        .filter(|item| !is_function(item) && item.kind() != "constant" && is_own(item))
        .collect();
    // Constants of the noun, and those that its functions and types take.
    let own = || functions.iter().filter(|item| is_own(item)).chain(&types);
    let members = own().flat_map(|item| {
        list(&item.item["parameters"]).chain(list(&item.item["fields"])).map(|one| {
            let fact = one["values"].as_str().or(one["flags"].as_str()).unwrap_or_default();
            (one["type"]["name"].as_str(), fact.split('|').filter(|part| !part.is_empty()))
        })
    });
    let members: Vec<_> =
        members.flat_map(|(ty, parts)| parts.map(move |part| (ty, part))).collect();
    let start = prefix.to_uppercase();
    let is_constant = |item: &Item<'_>| {
        let fits = |part: &str| match part.ends_with('_') {
            true => item.name().starts_with(part),
            false => item.name() == part,
        };
        let is_member =
            || members.iter().any(|(ty, part)| *ty == item.item["type"].as_str() && fits(part));
        item.kind() == "constant" && (fits(&start) || is_member())
    };
    let constants: Vec<Item<'_>> = api.items().filter(is_constant).collect();

    let first = functions.iter().find(|item| is_own(item)).or(functions.first())?;
    let main = api.find(&ty).map(|item| item.item);
    let title = first.title.split(". ").next().unwrap_or_default().trim_end_matches('.');
    let header = main.unwrap_or(first.item)["header"].as_str().unwrap_or_default();
    let mut blocks = vec![Block::Heading("SYNOPSIS"), Block::Code(format!("#include <{header}>"))];
    if let Some(text) = main.and_then(|item| item["text"].as_str()) {
        blocks.push(Block::Heading("DESCRIPTION"));
        blocks.extend(text.split("\n\n").map(|part| Block::Paragraph(part.to_owned())));
    }
    blocks.push(Block::Heading("FUNCTIONS"));
    for section in functions.chunk_by(|a, b| a.title == b.title) {
        blocks.extend(section.first().map(|item| Block::Paragraph(item.title.to_owned())));
        blocks.extend(section.iter().map(term));
    }
    for (heading, items) in [("TYPES", types), ("CONSTANTS", constants)] {
        blocks.extend((!items.is_empty()).then_some(Block::Heading(heading)));
        blocks.extend(items.iter().map(term));
    }
    Some(Page { name: noun.to_owned(), brief: main.map_or(title.to_owned(), brief), blocks })
}

/// Returns the line of an item: its name and first sentence.
pub(crate) fn term(item: &Item<'_>) -> Block {
    Block::Term(item.name().to_owned(), format!("{}.", brief(item.item)))
}
