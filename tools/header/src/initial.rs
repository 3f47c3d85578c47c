//! Writes `DTL_<NAME>_INIT` for each struct that the caller fills in and that begins with
//! struct_size.
//!
//! Every field is listed in order: designated initialisers fail in pedantic C++17 and a lone
//! `{sizeof(T)}` fails under -Wextra. A field starts as 0 or NULL unless its comment has a line
//! `cbindgen:init=VALUE` (which cbindgen keeps out of the header).

use crate::source::{Source, docs, path_name};

const WIDTH: usize = 98;

/// Initial value of a field.
pub enum Value {
    /// Size of the struct.
    Size,
    /// DTL_ABI_VERSION.
    AbiVersion,
    /// Zero: 0, NULL, or zero in every element.
    Zero,
    /// Expression in C.
    Given(String),
}

/// Returns the fields with their initial values. Returns `None` for structs that the library fills
/// in and for structs that do not begin with `struct_size`.
pub fn values(structure: &syn::ItemStruct) -> Option<Vec<(&syn::Field, Value)>> {
    let first = structure.fields.iter().next()?;
    let made_by_library = docs(&first.attrs).iter().any(|line| line.contains("of the library"));
    if first.ident.as_ref()? != "struct_size" || made_by_library {
        return None;
    }
    Some(structure.fields.iter().map(|field| (field, value_of(field))).collect())
}

/// Returns the C macro of a struct with initial values.
pub fn macro_of(structure: &syn::ItemStruct, source: &Source) -> Option<String> {
    let ty = structure.ident.to_string();
    let values = values(structure)?;
    let values = values.iter().map(|(field, value)| in_c(field, value, &ty, source));
    Some(wrap(&format!("/// Initial value of a {ty}.\n#define {}", macro_name(&ty)), values))
}

/// Returns the name `DTL_<NAME>_INIT` of a struct's initializer macro.
pub fn macro_name(ty: &str) -> String {
    format!("DTL_{}_INIT", noun(ty))
}

/// Returns the name `DTL_<NAME>_NULL` of the null handle of a handle type.
pub fn null_name(ty: &str) -> String {
    format!("DTL_{}_NULL", noun(ty))
}

fn noun(ty: &str) -> String {
    ty.trim_start_matches("dtl_").trim_end_matches("_t").to_uppercase()
}

fn value_of(field: &syn::Field) -> Value {
    let texts = docs(&field.attrs);
    if let Some(value) = texts.iter().find_map(|line| line.strip_prefix("cbindgen:init=")) {
        return Value::Given(value.to_owned());
    }
    match field.ident.as_ref().map(ToString::to_string).as_deref() {
        Some("struct_size") => Value::Size,
        Some("abi_version") => Value::AbiVersion,
        _ => Value::Zero,
    }
}

fn in_c(field: &syn::Field, value: &Value, ty: &str, source: &Source) -> String {
    match value {
        Value::Size => format!("sizeof({ty})"),
        Value::AbiVersion => "DTL_ABI_VERSION".into(),
        Value::Given(value) => value.clone(),
        Value::Zero => match &field.ty {
            syn::Type::Ptr(_) => "NULL".into(),
            syn::Type::Array(_) => "{0}".into(),
            plain => match path_name(plain) {
                Some(name) if is_integer(&name, source) => "0".into(),
                Some(name) if matches!(name.as_str(), "f32" | "f64") => "0.0".into(),
                Some(name) if name.ends_with("_fn_t") => "NULL".into(),
                Some(_) => "{0}".into(),
                None => "NULL".into(),
            },
        },
    }
}

/// Returns true if a type is an integer or an alias of one.
pub fn is_integer(name: &str, source: &Source) -> bool {
    let base = source.aliases.get(name).map_or(name, String::as_str);
    matches!(base, "u8" | "i8" | "u16" | "i16" | "u32" | "i32" | "u64" | "i64" | "c_char" | "c_int")
}

/// Formats `head {a, b, ...}` with as many continuation lines as necessary.
fn wrap(head: &str, values: impl Iterator<Item = String>) -> String {
    let values: Vec<String> = values.collect();
    let one_line = format!("{{{}}}", values.join(", "));
    let used = head.lines().last().unwrap_or_default().len();
    if used + 1 + one_line.len() <= WIDTH {
        return format!("{head} {one_line}\n");
    }
    let mut text = format!("{head} \\\n    {{");
    let mut column = 5;
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            text.push(',');
            if column + value.len() + 4 > WIDTH {
                text.push_str(" \\\n     ");
                column = 5;
            } else {
                text.push(' ');
            }
        }
        text.push_str(value);
        column += value.len() + 2;
    }
    text + "}\n"
}
