//! The headers of C and their description, `include/dtl-api.json`: the description keeps its schema,
//! it is complete, and two C compilers agree with it; the headers compile in every order.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "a description of another form fails the test"
)]

use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: &str) -> Value {
    let text = std::fs::read_to_string(root().join(file)).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn description() -> Value {
    read("include/dtl-api.json")
}

/// The first header includes the others.
const HEADERS: [&str; 4] = ["dtl.h", "dtl_rdma.h", "dtl_select.h", "dtl_backend.h"];

fn header(name: &str) -> String {
    std::fs::read_to_string(root().join("include").join(name)).unwrap()
}

/// Returns the items of a kind.
fn items<'a>(description: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    let sections = description["sections"].as_array().unwrap().iter();
    let items = sections.flat_map(|section| section["items"].as_array().unwrap());
    items.filter(move |item| item["kind"] == kind)
}

fn name(item: &Value) -> &str {
    item["name"].as_str().unwrap()
}

#[test]
fn the_schema_is_kept() {
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    let file = "dtl-api.schema.json";
    compiler.add_resource(file, read("include/dtl-api.schema.json")).unwrap();
    let schema = compiler.compile(file, &mut schemas).unwrap();
    if let Err(error) = schemas.validate(&description(), schema) {
        panic!("{error:#}");
    }
    // A schema that accepts anything would also have accepted this.
    let mut wrong = description();
    wrong["sections"][0]["items"][0]["kind"] = "no such kind".into();
    assert!(schemas.validate(&wrong, schema).is_err());
}

#[test]
fn every_exported_function_is_described() {
    let description = description();
    let described: BTreeSet<&str> = items(&description, "function").map(name).collect();
    let symbols = std::fs::read_to_string(root().join("tests/dtl.symbols")).unwrap();
    let exported: BTreeSet<&str> =
        symbols.lines().filter(|line| line.starts_with("dtl_")).collect();
    assert_eq!(described, exported);
}

/// Guards and internal macros.
const INTERNAL: [&str; 6] = [
    "DTL_DTL_H",
    "DTL_RDMA_H",
    "DTL_SELECT_H",
    "DTL_BACKEND_H",
    "DTL_HANDLE_COMPARISON_",
    "DTL_CONSTEXPR",
];

#[test]
fn every_macro_is_described() {
    let description = description();
    let constants = items(&description, "constant").map(name);
    let nulls = items(&description, "handle").map(|handle| handle["null"].as_str().unwrap());
    let inits = items(&description, "struct").filter_map(|structure| structure["init"].as_str());
    let macros = items(&description, "macro").map(name);
    let described: BTreeSet<&str> =
        constants.chain(nulls).chain(inits).chain(macros).chain(INTERNAL).collect();
    let headers = HEADERS.map(header).concat();
    let defined = headers.lines().filter_map(|line| line.strip_prefix("#define "));
    let defined = defined.map(|rest| rest.split([' ', '(']).next().unwrap());
    let missing: BTreeSet<&str> = defined.filter(|name| !described.contains(name)).collect();
    assert!(missing.is_empty(), "dtl-api.json does not describe {missing:?}");
    let inline = headers.lines().filter_map(|line| line.strip_prefix("static inline "));
    let inline =
        inline.map(|rest| rest.split('(').next().unwrap().rsplit([' ', '*']).next().unwrap());
    assert_eq!(
        inline.collect::<Vec<_>>(),
        items(&description, "inline").map(name).collect::<Vec<_>>()
    );
}

/// Returns the C spelling of a type.
fn c_type(ty: &Value) -> String {
    match ty["kind"].as_str().unwrap() {
        "name" => ty["name"].as_str().unwrap().to_owned(),
        "pointer" => {
            let to = c_type(&ty["to"]);
            match (ty["const"] == true, ty["to"]["kind"] == "pointer") {
                (true, true) => format!("{to} const *"),
                (true, false) => format!("const {to} *"),
                (false, _) => format!("{to} *"),
            }
        }
        kind => panic!("a parameter of kind {kind}"),
    }
}

