//! `dtl-ctk checklist DIR`: the nine requirements for a new backend. Each is checked by reading the
//! files in the backend's folder and is reported with the reason for the result. Nothing is
//! executed.

use std::fs;
use std::path::{Path, PathBuf};

/// Requirement, with the result of checking it.
pub(crate) struct Answer {
    pub(crate) question: &'static str,
    pub(crate) yes: bool,
    pub(crate) reason: String,
}

/// File in the backend's folder.
struct Source {
    path: PathBuf,
    text: String,
}

type Check = fn(&[Source]) -> Result<String, String>;

/// The requirements, in the order of docs/how-to/test-a-backend.md.
const BOXES: [(&str, Check); 9] = [
    ("its tables name the components that it implements, with their required slots", components),
    ("a test runs dtl-ctk on it", hooked),
    ("comm tests run with several ranks (if it has a comm table)", multi_rank),
    ("a CMake option turns it on and is OFF by default", option),
    ("a page tells users what it is, what it needs and when to choose it", page),
    ("a decision record or notes say why it is built as it is", notes),
    ("it is compiled with warnings as errors", warnings),
    ("a manifest names file, abi range and components", manifest),
    ("a licence is there", licence),
];

/// Checks the files in a backend's folder against all requirements.
pub(crate) fn answers(folder: &Path) -> Result<Vec<Answer>, String> {
    let mut files = Vec::new();
    collect(folder, 0, &mut files).map_err(|error| format!("{}: {error}", folder.display()))?;
    let answer = |(question, check): (&'static str, Check)| match check(&files) {
        Ok(reason) => Answer { question, yes: true, reason },
        Err(reason) => Answer { question, yes: false, reason },
    };
    Ok(BOXES.into_iter().map(answer).collect())
}

/// Collects the text files in a folder and its subfolders; skips build folders and hidden files.
fn collect(folder: &Path, depth: usize, files: &mut Vec<Source>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = name_of(&path);
        if name.starts_with('.') || ["build", "target", "node_modules"].contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            if depth < 5 {
                collect(&path, depth + 1, files)?;
            }
        } else if fs::metadata(&path)?.len() < 1 << 20 {
            files.extend(fs::read_to_string(&path).map(|text| Source { path, text }));
        }
    }
    Ok(())
}

impl Source {
    fn has_ending(&self, endings: &[&str]) -> bool {
        self.path.extension().is_some_and(|ending| endings.iter().any(|one| *one == ending))
    }

    fn name(&self) -> String {
        name_of(&self.path)
    }

    fn is_code(&self) -> bool {
        self.has_ending(&["c", "cc", "cpp", "cxx", "h", "hpp", "rs"])
    }

    fn is_build(&self) -> bool {
        self.name() == "CMakeLists.txt"
            || self.has_ending(&["cmake", "sh", "yml", "yaml"])
            || self.name() == "Makefile"
    }

    fn is_page(&self) -> bool {
        self.has_ending(&["md", "rst", "txt"]) && !self.is_build()
    }
}

/// Required functions of each component's table, by the names of their fields in C, C++ and Rust
/// sources.
const REQUIRED: [(&str, &[&str]); 5] = [
    ("device", &["count", "set", "get"]),
    ("memory", &["alloc", "free"]),
    ("transfer", &["copy"]),
    ("exec", &[]),
    ("comm", &["open", "close", "isend", "irecv", "test"]),
];

/// Returns true if the sources use the function table (vtable) of a component.
fn has_table(files: &[Source], component: &str) -> bool {
    let upper = format!("DTL_{}_VTABLE_INIT", component.to_uppercase());
    let names = [format!("dtl_{component}_vtable_t"), upper];
    let has = |file: &&Source| names.iter().any(|name| file.text.contains(name));
    files.iter().filter(|file| file.is_code()).any(|file| has(&file))
}

/// C++ concept that a class asserts, in place of the table of each component. The compiler checks its
/// functions.
const CONCEPTS: [(&str, &str); 4] = [
    ("memory", "MemorySpace<"),
    ("transfer", "MemoryTransfer<"),
    ("exec", "Executor<"),
    ("comm", "Communicator<"),
];

/// Returns true if a class in the sources asserts the concept of a component.
fn has_class(files: &[Source], component: &str) -> bool {
    let concept = CONCEPTS.iter().find(|(name, _)| *name == component);
    let asserts = |line: &str, concept| line.contains("static_assert(") && line.contains(concept);
    concept.is_some_and(|(_, concept)| {
        let mut lines = files.iter().filter(|file| file.is_code()).flat_map(|one| one.text.lines());
        lines.any(|line| asserts(line, concept))
    })
}

