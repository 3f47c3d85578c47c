//! What C programs hand over by address: pointers checked, texts read, structs that begin with struct_size taken over.
//! `ffi::args` reads arguments with these, backends what reaches them unread.

use crate::error::{Result, fail};
use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;

/// Longest text and largest struct that is read.
const TEXT_LIMIT: usize = 4096;
const STRUCT_LIMIT: usize = 4096;

/// Refuses null and misaligned pointers.
pub(crate) fn check_pointer<T>(pointer: *const T, name: &str) -> Result<()> {
    if pointer.is_null() {
        return fail!(DTL_ERROR_NULL_POINTER, "{name} is NULL");
    }
    if !pointer.is_aligned() {
        return fail!(DTL_ERROR_INVALID_ARGUMENT, "{name} is not aligned to {} bytes", align_of::<T>());
    }
    Ok(())
}

/// Reads a text that may be NULL.
///
/// # Safety
/// `pointer` is null or a NUL-terminated text that stays as it is during `'a`.
pub(crate) unsafe fn text_or_null<'a>(pointer: *const c_char, name: &str) -> Result<Option<&'a str>> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: a NUL-terminated text by the contract.
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

/// A struct of the interface that starts with `struct_size` and of which all-zero bytes are a
/// valid value.
///
/// # Safety
/// The implementor guarantees exactly that.
pub(crate) unsafe trait Sized32: Copy {
    /// Its C name.
    const NAME: &'static str;
}

macro_rules! sized {
    ($($name:ident),+ $(,)?) => {$(
        // SAFETY: repr(C), starts with `struct_size: u32`, made of integers, pointers and optional
        // function pointers, for which zero is valid.
        unsafe impl crate::from_c::Sized32 for $name {
            const NAME: &'static str = stringify!($name);
        }
    )+};
}
pub(crate) use sized;

/// Reads the caller's struct_size and checks it against what can be.
///
/// # Safety
/// `pointer` is null or points to a struct of at least the size it says.
pub(crate) unsafe fn claimed_size<T: Sized32>(pointer: *const T) -> Result<usize> {
    check_pointer(pointer, T::NAME)?;
    // SAFETY: every sized struct starts with this field.
    let claimed = unsafe { pointer.cast::<u32>().read() } as usize;
    if claimed < 8 {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{}.struct_size is {claimed}: start from its _INIT macro, or set it to sizeof",
            T::NAME
        );
    }
    if claimed > STRUCT_LIMIT {
        return fail!(
            DTL_ERROR_INCOMPATIBLE_ABI,
            "{}.struct_size is {claimed}: no version has that",
            T::NAME
        );
    }
    Ok(claimed)
}

/// Takes over a sized struct. Shorter (older caller): the missing fields are zero, their default.
/// Longer (newer caller): accepted if the part unknown here is zero.
///
/// # Safety
/// `pointer` is null or points to a struct of at least the size it says.
pub(crate) unsafe fn take<T: Sized32>(pointer: *const T) -> Result<T> {
    // SAFETY: passed on.
    let claimed = unsafe { claimed_size(pointer) }?;
    // SAFETY: `claimed` bytes are there by the contract.
    let bytes = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), claimed) };
    if let Some(at) = bytes.iter().skip(size_of::<T>()).position(|&byte| byte != 0) {
        return fail!(
            DTL_ERROR_INCOMPATIBLE_ABI,
            "{} sets a field at offset {} that this library ({} bytes) does not know: update libdtl or leave it 0",
            T::NAME,
            size_of::<T>() + at,
            size_of::<T>()
        );
    }
    let mut value = MaybeUninit::<T>::zeroed();
    let known = claimed.min(size_of::<T>());
    // SAFETY: `known` bytes fit both, and a fresh local does not overlap the caller's struct.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.as_mut_ptr().cast::<u8>(), known) };
    // SAFETY: zero is a valid value, and so is what C wrote over it (integers and pointers).
    Ok(unsafe { value.assume_init() })
}