/// Returns a C program that compiles only if the description is true.
fn program(description: &Value) -> String {
    let mut text = String::from("#include <dtl.h>\n#include <stddef.h>\n");
    for item in items(description, "constant") {
        let (name, value) = (name(item), &item["value"]);
        let ty = item["type"].as_str().unwrap();
        if items(description, "handle").any(|handle| self::name(handle) == ty) {
            continue; // An object: its value is no constant expression.
        }
        writeln!(text, "_Static_assert({name} == ({ty}){value}u, \"{name}\");").unwrap();
    }
    for item in items(description, "handle") {
        let (name, null) = (name(item), item["null"].as_str().unwrap());
        writeln!(text, "_Static_assert(sizeof({name}) == 8, \"{name}\");").unwrap();
        writeln!(text, "_Static_assert(sizeof({null}) == 8, \"{null}\");").unwrap();
    }
    for item in items(description, "integer") {
        let (name, of) = (name(item), item["of"].as_str().unwrap());
        writeln!(text, "extern {of} is_{name};\nextern {name} is_{name};").unwrap();
    }
    for item in items(description, "struct") {
        let (name, size, align) = (name(item), &item["size"], &item["align"]);
        writeln!(text, "_Static_assert(sizeof({name}) == {size}, \"{name}\");").unwrap();
        writeln!(text, "_Static_assert(_Alignof({name}) == {align}, \"{name}\");").unwrap();
        for field in item["fields"].as_array().unwrap() {
            let (field, offset, size) = (self::name(field), &field["offset"], &field["size"]);
            let whole = format!("{name}.{field}");
            writeln!(text, "_Static_assert(offsetof({name}, {field}) == {offset}, \"{whole}\");")
                .unwrap();
            writeln!(text, "_Static_assert(sizeof((({name}*)0)->{field}) == {size}, \"{whole}\");")
                .unwrap();
        }
    }
    // A second declaration of a function compiles only if it is the same.
    for item in items(description, "function") {
        let parameters = item["parameters"].as_array().unwrap().iter();
        let parameters: Vec<String> = parameters.map(|one| c_type(&one["type"])).collect();
        let list = if parameters.is_empty() { "void".to_owned() } else { parameters.join(", ") };
        writeln!(text, "{} {}({list});", c_type(&item["returns"]["type"]), name(item)).unwrap();
        writeln!(text, "{}", item["declaration"].as_str().unwrap()).unwrap();
    }
    text
}

#[test]
fn two_compilers_agree() {
    let file = write("api.c", &program(&description()));
    for compiler in ["gcc", "clang"] {
        compile(compiler, &["-std=c11", "-Wall"], std::slice::from_ref(&file));
    }
}

#[test]
fn items_stand_in_their_header() {
    let description = description();
    let texts = HEADERS.map(|name| (name, header(name)));
    for (kind, before, after) in
        [("constant", "#define ", ""), ("function", "", "("), ("struct", "struct ", " {")]
    {
        for item in items(&description, kind) {
            let (_, text) = texts.iter().find(|(name, _)| item["header"] == *name).unwrap();
            let name = name(item);
            assert!(text.contains(&format!("{before}{name}{after}")), "{name}");
        }
    }
}

const STRICT: [&str; 3] = ["-Wall", "-Wextra", "-Wpedantic"];

/// Compiles each header alone, and, with one compiler of each language, all of them in each order.
#[test]
fn headers_compile_in_every_order() {
    let mut orders: Vec<Vec<&str>> = HEADERS.map(|name| vec![name]).to_vec();
    let mut longer = orders.clone();
    for _ in 1..HEADERS.len() {
        let append = |order: &Vec<&'static str>| {
            let rest: Vec<&str> =
                HEADERS.into_iter().filter(|name| !order.contains(name)).collect();
            let order = order.clone();
            rest.into_iter().map(move |name| [order.clone(), vec![name]].concat())
        };
        longer = longer.iter().flat_map(append).collect();
    }
    assert_eq!(longer.len(), 24);
    orders.append(&mut longer);
    for (end, language, compilers) in
        [("c", "-std=c11", ["gcc", "clang"]), ("cpp", "-std=c++17", ["g++", "clang++"])]
    {
        let file = |(index, order): (usize, &Vec<&str>)| {
            let lines: String = order.iter().map(|name| format!("#include <{name}>\n")).collect();
            write(&format!("order-{index}.{end}"), &lines)
        };
        let files: Vec<PathBuf> = orders.iter().enumerate().map(file).collect();
        for (compiler, files) in compilers.into_iter().zip([&files[..], &files[..HEADERS.len()]]) {
            compile(compiler, &[&[language][..], &STRICT].concat(), files);
        }
    }
}

#[test]
fn comments_are_valid_doxygen() {
    let file = write("comments.c", "#include <dtl.h>\n");
    compile("clang", &["-std=c11", "-Wdocumentation"], &[file]);
}

/// Compiles the program in the comment of dtl.h as it is printed.
#[test]
fn the_program_in_the_header_compiles() {
    let text = header("dtl.h");
    let (_, program) = text.split_once("\n * Program\n").unwrap();
    let (program, _) = program.split_once(" */").unwrap();
    let (_, program) = program.split_once(" *     ").unwrap();
    let lines = format!(" *     {program}");
    let program: String = lines
        .lines()
        .map(|line| line.strip_prefix(" *     ").unwrap_or_default().to_owned() + "\n")
        .collect();
    assert!(program.starts_with("#include <dtl.h>") && program.ends_with("\n}\n"), "{program}");
    let file = write("program.c", &program);
    for compiler in ["gcc", "clang"] {
        compile(compiler, &[&["-std=c11"][..], &STRICT].concat(), std::slice::from_ref(&file));
    }
}

fn write(name: &str, text: &str) -> PathBuf {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&file, text).unwrap();
    file
}

/// Fails if a compiler that is installed reports anything.
fn compile(compiler: &str, options: &[&str], files: &[PathBuf]) {
    let mut command = Command::new(compiler);
    command.args(options).args(["-fsyntax-only", "-Werror", "-I"]);
    let Ok(output) = command.arg(root().join("include")).args(files).output() else {
        println!("skipped: {compiler} is not installed; apt-get install {compiler}");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
