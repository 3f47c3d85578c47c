//! Tests of the documentation site: it has every page, and its links lead somewhere.

use super::{programs, root};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the files below a folder whose names end with `ending`.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path, ending));
        } else if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
    found
}

#[test]
fn every_page_is_in_the_summary() {
    let docs = root().join("docs");
    let summary = std::fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let listed: Vec<&str> =
        summary.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    let once: BTreeSet<&str> = listed.iter().copied().collect();
    assert_eq!(once.len(), listed.len(), "a page is listed twice");
    let pages = files(&docs, ".md");
    let paths = pages.iter().map(|page| page.strip_prefix(&docs).unwrap().to_str().unwrap());
    let missing: Vec<_> =
        paths.filter(|path| *path != "SUMMARY.md" && !once.contains(path)).collect();
    assert!(missing.is_empty(), "list them in docs/SUMMARY.md: {missing:?}");
}

/// Checks that the documents exist to which the headers refer; they are installed with them.
#[test]
fn pages_that_the_headers_name_exist() {
    let mut count = 0;
    for header in files(&root().join("include"), "").iter().filter(|path| path.is_file()) {
        let text = std::fs::read_to_string(header).unwrap();
        for rest in text.split("docs/").skip(1) {
            let Some((path, _)) = rest.split_once(".md") else { continue };
            if !path.contains(char::is_whitespace) {
                let page = format!("docs/{path}.md");
                assert!(root().join(&page).is_file(), "{} names {page}", header.display());
                count += 1;
            }
        }
    }
    assert!(count > 5, "only {count}");
}

#[test]
fn the_site_has_no_dead_links() {
    if Command::new("mdbook").arg("--version").output().is_err() {
        println!("skipped: no mdbook; tools/setup.sh docs");
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("site");
    let run = |command: &mut Command| {
        let outcome = command.output().unwrap();
        let text = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert!(outcome.status.success() && !text.contains("WARN"), "{command:?}: {text}");
    };
    run(Command::new(programs::program("dtl-manual")).arg("--site").arg(root()).arg(&folder));
    run(Command::new("mdbook").arg("build").arg(&folder));
    let pages: BTreeMap<PathBuf, String> = files(&folder.join("html"), ".html")
        .into_iter()
        .map(|path| (path.clone(), std::fs::read_to_string(path).unwrap()))
        .collect();
    assert!(pages.len() > 100, "only {} pages", pages.len());
    let mut broken = Vec::new();
    for (path, text) in &pages {
        for link in attributes(text, "href").chain(attributes(text, "src")) {
            if let Err(reason) = follow(path, link, &pages) {
                broken.push(format!("{}: {link}: {reason}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{} links: {broken:#?}", broken.len());
    for needed in ["<script src=\"http", "<script src=\"//", "rel=\"stylesheet\" href=\"http"] {
        let found = pages.iter().find(|(_, text)| text.contains(needed));
        assert!(found.is_none(), "{:?} needs the network", found.map(|(path, _)| path));
    }
}

/// Returns the values of an attribute in HTML.
fn attributes<'a>(text: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let start = format!(" {name}=\"");
    let found: Vec<&str> = text.split(&start).skip(1).collect();
    found.into_iter().filter_map(|rest| rest.split('"').next())
}

/// Checks that a link leads to a file of the site and to an anchor in it.
fn follow(page: &Path, link: &str, pages: &BTreeMap<PathBuf, String>) -> Result<(), &'static str> {
    let is_elsewhere = ["http://", "https://", "mailto:", "data:"];
    if is_elsewhere.iter().any(|start| link.starts_with(start)) {
        return Ok(());
    }
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let mut target = page.to_path_buf();
    if !file.is_empty() {
        target.pop();
        for part in file.split('/') {
            match part {
                ".." => drop(target.pop()),
                part => target.push(part),
            }
        }
    }
    if !target.is_file() {
        return Err("no such file");
    }
    let Some(text) = pages.get(&target).filter(|_| !anchor.is_empty()) else { return Ok(()) };
    let has = attributes(text, "id").any(|id| id == anchor);
    if has { Ok(()) } else { Err("no such anchor") }
}
