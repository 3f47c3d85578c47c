//! Chapters of the reference: one for each noun of the header, and lists of all names, statuses,
//! environment variables and equivalents in other interfaces.

use crate::markdown::Links;
use crate::overview::THREADS;
use crate::page::{brief, capital};
use crate::variables::VARIABLES;
use crate::{Api, Item, Page};
use std::collections::BTreeMap;

/// Chapter of the reference: the sections of the header whose titles begin alike.
pub(crate) struct Chapter<'a> {
    /// Title up to the first colon or full stop.
    pub(crate) title: &'a str,
    /// File in the folder of the reference.
    pub(crate) file: String,
    items: Vec<Item<'a>>,
}

/// Returns all chapters, in the order of the header.
pub(crate) fn chapters(api: &Api) -> Vec<Chapter<'_>> {
    let mut chapters: Vec<Chapter<'_>> = Vec::new();
    for item in api.items() {
        let title = item.title.split(['.', ':', '?']).next().unwrap_or_default();
        match chapters.iter_mut().find(|chapter| chapter.title == title) {
            Some(chapter) => chapter.items.push(item),
            None => {
                let letters = title.split(|c: char| !c.is_ascii_alphanumeric());
                let words: Vec<&str> = letters.filter(|word| !word.is_empty()).collect();
                let file = format!("{}.md", words.join("-").to_lowercase());
                chapters.push(Chapter { title, file, items: vec![item] });
            }
        }
    }
    chapters
}

