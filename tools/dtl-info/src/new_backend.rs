//! `dtl-info new-backend`: writes the sources of a plugin that compiles and loads, with a comment on
//! each function pointer of its vtables. The exec component works on host threads as it stands; a
//! plugin with other components reports that it cannot run yet. The templates are in `template/`,
//! and the queues of exec in `examples-plugins/vcard`; this file fills in their placeholders.

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
    /// Returns the name of the component, and the template of its source.
    fn parts(self) -> (&'static str, &'static str) {
        match self {
            Component::Device => ("device", include_str!("template/device.c")),
            Component::Memory => ("memory", include_str!("template/memory.c")),
            Component::Transfer => ("transfer", include_str!("template/transfer.c")),
            Component::Exec => ("exec", include_str!("template/exec.c")),
            Component::Comm => ("comm", include_str!("template/comm.c")),
        }
    }

    fn name(self) -> &'static str {
        self.parts().0
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
    Ok(report(&folder, &files, &components))
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
        let (name, source) = component.parts();
        files.push(filled(format!("{name}.{ending}"), source));
    }
    if components.contains(&Component::Exec) {
        files.push(filled(format!("kernels.{ending}"), include_str!("template/kernels.c")));
        files.extend(driver(&identifier(name), ending));
        files.push(File { name: "builtin.bin".into(), text: format!("{name}:builtin\n") });
    }
    files.push(filled(
        "expected-failures.toml".into(),
        include_str!("template/expected-failures.toml"),
    ));
    files.push(filled("docs/backend.md".into(), include_str!("template/page.md")));
    files.push(filled("docs/adr.md".into(), include_str!("template/adr.md")));
    files
}

/// Returns the queues and binaries on host threads that stand in for the driver of an exec
/// component. Their names begin with those of the backend, so that several backends can be linked
/// into one program.
fn driver(id: &str, ending: &str) -> [File; 4] {
    let own = |name: String, text: &str| File {
        name,
        text: text
            .replace("vc_", &format!("{id}_"))
            .replace("QUEUE_H", &format!("{}_EXEC_QUEUE_H", id.to_uppercase()))
            .replace("BINARY_H", &format!("{}_EXEC_BINARY_H", id.to_uppercase()))
            .replace("\"queue.h\"", "\"exec_queue.h\"")
            .replace("\"binary.h\"", "\"exec_binary.h\""),
    };
    [
        own("exec_queue.h".into(), include_str!("../../../examples-plugins/vcard/queue.h")),
        own(
            format!("exec_queue.{ending}"),
            include_str!("../../../examples-plugins/vcard/queue.c"),
        ),
        own("exec_binary.h".into(), include_str!("../../../examples-plugins/vcard/binary.h")),
        own(
            format!("exec_binary.{ending}"),
            include_str!("../../../examples-plugins/vcard/binary.c"),
        ),
    ]
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
    let has_exec = components.contains(&Component::Exec);
    let mut sources = each(&|component| format!(" {component}.{ending}"));
    let mut declarations = each(&|name| format!("dtl_{name}_vtable_t {id}_{name}_table(void);\n"));
    if has_exec {
        for file in ["kernels", "exec_queue", "exec_binary"] {
            sources += &format!(" {file}.{ending}");
        }
        declarations += &format!("void {id}_add_kernels(dtl_exec_vtable_t *table);\n");
    }
    let of_language = |c: &str, cpp: &str| (if is_c { c } else { cpp }).to_owned();
    let if_exec = |text: String| if has_exec { text } else { String::new() };
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
        ("AVAILABLE", available(components, &format!("plugin.{ending}"))),
        ("DECLARATIONS", declarations),
        ("PACKAGES", if_exec("find_package(Threads REQUIRED)\n".to_owned())),
        ("LINKS", if_exec(LINKS.to_owned())),
        ("BINARY", if_exec(BINARY.to_owned())),
        ("ENDING", ending.to_owned()),
        (
            "TABLES",
            each(&|name| format!("    const dtl_{name}_vtable_t {name} = {id}_{name}_table();\n")),
        ),
        ("FILLS", each(&|name| format!("    table.{name} = &{name};\n"))),
        ("SOURCES", format!("plugin.{ending}{sources}")),
        ("COMPONENTS", names.join(" ")),
        ("COMPONENTS_LIST", names.join(", ")),
        ("RANKS", if has_comm { " --ranks 3".to_owned() } else { String::new() }),
        ("RANKS_NOTE", if has_comm { RANKS_NOTE.to_owned() } else { String::new() }),
        ("COMM_CHOICE", if has_comm { format!(", `DTL_COMM={name}`") } else { String::new() }),
        ("ID", id),
    ]
}

/// Comment in front of the conformance test of a comm component.
const RANKS_NOTE: &str = "# Ranks are processes. `--ranks-as threads` is for transports whose ranks \
                          are threads of one process.\n";

/// Arguments of dtl-ctk for the conformance test of an exec component: kernels that the backend has.
const BINARY: &str = "\n         --binary \"${CMAKE_CURRENT_SOURCE_DIR}/builtin.bin\" --kernel add \
                      --signature pi";

/// Line of CMake that links what an exec component needs.
const LINKS: &str =
    "    target_link_libraries(${target} PRIVATE Threads::Threads ${CMAKE_DL_LIBS})\n";

/// Returns the body of is_available. Only a backend without unwritten slots is available.
fn available(components: &[Component], plugin: &str) -> String {
    if components == [Component::Exec] {
        return "    (void)self, (void)why, (void)cap;\n    \
                *out_yes = 1; /* on host threads; check for your hardware instead */\n"
            .to_owned();
    }
    format!(
        "    (void)self;\n    \
         *out_yes = 0; /* 1 when the slots are written */\n    \
         snprintf(why, cap,\n             \
         \"its slots are still those of the template; is_available in {plugin} reports this\");\n"
    )
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

fn report(folder: &Path, files: &[File], components: &[Component]) -> String {
    let mut text = String::new();
    for file in files {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", folder.join(&file.name).display());
    }
    let folder = folder.display();
    let next = if components == [Component::Exec] {
        "It runs on host threads: replace the queues and binaries by those of your driver."
    } else {
        "Then write the slots, and let is_available say 1."
    };
    text += &format!(
        "Next:\n  cmake -S {folder} -B {folder}/build -DCMAKE_BUILD_TYPE=Release && cmake --build \
         {folder}/build && ctest --test-dir {folder}/build\n(with -DCMAKE_PREFIX_PATH=FOLDER for the first, if libdtl is \
         installed in a folder of its own)\n{next}\n"
    );
    text
}

#[cfg(test)]
#[path = "tests/new_backend.rs"]
mod tests;
