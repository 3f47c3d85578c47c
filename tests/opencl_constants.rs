//! The constants, the names of codes and the functions of src/backend/opencl against Khronos' CL/cl.h: a C program is
//! written of the very lists that the library uses, and the C compiler says which row is wrong. A function's type is
//! compared as its call goes: every parameter's size, and the result's.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking and speaks to its reader"
)]

use dtl::backend::opencl::errors::NAMES;
use dtl::backend::opencl::symbols::{CONSTANTS, FUNCTIONS};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// The C types of the lists, all as wide and of the same class as the header's.
const TYPES: &str = "#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
typedef cl_int Int; typedef cl_int *IntOut; typedef cl_uint Uint; typedef cl_uint *UintOut; typedef cl_ulong Bits;
typedef size_t Size; typedef size_t *SizeOut; typedef const void *In; typedef void *Out; typedef void *Object;
typedef const void *Objects; typedef void *ObjectsOut; typedef const cl_context_properties *Properties;
typedef void (CL_CALLBACK *Notify)(const char *, const void *, size_t, void *); typedef void Empty;
typedef const size_t *Sizes; typedef const char *Text; typedef void *Texts; typedef void (CL_CALLBACK *Built)(cl_program, void *);
";

/// Whether a program compiles; the compiler's words.
fn compiles(program: &str) -> Result<(), String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = folder.join(format!("opencl_{}.c", std::process::id()));
    std::fs::write(&source, program).unwrap();
    let mut compiler = Command::new("cc");
    let output =
        compiler.args(["-fsyntax-only", "-Werror", "-Wno-deprecated-declarations"]).arg(&source);
    let output = output.output().expect("a C compiler");
    std::fs::remove_file(&source).unwrap();
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn program(constants: &[(&str, i64)]) -> String {
    let mut text = TYPES.to_owned();
    for (name, value) in constants {
        writeln!(text, "_Static_assert((long long)({name}) == {value}ll, \"{name}\");").unwrap();
    }
    for (code, name) in NAMES {
        writeln!(text, "_Static_assert({name} == {code}, \"{name}\");").unwrap();
    }
    for function in FUNCTIONS {
        // A call with arguments of the list's types; void pointers stand for all pointers to objects.
        let (name, result) = (function.name, function.result);
        let types: Vec<&str> = function.parameters.split(", ").collect();
        let list: Vec<String> =
            types.iter().enumerate().map(|(at, kind)| format!("{kind} a{at}")).collect();
        let names: Vec<String> = (0..types.len()).map(|at| format!("a{at}")).collect();
        let (list, names) = (list.join(", "), names.join(", "));
        let back = if result == "Empty" { "" } else { "return " };
        writeln!(text, "{result} call_{name}({list}) {{ {back}{name}({names}); }}").unwrap();
        if result != "Empty" {
            let zeros = vec!["0"; types.len()].join(", ");
            writeln!(
                text,
                "_Static_assert(sizeof({name}({zeros})) == sizeof({result}), \"{name}\");"
            )
            .unwrap();
        }
    }
    text
}

#[test]
fn the_lists_are_those_of_the_header() {
    if let Err(why) = compiles("#include <CL/cl.h>\n") {
        println!("skipped: no CL/cl.h (Debian: opencl-c-headers): {why}");
        return;
    }
    if let Err(why) = compiles(&program(CONSTANTS)) {
        panic!("{why}");
    }
    let wrong = [("CL_DEVICE_NAME", 0x102C)];
    assert!(compiles(&program(&wrong)).is_err(), "a wrong value is not seen");
}
