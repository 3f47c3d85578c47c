//! Validation of kernel images (cubin, fatbin, PTX) from the caller before the library passes them
//! to the driver. The driver is not given the size of an image, so it would read beyond the end of
//! a truncated image.

use crate::error::{Result, fail};

const FATBIN: &[u8] = &[0x50, 0xED, 0x55, 0xBA];
const ELF: &[u8] = b"\x7fELF\x02\x01";
/// Type of an ELF section that occupies no bytes in the file (SHT_NOBITS).
const NO_BITS: u32 = 8;

/// Returns an error if `bytes` is neither a cubin nor a fatbin, or is truncated.
pub(super) fn check(bytes: &[u8]) -> Result<()> {
    let length = if bytes.starts_with(ELF) {
        length_of_elf(bytes)
    } else if bytes.starts_with(FATBIN) {
        length_of_fatbin(bytes)
    } else {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "dtl_source_t.text is neither a cubin nor a fatbin (PTX is DTL_LANGUAGE_PTX, source \
             DTL_LANGUAGE_CUDA)"
        );
    };
    let count = bytes.len() as u64;
    match length {
        Some(length) if length <= count => Ok(()),
        Some(length) => fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "dtl_source_t.text has {count} bytes of a binary of {length}: it was cut off, or \
             size_bytes is wrong"
        ),
        None => fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "dtl_source_t.text has {count} bytes, too few for the beginning of a binary: give all \
             of them in size_bytes"
        ),
    }
}

/// Returns an error if the PTX source `bytes` contains a NUL.
pub(super) fn check_text(bytes: &[u8]) -> Result<()> {
    match bytes.iter().position(|byte| *byte == 0) {
        None => Ok(()),
        Some(at) => fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "dtl_source_t.text has a NUL at byte {at}: PTX is text (DTL_LANGUAGE_BINARY for a \
             cubin or fatbin)"
        ),
    }
}

fn number<const N: usize>(bytes: &[u8], at: u64) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    let part = bytes.get(at..at.checked_add(N)?)?;
    Some(part.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// Returns the length of a fatbin in bytes: its header's size plus the size of the data after the
/// header. Another fatbin may follow.
fn length_of_fatbin(bytes: &[u8]) -> Option<u64> {
    number::<2>(bytes, 6)?.checked_add(number::<8>(bytes, 8)?)
}

/// Returns the length of an ELF file in bytes: the largest end offset of its header, its header
/// tables and its sections.
fn length_of_elf(bytes: &[u8]) -> Option<u64> {
    let (segments, sections) = (number::<8>(bytes, 32)?, number::<8>(bytes, 40)?);
    let (segment_size, segment_count) = (number::<2>(bytes, 54)?, number::<2>(bytes, 56)?);
    let (section_size, section_count) = (number::<2>(bytes, 58)?, number::<2>(bytes, 60)?);
    let table_end = sections.checked_add(section_size * section_count)?;
    let mut end = table_end.max(segments.checked_add(segment_size * segment_count)?).max(64);
    if end > bytes.len() as u64 {
        return Some(end);
    }
    for section in 0..section_count {
        let at = sections + section * section_size;
        if number::<4>(bytes, at + 4)? as u32 != NO_BITS {
            end = end.max(number::<8>(bytes, at + 24)?.checked_add(number::<8>(bytes, at + 32)?)?);
        }
    }
    Some(end)
}

#[cfg(test)]
#[path = "tests/image.rs"]
mod tests;