/// Returns true if the sources set the function pointer `slot` of a table: `.alloc = ...`,
/// `table.alloc = ...` or `alloc: Some(...)`.
fn sets(files: &[Source], slot: &str) -> bool {
    let (assigned, named) = (format!(".{slot}"), format!("{slot}: Some("));
    let set = |line: &str| {
        let after = line.split_once(&assigned).map(|(_, rest)| rest.trim_start());
        after.is_some_and(|rest| rest.starts_with('=')) || line.trim_start().starts_with(&named)
    };
    files.iter().filter(|file| file.is_code()).any(|file| file.text.lines().any(set))
}

fn components(files: &[Source]) -> Result<String, String> {
    let is_there = |name: &&(&str, _)| has_table(files, name.0) || has_class(files, name.0);
    let there: Vec<_> = REQUIRED.iter().filter(is_there).collect();
    if there.is_empty() {
        let start = "start from `dtl-info new-backend` or the how-to";
        return Err(format!(
            "no source uses a dtl_…_vtable_t, or asserts a concept of a class: {start}"
        ));
    }
    for (component, slots) in there.iter().filter(|(name, _)| has_table(files, name)) {
        if let Some(slot) = slots.iter().find(|slot| !sets(files, slot)) {
            return Err(format!("it has a {component} table, but nothing sets {component}.{slot}"));
        }
    }
    let names: Vec<&str> = there.iter().map(|(component, _)| *component).collect();
    Ok(format!("{}; `dtl-ctk run` tells whether they keep their contracts", names.join(", ")))
}

/// Returns the first build or test file that contains one of these strings.
fn build_with<'a>(files: &'a [Source], words: &[&str]) -> Option<&'a Source> {
    let has = |file: &&Source| words.iter().any(|word| file.text.contains(word));
    files.iter().filter(|file| file.is_build()).find(has)
}

fn hooked(files: &[Source]) -> Result<String, String> {
    let missing = "no CMakeLists.txt, script or workflow mentions dtl-ctk: add_test(NAME … \
                   COMMAND dtl-ctk run --plugin …)";
    found(build_with(files, &["dtl-ctk", "dtl_add_backend_test"]), "in ", missing)
}

fn multi_rank(files: &[Source]) -> Result<String, String> {
    if !has_table(files, "comm") && !has_class(files, "comm") {
        return Ok("it has no comm table".into());
    }
    let is_many = |rest: &str| {
        let number = rest.trim_start_matches(['=', ' ', '"']);
        let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().is_ok_and(|ranks| ranks > 1)
    };
    let many = |file: &&Source| file.text.split("--ranks").skip(1).any(is_many);
    let file = files.iter().filter(|file| file.is_build()).find(many);
    found(file, "in ", "nothing runs dtl-ctk with --ranks 2 or more")
}

fn option(files: &[Source]) -> Result<String, String> {
    let is_cmake = |file: &&Source| file.name() == "CMakeLists.txt" || file.has_ending(&["cmake"]);
    let is_option = |line: &&str| {
        line.trim_start().to_lowercase().starts_with("option(")
            && (line.contains("DTL_ENABLE_") || line.contains("DTL_WITH_"))
    };
    let mut lines = files.iter().filter(is_cmake).flat_map(|file| file.text.lines());
    match lines.find(is_option) {
        None => Err("no option(DTL_ENABLE_… \"…\" OFF) in its CMake files".into()),
        Some(line) if line.trim_end().trim_end_matches(')').trim_end().ends_with("OFF") => {
            Ok(line.trim().to_owned())
        }
        Some(line) => Err(format!("its default is not OFF: {}", line.trim())),
    }
}

/// Templates of the documentation page and of the decision record that `dtl-info new-backend`
/// writes.
const FORMS: [&str; 2] = [
    include_str!("../../../dtl-info/src/template/page.md"),
    include_str!("../../../dtl-info/src/template/adr.md"),
];
/// Prefixes of the lines of the documentation templates that an author may leave unchanged.
const KEPT: [&str; 4] = ["# Backend ", "## ", "| components |", "| chosen |"];

