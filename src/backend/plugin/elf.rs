//! Checks of a file before it is passed to the dynamic loader: whether the file is a shared object
//! for this machine, whether it is complete, and whether it exports the plugin's entry function.
//! The loader's error messages do not distinguish these cases, a truncated file can crash the
//! loader, and constructors of a library that is not a plugin should not run.

use crate::error::{Result, fail, failure};
use crate::sys::os::dl;
use object::elf::{self, FileHeader32, FileHeader64, ProgramHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, ReadCache, ReadRef};
use std::ffi::CStr;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Size of the longest ELF file header, in bytes.
const HEADER: u64 = size_of::<FileHeader64<Endianness>>() as u64;

const MACHINES: [(elf::Machine, &str); 8] = [
    (elf::EM_386, "x86"),
    (elf::EM_MIPS, "MIPS"),
    (elf::EM_PPC64, "PowerPC64"),
    (elf::EM_S390, "S390"),
    (elf::EM_ARM, "ARM"),
    (elf::EM_X86_64, "x86-64"),
    (elf::EM_AARCH64, "AArch64"),
    (elf::EM_RISCV, "RISC-V"),
];

/// Name of a plugin's entry function, delimited by NULs as in the string table of the dynamic
/// symbols.
const ENTRY: &[u8] = b"\0dtl_plugin_entry_v1\0";
/// Upper bound on the size of the string table, in bytes; no real file reaches it.
const MOST_NAMES: u64 = 256 << 20;

/// Returns an error with the reason if the file cannot be a plugin for this machine.
pub fn check(path: &Path) -> Result<()> {
    let read = File::open(path).and_then(|file| {
        let size = file.metadata()?.len();
        let mut header = Vec::new();
        (&file).take(HEADER).read_to_end(&mut header)?;
        Ok((file, size, header))
    });
    let (file, size, header) =
        read.map_err(|error| failure!(DTL_ERROR_UNAVAILABLE, "it cannot be read: {error}"))?;
    let mut own = Vec::new();
    // Without /proc the machine is not checked here; the loader checks it.
    let _ = File::open("/proc/self/exe").and_then(|file| file.take(HEADER).read_to_end(&mut own));
    check_header(&header, size, &own)?;
    let file = ReadCache::new(file);
    check_whole(&file, size)?;
    // A file whose symbol names cannot be read is left to the loader.
    let (names, needed) = names(&file).unzip();
    if let Some(name) = needed.into_iter().flatten().find(|name| dl::is_other_version(name)) {
        return fail!(
            DTL_ERROR_INCOMPATIBLE_ABI,
            "it is linked with {name}, and this library is version {}: link no libdtl into a \
             plugin, which calls the functions of dtl_host_api_t",
            env!("CARGO_PKG_VERSION")
        );
    }
    match names {
        Some(names) if !names.windows(ENTRY.len()).any(|window| window == ENTRY) => fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "it is no plugin: it exports no dtl_plugin_entry_v1 (DTL_PLUGIN_EXPORT makes it \
             visible)"
        ),
        _ => Ok(()),
    }
}

/// Target machine in the header of an ELF file.
#[derive(PartialEq, Eq)]
struct ElfTarget {
    machine: elf::Machine,
    bits: u32,
    endian: Endianness,
}

/// Returns the target and the file type in an ELF header; `None` if the header is incomplete or
/// damaged.
fn target(header: &[u8]) -> Option<(ElfTarget, elf::FileType)> {
    fn read<Elf: FileHeader<Endian = Endianness>>(
        header: &[u8],
        bits: u32,
    ) -> Option<(ElfTarget, elf::FileType)> {
        let header = Elf::parse(header).ok()?;
        let endian = header.endian().ok()?;
        let machine = header.e_machine(endian);
        Some((ElfTarget { machine, bits, endian }, header.e_type(endian)))
    }
    read::<FileHeader64<Endianness>>(header, 64)
        .or_else(|| read::<FileHeader32<Endianness>>(header, 32))
}

