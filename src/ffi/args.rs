//! Arguments from C: checks of pointers, reading of texts, copying of sized structs in and out.

use crate::abi::layouts::Described;
use crate::error::{Result, fail, failure};
use crate::from_c::{blank, check_pointer, claimed_size};
pub(super) use crate::from_c::{take, text_or_null};
use crate::hints;
use crate::sys::memory::buf::Region;
use std::borrow::Cow;
use std::ffi::{CStr, c_char, c_void};

/// Maximum number of entries in a list of texts.
const LIST_LIMIT: u32 = 256;

/// Checked pointer to an output; written only by [`Out::set`].
pub(super) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Checks that `pointer` is neither null nor misaligned. `name` is the parameter's name for the
    /// error text.
    #[inline]
    pub(super) fn new(pointer: *mut T, name: &str) -> Result<Self> {
        check_pointer(pointer, name)?;
        Ok(Out(pointer))
    }

    /// Checks an output that may be omitted; `None` if `pointer` is null.
    pub(super) fn optional(pointer: *mut T, name: &str) -> Result<Option<Self>> {
        if pointer.is_null() { Ok(None) } else { Out::new(pointer, name).map(Some) }
    }

    /// Returns the output; `None`, without an error text, if `pointer` is null or misaligned.
    pub(super) fn usual(pointer: *mut T) -> Option<Self> {
        hints::usually(!pointer.is_null() && pointer.is_aligned()).then_some(Out(pointer))
    }

    /// Writes `value` to the output.
    pub(super) fn set(&self, value: T) {
        // SAFETY: by the caller's contract, a non-null pointer passed as an output is writable.
        unsafe { self.0.write(value) }
    }

    /// Writes the value of a successful result; returns the error of a failed one.
    pub(super) fn put(&self, result: Result<T>) -> Result<()> {
        result.map(|value| self.set(value))
    }
}

/// Writes both values of a successful result; returns the error of a failed one.
pub(super) fn put_both<A, B>(outputs: (Out<A>, Out<B>), result: Result<(A, B)>) -> Result<()> {
    result.map(|(first, second)| {
        outputs.0.set(first);
        outputs.1.set(second);
    })
}

/// Writes one value after the other to the caller's array.
pub(super) fn put_all<T: Copy>(pointer: *mut T, values: &[T], name: &str) -> Result<()> {
    for (index, &value) in values.iter().enumerate() {
        Out::new(pointer.wrapping_add(index), name)?.set(value);
    }
    Ok(())
}

/// Reads a plain value, for which every bit pattern is valid.
///
/// # Safety
/// `pointer` is null, misaligned or readable.
pub(super) unsafe fn read<T: Copy>(pointer: *const T, name: &str) -> Result<T> {
    check_pointer(pointer, name)?;
    // SAFETY: `pointer` is neither null nor misaligned, so it is readable by the contract.
    Ok(unsafe { pointer.read() })
}

/// Checks that a reserved field is 0.
pub(super) fn check_reserved(value: impl Into<u64>, name: &str) -> Result<()> {
    match value.into() {
        0 => Ok(()),
        value => fail!(DTL_ERROR_INVALID_ARGUMENT, "{name} is {value}; set it to 0"),
    }
}

/// Reads a mandatory text. Returns an error if `pointer` is null.
///
/// # Safety
/// `pointer` is null or a NUL-terminated text that does not change during `'a`.
pub(super) unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Result<&'a str> {
    // SAFETY: the caller guarantees that `pointer` is null or an unchanging NUL-terminated text.
    unsafe { text_or_null(pointer, name) }?
        .ok_or_else(|| failure!(DTL_ERROR_NULL_POINTER, "{name} is NULL"))
}

