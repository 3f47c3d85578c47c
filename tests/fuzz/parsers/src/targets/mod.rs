//! Targets whose parsers the library exports to its own modules.
//!
//! In reading order:
//! - `tcp`: the frames and the bootstrap of plugin tcp (C)

mod tcp;

pub(crate) use tcp::tcp;

use crate::abi::devices::device::dtl_mem_handle_t;
use crate::abi::enums::*;
use crate::abi::status::*;
use crate::abi::word::DTL_MEMORY_SHARED;
use crate::backend::{elf as plugin_elf, host};
use crate::error::Error;
use crate::runtime::enums::{self, json as enum_json};
use crate::runtime::memory::{self, ipc_handle};
use crate::runtime::{launch, lifecycle, registry, settings as library_settings};
use crate::sys::handles::epoch;
use crate::sys::memory::buf::{Addr, fnv1a};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex};

/// A file in memory that all inputs use in turn.
static FILE: LazyLock<Mutex<File>> = LazyLock::new(|| {
    // SAFETY: the name is NUL-terminated.
    let fd = unsafe { libc::memfd_create(c"parsers".as_ptr(), 0) };
    assert!(fd >= 0);
    // SAFETY: the descriptor is new, and nothing else closes it.
    Mutex::new(unsafe { File::from_raw_fd(fd) })
});

fn word(data: &[u8], at: usize, len: usize) -> Option<u64> {
    let bytes = data.get(at..)?.get(..len)?;
    Some(bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)))
}

/// A plugin file before it is passed to the loader. What is accepted is a whole shared object.
pub(crate) fn elf(data: &[u8]) {
    let mut file = FILE.lock().unwrap();
    file.set_len(0).unwrap();
    file.rewind().unwrap();
    file.write_all(data).unwrap();
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    match plugin_elf::check(&path) {
        Err(error) => {
            assert!(
                [DTL_ERROR_INVALID_ARGUMENT, DTL_ERROR_INCOMPATIBLE_ABI].contains(&error.status())
            );
            assert!(!error.text().is_empty() && error.text().len() < 300, "{error}");
        }
        // Only files for this machine pass, which are 64-bit little-endian ones.
        Ok(()) => {
            assert!(data.starts_with(b"\x7fELF\x02\x01"));
            assert_eq!(word(data, 16, 2), Some(3), "no shared object");
            let (table, count) = (word(data, 32, 8).unwrap(), word(data, 56, 2).unwrap());
            if table == 0 || count == 0xFFFF {
                return; // no table, or a count that is elsewhere: the loader refuses them
            }
            for at in 0..count {
                let entry = (table + at * 56) as usize;
                let end = word(data, entry + 8, 8)
                    .unwrap()
                    .checked_add(word(data, entry + 32, 8).unwrap());
                assert!(end.is_some_and(|end| end <= data.len() as u64), "segment {at} is cut off");
            }
        }
    }
}

/// JSON of an enumeration word: the first byte chooses enumeration and tolerance. What is accepted
/// is written as a text that gives the same word.
pub(crate) fn json(data: &[u8]) {
    let Some((&first, text)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    open();
    let flags = if first & 0x80 == 0 { 0 } else { DTL_EV_TOLERANT };
    let number = u32::from(first & 0x7F);
    match enum_json::from_text(number, text, flags) {
        Ok(word) => {
            let written = enum_json::to_text(word).expect("a word that was parsed");
            let again = enum_json::from_text(number, &written, flags);
            assert_eq!(again.as_ref().ok(), Some(&word), "{text} -> {written} -> {again:?}");
        }
        Err(error) => check(&error),
    }
}

fn check(error: &Error) {
    assert!(is_status(error.status()) && error.status() != DTL_ERROR_INTERNAL, "{error}");
    assert!(!error.text().is_empty(), "a status without a text");
}

fn is_status(status: i32) -> bool {
    crate::error::is_status(status)
}

fn builtins() -> Vec<Arc<registry::Backend>> {
    vec![Arc::new(host::backend())]
}

fn open() {
    lifecycle::admit(builtins).unwrap();
}

/// A block of shared memory whose handle the inputs change.
static BLOCK: LazyLock<(usize, dtl_mem_handle_t)> = LazyLock::new(|| {
    let guard = epoch::enter();
    let backend = registry::by_name(&guard, Some("host")).unwrap();
    let wanted = memory::Request { kind: DTL_MEMORY_SHARED, size: SIZE, align: 0 };
    let addr = memory::alloc(memory::Owner::Program, backend, &wanted, None).unwrap();
    (addr.get(), ipc_handle::export(&guard, addr).unwrap())
});

/// Bytes of the shared block.
const SIZE: u64 = 10_000;

/// A memory handle: pairs of an index and a byte, which change the handle of a block of this
/// process. The first byte makes the checksum right if it is odd. What is imported can be read and
/// written to its end, and is the exported memory.
pub(crate) fn handle(data: &[u8]) {
    let Some((&first, changes)) = data.split_first() else { return };
    open();
    let (base, mut handle) = *BLOCK;
    for change in changes.chunks_exact(2) {
        let (at, byte) = (usize::from(change[0]) % 128, u64::from(change[1]));
        handle.opaque[at / 8] ^= byte << (8 * (at % 8));
    }
    if first & 1 == 1 {
        handle.opaque[1] = 0;
        let bytes: Vec<u8> = handle.opaque.iter().flat_map(|word| word.to_ne_bytes()).collect();
        handle.opaque[1] = fnv1a(&bytes);
    }
    let guard = epoch::enter();
    let backend = registry::by_name(&guard, Some("host")).unwrap();
    match ipc_handle::import(backend, &handle) {
        Ok((addr, size)) => {
            assert!(size > 0 && size.next_multiple_of(4096) == SIZE.next_multiple_of(4096));
            assert_ne!(addr.get(), base);
            for at in [0, size as usize - 1] {
                // SAFETY: the library has accepted the handle, so both blocks have `size` bytes.
                unsafe { *addr.ptr().cast::<u8>().add(at) = first };
                // SAFETY: as above.
                let seen = unsafe { *(base as *const u8).add(at) };
                assert_eq!(seen, first, "byte {at} is other memory");
            }
            memory::free(memory::Owner::Program, backend, addr).unwrap();
        }
        Err(error) => check(&error),
    }
}

/// Environment variables, one NAME=VALUE a line: settings of the library and of launchers.
pub(crate) fn settings(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let variables: BTreeMap<String, String> = text
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    match library_settings::from_environment(&variables) {
        Ok(read) => {
            for ns in [read.timeout_ns, read.plugin_probe_ns, read.compiler.timeout_ns] {
                assert_ne!(ns, Some(0), "a time limit of 0");
            }
        }
        Err(error) => check(&error),
    }
    // Each name is compared with every name that the library knows: one is enough.
    let first = variables.iter().take(1).map(|(name, value)| (name.clone(), value.clone()));
    for complaint in library_settings::complaints(&first.collect()) {
        assert!(!complaint.is_empty());
    }
    match launch::read(&|name| variables.get(name).cloned(), &|_| String::new()) {
        Ok(Some(found)) => {
            assert!(0 <= found.rank && found.rank < found.size, "{found:?}");
            assert!(0 <= found.local_size && found.local_size <= found.size, "{found:?}");
            assert!(found.local_size == 0 || found.local_rank < found.local_size, "{found:?}");
            assert!(found.local_rank >= 0, "{found:?}");
        }
        Ok(None) => {}
        Err(error) => check(&error),
    }
}
