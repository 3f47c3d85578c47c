//! `dtl-info new-backend`: writes the sources of a plugin that compiles, loads and reports that it
//! cannot run yet, with a comment on each function pointer of its vtables. The templates are in
//! `template/`; this file fills in their placeholders.

use clap::{Args, ValueEnum};
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Options of `dtl-info new-backend`.
#[derive(Args)]
pub(crate) struct Options {
    /// Name of the backend: 1 to 63 letters, digits, '_', '-', '.'
    name: String,

    /// Components of the backend, separated by commas
    #[arg(
        long,
        value_name = "COMPONENT,…",
        value_delimiter = ',',
        default_value = "device,memory,transfer"
    )]
    components: Vec<Component>,

    /// Language of the sources
    #[arg(long, value_enum, default_value = "c")]
    language: Language,

    /// Folder to write to, created if necessary [default: NAME]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Component {
    Device,
    Memory,
    Transfer,
    Exec,
    Comm,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Language {
    C,
    #[value(name = "c++")]
    Cpp,
}

impl Component {
    fn name(self) -> &'static str {
        match self {
            Component::Device => "device",
            Component::Memory => "memory",
            Component::Transfer => "transfer",
            Component::Exec => "exec",
            Component::Comm => "comm",
        }
    }

    fn source(self) -> &'static str {
        match self {
            Component::Device => include_str!("template/device.c"),
            Component::Memory => include_str!("template/memory.c"),
            Component::Transfer => include_str!("template/transfer.c"),
            Component::Exec => include_str!("template/exec.c"),
            Component::Comm => include_str!("template/comm.c"),
        }
    }
}

impl Language {
    fn extension(self) -> &'static str {
        if self == Language::C { "c" } else { "cpp" }
    }
}

/// Names that a new backend cannot have: those of the library's backends and communicator kinds,
/// and "auto".
const TAKEN: [&str; 10] =
    ["auto", "host", "null", "self", "threads", "shm", "mpi", "rdma", "hier", "nccl"];

/// File to write.
struct File {
    name: String,
    text: String,
}

/// Writes the files. Returns the report, or the error message.
pub(crate) fn run(options: &Options) -> Result<String, String> {
    check_name(&options.name)?;
    let mut components = options.components.clone();
    components.sort_unstable();
    components.dedup();
    let files = files(&options.name, &components, options.language);
    let folder = options.dir.clone().unwrap_or_else(|| PathBuf::from(&options.name));
    write(&folder, &files)?;
    Ok(report(&folder, &files))
}

fn check_name(name: &str) -> Result<(), String> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if name.is_empty() || name.len() > 63 || !name.chars().all(is_good) {
        return Err(format!(
            "a backend cannot be named \"{name}\": use 1 to 63 letters, digits, '_', '-', '.'"
        ));
    }
    // Its header is named after it, and its folder: dtl.h or dtl_backend.h would be two files,
    // ".." the folder above.
    if name == "dtl"
        || name.starts_with("dtl_")
        || !name.contains(|c: char| c.is_ascii_alphanumeric())
        || name.starts_with(['.', '-'])
    {
        return Err(format!(
            "a backend of that name (\"{name}\") cannot be written: take one that begins with a \
             letter and is neither dtl nor dtl_..."
        ));
    }
    if TAKEN.contains(&name) {
        return Err(format!(
            "a backend cannot be named \"{name}\": the library has one of this name"
        ));
    }
    Ok(())
}

fn files(name: &str, components: &[Component], language: Language) -> Vec<File> {
    let ending = language.extension();
    let values = values(name, components, language);
    let filled = |name: String, template: &str| File { name, text: fill(template, &values) };
    let mut files = vec![
        filled("CMakeLists.txt".into(), include_str!("template/CMakeLists.txt")),
        filled(format!("{}.h", identifier(name)), include_str!("template/backend.h")),
        filled(format!("plugin.{ending}"), include_str!("template/plugin.c")),
    ];
    for component in components {
        files.push(filled(format!("{}.{ending}", component.name()), component.source()));
    }
    files.push(filled(
        "expected-failures.toml".into(),
        include_str!("template/expected-failures.toml"),
    ));
    files.push(filled("docs/backend.md".into(), include_str!("template/page.md")));
    files.push(filled("docs/adr.md".into(), include_str!("template/adr.md")));
    files
}

