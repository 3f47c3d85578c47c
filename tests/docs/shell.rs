//! Tests of the shell blocks: they have no syntax error, and everything of this project that they
//! name exists: programs with their options, environment variables, options of CMake, files.
//!
//! The commands themselves run in `tests/tutorial` where the document is a tutorial.

use super::blocks::{blocks, fault_of, is_there};
use super::{documents, programs, root};
use std::collections::BTreeSet;
use std::process::Command;

const PROGRAMS: [&str; 4] = ["dtl-info", "dtlrun", "dtl-ctk", "dtl-bench"];
/// Folders of this repository that commands name with a relative path.
const FOLDERS: [&str; 6] =
    ["tests/", "tools/", "examples-c/", "examples-cpp/", "examples-fortran/", "mpi/"];
/// Environment variables that the library does not read: Cargo's build of a Rust program and the
/// plugin libfabric do.
const OF_OTHERS: [&str; 2] = ["DTL_LIB_DIR", "DTL_BACKEND_LIBFABRIC_ROOT"];

#[test]
fn every_shell_block_is_valid() {
    if !is_there("bash", "bash") {
        return;
    }
    let found = blocks("sh");
    for block in &found {
        if let Some(text) = fault_of(Command::new("bash").arg("-n"), &block.text) {
            panic!("{}: {text}", block.place);
        }
    }
    assert!(found.len() >= 60, "only {}: is the search right?", found.len());
}

