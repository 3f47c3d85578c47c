//! Budgets that keep the tree small: measured values, each with its maximum.
//!
//! A ceiling is the present value if the tree is still above the budget. It only falls: a change
//! that lowers a value also lowers the ceiling. ARCHITECTURE.md shows value, ceiling and budget.

use super::imports::{self, Graph};
use super::{File, collect, root, sources};
use std::collections::{BTreeMap, BTreeSet};

/// One budget.
struct Budget {
    name: &'static str,
    /// Maximum that the design demands.
    budget: usize,
    /// Maximum that the test accepts today; the budget, once the budget is reached.
    ceiling: usize,
    /// Remedy if a change exceeds the ceiling.
    mend: &'static str,
    measure: fn(&Tree) -> Measured,
}

/// Measured value, and the items that it counts, if they help to reduce it.
struct Measured(usize, Vec<String>);

/// Sources, and data about them that several budgets use.
struct Tree {
    /// All files of src.
    files: Vec<File>,
    /// Dependencies between the modules of the library.
    graph: Graph,
}

impl Tree {
    fn read() -> Tree {
        let files = sources();
        let graph = Graph::read(files.iter().filter(|file| is_library(file)));
        Tree { files, graph }
    }

    /// Returns the files of the library without tests.
    fn without_tests(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| is_library(file))
    }
}

fn is_library(file: &File) -> bool {
    !file.is_test()
}

