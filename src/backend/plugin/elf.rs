//! A look at a file before the dynamic loader gets it: is it a shared object for this machine, is
//! it all there, does it name our symbol? The loader's own texts do not say so, a file that was cut
//! off can crash it, and of a library that is no plugin at all no constructor should run.

use crate::error::{Result, fail};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

const MAGIC: &[u8] = b"\x7fELF";
/// Offset of the machine's number and of the file's type, in both word sizes.
const TYPE_AT: usize = 16;
const MACHINE_AT: usize = 18;
const SHARED_OBJECT: u16 = 3;
const WORDS_64: u8 = 2;
/// The value of the sixth byte.
const BIG_END_FIRST: u8 = 2;
/// More segments than any real file has.
const MOST_SEGMENTS: usize = 256;

const MACHINES: [(u16, &str); 8] = [
    (3, "x86"),
    (8, "MIPS"),
    (21, "PowerPC64"),
    (22, "S390"),
    (40, "ARM"),
    (62, "x86-64"),
    (183, "AArch64"),
    (243, "RISC-V"),
];

/// The symbol's name as it stands among the names of dynamic symbols.
const ENTRY: &[u8] = b"\0dtl_plugin_entry_v1\0";
/// More than any real file's names.
const MOST_NAMES: u64 = 256 << 20;

/// Fails with the reason if the file can be no plugin of this machine.
pub(super) fn check(path: &Path) -> Result<()> {
    let read = File::open(path).and_then(|file| {
        let size = file.metadata()?.len();
        let mut begin = Vec::new();
        (&file).take(64 * 1024).read_to_end(&mut begin)?;
        Ok((file, size, begin))
    });
    let (file, size, begin) = match read {
        Ok(read) => read,
        Err(error) => return fail!(DTL_ERROR_UNAVAILABLE, "it cannot be read: {error}"),
    };
    let mut own = Vec::new();
    // Without /proc the loader has to find out by itself.
    let _ = File::open("/proc/self/exe").and_then(|file| file.take(64).read_to_end(&mut own));
    examine(&begin, size, &own)?;
    // What cannot be made out is left to the loader.
    let read = |at: u64, length: u64| read_at(&file, at, length);
    match names(&begin, read) {
        Some(names) if !names.windows(ENTRY.len()).any(|window| window == ENTRY) => fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "it is no plugin: it exports no dtl_plugin_entry_v1 (DTL_PLUGIN_EXPORT makes it \
             visible)"
        ),
        _ => Ok(()),
    }
}

fn read_at(file: &File, at: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length.min(MOST_NAMES)).unwrap_or(0)];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

fn examine(begin: &[u8], size: u64, own: &[u8]) -> Result<()> {
    if size == 0 {
        return fail!(DTL_ERROR_INVALID_ARGUMENT, "the file is empty");
    }
    if !begin.starts_with(MAGIC) {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "it is no shared object: it does not begin as an ELF file"
        );
    }
    let (Some(kind), Some(machine)) = (u16_at(begin, TYPE_AT), u16_at(begin, MACHINE_AT)) else {
        return fail!(DTL_ERROR_INVALID_ARGUMENT, "the file was cut off: it has {size} bytes");
    };
    // Word size and byte order are the 5th and 6th byte.
    let (theirs, ours) = (begin.get(4..6), own.get(4..6));
    if let (Some(own_machine), true) = (u16_at(own, MACHINE_AT), ours.is_some()) {
        if machine != own_machine || theirs != ours {
            return fail!(
                DTL_ERROR_INCOMPATIBLE_ABI,
                "it was built for another machine: {}, this program for {}",
                machine_name(machine, begin),
                machine_name(own_machine, own)
            );
        }
    }
    if kind != SHARED_OBJECT {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "it is no shared object (ELF type {kind}): link it with -shared"
        );
    }
    check_whole(begin, size)
}

/// A part of the file and where it goes in memory.
struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    length: u64,
}