#[test]
fn commands_in_shell_blocks_exist() {
    let mut faults = Vec::new();
    let mut count = 0;
    for block in blocks("sh") {
        for command in commands(&block.text) {
            count += usize::from(ours(&command).is_some());
            faults.extend(check(&command).err().map(|fault| format!("{}: {fault}", block.place)));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(count >= 60, "only {count} commands of ours: is the search right?");
}

/// Checks commands inside sentences, such as `dtl-info --env`. Placeholders in them may be no valid
/// values, so only unknown options and subcommands are faults. Decision records are not checked:
/// they name what existed at that time.
#[test]
fn commands_in_sentences_exist() {
    let mut faults = Vec::new();
    let mut count = 0;
    for path in documents().iter().filter(|path| !path.starts_with(root().join("docs/adr"))) {
        let text = std::fs::read_to_string(path).unwrap();
        // Outside of blocks, every second part between backticks is code.
        for part in text.split("```").step_by(2).flat_map(|text| text.split('`').skip(1).step_by(2))
        {
            for command in commands(part) {
                for fault in command.iter().filter_map(|word| check_word(word).err()) {
                    faults.push(format!("{}: {fault}", path.display()));
                }
                let Some(start) = ours(&command) else { continue };
                if command.len() == start + 1 {
                    continue;
                }
                count += 1;
                let is_unknown = |fault: &String| {
                    fault.contains("unexpected argument")
                        || fault.contains("unrecognized subcommand")
                };
                let fault = accepts(&command[start..]).err().filter(is_unknown);
                faults.extend(fault.map(|fault| format!("{}: {fault}", path.display())));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(count >= 20, "only {count} commands: is the search right?");
}

/// Splits a script into commands, each a list of words without quotes. Operators and redirections
/// of the shell end a command; comments are dropped.
fn commands(script: &str) -> Vec<Vec<String>> {
    let mut found = vec![Vec::new()];
    let (mut word, mut is_word) = (String::new(), false);
    let mut letters = script.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\'' | '"' => {
                is_word = true;
                word.extend(letters.by_ref().take_while(|next| *next != letter));
            }
            '\\' => {
                if let Some(next) = letters.next().filter(|next| *next != '\n') {
                    is_word = true;
                    word.push(next);
                }
            }
            '#' if !is_word => while letters.next_if(|next| *next != '\n').is_some() {},
            ' ' | '\n' | ';' | '&' | '|' | '(' | ')' | '<' | '>' => {
                if is_word {
                    found.last_mut().unwrap().push(std::mem::take(&mut word));
                    is_word = false;
                }
                if letter != ' ' {
                    found.push(Vec::new());
                }
            }
            _ => {
                is_word = true;
                word.push(letter);
            }
        }
    }
    if is_word {
        found.last_mut().unwrap().push(word);
    }
    found.retain(|command| !command.is_empty());
    found
}

/// Returns the index of the first word of a command that is a program of this project.
fn ours(command: &[String]) -> Option<usize> {
    command.iter().position(|word| PROGRAMS.contains(&word.rsplit('/').next().unwrap_or(word)))
}

fn check(command: &[String]) -> Result<(), String> {
    for word in command {
        check_word(word)?;
    }
    if command[0] == "./run" {
        let script = std::fs::read_to_string(root().join("run")).unwrap();
        let step = command.get(1).ok_or("./run needs a word")?;
        if !script.contains(&format!("\n{step})\n")) {
            return Err(format!("./run has no {step}"));
        }
    }
    match ours(command) {
        Some(start) => accepts(&command[start..]),
        None => Ok(()),
    }
}

/// Checks that what a word names exists: a variable, an option of CMake, a file.
fn check_word(word: &str) -> Result<(), String> {
    let known = |exists: bool| if exists { Ok(()) } else { Err(format!("{word} does not exist")) };
    if let Some((name, _)) = word.split_once('=') {
        if name.starts_with("DTL_") {
            known(OF_OTHERS.contains(&name) || variables().contains(name))?;
        } else if let Some(option) = name.strip_prefix("-DDTL_") {
            let is_in = |path: &str| {
                let file = std::fs::read_to_string(root().join(path)).unwrap();
                file.contains(&format!("option(DTL_{option} "))
            };
            known(is_in("CMakeLists.txt") || is_in("tests/CMakeLists.txt"))?;
        }
    }
    if FOLDERS.iter().any(|folder| word.starts_with(folder)) {
        known(root().join(word).exists())?;
    }
    Ok(())
}

/// Returns the names of the environment variables that the library reads.
fn variables() -> BTreeSet<String> {
    let path = root().join("src/runtime/settings/variables.rs");
    let text = std::fs::read_to_string(path).unwrap();
    let table = text.split("variables! {").nth(1).unwrap().split("};").next().unwrap();
    let names = table.lines().filter_map(|line| line.trim().split_once(": \""));
    let names: BTreeSet<String> = names.map(|(name, _)| name.to_owned()).collect();
    assert!(names.len() > 40, "only {names:?}: has the table another form now?");
    names
}

/// Checks that a program accepts its arguments: it parses all that precede `--help`, and does
/// nothing else then.
fn accepts(command: &[String]) -> Result<(), String> {
    let name = command[0].rsplit('/').next().unwrap();
    // A variable of the shell, as in `for n in 1 2 3`, stands for a number.
    let of_shell = |word: &String| word.strip_prefix('$').is_some_and(|rest| !rest.contains('/'));
    let value = |word: &String| if of_shell(word) { "2".to_owned() } else { word.clone() };
    let command: Vec<String> = command.iter().filter(|word| *word != "...").map(value).collect();
    let mut arguments = &command[1..];
    let mut started: &[String] = &[];
    if name == "dtlrun" {
        // The arguments behind the program are not those of dtlrun.
        let is_value = |index: usize| {
            index > 0
                && ["-n", "--ranks", "--on-failure", "--bind"]
                    .contains(&arguments[index - 1].as_str())
        };
        let program = (0..arguments.len())
            .find(|index| !arguments[*index].starts_with('-') && !is_value(*index))
            .unwrap_or(arguments.len());
        (arguments, started) = arguments.split_at(program);
    }
    let mut run = Command::new(programs::program(name));
    if let Some(text) = fault_of(run.args(arguments).arg("--help"), "") {
        return Err(format!("{}: {text}", command.join(" ")));
    }
    if name == "dtl-ctk" {
        names_of_tests(arguments)?;
    }
    match ours(started) {
        Some(start) => accepts(&started[start..]),
        None => Ok(()),
    }
}

/// Checks that the named tests and faults in arguments of dtl-ctk exist.
fn names_of_tests(arguments: &[String]) -> Result<(), String> {
    let list = |arguments: &[&str]| {
        let outcome =
            Command::new(programs::program("dtl-ctk")).arg("list").args(arguments).output();
        String::from_utf8(outcome.unwrap().stdout).unwrap()
    };
    let is_random = arguments.iter().any(|argument| argument == "--cases");
    for pair in arguments.windows(2) {
        let exists = match pair[0].as_str() {
            "--fault" => {
                list(&["--faults"]).lines().any(|line| line.split(' ').next() == Some(&pair[1]))
            }
            "--only" if !is_random => pair[1]
                .split(',')
                .all(|pattern| list(&["--only", pattern]).lines().any(|line| line.contains('.'))),
            _ => true,
        };
        if !exists {
            return Err(format!("{} {}: no such name", pair[0], pair[1]));
        }
    }
    Ok(())
}

#[test]
fn faults_are_found() {
    let refused = [
        "DTL_COMMM=mpi ./solver",
        "export DTL_NOTHING=1",
        "cmake -B build -DDTL_BUILD_NOTHING=ON",
        "./run nothing",
        "tests/nothing.sh build",
        "dtl-info --nothing",
        "mpirun -n 2 dtl-bench nothing",
        "dtlrun -n 2 --nothing ./solver",
        "dtlrun -n 2 dtl-ctk run --nothing",
        "dtl-ctk run --backend sample --only exec.nothing",
        "dtl-ctk run --fault memory.nothing",
        "true && (dtl-ctk run --ranks many)",
    ];
    for script in refused {
        let first = commands(script).iter().find_map(|command| check(command).err());
        assert!(first.is_some(), "accepted: {script}");
    }
}