const BUDGETS: &[Budget] = &[
    Budget {
        name: "lines of src",
        budget: 92_000,
        ceiling: 118_970,
        mend: "simplify or delete before you add",
        measure: |tree| {
            Measured(tree.files.iter().map(|file| file.text.lines().count()).sum(), vec![])
        },
    },
    Budget {
        name: "code lines of the library",
        budget: 62_000,
        ceiling: 74_675,
        mend: "simplify or delete before you add; tests, comments and blanks do not count",
        measure: |tree| Measured(tree.without_tests().map(code_lines).sum(), vec![]),
    },
    Budget {
        name: "code lines of the programs, without the kit's tests",
        budget: 20_000,
        ceiling: 20_685,
        mend: "use the library's C interface, or one module for what several programs do",
        measure: |_| {
            let files = super::programs();
            Measured(files.iter().filter(|file| !file.is_test()).map(code_lines).sum(), vec![])
        },
    },
    Budget {
        name: "code lines that measure and choose copy methods",
        budget: 500,
        ceiling: 500,
        mend: "simplify a rule of the choice before you add one",
        measure: |tree| {
            let names = ["copy_choice.rs", "link_times.rs", "transfer_times.rs"];
            let is_counted = |file: &&File| {
                names.iter().any(|name| file.path.ends_with(&format!("protocol/{name}")))
            };
            Measured(tree.without_tests().filter(is_counted).map(code_lines).sum(), vec![])
        },
    },
    Budget {
        name: "folders in import cycles",
        budget: 0,
        ceiling: 0,
        mend: "move what both need into a folder below both",
        measure: |tree| {
            let cycles = tree.graph.folder_cycles();
            Measured(
                cycles.iter().map(Vec::len).sum(),
                cycles.iter().map(|c| c.join(" ")).collect(),
            )
        },
    },
    Budget {
        name: "modules in one import cycle",
        budget: 5,
        ceiling: 5,
        mend: "pass what is needed as a parameter, or split the module that all import",
        measure: |tree| {
            let cycles = tree.graph.cycles();
            let largest = cycles.first().map_or(0, Vec::len);
            Measured(largest, cycles.first().map(|c| c.join(" ")).into_iter().collect())
        },
    },
    Budget {
        name: "methods of a trait",
        budget: 20,
        ceiling: 20,
        mend: "split the trait into groups of methods that a backend has as a whole or not at all",
        measure: largest_trait,
    },
    Budget {
        name: "wrappers of an entry",
        budget: 5,
        ceiling: 5,
        mend: "use quick, call, wait, hold or always",
        measure: |tree| {
            let files = tree.without_tests().filter(|file| file.is_in("src/ffi/"));
            let found: Vec<String> = files.flat_map(wrappers).collect();
            Measured(found.len(), found)
        },
    },
    Budget {
        name: "files in one folder",
        budget: 15,
        ceiling: 15,
        mend: "make a folder of the files that belong together",
        measure: |tree| {
            let mut folders: BTreeMap<&str, usize> = BTreeMap::new();
            for file in tree.without_tests() {
                *folders.entry(file.path.rsplit_once('/').unwrap().0).or_default() += 1;
            }
            let most = folders.into_iter().max_by_key(|(_, count)| *count).unwrap();
            Measured(most.1, vec![most.0.to_owned()])
        },
    },
    Budget {
        name: "files that define one type name",
        budget: 4,
        ceiling: 4,
        mend: "name the type by the noun of its module",
        measure: |tree| {
            let names = type_names(tree);
            let (name, files) = names.into_iter().max_by_key(|(_, files)| files.len()).unwrap();
            Measured(files.len(), vec![name])
        },
    },
    Budget {
        name: "type names defined in three files or more",
        budget: 10,
        ceiling: 10,
        mend: "name the type by the noun of its module",
        measure: |tree| {
            let mut names = type_names(tree);
            names.retain(|_, files| files.len() > 2);
            Measured(names.len(), names.into_keys().collect())
        },
    },
    Budget {
        name: "modules of sys that runtime names",
        budget: 12,
        ceiling: 12,
        mend: "let the folder's mod.rs give runtime what it needs",
        measure: |tree| {
            let named: BTreeSet<String> = tree.graph.imports_from("runtime", "sys");
            Measured(named.len(), named.into_iter().collect())
        },
    },
    Budget {
        name: "exported functions",
        budget: 330,
        ceiling: 330,
        mend: "extend a function that stands",
        measure: |_| Measured(lines_of("tests/dtl.symbols"), vec![]),
    },
    Budget {
        name: "environment variables",
        budget: 60,
        ceiling: 60,
        mend: "measure on the user's machine instead of asking for a setting",
        measure: |tree| {
            let table = tree.files.iter().find(|file| file.path.ends_with("settings/variables.rs"));
            let text = &table.expect("the table of variables").text;
            let rows = text.lines().filter_map(|line| line.trim_start().split_once(": \""));
            let is_name = |name: &&str| name.chars().all(|c| c == '_' || c.is_ascii_uppercase());
            let names: BTreeSet<&str> = rows.map(|(name, _)| name).filter(is_name).collect();
            Measured(names.len(), vec![])
        },
    },
    Budget {
        name: "#[inline(always)]",
        budget: 120,
        ceiling: 120,
        mend: "leave it to the compiler, unless a row of the instruction table shows 5 % or more",
        measure: |tree| {
            let count = |file: &File| file.text.matches("#[inline(always)]").count();
            Measured(tree.without_tests().map(count).sum(), vec![])
        },
    },
    Budget {
        name: "lines over 100 columns",
        budget: 0,
        ceiling: 0,
        mend: "wrap it",
        measure: |tree| count_lines(&tree.files, |line| line.chars().count() > 100),
    },
    Budget {
        name: "doc comments that lean on another",
        budget: 0,
        ceiling: 0,
        mend: "write what the item does, so that the comment stands alone",
        measure: |tree| count_lines(&tree.files, leans),
    },
    Budget {
        name: "SAFETY comments without an argument, outside ffi",
        budget: 0,
        ceiling: 0,
        mend: "say which premise makes the operation sound, and who keeps it",
        measure: |tree| {
            let files: Vec<&File> =
                tree.files.iter().filter(|file| !file.is_in("src/ffi/")).collect();
            count_lines(files, |line| {
                let text = line.trim_start().strip_prefix("// SAFETY: ").unwrap_or_default();
                let text = text.to_ascii_lowercase();
                ["passed on", "as above", "the same"].iter().any(|rote| text.starts_with(rote))
            })
        },
    },
    Budget {
        name: "comments in which software speaks",
        budget: 20,
        ceiling: 20,
        mend: "data is returned, reported, published, passed, signalled",
        measure: |tree| {
            count_lines(&tree.files, |line| {
                let is_comment = line.trim_start().starts_with("//");
                let verbs = ["told", "heard", "asked", "says"];
                is_comment && verbs.iter().any(|verb| super::has_word(line, verb))
            })
        },
    },
    Budget {
        name: "lines of comments and of the header that are not ASCII",
        budget: 0,
        ceiling: 0,
        mend: "write ..., -, x, <=, ->",
        measure: |tree| {
            let mut header = Vec::new();
            collect(&root().join("include"), &[".h"], &mut header);
            let Measured(mut count, mut places) =
                count_lines(&tree.files, |line| line.contains("//") && !line.is_ascii());
            let more = count_lines(&header, |line| !line.is_ascii());
            count += more.0;
            places.extend(more.1);
            Measured(count, places)
        },
    },
    Budget {
        name: "files that the head of their folder's mod.rs does not name",
        budget: 0,
        ceiling: 0,
        mend: "list the file in the head of mod.rs, in reading order, one line each",
        measure: heads_that_miss_a_file,
    },
    Budget {
        name: "lines of ARCHITECTURE.md",
        budget: 200,
        ceiling: 200,
        mend: "it is a map: put what a folder holds into the head of its mod.rs",
        measure: |_| Measured(lines_of("ARCHITECTURE.md"), vec![]),
    },
    Budget {
        name: "lines of ARCHITECTURE.md over 100 columns",
        budget: 0,
        ceiling: 0,
        mend: "a table cell is a phrase",
        measure: |_| {
            let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
            Measured(text.lines().filter(|line| line.chars().count() > 100).count(), vec![])
        },
    },
];

