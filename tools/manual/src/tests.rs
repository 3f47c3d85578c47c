//! Tests of manual pages: their contents, width and format, and the search for names.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use crate::{Api, Block, Page, plain, reference, roff};
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
        "Length: count elements of type dtype.",
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
    let place = &links.0["dtl_comm_irecv"];
    let chapter = text(place.split('#').next().unwrap());
    assert!(chapter.contains("| `buf` | out | May be NULL if count is 0."), "{chapter}");
    let universal = "[`DTL_ERROR_FORKED`]";
    assert!(text("statuses.md").contains(universal) && !chapter.contains(universal));
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
    let pages: String =
        api.items().map(|item| roff::page(&Page::of(&api, item), api.version())).collect();
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
