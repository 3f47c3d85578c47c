//! C compiler of the machine: selection, the inputs that determine its output, and one compilation.

use crate::abi::status::*;
use crate::backend::kernel_cache::{Inputs, too_large, unwritten, write};
use crate::error::{Error, Result, fail, failure};
use crate::runtime::component::{KERNEL_HEADER, Source};
use crate::runtime::settings;
use crate::sys::os::dl;
use crate::sys::os::process::{self, Capture};
use std::ffi::OsStr;
use std::fmt::Display;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Name of the source file in the folder of a kernel cache entry. No file that is passed with a
/// source can have this name.
const SOURCE: &str = "<source>.c";
/// Names of files in the folder of a kernel cache entry: the header, the shared object, and the
/// file with the make rule that lists the included files.
const HEADER: &str = "dtl_kernel.h";
pub(super) const OBJECT: &str = "kernels.so";
const NEEDS: &str = "needs.d";
/// Name of the subfolder for the files that the caller passes with a kernel's source.
const FILES: &str = "files";

/// Compiler options that precede the caller's options, so that the caller's options take
/// precedence.
const FLAGS: [&str; 6] = ["-x", "c", "-std=gnu11", "-O3", "-fPIC", "-Wframe-larger-than=1048576"];
/// Compiler options that follow the caller's options.
const LAST_FLAGS: [&str; 2] = ["-shared", "-MD"];
/// Shell command that runs the compiler and prints its exit status. Without the shell, the status
/// would be lost if the application reaped the child process before the library did.
const SHELL: [&str; 4] =
    ["/bin/sh", "-c", "\"$@\"; printf '\\n%s%d\\n' 'dtl: ended with ' $?", "sh"];
const ENDED: &str = "\ndtl: ended with ";
const USUAL: [&str; 3] = ["cc", "gcc", "clang"];
/// Environment variables that compilers read.
const VARIABLES: [&str; 8] = [
    "CPATH",
    "C_INCLUDE_PATH",
    "LIBRARY_PATH",
    "COMPILER_PATH",
    "GCC_EXEC_PREFIX",
    "LD_LIBRARY_PATH",
    "LD_RUN_PATH",
    "PATH",
];

/// Compiler found on the machine, with its time limit.
pub(super) struct Compiler {
    /// Path of the compiler as it was found, with symbolic links unresolved: some compilers depend
    /// on the name by which they are called.
    program: PathBuf,
    limit: Duration,
}

impl Compiler {
    pub(super) fn find(settings: &settings::Compiler) -> Result<Self> {
        let limit = Duration::from_nanos(settings.limit_ns());
        let found = |name: &str| search(name, &settings.search_path);
        let program = match &settings.program {
            Some(name) => found(name).ok_or_else(|| {
                failure!(
                    DTL_ERROR_UNAVAILABLE,
                    "DTL_CC={name} is no program that can be run: give the path of a C compiler, \
                     or a name in PATH, without options (those go into dtl_source_t)"
                )
            }),
            None => USUAL.into_iter().find_map(found).ok_or_else(|| {
                failure!(
                    DTL_ERROR_UNAVAILABLE,
                    "there is no C compiler: no cc, gcc or clang in PATH ({}); install one \
                     (apt-get install gcc libc6-dev, dnf install gcc) or set DTL_CC",
                    settings.search_path
                )
            }),
        }?;
        match dl::check_named_file(&program) {
            Ok(_) => Ok(Compiler { program, limit }),
            Err(why) => fail!(
                DTL_ERROR_UNAVAILABLE,
                "the C compiler {} is not run: {why}; set DTL_CC to another",
                program.display()
            ),
        }
    }

    /// Returns all inputs on which the compiled object depends, except the files that the source
    /// includes.
    pub(super) fn inputs(&self, source: &Source) -> Result<Inputs> {
        let mut inputs = Inputs::new();
        inputs.add("header", KERNEL_HEADER.to_bytes());
        inputs.add("called", self.program.as_os_str().as_bytes());
        inputs.add_program("compiler", &self.program).map_err(|error| {
            failure!(DTL_ERROR_UNAVAILABLE, "the C compiler {}: {error}", self.program.display())
        })?;
        inputs.add("processor", processor().as_bytes());
        for name in VARIABLES {
            inputs.add(name, std::env::var_os(name).unwrap_or_default().as_bytes());
        }
        FLAGS.iter().chain(&LAST_FLAGS).for_each(|flag| inputs.add("flag", flag.as_bytes()));
        // Relative paths in options depend on the current folder.
        if !source.options.is_empty() {
            inputs
                .add("folder", std::env::current_dir().unwrap_or_default().as_os_str().as_bytes());
        }
        source.options.iter().for_each(|option| inputs.add("option", option.as_bytes()));
        for file in &source.files {
            inputs.add("file", file.name.as_bytes());
            inputs.add("text", file.text.as_bytes());
        }
        for library in &source.libraries {
            inputs.add("library", library.as_bytes());
            // The content of the library is an input too: an earlier result may have been linked
            // with another version. A missing file is ignored here, because the compiler reports
            // it.
            let _ =
                library.starts_with('/').then(|| inputs.add_program("linked", Path::new(library)));
        }
        inputs.add("name", source.name.as_bytes());
        inputs.add("source", source.bytes());
        Ok(inputs)
    }