/// Returns the lines in the documentation templates that an author must replace: text outside of
/// code blocks, split at the placeholders that `dtl-info` replaces.
fn prompts() -> impl Iterator<Item = Vec<&'static str>> {
    let prose = |form: &'static str| form.split("```").step_by(2).flat_map(str::lines);
    let is_prompt = |line: &&str| {
        line.split_whitespace().count() >= 4 && !KEPT.iter().any(|start| line.starts_with(start))
    };
    // Between two '@' is a placeholder.
    let pieces = |line: &'static str| line.split('@').step_by(2).collect();
    FORMS.into_iter().flat_map(prose).filter(is_prompt).map(pieces)
}

/// Returns a string that names the first line in the files that is unchanged from a documentation
/// template.
fn unedited<'a>(files: impl Iterator<Item = &'a Source>) -> Option<String> {
    let prompts: Vec<_> = prompts().collect();
    let is_form =
        |line: &&str| prompts.iter().any(|pieces| pieces.iter().all(|piece| line.contains(piece)));
    let line = |file: &'a Source| file.text.lines().find(is_form).map(|line| (file, line));
    let (file, line) = files.filter_map(line).next()?;
    Some(format!("{} is still the form, to be replaced: \"{}\"", file.name(), line.trim()))
}

fn page(files: &[Source]) -> Result<String, String> {
    prose(files, false, 60, "no page (.md, .rst) of 60 words or more")
}

fn is_notes(file: &Source) -> bool {
    let path = file.path.to_string_lossy().to_lowercase();
    let has = |word: &&str| path.rsplit('/').take(2).any(|part| part.contains(word));
    ["adr", "notes", "design", "decision"].iter().any(has)
}

fn notes(files: &[Source]) -> Result<String, String> {
    let missing = "no page in adr/, or called notes, design or decision, of 30 words or more";
    prose(files, true, 30, missing)
}

fn warnings(files: &[Source]) -> Result<String, String> {
    let words = ["-Werror", "/WX", "COMPILE_WARNING_AS_ERROR", "-D warnings"];
    let missing = "no -Werror (or COMPILE_WARNING_AS_ERROR) in its build files";
    found(build_with(files, &words), "in ", missing)
}

fn manifest(files: &[Source]) -> Result<String, String> {
    if let Some(file) = build_with(files, &["dtl_add_backend("]) {
        let call = file.text.split("dtl_add_backend(").nth(1).unwrap_or_default();
        let call = call.split(')').next().unwrap_or_default();
        return match call.split_whitespace().any(|word| word == "COMPONENTS") {
            true => Ok("written by dtl_add_backend".into()),
            false => Err(format!("dtl_add_backend in {} names no COMPONENTS", file.name())),
        };
    }
    let Some(file) = files.iter().find(|file| file.name().ends_with(".dtl.toml")) else {
        return Err("no NAME.dtl.toml, and no dtl_add_backend() that would write it".into());
    };
    let says = |field: &str| file.text.lines().any(|line| line.trim_start().starts_with(field));
    match ["file", "abi", "components"].into_iter().find(|field| !says(field)) {
        Some(field) => Err(format!("{} does not say {field}", file.name())),
        None => Ok(file.name()),
    }
}

fn licence(files: &[Source]) -> Result<String, String> {
    let names = ["LICENSE", "LICENCE", "COPYING"];
    let named =
        |file: &&Source| names.iter().any(|start| file.name().to_uppercase().starts_with(start));
    if let Some(file) = files.iter().find(named) {
        return Ok(file.name());
    }
    let tag = "SPDX-License-Identifier";
    let has_tag = |file: &&Source| file.is_code() && file.text.contains(&format!("{tag}:"));
    let missing = format!("no LICENSE file, and no {tag} in a source");
    found(files.iter().find(has_tag), &format!("{tag} in "), &missing)
}

fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Returns the result of a check: the file that fulfils the requirement, or a string that says what
/// is missing.
fn found(file: Option<&Source>, before: &str, missing: &str) -> Result<String, String> {
    file.map(|file| format!("{before}{}", file.name())).ok_or_else(|| missing.to_owned())
}

/// Searches for a documentation page (if `of_notes` is true, for design notes) of at least `words`
/// words. Fails if any page (or any notes) still contains an unchanged line of a documentation
/// template.
fn prose(files: &[Source], of_notes: bool, words: usize, missing: &str) -> Result<String, String> {
    let pages = || files.iter().filter(|file| file.is_page() && is_notes(file) == of_notes);
    match unedited(pages()) {
        Some(why) => Err(why),
        None => {
            let is_long = |file: &&Source| file.text.split_whitespace().count() >= words;
            found(pages().find(is_long), "", missing)
        }
    }
}

#[cfg(test)]
#[path = "tests/checklist.rs"]
mod tests;
