//! Writes the Fortran interface in `bindings/fortran`, from the same description as
//! `dtl-api.json`.
//!
//! - `dtl_c.f90`: the module `dtl_c`, C's declarations with `bind(c)`.
//! - `dtl_typed.inc`: procedures with buffers of elements, for one type of element; the ten types
//!   are in `dtl_types.F90`, which is written by hand.
//! - `dtl.f90`: the module `dtl`, every other function, and the generic names.
//!
//! docs/adr/0044 gives the reasons.

mod plain;
mod procedure;
mod raw;
#[cfg(test)]
mod tests;
mod typed;

use crate::{Outcome, api};
use serde_json::Value;
use std::path::Path;

/// Returns the generated files with their contents.
pub fn files(root: &Path) -> Outcome<Vec<(String, String)>> {
    let api = api::description(root)?;
    let path = |name: &str| format!("bindings/fortran/{name}");
    Ok(vec![
        (path("dtl_c.f90"), raw::module(&api)?),
        (path("dtl_typed.inc"), typed::procedures(&api)?),
        (path("dtl.f90"), plain::module(&api)?),
    ])
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns the items of all sections that are of one kind.
fn items<'a>(api: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    let all = list(&api["sections"]).flat_map(|section| list(&section["items"]));
    all.filter(move |item| item["kind"] == kind)
}

/// Parameter of a C function.
struct Parameter<'a>(&'a Value);

impl<'a> Parameter<'a> {
    fn name(&self) -> &'a str {
        word(&self.0["name"])
    }

    /// Name of the type, if the parameter is no pointer.
    fn value_type(&self) -> Option<&'a str> {
        self.0["type"]["name"].as_str()
    }

    /// Type behind the pointer.
    fn target(&self) -> &'a Value {
        &self.0["type"]["to"]
    }

    fn is_to(&self, name: &str) -> bool {
        self.target()["name"] == name
    }

    /// Number of elements as an expression of C, if the parameter is an array.
    fn length(&self) -> Option<&'a str> {
        self.0["len"].as_str()
    }

    fn is_optional(&self) -> bool {
        !self.0["opt"].is_null()
    }

    /// True if a Fortran program may leave the argument out. An array that may be NULL if it has no
    /// elements may not: it has size 0 then.
    fn may_be_absent(&self) -> bool {
        let counts = ["count==0", "ndim==0", "n==0", "dest_count==0", "source_count==0"];
        self.is_optional() && !counts.contains(&self.condition())
    }

    /// Condition under which NULL is permitted.
    fn condition(&self) -> &'a str {
        word(&self.0["opt"])
    }

    /// True if the library may access the buffer after the call.
    fn outlives_call(&self) -> bool {
        !self.0["until"].is_null()
    }

    fn may_be_in_place(&self) -> bool {
        !self.0["in_place"].is_null()
    }

    fn is_input(&self) -> bool {
        self.0["type"]["const"] == true || self.0["direction"] == "in"
    }

    /// Attribute INTENT. A struct that C fills states its size first, and an array keeps the
    /// elements that C does not write.
    fn intent(&self) -> &'static str {
        let is_info =
            ["_info_t", "_stats_t"].iter().any(|end| word(&self.target()["name"]).ends_with(end));
        if self.is_input() {
            "in"
        } else if self.0["direction"] == "inout" || self.length().is_some() || is_info {
            "inout"
        } else {
            "out"
        }
    }
}

fn parameters(function: &Value) -> Vec<Parameter<'_>> {
    list(&function["parameters"]).map(Parameter).collect()
}

/// True if the function takes buffers whose elements are of its parameter `dtype`.
fn is_typed(function: &Value) -> bool {
    parameters(function).iter().any(is_buffer)
        && parameters(function).iter().any(|one| one.name() == "dtype")
}

/// True if a parameter of a function with a `dtype` is a buffer of elements.
fn is_buffer(one: &Parameter<'_>) -> bool {
    one.is_to("void") && one.length().is_some()
}

fn returns_status(function: &Value) -> bool {
    function["returns"]["type"]["name"] == "dtl_status_t"
}

/// Returns the Fortran type of a C type that has a name.
fn by_name(name: &str) -> Outcome<String> {
    Ok(match integer_kind(name) {
        Some(kind) => format!("integer({kind})"),
        None => match name {
            "double" => "real(c_double)".into(),
            "char" => "character(kind=c_char)".into(),
            _ if name.ends_with("_fn_t") => "type(c_funptr)".into(),
            _ if name.starts_with("dtl_") => format!("type({name})"),
            _ => return Err(format!("no Fortran type is known for {name}").into()),
        },
    })
}

/// Returns the Fortran type of what a pointer refers to.
fn pointee(to: &Value) -> Outcome<String> {
    match word(&to["kind"]) {
        "pointer" => Ok("type(c_ptr)".into()),
        _ => by_name(word(&to["name"])),
    }
}

/// Returns the kind of the Fortran integers that stand for a C integer type. Fortran has no
/// unsigned integers.
fn integer_kind(name: &str) -> Option<&'static str> {
    match name {
        "int8_t" | "uint8_t" => Some("c_int8_t"),
        "int16_t" | "uint16_t" => Some("c_int16_t"),
        "int32_t" | "uint32_t" | "dtl_status_t" | "dtl_dtype_t" | "dtl_reduce_op_t"
        | "dtl_enum_t" => Some("c_int32_t"),
        "int64_t" | "uint64_t" | "dtl_enum_word_t" => Some("c_int64_t"),
        _ => None,
    }
}

/// Columns of a line of code. Compilers truncate lines of more than 132 columns, to which the macros
/// in `dtl_typed.inc` expand some.
const WIDTH: usize = 88;

/// Appends a statement, continued with `&` where a line would be longer than `WIDTH`.
fn statement(text: &mut String, indent: usize, statement: &str) {
    let (mut line, mut is_first) = (" ".repeat(indent), true);
    for part in statement.split_inclusive(' ') {
        if line.len() + part.trim_end().len() > WIDTH && !is_first {
            text.push_str(line.trim_end());
            text.push_str(" &\n");
            line = " ".repeat(indent + 4);
        }
        line.push_str(part);
        is_first = false;
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

/// Returns the first sentence of an item's text as a comment.
fn summary(item: &Value) -> String {
    let text = word(&item["text"]).replace('\n', " ");
    let end = text.match_indices(". ").find(|(at, _)| !text[..*at].ends_with("e.g"));
    comment(end.map_or(&text, |(end, _)| &text[..=end]), "!> ")
}

/// Returns a comment of lines of at most 100 columns. `begin` begins the first.
fn comment(text: &str, begin: &str) -> String {
    let (mut lines, mut line) = (String::new(), begin.to_owned());
    for word in text.split_whitespace() {
        if line.len() + word.len() > 100 && line.len() > begin.len() {
            lines.push_str(line.trim_end());
            lines.push('\n');
            line = begin.replace('>', " ");
        }
        line.push_str(word);
        line.push(' ');
    }
    lines + line.trim_end() + "\n"
}
