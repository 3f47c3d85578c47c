//! What C passed: pointers checked, texts read, sized structs taken over and filled in.

use crate::error::{Result, fail};
use std::borrow::Cow;
use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;

/// Longest text and largest struct that is read.
const TEXT_LIMIT: usize = 4096;
const STRUCT_LIMIT: usize = 4096;
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

    /// Writes the output.
    pub(super) fn set(&self, value: T) {
        // SAFETY: the caller's contract: a non-null pointer passed as an output is writable.
        unsafe { self.0.write(value) }
    }
}

fn check_pointer<T>(pointer: *const T, name: &str) -> Result<()> {
    if pointer.is_null() {
        return fail!(DTL_ERROR_NULL_POINTER, "{name} is NULL");
    }
    if !pointer.is_aligned() {
        return fail!(DTL_ERROR_INVALID_ARGUMENT, "{name} is not aligned to {} bytes", align_of::<T>());
    }
    Ok(())
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

/// Reads a text that may be NULL.
///
/// # Safety
/// As [`text`].
pub(super) unsafe fn text_or_null<'a>(pointer: *const c_char, name: &str) -> Result<Option<&'a str>> {
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

/// Reads a list of at most 256 texts.
///
/// # Safety
/// `list` is null or has `count` NUL-terminated texts (or NULLs) that stay as they are during the call.
pub(super) unsafe fn texts(list: *const *const c_char, count: u32, name: &str) -> Result<Vec<String>> {
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
    let read = |(index, one): (usize, &*const c_char)| unsafe { text(*one, &format!("{name}[{index}]")) };
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

/// Writes text into the caller's `(buf, cap, out_len)`. `buf` NULL with `cap` 0 asks for the length.
///
/// # Safety
/// `buf` is null or `cap` writable bytes; `out_len` is null or writable.
pub(super) unsafe fn put_text(text: &str, buf: *mut c_char, cap: u64, out_len: *mut u64) -> Result<()> {
    if !out_len.is_null() {
        // SAFETY: not null, so writable by the contract.
        unsafe { out_len.write(text.len() as u64) };
    }
    if buf.is_null() && cap == 0 {
        return Ok(());
    }
    check_pointer(buf, "buf")?;
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

/// A struct of the interface that starts with `struct_size` and of which all-zero bytes are a
/// valid value.
///
/// # Safety
/// The implementor guarantees exactly that.
pub(super) unsafe trait Sized32: Copy {
    /// Its C name.
    const NAME: &'static str;
}

macro_rules! sized {
    ($($name:ident),+ $(,)?) => {$(
        // SAFETY: repr(C), starts with `struct_size: u32`, made of integers, pointers and optional
        // function pointers, for which zero is valid.
        unsafe impl crate::ffi::args::Sized32 for $name {
            const NAME: &'static str = stringify!($name);
        }
    )+};
}
pub(super) use sized;

/// Reads the caller's struct_size and checks it against what can be.
///
/// # Safety
/// `pointer` is null or points to a struct of at least the size it says.
unsafe fn claimed_size<T: Sized32>(pointer: *const T) -> Result<usize> {
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
pub(super) unsafe fn take<T: Sized32>(pointer: *const T) -> Result<T> {
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

/// Lets `fill` complete a zeroed struct and gives the caller as much of it as it has room for.
///
/// # Safety
/// `pointer` is null or points to a writable struct of at least the size it says.
pub(super) unsafe fn fill<T: Sized32>(
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
#[inline(always)]
pub(super) fn is_in_place(pointer: *const c_void) -> bool {
    pointer.addr() == usize::MAX
}

/// Refuses DTL_IN_PLACE.
#[inline(always)]
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
#[inline(always)]
pub(super) unsafe fn region(
    pointer: *const c_void,
    size: u64,
    name: &str,
) -> Result<crate::sys::buf::Region> {
    check_place(pointer, name)?;
    if size == 0 {
        return Ok(crate::sys::buf::Region::EMPTY);
    }
    if pointer.is_null() {
        return fail!(DTL_ERROR_NULL_POINTER, "{name} is NULL (for {size} bytes)");
    }
    let end = pointer.addr().checked_add(size as usize);
    if size > isize::MAX as u64 || end.is_none() {
        return fail!(DTL_ERROR_INVALID_ARGUMENT, "{name}: {size} bytes are more than memory can hold");
    }
    // SAFETY: passed on.
    Ok(unsafe { crate::sys::buf::Region::new(pointer.cast_mut(), size as usize) })
}