/// Returns a mandatory text without checking its content. Returns an error if `pointer` is null.
///
/// # Safety
/// `pointer` is null or a NUL-terminated text that does not change during `'a`.
pub(super) unsafe fn c_text<'a, 'n>(
    pointer: *const c_char,
    name: impl FnOnce() -> Cow<'n, str>,
) -> Result<&'a CStr> {
    if pointer.is_null() {
        return fail!(DTL_ERROR_NULL_POINTER, "{} is NULL", name());
    }
    // SAFETY: `pointer` is not null, so it is a NUL-terminated text by the contract.
    Ok(unsafe { CStr::from_ptr(pointer) })
}

/// Returns an array of the caller as a slice. `pointer` may be NULL if `count` is 0.
///
/// # Safety
/// `pointer` is null, misaligned or has `count` values that do not change during the call.
pub(super) unsafe fn array<'a, T>(pointer: *const T, count: usize, name: &str) -> Result<&'a [T]> {
    if pointer.is_null() && count > 0 {
        return fail!(DTL_ERROR_NULL_POINTER, "{name} is NULL (for {count} values)");
    }
    // SAFETY: passed on; an array without values is not read.
    if count == 0 { Ok(&[]) } else { unsafe { slice(pointer, count, name) } }
}

/// Returns an array of the caller as a slice. `pointer` must be neither null nor misaligned, even
/// if `count` is 0.
///
/// # Safety
/// `pointer` is null, misaligned or has `count` values that do not change during `'a`.
pub(super) unsafe fn slice<'a, T>(pointer: *const T, count: usize, name: &str) -> Result<&'a [T]> {
    check_pointer(pointer, name)?;
    // SAFETY: `pointer` is neither null nor misaligned, so it has `count` values by the contract.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// Reads a list of at most 256 texts.
///
/// # Safety
/// `list` is null or has `count` NUL-terminated texts (or NULLs) that do not change during the
/// call.
pub(super) unsafe fn texts(
    list: *const *const c_char,
    count: u32,
    name: &str,
) -> Result<Vec<String>> {
    if count > LIST_LIMIT {
        return fail!(DTL_ERROR_LIMIT, "{name} has {count} entries, at most {LIST_LIMIT} are read");
    }
    // SAFETY: if `list` is not null, it has `count` pointers by the contract.
    let list = unsafe { array(list, count as usize, name) }?;
    // SAFETY: the entries are texts or NULLs by the contract.
    let read =
        |(index, one): (usize, &*const c_char)| unsafe { text(*one, &format!("{name}[{index}]")) };
    list.iter().enumerate().map(|one| read(one).map(str::to_owned)).collect()
}

/// Writes a reason into the caller's `(why, cap, out_len)`, truncated to fit. A missing buffer is
/// not an error.
///
/// # Safety
/// `buf` is null or has `cap` writable bytes; `out_len` is null or writable.
pub(super) unsafe fn put_reason(
    reason: &str,
    buf: *mut c_char,
    cap: u64,
    out_len: *mut u64,
) -> Result<()> {
    if let Some(out_len) = Out::optional(out_len, "out_len")? {
        out_len.set(reason.len() as u64);
    }
    if buf.is_null() || cap == 0 {
        return Ok(());
    }
    let mut end = reason.len().min(usize::try_from(cap - 1).unwrap_or(usize::MAX));
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    // SAFETY: `buf` has `cap` writable bytes by the contract; the reason was truncated to fit.
    unsafe { put_text(reason.get(..end).unwrap_or_default(), buf, cap, std::ptr::null_mut()) }
}

/// Writes text into the caller's `(buf, cap, out_len)`. `buf` NULL with `cap` 0 requests only the
/// length. The pointers are checked before anything is written: a NULL_POINTER failure does not
/// change `out_len`.
///
/// # Safety
/// `buf` is null or has `cap` writable bytes; `out_len` is null or writable.
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
    if let Some(out_len) = Out::optional(out_len, "out_len")? {
        out_len.set(text.len() as u64);
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
    // SAFETY: `buf` has `cap` > text.len() writable bytes, and a Rust string never overlaps the
    // caller's buffer.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), buf.cast::<u8>(), text.len()) };
    // SAFETY: the index text.len() is less than `cap`.
    let end = unsafe { buf.add(text.len()) };
    // SAFETY: `end` is within the `cap` writable bytes of `buf`.
    unsafe { end.write(0) };
    Ok(())
}

/// Copies a struct that may be omitted; `None` if `pointer` is null.
///
/// # Safety
/// `pointer` is null or points to a struct of at least as many bytes as its `struct_size`.
pub(super) unsafe fn take_optional<T: Described>(
    pointer: *const T,
    name: &str,
) -> Result<Option<T>> {
    // SAFETY: the caller guarantees that `pointer` points to a sized struct unless it is null.
    if pointer.is_null() { Ok(None) } else { unsafe { take(pointer, name) }.map(Some) }
}

/// Copies a struct; if `pointer` is null, all fields are 0, their default.
///
/// # Safety
/// `pointer` is null or points to a struct of at least as many bytes as its `struct_size`.
pub(super) unsafe fn take_or_zero<T: Described>(pointer: *const T, name: &str) -> Result<T> {
    // SAFETY: the caller guarantees that `pointer` points to a sized struct unless it is null.
    if pointer.is_null() { Ok(blank()) } else { unsafe { take(pointer, name) } }
}

/// Copies the struct that `make` returns to the caller, up to the caller's struct_size, which is
/// checked first.
///
/// # Safety
/// `pointer` is null or points to a writable struct at least as long as its struct_size.
pub(super) unsafe fn fill<T: Described>(
    pointer: *mut T,
    name: &str,
    make: impl FnOnce() -> Result<T>,
) -> Result<()> {
    // SAFETY: the caller guarantees that `pointer` is null or points to a sized struct.
    let claimed = unsafe { claimed_size(pointer, name) }?;
    let value = make()?;
    let known = claimed.min(size_of::<T>());
    // The copy begins behind the caller's struct_size, which remains unchanged.
    // SAFETY: `claimed` >= `known` >= 8 writable bytes by the contract; offset 4 is within them.
    let to = unsafe { pointer.cast::<u8>().add(4) };
    // SAFETY: `value` has at least `known` >= 8 bytes, so offset 4 is within it.
    let from = unsafe { std::ptr::from_ref(&value).cast::<u8>().add(4) };
    // SAFETY: both pointers have known - 4 bytes left, and the ranges do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(from, to, known - 4) };
    Ok(())
}

/// Returns true if a buffer is DTL_IN_PLACE. A call that permits DTL_IN_PLACE checks this before it
/// creates a region.
pub(super) fn is_in_place(pointer: *const c_void) -> bool {
    pointer.addr() == usize::MAX
}

/// Returns an error if `pointer` is DTL_IN_PLACE.
pub(super) fn check_place(pointer: *const c_void, name: &str) -> Result<()> {
    if is_in_place(pointer) {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{name} is DTL_IN_PLACE, which this call does not take there: pass a buffer"
        );
    }
    Ok(())
}

/// Creates a region over the caller's memory. NULL is permitted if `size` is 0.
///
/// # Safety
/// `size` bytes at `pointer` must stay valid until the operation that receives the region ends.
#[inline]
pub(super) unsafe fn region(pointer: *const c_void, size: u64, name: &str) -> Result<Region> {
    check_place(pointer, name)?;
    if size == 0 {
        return Ok(Region::EMPTY);
    }
    if pointer.is_null() {
        return fail!(DTL_ERROR_NULL_POINTER, "{name} is NULL (for {size} bytes)");
    }
    let end = pointer.addr().checked_add(size as usize);
    if size > isize::MAX as u64 || end.is_none() {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{name}: its size of {size} bytes is more than memory can hold: pass the buffer's size"
        );
    }
    // SAFETY: the caller guarantees that `size` bytes stay valid until the operation has ended.
    Ok(unsafe { Region::new(pointer.cast_mut(), size as usize) })
}