/// Returns the name as a C identifier.
fn identifier(name: &str) -> String {
    let id: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if id.starts_with(|c: char| c.is_ascii_alphabetic()) { id } else { format!("b{id}") }
}

/// Returns the placeholders of the templates with their values.
fn values(name: &str, components: &[Component], language: Language) -> Vec<(&'static str, String)> {
    let id = identifier(name);
    let is_c = language == Language::C;
    let ending = language.extension();
    let has_comm = components.contains(&Component::Comm);
    let each = |line: &dyn Fn(&str) -> String| {
        components.iter().map(|c| line(c.name())).collect::<String>()
    };
    let names: Vec<&str> = components.iter().map(|component| component.name()).collect();
    let sources = each(&|component| format!(" {component}.{ending}"));
    let of_language = |c: &str, cpp: &str| (if is_c { c } else { cpp }).to_owned();
    vec![
        ("NAME", name.to_owned()),
        ("UPPER", id.to_uppercase()),
        ("HEADER", format!("{id}.h")),
        ("PLUGIN", format!("plugin.{ending}")),
        ("NOTHROW", of_language("", " noexcept")),
        (
            "THROW_RULE",
            of_language(
                "",
                "\n * With noexcept, an exception that leaves a slot ends the process: catch it.",
            ),
        ),
        ("LANGUAGE", of_language("C", "CXX")),
        ("STANDARD", of_language("c_std_11", "cxx_std_17")),
        ("DECLARATIONS", each(&|name| format!("dtl_{name}_vtable_t {id}_{name}_table(void);\n"))),
        (
            "TABLES",
            each(&|name| format!("    const dtl_{name}_vtable_t {name} = {id}_{name}_table();\n")),
        ),
        ("FILLS", each(&|name| format!("    table.{name} = &{name};\n"))),
        ("SOURCES", format!("plugin.{ending}{sources}")),
        ("COMPONENTS", names.join(" ")),
        ("COMPONENTS_LIST", names.join(", ")),
        ("RANKS", if has_comm { " --ranks 3".to_owned() } else { String::new() }),
        ("COMM_CHOICE", if has_comm { format!(", `DTL_COMM={name}`") } else { String::new() }),
        ("ID", id),
    ]
}

fn fill(template: &str, values: &[(&str, String)]) -> String {
    values
        .iter()
        .fold(template.to_owned(), |text, (name, value)| text.replace(&format!("@{name}@"), value))
}

fn write(folder: &Path, files: &[File]) -> Result<(), String> {
    let there: Vec<&str> = files
        .iter()
        .map(|file| file.name.as_str())
        .filter(|name| is_there(&folder.join(name)))
        .collect();
    if !there.is_empty() {
        let (folder, there) = (folder.display(), there.join(", "));
        return Err(format!(
            "nothing is overwritten, and {folder} has {there} already: name another with --dir"
        ));
    }
    let mut begun = Vec::new();
    let ended = files.iter().try_for_each(|file| {
        let path = folder.join(&file.name);
        let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        let opened =
            made.and_then(|()| OpenOptions::new().write(true).create_new(true).open(&path));
        opened
            .and_then(|mut out| {
                begun.push(path.clone());
                out.write_all(file.text.as_bytes())
            })
            .map_err(|error| format!("{}: {error}", path.display()))
    });
    if ended.is_err() {
        // Half a backend would be in the way of the next try. What cannot be removed stays.
        begun.iter().for_each(|path| drop(std::fs::remove_file(path)));
    }
    ended
}

/// Returns true if the path exists: a file, a folder, or a dangling link.
fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

fn report(folder: &Path, files: &[File]) -> String {
    let mut text = String::new();
    for file in files {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", folder.join(&file.name).display());
    }
    let folder = folder.display();
    text += &format!(
        "Next:\n  cmake -S {folder} -B {folder}/build && cmake --build {folder}/build && ctest \
         --test-dir {folder}/build\n(with -DCMAKE_PREFIX_PATH=FOLDER for the first, if libdtl is \
         installed in a folder of its own)\nThen write the slots, and let is_available say 1.\n"
    );
    text
}

#[cfg(test)]
#[path = "tests/new_backend.rs"]
mod tests;
