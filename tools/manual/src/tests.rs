//! Tests of manual pages: their contents, width and format, and the search for names.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use crate::{Api, Block, Page, noun, overview, plain, reference, roff};
use std::io::Write;
use std::process::{Command, Stdio};

#[test]
fn every_item_has_a_page() {
    let api = Api::read().unwrap();
    let mut count = 0;
    for item in api.items() {
        let page = Page::of(&api, item);
        assert!(!page.blocks.is_empty() && !page.name.is_empty());
        let is_prose = item.kind() != "constant";
        assert!(!is_prose || !page.brief.is_empty(), "{}: no text", page.name);
        count += 1;
    }
    assert!(count > 500, "{count} items");
}

#[test]
fn a_page_says_what_the_facts_say() {
    let api = Api::read().unwrap();
    let text = plain::page(&Page::of(&api, api.find("dtl_comm_irecv").unwrap()));
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for sentence in [
        "buf (out)",
        "May be NULL if count is 0.",
        "Room for `count` elements",
        "dtype Type of an element.",
        "`source` is not a rank.",
        "In use until the request completes.",
        "DTL_ERROR_TRUNCATED",
        "Equivalent: MPI_Irecv.",
    ] {
        assert!(text.contains(sentence), "{sentence} is not in\n{text}");
    }
    let text = plain::page(&Page::of(&api, api.find("DTL_ERROR_RANK_FAILURE").unwrap()));
    assert!(text.contains("RETURNED BY") && text.contains("dtl_comm_recv"), "{text}");
    let text = plain::page(&Page::of(&api, api.find("dtl_comm_t").unwrap()));
    assert!(text.contains("FUNCTIONS") && text.contains("dtl_comm_send"), "{text}");
}

