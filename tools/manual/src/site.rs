//! Sources of the documentation site, for mdBook: the pages of `docs`, the pages of the repository
//! that `docs/SUMMARY.md` lists, and the reference.
//!
//! A link to a file outside of `docs` leads to a copy of the file in the folder `files`.

use crate::markdown::Links;
use crate::{Api, reference};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Line of `docs/SUMMARY.md` that the chapters of the reference replace.
const CHAPTERS: &str = "<!-- chapters of the reference -->";

/// Writes the sources of the site into a folder, and returns the number of pages.
///
/// # Errors
/// A file cannot be read or written.
pub fn write(root: &Path, folder: &Path) -> Result<usize, String> {
    let api = Api::read()?;
    let chapters = reference::chapters(&api);
    let mut links = reference::links(&chapters);
    let source = folder.join("src");
    // What was removed in the repository is removed here.
    if source.exists() {
        fs::remove_dir_all(&source).map_err(|error| format!("{}: {error}", source.display()))?;
    }
    copy(&root.join("docs/book.toml"), &folder.join("book.toml"))?;
    let summary = read(&root.join("docs/SUMMARY.md"))?;
    let listed = targets(&summary).filter_map(|target| resolved("docs/SUMMARY.md", target));
    let pages: BTreeSet<String> = listed.filter(|path| root.join(path).is_file()).collect();
    for path in &pages {
        let text = read(&root.join(path))?;
        let title = text.lines().find_map(|line| line.strip_prefix("# "));
        links.titles.extend(title.map(|title| (path.clone(), title.replace('`', ""))));
    }
    let site = Site { root, pages, links };
    let mut files = BTreeSet::new();
    for path in &site.pages {
        let text = site.page(path, &read(&root.join(path))?, &mut files);
        save(&source.join(site.place(path)), &text)?;
    }
    for path in files.difference(&site.pages) {
        copy(&root.join(path), &source.join(site.place(path)))?;
    }
    let written = reference::files(&api, &chapters, &site.links);
    for (name, text) in &written {
        save(&source.join("reference").join(name), text)?;
    }
    let list: Vec<String> =
        chapters.iter().map(|one| format!("- [{}](reference/{})", one.title, one.file)).collect();
    let indent = summary
        .lines()
        .find(|line| line.contains(CHAPTERS))
        .map_or(0, |line| line.len() - line.trim_start().len());
    let list = list.join(&format!("\n{}", " ".repeat(indent)));
    let summary = site.page("docs/SUMMARY.md", &summary, &mut files).replace(CHAPTERS, &list);
    save(&source.join("SUMMARY.md"), &summary)?;
    Ok(site.pages.len() + written.len())
}

struct Site<'a> {
    root: &'a Path,
    /// Pages of the site, by their paths in the repository.
    pages: BTreeSet<String>,
    links: Links,
}

impl Site<'_> {
    /// Returns the path of a file of the repository in the site. What is no page is shown as text.
    fn place(&self, path: &str) -> String {
        let path = match self.pages.contains(path) {
            // mdBook renames these, but not in links.
            true => path.replace("README.md", "index.md"),
            false if path.starts_with("docs/") => path.to_owned(),
            // A link to a name with ".md" would become one to a page.
            false => format!("{}.txt", path.trim_end_matches(".md")),
        };
        path.strip_prefix("docs/").map_or_else(|| format!("files/{path}"), str::to_owned)
    }

    /// Returns the text of a page with links that hold in the site. Adds the files that they lead
    /// to.
    fn page(&self, path: &str, text: &str, files: &mut BTreeSet<String>) -> String {
        let mut result = String::new();
        let mut is_code = false;
        for line in text.lines() {
            let is_fence = line.trim_start().starts_with("```");
            is_code ^= is_fence;
            // The second word of a block's info string is its file.
            let file = line.split_whitespace().nth(1).filter(|_| is_fence && is_code);
            if let Some(file) = file.filter(|file| file.contains('.')) {
                let indent = line.split('`').next().unwrap_or_default();
                result.push_str(&format!("{indent}**{file}**\n\n"));
            }
            match is_code {
                true => result.push_str(line),
                false => result.push_str(&self.line(path, line, files)),
            }
            result.push('\n');
        }
        result
    }

    fn line(&self, path: &str, line: &str, files: &mut BTreeSet<String>) -> String {
        let up = "../".repeat(self.place(path).matches('/').count());
        let takes_names = !line.starts_with(['#', '<']);
        let mut pieces = line.split("](").peekable();
        let mut result = String::new();
        let mut is_first = true;
        while let Some(piece) = pieces.next() {
            let mut rest = piece;
            if !is_first {
                let end = piece.find([')', '#']).unwrap_or(piece.len());
                let (target, after) = piece.split_at(end);
                let file = resolved(path, target).filter(|file| self.root.join(file).is_file());
                let target = match &file {
                    Some(file) => format!("{up}{}", self.place(file)),
                    None => target.to_owned(),
                };
                files.extend(file);
                result.push_str(&format!("]({target}"));
                rest = after;
            }
            is_first = false;
            // A name in the text of a link has its link.
            let end = match pieces.peek() {
                Some(_) => rest.rfind('[').unwrap_or(rest.len()),
                None => rest.len(),
            };
            let (free, linked) = rest.split_at(end);
            let linked = self.titled(path, linked, pieces.peek().copied());
            match takes_names {
                true => result.push_str(&self.named(free, &format!("{up}reference/"))),
                false => result.push_str(free),
            }
            result.push_str(&linked);
        }
        result
    }

    /// Returns the beginning of a link, "[text". If the text is the path of a page, it becomes the
    /// title of the page; `next` begins with the target.
    fn titled(&self, path: &str, linked: &str, next: Option<&str>) -> String {
        let text = linked.trim_start_matches('[').trim_matches('`');
        let target = next.and_then(|next| next.split([')', '#']).next());
        let file = target.and_then(|target| resolved(path, target));
        match file.and_then(|file| self.links.titles.get(&file)) {
            Some(title) if text.ends_with(".md") => format!("[{title}"),
            _ => linked.to_owned(),
        }
    }

    /// Makes links of the names of the interface that are marked as code.
    fn named(&self, text: &str, folder: &str) -> String {
        let pieces: Vec<&str> = text.split('`').collect();
        let last = pieces.len() - 1;
        let linked = pieces.iter().enumerate().map(|(index, piece)| match index % 2 {
            1 if index < last && self.links.has(piece) => self.links.name(piece, folder),
            1 if index < last => format!("`{piece}`"),
            // A span that ends on another line.
            1 => format!("`{piece}"),
            _ => (*piece).to_owned(),
        });
        linked.collect()
    }
}

/// Returns the targets of the links of a text.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next())
}

/// Returns the path from the top of the repository of the target of a link in the file `path`.
fn resolved(path: &str, target: &str) -> Option<String> {
    let mut folders: Vec<&str> = path.split('/').collect();
    folders.pop();
    for part in target.split('/') {
        match part {
            "" => return None,
            "." => {}
            ".." => drop(folders.pop()?),
            part => folders.push(part),
        }
    }
    Some(folders.join("/"))
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn save(path: &Path, text: &str) -> Result<(), String> {
    let folder = path.parent().unwrap_or(path);
    let result = fs::create_dir_all(folder).and_then(|()| fs::write(path, text));
    result.map_err(|error| format!("{}: {error}", path.display()))
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let folder = to.parent().unwrap_or(to);
    let result = fs::create_dir_all(folder).and_then(|()| fs::copy(from, to));
    result.map(drop).map_err(|error| format!("{}: {error}", from.display()))
}
