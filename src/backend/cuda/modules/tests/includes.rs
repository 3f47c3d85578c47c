//! Tests of `includes`.

use super::*;

fn found(text: &str) -> Option<Vec<String>> {
    let names = names(text.as_bytes())?;
    Some(names.into_iter().map(|name| String::from_utf8(name).unwrap()).collect())
}

#[test]
fn names_are_found_wherever_they_are() {
    let text = "#include \"a.h\"\n  #  include<b/b.h>\n/* x */ # /* y */ include /* z\n */ \
        \"c.h\"\n#inc\\\nlude \"d.h\"\n%:include <e.h>\n#if 0\n#include \"f.h\"\n#endif\nconst \
        char* s = \"/*\";\n#include \"g.h\"\n// */ #include \"h.h\"\n#if defined(__has_include) && \
        __has_include( <i.h> )\n# define X #x\n#ifdef __has_include\n#pragma once\n";
    let names = ["a.h", "b/b.h", "c.h", "d.h", "e.h", "f.h", "g.h", "h.h", "i.h"];
    assert_eq!(found(text).unwrap(), names);
    assert!(
        found("").unwrap().is_empty() && found("// see #include of that\n").unwrap().is_empty()
    );
    for unknown in [
        "#include NAME",
        "x;\n#include_next <a.h>",
        "/* */ #include X(\"a.h\")",
        "#include \"never ends",
        "#if __has_include(NAME)",
        "#if __has_include_next(<a.h>)",
        "#embed \"a.bin\"",
        "??=include \"a.h\"",
    ] {
        assert!(found(unknown).is_none(), "{unknown}");
    }
}

#[test]
fn options_name_folders_and_files() {
    let read = |options: &[&str]| {
        let bytes: Vec<&[u8]> = options.iter().map(|option| option.as_bytes()).collect();
        read_options(&bytes)
    };
    let options = read(&[
        "-Ione",
        "-I",
        "two",
        "--include-path=three",
        "-include",
        "x.h",
        "-DA=1",
        "-I four",
        "--pre-include=y.h",
    ]);
    let options = options.unwrap();
    assert_eq!(options.folders, ["one", "two", "three", "four"].map(PathBuf::from));
    assert_eq!(options.names, [b"x.h", b"y.h"]);
    assert_eq!(read(&["-I=five"]).unwrap().folders, ["=five", "five"].map(PathBuf::from));
    for unknown in [&["-pch"][..], &["--use-pch=a"], &["-I"], &["--options-file=/proc/self/exe"]] {
        assert!(read(unknown).is_none(), "{unknown:?}");
    }
}
