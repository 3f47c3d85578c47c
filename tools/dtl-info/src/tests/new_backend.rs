//! Tests of `new_backend`.

use super::*;

const ALL: [Component; 5] =
    [Component::Device, Component::Memory, Component::Transfer, Component::Exec, Component::Comm];

#[test]
fn no_placeholder_is_left() {
    for language in [Language::C, Language::Cpp] {
        for file in files("a-b.c", &ALL, language) {
            assert!(!file.text.contains('@'), "{}:\n{}", file.name, file.text);
        }
    }
}

#[test]
fn names_become_identifiers() {
    assert_eq!(identifier("my-mem.2"), "my_mem_2");
    assert_eq!(identifier("3d"), "b3d");
    assert_eq!(identifier("-x"), "b_x");
}

#[test]
fn bad_names_are_named() {
    for bad in ["", "a b", "a/b", "auto", "shm", "ä", ".", "..", "-x", "__", "dtl", &"x".repeat(64)]
    {
        assert!(check_name(bad).expect_err("bad").contains(&format!("\"{bad}\"")), "{bad}");
    }
    assert!(check_name(&"x".repeat(63)).is_ok());
}
