//! What C passed: pointers checked, texts read, sized structs taken over and filled in.

use crate::abi::layouts::Described;
use crate::error::{Result, fail};
use crate::from_c::{check_pointer, claimed_size};
pub(super) use crate::from_c::{take, text_or_null};
use crate::sys::sync::hints;
use std::borrow::Cow;
use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;

/// Most entries of a list of texts.
const LIST_LIMIT: u32 = 256;

/// Where an output goes; written only by [`Out::set`].
pub(super) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Checks that the pointer is neither null nor misaligned.
    pub(super) fn new(pointer: *mut T, name: &str) -> Result<Self> {
        check_pointer(pointer, name)?;
        Ok(Out(pointer))
    }

    /// Returns the output; `None` if the pointer is null or misaligned. Makes no error text.
    pub(super) fn usual(pointer: *mut T) -> Option<Self> {
        hints::usually(!pointer.is_null() && pointer.is_aligned()).then_some(Out(pointer))
    }

    /// Writes the output.
    pub(super) fn set(&self, value: T) {
        // SAFETY: the caller's contract: a non-null pointer passed as an output is writable.
        unsafe { self.0.write(value) }
    }
}

/// Reads a plain value, for which any bytes will do.
///
/// # Safety
/// `pointer` is null, misaligned or readable.
pub(super) unsafe fn read<T: Copy>(pointer: *const T, name: &str) -> Result<T> {
    check_pointer(pointer, name)?;
    // SAFETY: neither null nor misaligned, so readable by the contract.
    Ok(unsafe { pointer.read() })
}

/// Reads a text that must be there.
///
/// # Safety
/// `pointer` is null or a NUL-terminated text that stays as it is during `'a`.
pub(super) unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Result<&'a str> {
    // SAFETY: passed on.
    match unsafe { text_or_null(pointer, name) }? {
        Some(text) => Ok(text),
        None => fail!(DTL_ERROR_NULL_POINTER, "{name} is NULL"),
    }
}

/// A text that must be there, not looked at.
///
/// # Safety
/// As [`text`].
#[inline]
pub(super) unsafe fn c_text<'a, 'n>(
    pointer: *const c_char,
    name: impl FnOnce() -> Cow<'n, str>,
) -> Result<&'a CStr> {
    if pointer.is_null() {
        return fail!(DTL_ERROR_NULL_POINTER, "{} is NULL", name());
    }
    // SAFETY: a NUL-terminated text by the contract.
    Ok(unsafe { CStr::from_ptr(pointer) })
}

/// Reads a list of at most 256 texts.
///
/// # Safety
/// `list` is null or has `count` NUL-terminated texts (or NULLs) that stay as they are during the
/// call.
pub(super) unsafe fn texts(
    list: *const *const c_char,
    count: u32,
    name: &str,
) -> Result<Vec<String>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if count > LIST_LIMIT {
        return fail!(DTL_ERROR_LIMIT, "{name} has {count} entries, at most {LIST_LIMIT} are read");
    }
    check_pointer(list, name)?;
    // SAFETY: not null, so `count` pointers by the contract.
    let list = unsafe { std::slice::from_raw_parts(list, count as usize) };
    // SAFETY: texts or NULLs by the contract.
    let read =
        |(index, one): (usize, &*const c_char)| unsafe { text(*one, &format!("{name}[{index}]")) };
    list.iter().enumerate().map(|one| read(one).map(str::to_owned)).collect()
}

/// Writes a reason into the caller's room, cut to fit; no room is no failure.
///
/// # Safety
/// `buf` is null or `cap` writable bytes.
pub(super) unsafe fn put_reason(reason: &str, buf: *mut c_char, cap: u64) -> Result<()> {
    if buf.is_null() || cap == 0 {
        return Ok(());
    }
    let mut end = reason.len().min(usize::try_from(cap - 1).unwrap_or(usize::MAX));
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    // SAFETY: the caller's contract; the reason was cut to fit.
    unsafe { put_text(reason.get(..end).unwrap_or_default(), buf, cap, std::ptr::null_mut()) }
}