#[test]
fn a_page_states_a_fact_once() {
    let api = Api::read().unwrap();
    let text = |name: &str| {
        let text = plain::page(&Page::of(&api, api.find(name).unwrap()));
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let send = text("dtl_comm_send");
    assert!(send.contains("buf (in) `count` elements; NULL only for count 0. count"), "{send}");
    assert!(send.contains("PROC_NULL (nothing is sent). tag"), "{send}");
    assert!(send.contains("comm Communicator."), "{send}");
    // The reason is that of the function to which the text refers.
    let bcast = text("dtl_comm_bcast");
    let busy = "DTL_ERROR_BUSY Another thread of this process is in a collective on `comm`";
    assert!(bcast.contains(busy) && bcast.contains("See dtl_comm_barrier."), "{bcast}");
    assert_eq!(bcast.matches(" DTL_ERROR_INVALID_RANK").count(), 1, "{bcast}");
    assert!(bcast.contains("Threads: any, one at a time for each communicator."), "{bcast}");
    let compile = text("dtl_module_compile");
    let phrase = "The status of a probe or init An environment cannot be required";
    assert!(compile.contains(phrase), "{compile}");
    for item in api.items().filter(|item| item.kind() == "function") {
        let page = Page::of(&api, item);
        for block in &page.blocks {
            let Block::Term(term, words) = block else { continue };
            assert!(!words.is_empty(), "{}: {term}", item.name());
        }
    }
}

#[test]
fn macros_and_the_overview_have_pages() {
    let api = Api::read().unwrap();
    let text = |name: &str| plain::page(&Page::of(&api, api.find(name).unwrap()));
    assert!(text("DTL_CHECK").contains("#define DTL_CHECK(call)"));
    assert!(text("dtl_attr_i64").contains("a signed integer"));
    assert!(text("DTL_PLUGIN_INIT").starts_with("dtl_plugin_t: "));
    assert!(text("DTL_REQUEST_NULL").starts_with("dtl_request_t: "));
    let rules = overview::rules();
    assert_eq!(rules.len(), 12, "{rules:#?}");
    assert!(rules[0].starts_with("1. Names and order. A function is named"), "{rules:#?}");
    assert!(rules[11].ends_with("has set the value."), "{rules:#?}");
    let text = plain::page(&overview::page(&api));
    for part in ["11. No hidden fallback.", "dtl_request(3)", "DTL_CHECK(3)"] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let near = overview::of_equivalents(&api, "mpi_send").unwrap();
    let text = plain::page(&near);
    assert!(text.contains("dtl_comm_send") && text.contains("share/doc/dtl/reference"), "{text}");
    assert!(overview::of_equivalents(&api, "MPI_Comm_join").is_none());
}

#[test]
fn a_noun_lists_its_functions_types_and_constants() {
    let api = Api::read().unwrap();
    let text = |name: &str| plain::page(&noun::page(&api, name).unwrap());
    let comm = text("dtl_comm");
    for part in ["Communicators: open", "dtl_comm_split\n", "dtl_comm_desc_t\n", "DTL_COMM_WORLD"] {
        assert!(comm.contains(part), "{part} is not in\n{comm}");
    }
    assert!(text("dtl_request").contains("dtl_comm_isend"));
    assert!(text("dtl_mem").contains("DTL_MEMORY_PINNED"));
    assert!(text("dtl_message").contains("dtl_comm_mrecv"));
    assert!(noun::page(&api, "dtl_init").is_none() && noun::page(&api, "DTL_COMM").is_none());
    let all = noun::all(&api);
    let is_listed = |name: &str| all.iter().any(|noun| text(noun).contains(name));
    let handles = api.items().filter(|item| item.kind() == "handle");
    for item in handles {
        assert!(is_listed(item.name()), "{}", item.name());
    }
}

#[test]
fn a_page_includes_the_header_of_its_item() {
    let api = Api::read().unwrap();
    for (name, header) in [
        ("dtl_comm_send", "dtl.h"),
        ("dtl_backend_vtable_t", "dtl_backend.h"),
        ("dtl_policy_submit", "dtl_select.h"),
        ("dtl_rdma_config_t", "dtl_rdma.h"),
    ] {
        let text = plain::page(&Page::of(&api, api.find(name).unwrap()));
        assert!(text.contains(&format!("#include <{header}>")), "{text}");
    }
}

#[test]
fn prose_fits_a_terminal() {
    let api = Api::read().unwrap();
    for item in api.items().filter(|item| item.kind() == "function") {
        let page = Page::of(&api, item);
        let is_code = |line: &str| {
            page.blocks
                .iter()
                .any(|block| matches!(block, Block::Code(code) if code.contains(line.trim())))
        };
        for line in plain::page(&page).lines().skip(1).filter(|line| line.len() > 80) {
            assert!(is_code(line), "{}: {line}", page.name);
        }
    }
}

#[test]
fn names_are_found() {
    let api = Api::read().unwrap();
    let name = |found: Option<crate::Item<'_>>| found.map(|item| item.name().to_owned());
    assert_eq!(name(api.find("dtl_error_busy")).as_deref(), Some("DTL_ERROR_BUSY"));
    // Both exist: the one that is written so.
    assert_eq!(name(api.find("dtl_comm_get_world")).as_deref(), Some("dtl_comm_get_world"));
    assert_eq!(name(api.find("DTL_COMM_WORLD")).as_deref(), Some("DTL_COMM_WORLD"));
    assert_eq!(name(api.status(0)).as_deref(), Some("DTL_SUCCESS"));
    assert_eq!(name(api.status(-1)), None);
    assert!(api.similar("dtl_comm_sned", [].into_iter()).contains(&"dtl_comm_send"));
    assert!(api.similar("MPI_Comm_spawn_multiple", [].into_iter()).is_empty());
}

#[test]
fn the_reference_has_every_item_once() {
    let api = Api::read().unwrap();
    let chapters = reference::chapters(&api);
    let links = reference::links(&chapters);
    let files = reference::files(&api, &chapters, &links);
    let all: String = files.iter().map(|(_, text)| text.as_str()).collect();
    for item in api.items() {
        let name = item.name();
        let anchors = [format!("{{#{name}}}\n"), format!("<a id=\"{name}\">")];
        let count: usize = anchors.iter().map(|anchor| all.matches(anchor.as_str()).count()).sum();
        assert_eq!(count, 1, "{name}");
    }
    let text = |name: &str| files.iter().find(|(file, _)| file == name).unwrap().1.as_str();
    let place = &links.places["dtl_comm_irecv"];
    let chapter = text(place.split('#').next().unwrap());
    assert!(chapter.contains("May be NULL if count is 0."), "{chapter}");
    let universal = "[`DTL_ERROR_FORKED`]";
    assert!(text("any-call.md").contains(universal) && !chapter.contains(universal));
    let row = format!("| MPI\\_Irecv | [`dtl_comm_irecv`]({place}) |");
    assert!(text("equivalents.md").contains(&row));
    assert!(text("variables.md").contains("{#DTL_TIMEOUT}"));
    // What Markdown would interpret is escaped, names and documents are links.
    let line = links.text("a_b <c> `x|y` see dtl_comm_irecv, docs/abi.md");
    let link = format!("[`dtl_comm_irecv`]({place})");
    assert_eq!(line, format!("a\\_b \\<c\\> `x|y` see {link}, [docs/abi.md](../abi.md)"));
}

#[test]
fn groff_has_nothing_to_complain_about() {
    let api = Api::read().unwrap();
    let nouns = noun::all(&api);
    let nouns = nouns.iter().filter_map(|name| noun::page(&api, name));
    let pages = api.items().map(|item| Page::of(&api, item)).chain(nouns);
    let pages = pages.chain([overview::page(&api)]);
    let pages: String = pages.map(|page| roff::page(&page, api.version())).collect();
    let child = Command::new("groff")
        .args(["-man", "-Tutf8", "-ww", "-z"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        println!("skipped: groff is not installed; apt-get install groff");
        return;
    };
    child.stdin.take().unwrap().write_all(pages.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaints.is_empty(), "{complaints}");
}

#[derive(clap::Parser)]
#[command(name = "example")]
struct Options {
    /// The number of things
    #[arg(long)]
    count: u32,
}

#[test]
fn a_program_writes_its_page_and_completions() {
    let folder = std::env::temp_dir().join(format!("dtl-manual-{}", std::process::id()));
    let command = <Options as clap::CommandFactory>::command();
    crate::programs::write(command, &folder).unwrap();
    let read = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap();
    assert!(read("man1/example.1").contains("The number of things"));
    for file in ["bash/example.bash", "zsh/_example", "fish/example.fish"] {
        assert!(read(file).contains("count"), "{file}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}