/// Returns the number of lines with code.
fn code_lines(file: &File) -> usize {
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    file.text.lines().filter(is_code).count()
}

fn lines_of(path: &str) -> usize {
    std::fs::read_to_string(root().join(path)).unwrap().lines().count()
}

/// Returns the number of lines for which `is_bad` returns true, and the first twenty of them.
fn count_lines<'a>(
    files: impl IntoIterator<Item = &'a File>,
    is_bad: impl Fn(&str) -> bool,
) -> Measured {
    let mut places = Vec::new();
    for file in files {
        for (index, line) in file.text.lines().enumerate().filter(|(_, line)| is_bad(line)) {
            places.push(format!("{}:{}: {}", file.path, index + 1, line.trim()));
        }
    }
    let count = places.len();
    places.truncate(20);
    Measured(count, places)
}

/// Returns true for a doc comment that begins with a reference to another one.
fn leans(line: &str) -> bool {
    let line = line.trim_start();
    let Some(text) = line.strip_prefix("/// ").or_else(|| line.strip_prefix("//! ")) else {
        return false;
    };
    ["The same", "As above", "As for ", "As `", "See the module"]
        .iter()
        .any(|start| text.starts_with(start))
}

/// Returns the number of methods of the trait with the most methods.
fn largest_trait(tree: &Tree) -> Measured {
    let mut most = Measured(0, vec![]);
    for file in tree.without_tests() {
        let mut rest = file.text.as_str();
        while let Some(at) = rest.find("trait ") {
            rest = &rest[at + 6..];
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric()).collect();
            let Some(body) = imports::braced(rest) else { continue };
            let methods = body.lines().filter(|line| {
                line.strip_prefix("    ")
                    .is_some_and(|line| line.starts_with("fn ") || line.starts_with("unsafe fn "))
            });
            let count = methods.count();
            if name.chars().next().is_some_and(char::is_uppercase) && count > most.0 {
                most = Measured(count, vec![format!("{} {name}", file.path)]);
            }
        }
    }
    most
}

/// Returns the names of the functions of ffi that take the closure of an entry.
fn wrappers(file: &File) -> Vec<String> {
    if !file.path.contains("/guard") {
        return Vec::new();
    }
    let mut found = Vec::new();
    let text: Vec<&str> = file.code().map(|(_, line)| line.trim_start()).collect();
    for (index, line) in text.iter().enumerate() {
        let after = line.strip_prefix("pub").and_then(|rest| rest.split_once("fn "));
        let Some((_, name)) = after else { continue };
        let end = text[index..].iter().position(|line| line.ends_with(['{', ';'])).unwrap_or(0);
        if text[index..=index + end].iter().any(|line| line.contains("FnOnce(")) {
            found.push(format!("{}: {name}", file.path));
        }
    }
    found
}