/// Writes text into the caller's `(buf, cap, out_len)`. `buf` NULL with `cap` 0 requests only the
/// length. The pointers are checked before anything is written: a NULL_POINTER failure does not
/// change `out_len`.
///
/// # Safety
/// `buf` is null or `cap` writable bytes; `out_len` is null or writable.
pub(super) unsafe fn put_text(
    text: &str,
    buf: *mut c_char,
    cap: u64,
    out_len: *mut u64,
) -> Result<()> {
    let only_length = buf.is_null() && cap == 0;
    if !only_length {
        check_pointer(buf, "buf")?;
    }
    if !out_len.is_null() {
        Out::new(out_len, "out_len")?.set(text.len() as u64);
    }
    if only_length {
        return Ok(());
    }
    if cap <= text.len() as u64 {
        return fail!(
            DTL_ERROR_BUFFER_TOO_SMALL,
            "the text needs {} bytes with its NUL, cap is {cap}",
            text.len() + 1
        );
    }
    // SAFETY: `cap` > text.len() writable bytes, and a Rust string never overlaps the caller's.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), buf.cast::<u8>(), text.len()) };
    // SAFETY: index text.len() < cap.
    let end = unsafe { buf.add(text.len()) };
    // SAFETY: as above.
    unsafe { end.write(0) };
    Ok(())
}

/// Lets `fill` complete a zeroed struct and gives the caller as much of it as it has room for.
///
/// # Safety
/// `pointer` is null or points to a writable struct at least as long as its struct_size.
pub(super) unsafe fn fill<T: Described>(
    pointer: *mut T,
    fill: impl FnOnce(&mut T) -> Result<()>,
) -> Result<()> {
    // SAFETY: passed on.
    let claimed = unsafe { claimed_size(pointer) }?;
    // SAFETY: zero is a valid value.
    let mut value = unsafe { MaybeUninit::<T>::zeroed().assume_init() };
    fill(&mut value)?;
    let known = claimed.min(size_of::<T>());
    // The caller's struct_size stays.
    // SAFETY: `claimed` >= `known` >= 8 writable bytes by the contract; 4 bytes in is inside.
    let to = unsafe { pointer.cast::<u8>().add(4) };
    // SAFETY: `value` has at least `known` bytes.
    let from = unsafe { std::ptr::from_ref(&value).cast::<u8>().add(4) };
    // SAFETY: both have known - 4 bytes left and do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(from, to, known - 4) };
    Ok(())
}

/// Whether a buffer is DTL_IN_PLACE: who allows that asks before it makes a region.
pub(super) fn is_in_place(pointer: *const c_void) -> bool {
    pointer.addr() == usize::MAX
}

/// Refuses DTL_IN_PLACE.
#[inline]
pub(super) fn check_place(pointer: *const c_void, name: &str) -> Result<()> {
    if is_in_place(pointer) {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{name} is DTL_IN_PLACE, which this call does not take there: pass a buffer"
        );
    }
    Ok(())
}

/// A region over the caller's memory; NULL is allowed for no bytes.
///
/// # Safety
/// `size` bytes at `pointer` stay valid until the operation that receives the region has ended.
#[inline]
pub(super) unsafe fn region(
    pointer: *const c_void,
    size: u64,
    name: &str,
) -> Result<crate::sys::memory::buf::Region> {
    check_place(pointer, name)?;
    if size == 0 {
        return Ok(crate::sys::memory::buf::Region::EMPTY);
    }
    if pointer.is_null() {
        return fail!(DTL_ERROR_NULL_POINTER, "{name} is NULL (for {size} bytes)");
    }
    let end = pointer.addr().checked_add(size as usize);
    if size > isize::MAX as u64 || end.is_none() {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{name}: {size} bytes are more than memory can hold"
        );
    }
    // SAFETY: passed on.
    Ok(unsafe { crate::sys::memory::buf::Region::new(pointer.cast_mut(), size as usize) })
}
