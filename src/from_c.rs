//! Validation of the pointers that C callers pass, and reads of the strings and structs (with a
//! `struct_size` field) to which they point. Used by `ffi::args`, and by backends for arguments
//! that `ffi` does not read.

use crate::abi::layouts::{Described, Layout};
use crate::error::{Result, fail};
use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;

/// Maximum length of a string that a C program passes, in bytes. `STRUCT_LIMIT` is the maximum size
/// of a struct, in bytes.
pub(crate) const TEXT_LIMIT: usize = 4096;
pub(crate) const STRUCT_LIMIT: usize = 4096;

/// Fails if `pointer` is null or misaligned; `name` is the parameter's name in the error message.
#[inline]
pub(crate) fn check_pointer<T>(pointer: *const T, name: &str) -> Result<()> {
    if pointer.is_null() {
        return fail!(DTL_ERROR_NULL_POINTER, "{name} is NULL");
    }
    if !pointer.is_aligned() {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{name} is not aligned to {} bytes",
            align_of::<T>()
        );
    }
    Ok(())
}

/// Returns the NUL-terminated string that a C function has written into the buffer `bytes`; an
/// empty string if `bytes` contains no NUL.
pub(crate) fn text_in(bytes: &[u8]) -> String {
    CStr::from_bytes_until_nul(bytes).unwrap_or_default().to_string_lossy().into_owned()
}

/// Copies a NUL-terminated string that C code owns; returns `None` if `pointer` is null.
///
/// # Safety
/// `pointer` must be null or point to a NUL-terminated string.
pub(crate) unsafe fn text_at(pointer: *const c_char) -> Option<String> {
    // SAFETY: the pointer is not null, so it points to a NUL-terminated string by the contract.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}

/// Reads a NUL-terminated string; returns `None` if `pointer` is null.
///
/// # Safety
/// `pointer` must be null or point to a NUL-terminated string that is valid and unchanged during
/// `'a`.
pub(crate) unsafe fn text_or_null<'a>(
    pointer: *const c_char,
    name: &str,
) -> Result<Option<&'a str>> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the pointer is not null (checked), so it is a NUL-terminated text by the contract.
    let text = unsafe { CStr::from_ptr(pointer) };
    if text.count_bytes() > TEXT_LIMIT {
        return fail!(
            DTL_ERROR_LIMIT,
            "{name} has {} bytes, at most {TEXT_LIMIT} are read",
            text.count_bytes()
        );
    }
    match text.to_str() {
        Ok(text) => Ok(Some(text)),
        Err(error) => {
            fail!(DTL_ERROR_INVALID_ARGUMENT, "{name} is not UTF-8 at byte {}", error.valid_up_to())
        }
    }
}

/// Checks a `struct_size`. Accepts the size that the struct has in this version of the header, in
/// older versions, and possibly in later versions.
///
/// The struct of a caller compiled with an older header ends where a later version appended its
/// first field. The struct of a caller compiled with a newer header is larger, and its size is a
/// multiple of the alignment. Any other size would end inside a field or omit fields that exist in
/// every version.
pub(crate) fn check_size(layout: &Layout, claimed: usize) -> Result<()> {
    let Layout { name, size, align, versions } = layout;
    let is_newer = claimed > *size && claimed <= STRUCT_LIMIT && claimed % align == 0;
    let is_older =
        versions.iter().skip(1).any(|later| later.first().is_some_and(|f| f.offset == claimed));
    if claimed == *size || is_newer || is_older {
        return Ok(());
    }
    let noun = name.trim_start_matches("dtl_").trim_end_matches("_t").to_uppercase();
    if claimed < 8 {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{name}.struct_size is {claimed}: start from DTL_{noun}_INIT, or set it to sizeof"
        );
    }
    match layout.fields().find(|field| field.offset + field.size > claimed) {
        Some(cut) if cut.offset < claimed => fail!(
            DTL_ERROR_INCOMPATIBLE_ABI,
            "{name}.struct_size is {claimed} and ends inside {}: no version has that; start from \
             DTL_{noun}_INIT",
            cut.name
        ),
        Some(missing) => fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{name}.struct_size is {claimed} and ends before {}: no version has that; start from \
             DTL_{noun}_INIT",
            missing.name
        ),
        None => fail!(
            DTL_ERROR_INCOMPATIBLE_ABI,
            "{name}.struct_size is {claimed}: no version has that (this library's has {size} bytes)"
        ),
    }
}

/// Returns a zero-initialized struct of the C header. If the struct has a `struct_size` field, the
/// field contains the size of the struct.
pub(crate) fn blank<T: Described>() -> T {
    let mut value = MaybeUninit::<T>::zeroed();
    if const { T::LAYOUT.is_versioned() } {
        // SAFETY: a versioned struct begins with struct_size, a u32, so this write is aligned and
        // inside of the local.
        unsafe { value.as_mut_ptr().cast::<u32>().write(size_of::<T>() as u32) };
    }
    // SAFETY: zero is a valid value of every described struct, and any u32 is one of struct_size.
    unsafe { value.assume_init() }
}

/// Reads the caller's `struct_size`, checks it and returns it. `name` is the parameter's name in
/// the error message.
///
/// # Safety
/// `pointer` must be null or point to a struct of at least as many bytes as its `struct_size`.
pub(crate) unsafe fn claimed_size<T: Described>(pointer: *const T, name: &str) -> Result<usize> {
    const { assert!(T::LAYOUT.is_versioned()) };
    check_pointer(pointer, name)?;
    // SAFETY: the pointer is not null (checked), and every versioned struct begins with this field.
    let claimed = unsafe { pointer.cast::<u32>().read() } as usize;
    if claimed != size_of::<T>() {
        check_size(&T::LAYOUT, claimed)?;
    }
    Ok(claimed)
}

/// Copies a versioned struct. Fields missing in a shorter struct (older caller) become zero, their
/// default. A longer struct (newer caller) is accepted if all bytes beyond this version of the
/// struct are zero.
///
/// # Safety
/// `pointer` must be null or point to a struct of at least as many bytes as its `struct_size`.
pub(crate) unsafe fn take<T: Described>(pointer: *const T, name: &str) -> Result<T> {
    // SAFETY: the contract of `claimed_size` is also this function's, which the caller guarantees.
    let claimed = unsafe { claimed_size(pointer, name) }?;
    // SAFETY: not null (checked); the caller guarantees `struct_size` bytes, which is `claimed`.
    let bytes = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), claimed) };
    if let Some(at) = bytes.iter().skip(size_of::<T>()).position(|&byte| byte != 0) {
        return fail!(
            DTL_ERROR_INCOMPATIBLE_ABI,
            "{} sets a field at offset {} that this library ({} bytes) does not know: update \
             libdtl or leave it 0",
            T::LAYOUT.name,
            size_of::<T>() + at,
            size_of::<T>()
        );
    }
    let mut value = MaybeUninit::<T>::zeroed();
    let known = claimed.min(size_of::<T>());
    // SAFETY: `known` bytes fit both, and a fresh local does not overlap the caller's struct.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.as_mut_ptr().cast::<u8>(), known)
    };
    // SAFETY: zero is a valid value, and so is what C wrote over it (integers and pointers).
    Ok(unsafe { value.assume_init() })
}

#[cfg(test)]
#[path = "tests/from_c.rs"]
mod tests;
