//! Tests of `elf`.

use super::*;

/// Offset, in bytes, of the file type in a 32-bit or 64-bit ELF header; the machine is at offset
/// 18.
const TYPE_AT: usize = 16;
const MACHINE_AT: usize = 18;

fn own() -> Vec<u8> {
    let mut own = vec![0; 64];
    File::open("/proc/self/exe").unwrap().read_exact(&mut own).unwrap();
    own
}

fn text(begin: &[u8], size: u64) -> String {
    check_header(begin, size, &own()).err().map_or(String::new(), |error| error.text().to_owned())
}

#[test]
fn says_what_is_wrong() {
    let own = own();
    assert!(text(b"", 0).contains("empty"));
    assert!(text(b"#!/bin/sh\n", 10).contains("no shared object"));
    assert!(text(&own[..16], 16).contains("cut off"));
    let mut other = own.clone();
    other[MACHINE_AT] = if own[MACHINE_AT] == 183 { 62 } else { 183 };
    assert!(text(&other, 64).contains("another machine"), "{}", text(&other, 64));
    let mut narrow = own.clone();
    narrow[4] = 1;
    assert!(text(&narrow, 64).contains("32 bit"), "{}", text(&narrow, 64));
    let mut swapped = own.clone();
    swapped[5] = 3 - swapped[5];
    assert!(text(&swapped, 64).contains("64 bit, big-endian"), "{}", text(&swapped, 64));
    let mut object = own;
    object[TYPE_AT] = 1;
    assert!(text(&object, 64).contains("ELF type 1"));
}

#[test]
fn a_file_that_was_cut_off_is_seen_at_every_length() {
    let whole = std::fs::read("/proc/self/exe").unwrap();
    let begin = &whole[..whole.len().min(64 * 1024)];
    assert!(check_whole(begin, whole.len() as u64).is_ok());
    assert!(check_whole(&begin[..60], 60).is_err() && check_whole(&begin[..64], 64).is_err());
    assert!(check_whole(begin, 4096).is_err());
    // Invalid offsets and sizes of the table must not be followed.
    for at in 32..64 {
        let mut bad = begin[..4096].to_vec();
        bad[at] = 0xFF;
        let _ = check_whole(bad.as_slice(), whole.len() as u64);
        let _ = names(bad.as_slice());
    }
}

#[test]
fn the_names_of_symbols_are_found_without_loading() {
    let own = ReadCache::new(File::open("/proc/self/exe").unwrap());
    let (names, needed) = names(&own).expect("a dynamic program");
    assert!(needed.contains(&"libc.so.6"), "{needed:?}");
    assert!(names.windows(8).any(|window| window == b"\0dlopen\0"));
    let error = check(Path::new("/proc/self/exe")).unwrap_err();
    assert!(error.text().contains("exports no dtl_plugin_entry_v1"), "{error}");
}
