//! Pages that lead to others: the overview of the library, and the items that are near a name of
//! another interface.

use crate::noun::{self, term};
use crate::{Api, Block, Page, statuses};

/// Name of the overview.
pub const OVERVIEW: &str = "libdtl";

/// Header whose first comment has the rules.
const HEADER: &str = include_str!("../../../include/dtl.h");

/// Meaning of the notes on threads.
pub(crate) const THREADS: &str = "\"Threads: any\" means that several threads may call the function \
at once, also on one object. \"One at a time for each communicator\" means that any thread may \
call it, but a second thread inside a collective of the same communicator gets DTL_ERROR_BUSY. Use \
a duplicate (dtl_comm_dup) for each thread.";

/// Makes the overview: the rules, and the sections with the pages of their nouns.
pub fn page(api: &Api) -> Page {
    let mut blocks = vec![
        Block::Heading("SYNOPSIS"),
        Block::Code("#include <dtl.h>\n\ncc program.c $(pkg-config --cflags --libs libdtl)".into()),
        Block::Heading("DESCRIPTION"),
    ];
    let purpose = HEADER.lines().next().and_then(|line| line.split_once(": "));
    let brief = purpose.map_or("", |(_, text)| text.trim_end_matches('.')).to_owned();
    blocks.push(Block::Paragraph(
        "Each function, type and macro has a page of its own, and so has each noun: dtl_comm(3) \
         lists the functions of communicators. dtl-info explain NAME shows the same pages, also for \
         constants, statuses, environment variables and names of MPI and CUDA."
            .to_owned(),
    ));
    blocks.push(Block::Heading("RULES"));
    blocks.extend(rules().into_iter().map(Block::Paragraph));
    blocks.push(Block::Paragraph(THREADS.to_owned()));
    blocks.push(Block::Paragraph("dtl.h has the complete rules.".to_owned()));
    blocks.push(Block::Heading("SECTIONS"));
    let nouns = noun::all(api);
    let items: Vec<_> = api.items().collect();
    for section in items.chunk_by(|a, b| a.title == b.title) {
        let mut pages: Vec<String> = Vec::new();
        for item in section.iter().filter(|item| item.kind() != "constant") {
            // The longest noun that begins its name, or its own page.
            let own = |noun: &&String| {
                item.name().strip_prefix(noun.as_str()).is_some_and(|rest| rest.starts_with('_'))
            };
            let page = nouns.iter().filter(own).max_by_key(|noun| noun.len());
            let page = format!("{}(3)", page.map_or(item.name(), String::as_str));
            if !pages.contains(&page) {
                pages.push(page);
            }
        }
        let title = section.first().map_or("", |item| item.title).trim_end_matches('.');
        blocks.extend((!pages.is_empty()).then(|| Block::Term(title.into(), pages.join(", "))));
    }
    blocks.push(Block::Heading("SEE ALSO"));
    blocks.push(Block::Paragraph("dtlrun(1), dtl-info(1), dtl-ctk(1), dtl-bench(1)".to_owned()));
    Page { name: OVERVIEW.to_owned(), brief, blocks }
}

/// Returns the beginning of each rule: its title and first sentence.
pub(crate) fn rules() -> Vec<String> {
    let (_, text) = HEADER.split_once("Rules for all functions").unwrap_or_default();
    let lines = text.lines().skip(2).map(|line| line.trim_start_matches(" *"));
    let mut rules: Vec<String> = Vec::new();
    for line in lines.take_while(|line| !line.trim().is_empty()) {
        let is_first = line.trim_start().starts_with(|c: char| c.is_ascii_digit())
            && line.find(". ").is_some_and(|at| at < 5);
        match rules.last_mut() {
            Some(last) if !is_first => last.push_str(&format!(" {}", line.trim())),
            _ => rules.push(line.trim().to_owned()),
        }
    }
    let short = rules.iter().map(|rule| {
        // Number, title, sentence. A first sentence that is no title is all.
        let mut parts = rule.splitn(2, ". ");
        let (number, text) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let sentences = statuses::sentences(text);
        let is_title = sentences.first().is_some_and(|first| first.split(' ').count() < 6);
        let count = if is_title { 2 } else { 1 };
        format!("{number}. {}", sentences.into_iter().take(count).collect::<Vec<_>>().join(" "))
    });
    short.collect()
}

/// Makes the page of a name of another interface, with the items that name it as an equivalent.
pub fn of_equivalents(api: &Api, name: &str) -> Option<Page> {
    let near = api.items().filter(|item| {
        let text = item.item["equivalent"].as_str().unwrap_or_default();
        let mut words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        name.len() > 3 && words.any(|word| word.eq_ignore_ascii_case(name))
    });
    let near: Vec<Block> = near.map(|item| term(&item)).collect();
    if near.is_empty() {
        return None;
    }
    let mut blocks = vec![Block::Heading("EQUIVALENT")];
    blocks.extend(near);
    blocks.push(Block::Paragraph(
        "Near, not always equal: the text of each has its rules. docs/reference/equivalents.md \
         lists all such names."
            .to_owned(),
    ));
    Some(Page { name: name.to_owned(), brief: "name of another interface".to_owned(), blocks })
}