/// Checks that a header is that of a shared object. If `own`, the header of this program, is an ELF
/// header, also checks that both headers name the same target machine.
fn check_header(header: &[u8], size: u64, own: &[u8]) -> Result<()> {
    if size == 0 {
        return fail!(DTL_ERROR_INVALID_ARGUMENT, "the file is empty");
    }
    if !header.starts_with(&elf::ELFMAG) {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "it is no shared object: it does not begin as an ELF file"
        );
    }
    let Some((theirs, kind)) = target(header) else {
        return if size < HEADER {
            fail!(DTL_ERROR_INVALID_ARGUMENT, "the file was cut off: it has {size} bytes")
        } else {
            fail!(DTL_ERROR_INVALID_ARGUMENT, "it is no shared object: its header is damaged")
        };
    };
    if let Some((ours, _)) = target(own).filter(|(ours, _)| *ours != theirs) {
        return fail!(
            DTL_ERROR_INCOMPATIBLE_ABI,
            "it was built for another machine: {}, this program for {}",
            name_of(&theirs),
            name_of(&ours)
        );
    }
    if kind != elf::ET_DYN {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "it is no shared object (ELF type {}): link it with -shared",
            kind.0
        );
    }
    Ok(())
}

/// Returns the byte order and the segments of a 64-bit file; `None` if the segment table is
/// incomplete.
fn segments<'d>(data: impl ReadRef<'d>) -> Option<(Endianness, &'d [ProgramHeader64<Endianness>])> {
    let header = FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    Some((endian, header.program_headers(endian, data).ok()?))
}

/// Checks that every segment is inside the file. A 32-bit file is checked only by the loader.
fn check_whole<'d>(data: impl ReadRef<'d>, size: u64) -> Result<()> {
    if FileHeader32::<Endianness>::parse(data).is_ok() {
        return Ok(());
    }
    let is_inside = |(endian, segments): (Endianness, &[ProgramHeader64<Endianness>])| {
        segments
            .iter()
            .map(|segment| segment.file_range(endian))
            .all(|(offset, length)| offset.checked_add(length).is_some_and(|end| end <= size))
    };
    if segments(data).is_some_and(is_inside) {
        return Ok(());
    }
    fail!(DTL_ERROR_INVALID_ARGUMENT, "the file was cut off: it has {size} bytes and needs more")
}

/// Returns the string table of the dynamic symbols, and the names of the libraries that the file is
/// linked with; `None` if the table cannot be found.
fn names<'d>(data: impl ReadRef<'d>) -> Option<(&'d [u8], Vec<&'d str>)> {
    let (endian, segments) = segments(data)?;
    let dynamic = segments.iter().find_map(|segment| segment.dynamic(endian, data).ok()?)?;
    let value = |tag| dynamic.iter().find(|entry| entry.tag(endian) == tag).map(|e| e.val(endian));
    let (address, size) = (value(elf::DT_STRTAB)?, value(elf::DT_STRSZ)?);
    let offset = segments
        .iter()
        .filter(|segment| segment.p_type(endian) == elf::PT_LOAD)
        .find_map(|segment| {
            let (offset, length) = segment.file_range(endian);
            let into = address.checked_sub(segment.p_vaddr(endian))?;
            if into < length { offset.checked_add(into) } else { None }
        })?;
    let names = data.read_bytes_at(offset, size.min(MOST_NAMES)).ok()?;
    let name = |at: u64| {
        let text = CStr::from_bytes_until_nul(names.get(usize::try_from(at).ok()?..)?);
        text.ok()?.to_str().ok()
    };
    let needed = dynamic.iter().filter(|entry| entry.tag(endian) == elf::DT_NEEDED);
    Some((names, needed.filter_map(|entry| name(entry.val(endian))).collect()))
}

fn name_of(target: &ElfTarget) -> String {
    let name = MACHINES.iter().find(|(known, _)| *known == target.machine).map(|(_, name)| *name);
    let order = if target.endian == Endianness::Big { ", big-endian" } else { "" };
    let name = name.map_or_else(|| format!("ELF machine {}", target.machine.0), str::to_owned);
    format!("{name} ({} bit{order})", target.bits)
}

#[cfg(test)]
#[path = "tests/elf.rs"]
mod tests;