    /// Compiles `source` in `folder`. On success, the object is the only file left in `folder`.
    /// Returns the files that the compiler read outside `folder`, and its messages.
    pub(super) fn make(
        &self,
        source: &Source,
        folder: &Path,
        log: &mut String,
    ) -> Result<(Vec<PathBuf>, String)> {
        log.clear();
        self.run(source, folder, log)?;
        let rule = fs::read_to_string(folder.join(NEEDS))
            .map_err(|error| unwritten(&folder.join(NEEDS), &error))?;
        let here = std::env::current_dir().unwrap_or_default();
        let needs = prerequisites(&rule).into_iter().map(|path| here.join(path));
        let needs = needs.filter(|path| !path.starts_with(folder)).collect();
        for done in [HEADER, NEEDS, SOURCE] {
            let _ = fs::remove_file(folder.join(done));
        }
        let _ = fs::remove_dir_all(folder.join(FILES));
        Ok((needs, log.clone()))
    }

    /// Runs the compiler on `source` in `folder`. The compiler's messages are appended to `log`.
    fn run(&self, source: &Source, folder: &Path, log: &mut String) -> Result<()> {
        write(&folder.join(SOURCE), &named(&source.name.to_string_lossy(), source.bytes()))?;
        write(&folder.join(HEADER), &named(HEADER, KERNEL_HEADER.to_bytes()))?;
        let files = folder.join(FILES);
        for file in &source.files {
            let path = files.join(&file.name);
            let above = path.parent().unwrap_or(&files);
            fs::create_dir_all(above).map_err(|error| unwritten(above, &error))?;
            write(&path, &named(&file.name, file.text.as_bytes()))?;
        }
        let [shell, script @ ..] = SHELL;
        let mut command = Command::new(shell);
        command.args(script).arg(&self.program);
        command.args(FLAGS).arg("-I").arg(folder).arg("-I").arg(files);
        command.args(source.options.iter().map(|option| OsStr::from_bytes(option.as_bytes())));
        command.args(LAST_FLAGS).arg("-MF").arg(folder.join(NEEDS));
        command.arg("-o").arg(folder.join(OBJECT));
        command.arg(folder.join(SOURCE)).args(["-x", "none"]);
        source.libraries.iter().for_each(|library| link(&mut command, library));
        command.arg("-lm");
        // Messages are in English, and a killed compiler leaves temporary files only in this
        // folder.
        command.env("LC_ALL", "C").env("TMPDIR", folder);
        let answer = process::run(&mut command, Capture::Everything, self.limit)
            .map_err(|error| self.not_run(&error))?;
        log.push_str(&String::from_utf8_lossy(&answer.output));
        let code = taken_code(log);
        self.judge(answer.in_time, code, &folder.join(OBJECT), log)
    }

    fn not_run(&self, why: &dyn Display) -> Error {
        failure!(
            DTL_ERROR_UNAVAILABLE,
            "the C compiler {} cannot be run: {why}; set DTL_CC to another",
            self.program.display()
        )
    }

    fn judge(&self, in_time: bool, code: Option<i32>, object: &Path, log: &str) -> Result<()> {
        let program = self.program.display();
        if !in_time {
            return fail!(
                DTL_ERROR_TIMEOUT,
                "the C compiler {program} was ended after {:?}: raise DTL_COMPILE_TIMEOUT, or set \
                 DTL_CC to another",
                self.limit
            );
        }
        if code == Some(0) && is_shared_object(object) {
            return Ok(());
        }
        // At the limit of file sizes the kernel ends a process by a signal, which its parent
        // reports; if the process ignores the signal, it reports the failed write itself.
        if log.contains("File size limit exceeded") || log.contains("File too large") {
            return Err(too_large(object));
        }
        if log.contains("No space left on device") || log.contains("Disk quota exceeded") {
            return fail!(
                DTL_ERROR_LIMIT,
                "no space for what {program} makes in {}: free some, or set DTL_CACHE_DIR",
                object.display()
            );
        }
        let how = match code {
            Some(0) => {
                "made no shared object (an option that takes the place of -o or -shared, such as \
                 -c or -E?)"
                    .to_owned()
            }
            Some(UNFOUND | NO_PROGRAM) => {
                return Err(self.not_run(&log.lines().last().unwrap_or_default()));
            }
            Some(code) if code > KILLED => format!("was killed by signal {}", code - KILLED),
            Some(code) => format!("ended with {code}"),
            None => "was killed by a signal".to_owned(),
        };
        Err(Error::new(DTL_ERROR_COMPILE_FAILED, format!("{program} {how}")))
    }
}