/// The segments of a 64-bit file; `None` if the table is not all there.
fn segments(begin: &[u8]) -> Option<Vec<Segment>> {
    let (table, entry, count) = (u64_at(begin, 32)?, u16_at(begin, 54)?, u16_at(begin, 56)?);
    let table = usize::try_from(table).ok()?;
    let read = |index: usize| {
        let at = table.checked_add(index * usize::from(entry))?;
        Some(Segment {
            kind: u32_at(begin, at)?,
            offset: u64_at(begin, at.checked_add(8)?)?,
            address: u64_at(begin, at.checked_add(16)?)?,
            length: u64_at(begin, at.checked_add(32)?)?,
        })
    };
    (0..usize::from(count).min(MOST_SEGMENTS)).map(read).collect()
}

/// Every segment lies inside the file.
fn check_whole(begin: &[u8], size: u64) -> Result<()> {
    if begin.get(4) != Some(&WORDS_64) {
        return Ok(());
    }
    let inside = |segment: &Segment| {
        segment.offset.checked_add(segment.length).is_some_and(|end| end <= size)
    };
    if segments(begin).is_some_and(|all| all.iter().all(inside)) {
        return Ok(());
    }
    fail!(DTL_ERROR_INVALID_ARGUMENT, "the file was cut off: it has {size} bytes and needs more")
}

/// The names of the dynamic symbols; `None` if they cannot be made out.
fn names(begin: &[u8], read: impl Fn(u64, u64) -> io::Result<Vec<u8>>) -> Option<Vec<u8>> {
    const LOADED: u32 = 1;
    const DYNAMIC: u32 = 2;
    const NAMES_AT: u64 = 5;
    const NAMES_SIZE: u64 = 10;
    if begin.get(4) != Some(&WORDS_64) {
        return None;
    }
    let segments = segments(begin)?;
    let dynamic = segments.iter().find(|segment| segment.kind == DYNAMIC)?;
    let table = read(dynamic.offset, dynamic.length).ok()?;
    let value = |wanted: u64| {
        let mut entries = (0..table.len()).step_by(16);
        entries.find_map(|at| (u64_at(&table, at)? == wanted).then(|| u64_at(&table, at + 8))?)
    };
    let (address, size) = (value(NAMES_AT)?, value(NAMES_SIZE)?);
    let holds = |segment: &&Segment| {
        let into = address.checked_sub(segment.address);
        segment.kind == LOADED && into.is_some_and(|into| into < segment.length)
    };
    let segment = segments.iter().find(holds)?;
    read(address - segment.address + segment.offset, size).ok()
}

fn machine_name(number: u16, header: &[u8]) -> String {
    let name = MACHINES.iter().find(|(known, _)| *known == number).map(|(_, name)| *name);
    let bits = if header.get(4) == Some(&WORDS_64) { 64 } else { 32 };
    let order = if header.get(5) == Some(&BIG_END_FIRST) { ", big-endian" } else { "" };
    let name = name.map_or_else(|| format!("ELF machine {number}"), str::to_owned);
    format!("{name} ({bits} bit{order})")
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at.checked_add(2)?)?.try_into().ok().map(u16::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at.checked_add(8)?)?.try_into().ok().map(u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Vec<u8> {
        let mut own = vec![0; 64];
        File::open("/proc/self/exe").unwrap().read_exact(&mut own).unwrap();
        own
    }

    fn text(begin: &[u8], size: u64) -> String {
        examine(begin, size, &own()).err().map_or(String::new(), |error| error.text().to_owned())
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
        // Garbage in the table's place and sizes must not be followed.
        for at in 32..64 {
            let mut bad = begin[..4096].to_vec();
            bad[at] = 0xFF;
            let _ = check_whole(&bad, whole.len() as u64);
            let _ = names(&bad, |_, _| Ok(vec![0xFF; 64]));
        }
    }

    #[test]
    fn the_names_of_symbols_are_found_without_loading() {
        let own = File::open("/proc/self/exe").unwrap();
        let begin = read_at(&own, 0, 64 * 1024).unwrap();
        let names =
            names(&begin, |at, length| read_at(&own, at, length)).expect("a dynamic program");
        assert!(names.windows(8).any(|window| window == b"\0dlopen\0"));
        let error = check(Path::new("/proc/self/exe")).unwrap_err();
        assert!(error.text().contains("exports no dtl_plugin_entry_v1"), "{error}");
    }
}
