//! What is handed to a driver's compiler: the caller's text with `dtl_kernel.h` in it; and what type names say.
//!
//! OpenCL finds no headers by itself. A program may be given some (clCompileProgram), but one that is linked of such parts
//! tells nothing of its kernels' arguments (PoCL); so the text of the header takes the place of the line.

/// The header that every source may include.
const HEADER_TEXT: &str = include_str!("../../../include/dtl_kernel.h");

/// The text as the compiler sees it: messages have the caller's name and lines.
#[must_use]
pub(super) fn complete(text: &[u8], name: &str) -> Vec<u8> {
    let name = name.replace('\\', "\\\\").replace('"', "\\\"");
    let mut whole = format!("#line 1 \"{name}\"\n").into_bytes();
    let mut in_comment = false;
    for (line, number) in text.split_inclusive(|byte| *byte == b'\n').zip(1..) {
        match behind_include(line).filter(|_| !in_comment) {
            Some(rest) => {
                whole.extend_from_slice(b"#line 1 \"dtl_kernel.h\"\n");
                whole.extend_from_slice(HEADER_TEXT.as_bytes());
                whole.extend_from_slice(format!("\n#line {number} \"{name}\"\n").as_bytes());
                whole.extend_from_slice(rest);
            }
            None => whole.extend_from_slice(line),
        }
        in_comment = ends_in_comment(line, in_comment);
    }
    whole.push(b'\n');
    whole
}

/// What is behind `#include "dtl_kernel.h"` in a line that is that.
fn behind_include(line: &[u8]) -> Option<&[u8]> {
    let rest = line.trim_ascii_start().strip_prefix(b"#")?.trim_ascii_start().strip_prefix(b"include")?;
    let rest = rest.trim_ascii_start();
    rest.strip_prefix(b"\"dtl_kernel.h\"").or_else(|| rest.strip_prefix(b"<dtl_kernel.h>"))
}

/// Whether the next line begins in a comment.
fn ends_in_comment(line: &[u8], mut inside: bool) -> bool {
    let mut rest = line;
    let mut quote = None;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        match (inside, quote) {
            (true, _) if *first == b'*' && behind.starts_with(b"/") => {
                inside = false;
                rest = behind.get(1..).unwrap_or_default();
            }
            (true, _) => {}
            (false, Some(_)) if *first == b'\\' => rest = behind.get(1..).unwrap_or_default(),
            (false, Some(mark)) if *first == mark => quote = None,
            (false, Some(_)) => {}
            (false, None) if matches!(first, b'"' | b'\'') => quote = Some(*first),
            (false, None) if *first == b'/' && behind.starts_with(b"/") => return false,
            (false, None) if *first == b'/' && behind.starts_with(b"*") => {
                inside = true;
                rest = behind.get(1..).unwrap_or_default();
            }
            (false, None) => {}
        }
    }
    inside
}

/// Bytes of a type of OpenCL C by its name; 0 = none of the language's own.
#[must_use]
pub(super) fn size_of_type(name: &str) -> u64 {
    let lanes_at = name.find(|letter: char| letter.is_ascii_digit()).unwrap_or(name.len());
    let (base, lanes) = name.split_at(lanes_at);
    let size = match base {
        "char" | "uchar" => 1,
        "short" | "ushort" | "half" => 2,
        "int" | "uint" | "float" => 4,
        "long" | "ulong" | "double" => 8,
        _ => 0,
    };
    let lanes = match lanes {
        "" => 1,
        "2" => 2,
        "3" | "4" => 4,
        "8" => 8,
        "16" => 16,
        _ => 0,
    };
    size * lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn included(text: &str) -> usize {
        let whole = String::from_utf8(complete(text.as_bytes(), "a")).unwrap();
        assert!(whole.starts_with("#line 1 \"a\"\n"));
        whole.matches("#ifndef DTL_KERNEL_H").count()
    }

    #[test]
    fn the_header_takes_the_place_of_its_line() {
        let whole = complete(b"int a;\n # include <dtl_kernel.h> // there\nint b;", "my \"own\\.c");
        let whole = String::from_utf8(whole).unwrap();
        assert!(
            whole.starts_with(
                "#line 1 \"my \\\"own\\\\.c\"\nint a;\n#line 1 \"dtl_kernel.h\"\n/* dtl_kernel.h"
            )
        );
        assert!(whole.ends_with("\n#line 2 \"my \\\"own\\\\.c\"\n // there\nint b;\n"), "{whole}");
        assert_eq!(included("#include \"dtl_kernel.h\""), 1);
        assert_eq!(included("/* a */\n#include \"dtl_kernel.h\""), 1);
        assert_eq!(
            included("constant char a[] = \"/*\", b = '\"', c[] = \"\\\"/*\";\n#include \"dtl_kernel.h\""),
            1
        );
        assert_eq!(included("// no /*\n#include \"dtl_kernel.h\""), 1);
        for none in [
            "/*\n#include \"dtl_kernel.h\"\n*/",
            "// #include \"dtl_kernel.h\"",
            "#include \"other.h\"",
            "/* \" */ /* *\n#include \"dtl_kernel.h\"\n/*/",
            "#define A \"dtl_kernel.h\"",
        ] {
            assert_eq!(included(none), 0, "{none}");
        }
    }

    #[test]
    fn types_have_their_sizes() {
        for (name, size) in [("float", 4), ("uint3", 16), ("double16", 128), ("uchar", 1), ("half2", 4)] {
            assert_eq!(size_of_type(name), size, "{name}");
        }
        for unknown in ["pair", "float5", "float*", "", "u32", "image2d_t"] {
            assert_eq!(size_of_type(unknown), 0, "{unknown}");
        }
    }
}