/// Returns the place of each name of the interface, and of each of the library's own variables.
pub(crate) fn links(chapters: &[Chapter<'_>]) -> Links {
    let own = VARIABLES.iter().filter(|(name, _)| name.starts_with("DTL_"));
    let variables = own.map(|(name, _)| ((*name).to_owned(), format!("variables.md#{name}")));
    let places = chapters.iter().flat_map(|chapter| {
        let place =
            |item: &Item<'_>| (item.name().to_owned(), format!("{}#{}", chapter.file, item.name()));
        chapter.items.iter().map(place)
    });
    // Macros of types stand with their types.
    let all: BTreeMap<String, String> = variables.chain(places).collect();
    let items = chapters.iter().flat_map(|chapter| &chapter.items);
    let macros =
        items.flat_map(|item| [&item.item["null"], &item.item["init"]].map(|one| (one, item)));
    let macros: Vec<_> = macros
        .filter_map(|(name, item)| Some((name.as_str()?.to_owned(), all.get(item.name())?.clone())))
        .collect();
    Links { places: all.into_iter().chain(macros).collect(), titles: BTreeMap::new() }
}

/// Returns all files of the reference, with their contents.
pub(crate) fn files(api: &Api, chapters: &[Chapter<'_>], links: &Links) -> Vec<(String, String)> {
    let mut files: Vec<_> =
        chapters.iter().map(|one| (one.file.clone(), chapter(api, one, links))).collect();
    let lists = [
        ("index", index(api, chapters, links)),
        ("names", names(api, links)),
        ("any-call", statuses(api, links)),
        ("variables", variables(links)),
        ("equivalents", equivalents(api, links)),
    ];
    files.extend(lists.map(|(name, text)| (format!("{name}.md"), text)));
    files
}

/// Returns true for a constant that is a row of a table. A status has a section of its own.
fn is_row(item: &Item<'_>) -> bool {
    item.kind() == "constant" && item.item["type"] != "dtl_status_t"
}

fn chapter(api: &Api, chapter: &Chapter<'_>, links: &Links) -> String {
    let mut text = format!("# {}\n\n", links.text(chapter.title));
    for section in chapter.items.chunk_by(|a, b| a.title == b.title) {
        let title = section.first().map_or("", |item| item.title);
        if title.trim_end_matches('.') != chapter.title {
            text.push_str(&format!("{}\n\n", links.text(title)));
        }
    }
    text.push_str("| | |\n|---|---|\n");
    for item in chapter.items.iter().filter(|item| !is_row(item)) {
        text.push_str(&row(item, links));
    }
    for run in chapter.items.chunk_by(|a, b| is_row(a) && is_row(b)) {
        match run {
            [item] if !is_row(item) => {
                text.push_str(&format!("\n## {0} {{#{0}}}\n", item.name()));
                text.push_str(&links.page(&Page::of(api, *item)));
            }
            rows => text.push_str(&constants(rows, links)),
        }
    }
    text
}

/// Returns a row of a table: name and first sentence.
fn row(item: &Item<'_>, links: &Links) -> String {
    format!("| {} | {} |\n", links.name(item.name(), ""), links.cell(&brief(item.item)))
}

fn constants(items: &[Item<'_>], links: &Links) -> String {
    let mut text = "\n| constant | value | |\n|---|---|---|\n".to_owned();
    for item in items {
        let (name, of) = (item.name(), item.item);
        let value = match of["value"].as_u64() {
            Some(number) if number > 0xFFFF => format!("{number:#x}"),
            _ => of["value"].to_string(),
        };
        let mut words = of["text"].as_str().unwrap_or_default().to_owned();
        if let Some(equivalent) = of["equivalent"].as_str() {
            words.push_str(&format!(" Equivalent: {equivalent}."));
        }
        let words = links.cell(&words);
        text.push_str(&format!("| <a id=\"{name}\"></a>`{name}` | `{value}` | {words} |\n"));
    }
    text
}

fn index(api: &Api, chapters: &[Chapter<'_>], links: &Links) -> String {
    let mut text = format!(
        "# C interface\n\nEvery function, type, constant and macro of libdtl {}, for readers who look one \
         up. `man NAME` and `dtl-info explain NAME` show the same texts.\n\n\
         - [All names](names.md), by letter\n\
         - [Names from MPI, CUDA and others](equivalents.md), with those of libdtl\n\
         - [Statuses of any call](any-call.md)\n\
         - [Environment variables](variables.md)\n\n",
        api.version()
    );
    text.push_str("| chapter | functions | types, constants and macros |\n|---|---:|---:|\n");
    for Chapter { title, file, items } in chapters {
        let functions =
            items.iter().filter(|item| matches!(item.kind(), "function" | "inline")).count();
        let others = items.len() - functions;
        text.push_str(&format!("| [{title}]({file}) | {functions} | {others} |\n"));
    }
    text.push_str(
        "\nIn tables of parameters, *in* and *out* are the direction of the data behind a pointer. \
         \"In use until\" is how long the library may access a buffer after the call.\n\n",
    );
    text.push_str(&format!("{}\n", links.text(THREADS)));
    text
}

fn names(api: &Api, links: &Links) -> String {
    let items = api.items().map(|item| (item.name(), row(&item, links)));
    let macros = api.type_macros().map(|(name, item)| {
        let of = if item.kind() == "handle" { "Null handle" } else { "Initial value" };
        let (name_link, of_link) = (links.name(name, ""), links.name(item.name(), ""));
        (name, format!("| {name_link} | {of} of {of_link} |\n"))
    });
    let mut rows: Vec<(&str, String)> = items.chain(macros).collect();
    rows.sort_by_key(|(name, _)| name.to_lowercase());
    let rows: String = rows.into_iter().map(|(_, row)| row).collect();
    format!("# All names\n\n| | |\n|---|---|\n{rows}")
}

fn statuses(api: &Api, links: &Links) -> String {
    let found = api.universal_statuses().filter_map(|name| api.find(name));
    let rows: String = found.map(|item| row(&item, links)).collect();
    format!(
        "# Statuses of any call\n\nEvery function that returns `dtl_status_t` may return these, \
         beside the statuses that its own text lists.\n\n| | |\n|---|---|\n{rows}"
    )
}

fn variables(links: &Links) -> String {
    let rows = VARIABLES.iter().map(|(name, meaning)| {
        format!("\n## {name} {{#{name}}}\n\n{}.\n", capital(&links.text(meaning)))
    });
    format!(
        "# Environment variables\n\nThe library reads these. An environment variable applies only \
         where no call has set the value. `dtl-info --env` shows which of them are set, and which \
         values are rejected.\n{}",
        rows.collect::<String>()
    )
}

/// Returns the table from names of other interfaces to those of the library.
fn equivalents(api: &Api, links: &Links) -> String {
    let families = ["MPI", "CUDA and OpenCL", "Others"];
    let mut tables: [BTreeMap<&str, Vec<String>>; 3] = Default::default();
    for item in api.items() {
        let Some(all) = item.item["equivalent"].as_str() else { continue };
        // A list of names; everything else is one phrase.
        let is_name = |one: &str| {
            !one.contains([' ', '(']) && one.contains(|c: char| c == '_' || c.is_uppercase())
        };
        let is_list = all.split(", ").all(is_name);
        for one in if is_list { all.split(", ").collect() } else { vec![all] } {
            let starts = |starts: &[&str]| starts.iter().any(|start| one.starts_with(start));
            let family = match () {
                () if starts(&["MPI"]) => 0,
                () if starts(&["cu", "CU", "nv", "cl", "CL_"]) => 1,
                () => 2,
            };
            tables[family].entry(one).or_default().push(links.name(item.name(), ""));
        }
    }
    let mut text = "# Names from MPI, CUDA and others\n\nFor readers who have the name of a \
                    function in another interface. The functions are near, not always equal: the \
                    text of each has the rules. Calls of MPI without an equivalent are in \
                    [Come from MPI](../how-to/from-mpi.md), under \"Not provided\".\n"
        .to_owned();
    for (family, table) in families.iter().zip(tables) {
        text.push_str(&format!("\n## {family}\n\n| {family} | libdtl |\n|---|---|\n"));
        for (one, ours) in table {
            text.push_str(&format!("| {} | {} |\n", links.cell(one), ours.join(", ")));
        }
    }
    text
}