/// Returns the files that define each type name.
fn type_names(tree: &Tree) -> BTreeMap<String, BTreeSet<&str>> {
    let mut names: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for file in tree.without_tests() {
        for line in file.text.lines() {
            let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
            let kind = words.next().unwrap_or_default();
            if ["struct", "enum", "union", "trait"].contains(&kind) {
                let name: String = words
                    .next()
                    .unwrap_or_default()
                    .chars()
                    .take_while(|c| *c == '_' || c.is_alphanumeric())
                    .collect();
                names.entry(name).or_default().insert(&file.path);
            }
        }
    }
    names
}

fn heads_that_miss_a_file(tree: &Tree) -> Measured {
    let mut missed = Vec::new();
    let heads: BTreeMap<&str, &File> = tree
        .files
        .iter()
        .filter_map(|file| Some((file.path.strip_suffix("/mod.rs")?, file)))
        .collect();
    for file in tree.without_tests() {
        let (folder, name) = file.path.rsplit_once('/').unwrap();
        let Some(head) = heads.get(folder).filter(|_| name != "mod.rs") else { continue };
        let text = head.text.lines().take_while(|line| line.starts_with("//!"));
        let stem = name.trim_end_matches(".rs");
        if !text.into_iter().any(|line| line.contains(&format!("`{stem}`"))) {
            missed.push(file.path.clone());
        }
    }
    Measured(missed.len(), missed)
}

#[test]
fn budgets_are_kept() {
    let tree = Tree::read();
    let mut broken = Vec::new();
    for budget in BUDGETS {
        let Measured(value, details) = (budget.measure)(&tree);
        println!("{:60} {value:7} {:7} {:7}", budget.name, budget.ceiling, budget.budget);
        assert!(budget.ceiling >= budget.budget, "{}: the budget is the last ceiling", budget.name);
        if value > budget.ceiling {
            broken.push(format!(
                "{}: {value}, and at most {} are accepted (budget {}): {}\n    {}",
                budget.name,
                budget.ceiling,
                budget.budget,
                budget.mend,
                details.join("\n    ")
            ));
        }
    }
    super::report(&broken);
}

/// Checks that the table in ARCHITECTURE.md has these budgets.
#[test]
fn budgets_are_in_the_architecture() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let rows = BUDGETS
        .iter()
        .map(|budget| format!("| {} | {} | {} |", budget.name, budget.ceiling, budget.budget));
    let missing: Vec<String> = rows.filter(|row| !text.lines().any(|line| line == row)).collect();
    super::report(&missing);
}

/// Checks that every path in ARCHITECTURE.md exists, and that the function of each step of a walk
/// exists in the file that precedes it.
#[test]
fn names_in_the_architecture_exist() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut file: Option<(&str, String)> = None;
        let mut pieces = line.split('`');
        while let (Some(between), Some(name)) = (pieces.next(), pieces.next()) {
            let is_path = name.contains('/') && !name.contains([' ', '*', '<']);
            if is_path {
                if !root().join(name).exists() {
                    findings.push(format!("ARCHITECTURE.md:{}: no {name}", index + 1));
                }
                file = std::fs::read_to_string(root().join(name)).ok().map(|text| (name, text));
            } else if let Some((path, text)) =
                file.as_ref().filter(|_| [" ", ", "].contains(&between))
            {
                let item = name.rsplit("::").next().unwrap_or(name);
                let item = item.trim_end_matches("()");
                if !super::has_word(text, item) {
                    findings.push(format!("ARCHITECTURE.md:{}: no {item} in {path}", index + 1));
                }
            }
        }
    }
    super::report(&findings);
}

#[test]
fn budgets_see_what_they_count() {
    assert!(leans("    /// The same, for a window."));
    assert!(!leans("    /// Sends a message."));
    let file = File {
        path: "src/ffi/guard.rs".to_owned(),
        text: "// c\n\npub fn call(f: impl FnOnce()) {}\nfn x() {}\n".to_owned(),
    };
    assert_eq!((code_lines(&file), wrappers(&file).len()), (2, 1));
    let tree = Tree::read();
    assert!(largest_trait(&tree).0 > 5);
    assert!(type_names(&tree).contains_key("Tables"));
}
