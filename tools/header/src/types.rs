//! Types of the interface: their structure for bindings, their C spelling, and their layout on a
//! platform with 64-bit pointers.

use crate::Outcome;
use crate::source::{self, Kind, Source, path_name};
use serde_json::{Value, json};

/// Size and alignment in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    pub size: u64,
    pub align: u64,
}

/// Returns the name in C of a primitive type of Rust; `None` for other types.
pub fn primitive(name: &str) -> Option<(&'static str, u64)> {
    Some(match name {
        "u8" => ("uint8_t", 1),
        "i8" => ("int8_t", 1),
        "c_char" => ("char", 1),
        "u16" => ("uint16_t", 2),
        "i16" => ("int16_t", 2),
        "u32" => ("uint32_t", 4),
        "i32" => ("int32_t", 4),
        "c_int" => ("int", 4),
        "f32" => ("float", 4),
        "u64" => ("uint64_t", 8),
        "i64" => ("int64_t", 8),
        "f64" => ("double", 8),
        "usize" => ("size_t", 8),
        "c_void" => ("void", 0),
        _ => return None,
    })
}

/// Returns the name of a type in C.
pub fn c_name(name: &str) -> &str {
    primitive(name).map_or(name, |(c, _)| c)
}

/// Returns the structure of a type: a name, a pointer, an array or a function.
pub fn structure(ty: &syn::Type, source: &Source) -> Outcome<Value> {
    Ok(match ty {
        syn::Type::Ptr(pointer) => json!({
            "kind": "pointer",
            "const": pointer.mutability.is_none(),
            "to": structure(&pointer.elem, source)?,
        }),
        syn::Type::Array(array) => json!({
            "kind": "array",
            "length": length(&array.len, source)?,
            "of": structure(&array.elem, source)?,
        }),
        syn::Type::BareFn(function) => {
            let parameters = function.inputs.iter().map(|input| {
                let name = input.name.as_ref().map(|(name, _)| source::plain(name));
                let name = name.unwrap_or_default();
                Ok(json!({ "name": name, "type": structure(&input.ty, source)? }))
            });
            json!({
                "kind": "function",
                "parameters": parameters.collect::<Outcome<Vec<_>>>()?,
                "returns": returns(&function.output, source)?,
            })
        }
        plain => match (optional(plain), path_name(plain)) {
            (Some(function), _) => structure(function, source)?,
            (None, Some(name)) => json!({ "kind": "name", "name": c_name(&name) }),
            (None, None) => return Err("a type that the description cannot express".into()),
        },
    })
}

/// Returns the structure of a function's result; `void` if it returns nothing.
pub fn returns(output: &syn::ReturnType, source: &Source) -> Outcome<Value> {
    match output {
        syn::ReturnType::Default => Ok(json!({ "kind": "name", "name": "void" })),
        syn::ReturnType::Type(_, ty) => structure(ty, source),
    }
}

/// Returns `T` of an `Option<T>`, which is how Rust writes a function pointer that may be NULL.
fn optional(ty: &syn::Type) -> Option<&syn::Type> {
    let syn::Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == "Option")?;
    let syn::PathArguments::AngleBracketed(list) = &last.arguments else { return None };
    list.args.iter().find_map(|argument| match argument {
        syn::GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}

/// Returns the number of elements of an array: a literal, or a constant of the interface.
fn length(value: &syn::Expr, source: &Source) -> Outcome<u64> {
    match value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(number), .. }) => {
            Ok(number.base10_parse()?)
        }
        syn::Expr::Cast(cast) => length(&cast.expr, source),
        syn::Expr::Path(path) => {
            let name = path.path.segments.last().map(|last| last.ident.to_string());
            let name = name.unwrap_or_default();
            let constant = source.items().find_map(|item| match &item.kind {
                Kind::Constant(constant) if item.name == name => Some(constant),
                _ => None,
            });
            length(&constant.ok_or_else(|| format!("{name}: no such constant"))?.expr, source)
        }
        _ => Err("an array whose length is neither a number nor a constant".into()),
    }
}

/// Returns the value of a constant. Handles have the value of their `id`.
pub fn number(value: &syn::Expr) -> Option<i128> {
    match value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(number), .. }) => {
            number.base10_parse().ok()
        }
        syn::Expr::Unary(syn::ExprUnary { op: syn::UnOp::Neg(_), expr, .. }) => {
            number(expr).map(|positive| -positive)
        }
        syn::Expr::Struct(handle) => number(&handle.fields.first()?.expr),
        syn::Expr::Path(path) => {
            let names: Vec<_> =
                path.path.segments.iter().map(|part| part.ident.to_string()).collect();
            match names.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["u64", "MAX"] => Some(u64::MAX.into()),
                ["u32", "MAX"] => Some(u32::MAX.into()),
                ["i32", "MIN"] => Some(i32::MIN.into()),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Returns the size and alignment of a type whose structure is `of`.
pub fn layout(of: &Value, source: &Source) -> Outcome<Layout> {
    let text = |key: &str| of[key].as_str().unwrap_or_default();
    Ok(match text("kind") {
        "pointer" | "function" => Layout { size: 8, align: 8 },
        "array" => {
            let element = layout(&of["of"], source)?;
            Layout { size: element.size * of["length"].as_u64().unwrap_or(0), ..element }
        }
        _ => {
            let name = text("name");
            if let Some(structure) = source.find_struct(name) {
                return Ok(offsets(structure, source)?.1);
            }
            let base = source.aliases.get(name).map_or(name, String::as_str);
            let size = match primitive(base) {
                Some((_, size)) => size,
                None => PRIMITIVES
                    .iter()
                    .find_map(|rust| primitive(rust).filter(|(c, _)| *c == base))
                    .map_or(8, |(_, size)| size), // A type of callbacks: a function pointer.
            };
            Layout { size, align: size.max(1) }
        }
    })
}

/// Primitive types of Rust, for the search by their names in C.
const PRIMITIVES: [&str; 13] = [
    "u8", "i8", "c_char", "u16", "i16", "u32", "i32", "c_int", "f32", "u64", "i64", "f64", "usize",
];

/// Returns the offset of each field, and the layout of the struct.
pub fn offsets(structure_: &syn::ItemStruct, source: &Source) -> Outcome<(Vec<u64>, Layout)> {
    let (mut offsets, mut whole) = (Vec::new(), Layout { size: 0, align: 1 });
    for field in &structure_.fields {
        let one = layout(&structure(&field.ty, source)?, source)?;
        let offset = whole.size.next_multiple_of(one.align);
        offsets.push(offset);
        whole = Layout { size: offset + one.size, align: whole.align.max(one.align) };
    }
    whole.size = whole.size.next_multiple_of(whole.align);
    Ok((offsets, whole))
}
