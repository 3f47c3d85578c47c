//! Constants as C and C++ macros: suffixed and parenthesized, with a C form and a C++ form of each
//! handle.
//!
//! cbindgen writes constants without suffixes and parentheses, and handles as designated
//! initializers, which pedantic C++17 rejects.

use crate::source::{Source, path_name, shown};
use crate::{Outcome, initial};
use std::fmt::Write;

/// Returns the C header text of a constant: its comment, followed by its `#define` line.
pub fn define(constant: &syn::ItemConst, source: &Source) -> Outcome<String> {
    let name = constant.ident.to_string();
    let explain =
        || format!("constant {name}: write its value as a literal or a handle's `{{ id: … }}`");
    let ty = path_name(&constant.ty).ok_or_else(explain)?;
    let mut text = comment(&shown(&constant.attrs));
    if let syn::Expr::Struct(handle) = &*constant.expr {
        let id = handle.fields.first().ok_or_else(explain)?;
        let id = number(&id.expr, "u64").ok_or_else(explain)?;
        text.push_str(&handle_macro(&name, &ty, &id));
        return Ok(text);
    }
    let base = source.aliases.get(&ty).cloned().unwrap_or(ty);
    let value = number(&constant.expr, &base).ok_or_else(explain)?;
    writeln!(text, "#define {name} {value}")?;
    Ok(text)
}

/// Returns the C macro of the null handle of a handle type.
pub fn null_handle(ty: &str) -> String {
    format!("/// The null {ty}.\n{}", handle_macro(&initial::null_name(ty), ty, "0"))
}

pub fn comment(lines: &[String]) -> String {
    lines.iter().map(|line| format!("/// {line}").trim_end().to_owned() + "\n").collect()
}

/// Returns the C++ form and the two C forms of a constant handle: see DTL_CONSTANT_OBJECTS in the
/// preamble.
fn handle_macro(name: &str, ty: &str, id: &str) -> String {
    let cpp = if id == "0" { String::new() } else { id.to_owned() };
    let object = name.to_lowercase() + "_";
    format!(
        "#if defined(__cplusplus)\n#define {name} ({ty}{{{cpp}}})\n#elif defined(DTL_CONSTANT_OBJECTS)\n\
         static const {ty} {object} __attribute__((unused)) = {{{id}}};\n#define {name} {object}\n#else\n#define {name} (({ty}){{{id}}})\n#endif\n"
    )
}

/// Converts a literal, a negated literal, or a limit (`uN::MAX`, `i32::MIN`) to a C constant of
/// type `base`.
fn number(value: &syn::Expr, base: &str) -> Option<String> {
    match value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(literal), .. }) => {
            let digits = literal.to_string().replace('_', "");
            Some(match base {
                "u64" => format!("UINT64_C({digits})"),
                "i64" => format!("INT64_C({digits})"),
                "u32" => format!("{digits}u"),
                "i32" => digits,
                _ => return None,
            })
        }
        syn::Expr::Unary(syn::ExprUnary { op: syn::UnOp::Neg(_), expr, .. }) => {
            number(expr, base).map(|positive| format!("(-{positive})"))
        }
        syn::Expr::Path(path) => {
            let names: Vec<_> =
                path.path.segments.iter().map(|part| part.ident.to_string()).collect();
            match names.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["u64", "MAX"] => Some("UINT64_MAX".into()),
                ["u32", "MAX"] => Some("UINT32_MAX".into()),
                ["i32", "MIN"] => Some("INT32_MIN".into()),
                _ => None,
            }
        }
        _ => None,
    }
}