/// Returns true if the file exists and is an ELF shared object. Some options make compilers write
/// an object file or text instead.
fn is_shared_object(path: &Path) -> bool {
    const MAGIC: &[u8] = b"\x7fELF";
    const SHARED: [u8; 2] = 3u16.to_ne_bytes(); // ET_DYN
    let mut first = [0; 18];
    let is_read = fs::File::open(path).is_ok_and(|mut file| file.read_exact(&mut first).is_ok());
    is_read && first.starts_with(MAGIC) && first.ends_with(&SHARED)
}

/// Exit statuses of a shell: 126 means that the command could not be executed, 127 that the command
/// was not found, and 128 + n that signal n ended the command.
const NO_PROGRAM: i32 = 126;
const UNFOUND: i32 = 127;
const KILLED: i32 = 128;

/// Removes from the log the exit status that the shell printed, and returns the status. Returns
/// `None` if the shell itself was killed.
fn taken_code(log: &mut String) -> Option<i32> {
    let at = log.rfind(ENDED)?;
    let rest = log.split_off(at);
    let (code, behind) = rest.strip_prefix(ENDED)?.split_once('\n')?;
    log.push_str(behind); // output of a program that outlives the compiler
    code.parse().ok()
}

/// Adds a `#line` directive to source text, so that messages and __FILE__ contain the caller's file
/// name.
fn named(name: &str, bytes: &[u8]) -> Vec<u8> {
    let name = name.replace('\\', "\\\\").replace('"', "\\\"");
    let mut text = format!("#line 1 \"{name}\"\n").into_bytes();
    text.extend_from_slice(bytes);
    text.push(b'\n');
    text
}

/// Adds the options that link a library, given by path or by name. A library given by path is also
/// found at that path at run time.
fn link(command: &mut Command, library: &str) {
    match Path::new(library).parent().filter(|_| library.starts_with('/')) {
        Some(folder) => {
            command.arg(library).arg("-Xlinker").arg("-rpath").arg("-Xlinker").arg(folder)
        }
        None => command.arg(format!("-l{library}")),
    };
}

/// Returns the path of the executable `name`, which is a path or the name of a file in one of the
/// colon-separated `folders`. Returns `None` if there is no such executable.
fn search(name: &str, folders: &str) -> Option<PathBuf> {
    let runs = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|about| about.is_file() && about.mode() & 0o111 != 0)
    };
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(runs);
    }
    // Relative and empty folders are skipped: they depend on the current folder, which anyone may
    // have chosen.
    let folders = folders.split(':').filter(|folder| folder.starts_with('/'));
    folders.map(|folder| Path::new(folder).join(name)).find(runs)
}

/// Returns the processor properties on which -march=native depends. They are compiler inputs,
/// because machines with different processors may share a cache folder.
fn processor() -> String {
    const KEYS: [&str; 8] = [
        "vendor_id",
        "cpu family",
        "model",
        "model name",
        "flags",
        "Features",
        "CPU implementer",
        "CPU part",
    ];
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let first = text.split("\n\n").next().unwrap_or_default();
    let wanted =
        |line: &&str| line.split_once(':').is_some_and(|(key, _)| KEYS.contains(&key.trim()));
    first.lines().filter(wanted).collect::<Vec<_>>().join("\n")
}

/// Returns the prerequisites in a make rule that a compiler has written (option -MD).
fn prerequisites(rule: &str) -> Vec<String> {
    let rule = rule.replace("\\\n", " ");
    let Some((_, list)) = rule.split_once(": ") else { return Vec::new() };
    let (mut paths, mut path) = (Vec::new(), String::new());
    let mut letters = list.lines().next().unwrap_or_default().chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, letters.peek()) {
            ('\\', Some(&next @ (' ' | '#'))) | ('$', Some(&next @ '$')) => {
                path.push(next);
                letters.next();
            }
            (' ' | '\t', _) => paths.push(std::mem::take(&mut path)),
            _ => path.push(letter),
        }
    }
    paths.push(path);
    paths.retain(|path| !path.is_empty());
    paths
}

#[cfg(test)]
#[path = "tests/compiler.rs"]
mod tests;
