//! Tests of `dl`.

use super::*;

#[test]
fn finds_itself_and_says_why_not() {
    let own = own_file().expect("some file");
    assert!(is_in_program(&own), "{own:?}");
    // SAFETY: there is no such object, so none of its code runs.
    let error =
        unsafe { SharedObject::open(Path::new("/no/such/file.so")) }.err().expect("no such file");
    assert!(error.contains("/no/such/file.so"), "{error}");
}

#[test]
fn another_minor_version_is_known_by_its_file_name() {
    let own = concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));
    for (name, expected) in [
        (format!("libdtl.so.{own}"), false),
        (format!("libdtl.so.{own}.7"), false),
        (format!("libdtl.so.{own}1"), true),
        ("libdtl.so.1000.0.0".to_owned(), true),
        ("libdtl.so".to_owned(), false),
        ("libdtl_other.so.1".to_owned(), false),
    ] {
        assert_eq!(is_other_version(&name), expected, "{name}");
    }
    assert_eq!(shadowed_version(), None);
}

#[test]
fn finds_what_is_loaded() {
    // No tool replaces this symbol, as sanitizers do with malloc.
    let function = process_symbol(c"gnu_get_libc_version").expect("the C library");
    let file = file_of(function).expect("its file");
    assert!(file.to_string_lossy().contains("libc"), "{file:?}");
    let listed = loaded_files();
    let path =
        listed.iter().find(|path| std::fs::canonicalize(path).is_ok_and(|path| path == file));
    let module = SharedObject::loaded(path.expect("listed")).expect("loaded");
    assert_eq!(module.symbol(c"gnu_get_libc_version"), Some(function));
    assert!(process_symbol(c"no_such_symbol_anywhere").is_none());
    assert!(SharedObject::loaded(Path::new("/no/such/file.so")).is_none());
}
