//! Tests of `checklist`.

use super::*;

fn source(path: &str, text: &str) -> Source {
    Source { path: path.into(), text: text.into() }
}

#[test]
fn nothing_ticks_no_box() {
    let yes: Vec<&str> =
        BOXES.iter().filter(|(_, check)| check(&[]).is_ok()).map(|(name, _)| *name).collect();
    assert_eq!(yes.len(), 1, "only the one about ranks, which needs a comm table: {yes:?}");
}

#[test]
fn a_form_ticks_no_box() {
    let filled = |form: &str| form.replace("@NAME@", "x").replace("@UPPER@", "X");
    let [page_form, notes_form] = FORMS.map(filled);
    let still = |check: Check, path: &str, text: &str| {
        check(&[source(path, text)]).err().filter(|why| why.contains("is still the form"))
    };
    assert!(still(page, "x/docs/backend.md", &page_form).is_some());
    assert!(still(notes, "x/docs/adr.md", &notes_form).is_some());
    // Each line that was left is found; with all of them replaced it is a page.
    let mut edited = page_form;
    let mut left = 0;
    while let Some(why) = still(page, "x/docs/backend.md", &edited) {
        let (_, line) = why.split_once(": ").expect("a line");
        edited = edited.replace(line.trim_matches('"'), &"word ".repeat(10));
        left += 1;
    }
    assert_eq!(
        (left, page(&[source("x/docs/backend.md", &edited)]).is_ok()),
        (8, true),
        "{edited}"
    );
    // A page beside it does not make the form a page.
    let others =
        [source("x/README.md", &"word ".repeat(70)), source("x/docs/backend.md", FORMS[0])];
    assert!(page(&others).is_err());
}

#[test]
fn a_whole_backend_ticks_all() {
    let words = "word ".repeat(70);
    let cmake = "option(DTL_ENABLE_X \"x\" OFF)\ndtl_add_backend(NAME x COMPONENTS \
        comm)\nadd_test(NAME x COMMAND dtl-ctk run --ranks 4)\n-Werror";
    let code = "dtl_comm_vtable_t t; t.open = o; t.close = c; t.isend = s; t.irecv = \
        r;\nt.test = t;\n/* SPDX-License-Identifier: MIT */";
    let code = code.replace("; ", ";\n");
    let files = [
        source("x/CMakeLists.txt", cmake),
        source("x/x.c", &code),
        source("x/README.md", &words),
        source("x/adr/0001.md", &words),
    ];
    for (question, check) in BOXES {
        assert!(check(&files).is_ok(), "{question}: {:?}", check(&files));
    }
    assert!(option(&[source("CMakeLists.txt", "option(DTL_ENABLE_X \"x\" ON)")]).is_err());
    let fails = |check: Check, path: &str, text: &str, with: &str| {
        check(&[source(path, text)]).is_err_and(|why| why.contains(with))
    };
    let cmake = "dtl_add_backend(NAME x SOURCES x.c)\nset(y COMPONENTS)";
    assert!(fails(manifest, "CMakeLists.txt", cmake, "COMPONENTS"));
    let code = "dtl_memory_vtable_t t;\nt.alloc = a;";
    assert!(fails(components, "x.c", code, "memory.free"));
}

#[test]
fn a_class_is_a_component() {
    let code = "static_assert(MemorySpace<mine>);\nstatic_assert(ParallelExecutor<mine>);";
    let reason = components(&[source("x.cpp", code)]).unwrap();
    assert!(reason.starts_with("memory, exec;"), "{reason}");
    assert!(components(&[source("x.cpp", "template <MemorySpace T> void f(T &);")]).is_err());
    assert!(multi_rank(&[source("x.cpp", code)]).is_ok());
    assert!(multi_rank(&[source("x.cpp", "static_assert(Communicator<mine>);")]).is_err());
}
