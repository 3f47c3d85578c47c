//! Tests of `source`.

use super::*;

fn included(text: &str) -> usize {
    let whole = String::from_utf8(complete(text.as_bytes(), "a", &[]).unwrap()).unwrap();
    assert!(whole.starts_with("#line 1 \"a\"\n"));
    whole.matches("#ifndef DTL_KERNEL_H").count()
}

#[test]
fn the_header_takes_the_place_of_its_line() {
    let whole =
        complete(b"int a;\n # include <dtl_kernel.h> // there\nint b;", "my \"own\\.c", &[])
            .unwrap();
    let whole = String::from_utf8(whole).unwrap();
    assert!(whole.starts_with(
        "#line 1 \"my \\\"own\\\\.c\"\nint a;\n#line 1 \"dtl_kernel.h\"\n/* dtl_kernel.h"
    ));
    assert!(whole.ends_with("\n#line 2 \"my \\\"own\\\\.c\"\n // there\nint b;\n"), "{whole}");
    assert_eq!(included("#include \"dtl_kernel.h\""), 1);
    assert_eq!(included("/* a */\n#include \"dtl_kernel.h\""), 1);
    assert_eq!(
        included(
            "constant char a[] = \"/*\", b = '\"', c[] = \"\\\"/*\";\n#include \"dtl_kernel.h\""
        ),
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
fn files_take_the_place_of_their_lines() {
    let file = |name: &str, text: &str| SourceFile {
        name: name.into(),
        text: std::ffi::CString::new(text).unwrap(),
    };
    let files = [
        file("a/one.h", "#include \"two.h\"\nONE\n"),
        file("a/two.h", "#include \"a/one.h\"\nTWO\n#include <dtl_kernel.h>\n"),
        file("two.h", "OTHER\n"),
    ];
    let whole =
        |text: &str| String::from_utf8(complete(text.as_bytes(), "m", &files).unwrap()).unwrap();
    let text = whole(
        "#include <a/one.h>\n#include \"two.h\"\n#include \"gone.h\"\n/* \n#include \
         <two.h>\n*/\n",
    );
    let at = |words: &str| text.find(words).unwrap_or_else(|| panic!("{words}: {text}"));
    assert!(
        at("#line 1 \"a/two.h\"") < at("TWO")
            && at("TWO") < at("#ifndef DTL_KERNEL_H")
            && at("TWO") < at("ONE\n")
    );
    assert!(
        at("ONE\n") < at("OTHER")
            && text.contains("#include \"gone.h\"")
            && text.contains("#include <two.h>\n*/")
    );
    assert_eq!((text.matches("OTHER").count(), text.matches("ONE\n").count()), (1, 1));
    assert!(whole("#include <two.h>\n#include <two.h>\n").matches("OTHER").count() == 2);
}

#[test]
fn types_have_their_sizes() {
    for (name, size) in [("float", 4), ("uint3", 16), ("double16", 128), ("uchar", 1), ("half2", 4)]
    {
        assert_eq!(size_of_type(name), size, "{name}");
    }
    for unknown in ["pair", "float5", "float*", "", "u32", "image2d_t"] {
        assert_eq!(size_of_type(unknown), 0, "{unknown}");
    }
}
