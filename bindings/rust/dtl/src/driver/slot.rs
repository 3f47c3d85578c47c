//! Functions of the tables: conversion of arguments, results and panics.
//!
//! [`slots`] writes the `extern "C"` function of a slot around safe code. The types of the
//! parameters, which implement [`Arg`], state what the header promises for them.

use super::host;
use crate::{Error, Result, sys};
use std::any::Any;
use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Value that the author's code made and the library passes back: the target of a `void *`. It has
/// a size and an address of its own, even if `T` has no size.
struct Owned<T> {
    value: T,
    _byte: u8,
}

/// Parameter of a slot.
pub(super) trait Arg {
    /// Type of the parameter in C.
    type Raw;

    /// Converts a parameter.
    ///
    /// # Safety
    /// `raw` must be what the header promises for a parameter that is declared with this type: the
    /// implementation states it.
    unsafe fn from_raw(raw: Self::Raw) -> Self;
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Arg for $number {
            type Raw = Self;
            unsafe fn from_raw(raw: Self) -> Self {
                raw
            }
        }
    )*};
}
numbers!(u8, i32, u64);

/// Object that a slot made with [`New`]: it is not destroyed during the call.
impl<T> Arg for &T {
    type Raw = *mut c_void;
    unsafe fn from_raw(raw: *mut c_void) -> Self {
        // SAFETY: `New::set` wrote this pointer, and the library destroys the object after the call.
        &unsafe { &*raw.cast::<Owned<T>>() }.value
    }
}

/// Object that a slot made with [`New`]: no other thread uses it during the call.
impl<T> Arg for &mut T {
    type Raw = *mut c_void;
    unsafe fn from_raw(raw: *mut c_void) -> Self {
        // SAFETY: `New::set` wrote this pointer, and one thread at a time uses the object.
        &mut unsafe { &mut *raw.cast::<Owned<T>>() }.value
    }
}

/// Object that a slot made with [`New`], and that the library gives up with this call.
pub(super) struct Last<T>(Box<Owned<T>>);

impl<T> Arg for Last<T> {
    type Raw = *mut c_void;
    unsafe fn from_raw(raw: *mut c_void) -> Self {
        // SAFETY: `New::set` wrote this pointer, and the library passes it to one such slot, once.
        Last(unsafe { Box::from_raw(raw.cast()) })
    }
}

impl<T> Last<T> {
    pub(super) fn into_inner(self) -> T {
        self.0.value
    }
}

/// Output of a number: a writable place.
pub(super) struct Out<'a, T>(*mut T, PhantomData<&'a mut T>);

impl<T> Arg for Out<'_, T> {
    type Raw = *mut T;
    unsafe fn from_raw(raw: *mut T) -> Self {
        Out(raw, PhantomData)
    }
}

impl<T> Out<'_, T> {
    pub(super) fn set(self, value: T) {
        // SAFETY: a writable place, by the promise of `from_raw`.
        unsafe { self.0.write(value) }
    }
}

impl Out<'_, i32> {
    pub(super) fn set_bool(self, value: bool) {
        self.set(i32::from(value));
    }
}

/// Output of an object, which a parameter `&T`, `&mut T` or [`Last<T>`] of another slot takes.
pub(super) struct New<'a, T>(Out<'a, *mut c_void>, PhantomData<T>);

impl<T> Arg for New<'_, T> {
    type Raw = *mut *mut c_void;
    unsafe fn from_raw(raw: Self::Raw) -> Self {
        // SAFETY: a writable place, by the caller's promise.
        New(unsafe { Out::from_raw(raw) }, PhantomData)
    }
}

impl<T> New<'_, T> {
    pub(super) fn set(self, value: T) {
        self.0.set(Box::into_raw(Box::new(Owned { value, _byte: 0 })).cast());
    }
}

/// Struct that the slot reads.
pub(super) struct In<'a, T>(pub(super) &'a T);

impl<T> Arg for In<'_, T> {
    type Raw = *const T;
    unsafe fn from_raw(raw: *const T) -> Self {
        // SAFETY: a struct that does not change during the call.
        In(unsafe { &*raw })
    }
}

/// Struct that the slot fills in, and that has valid values before.
pub(super) struct Fill<'a, T>(pub(super) &'a mut T);

impl<T> Arg for Fill<'_, T> {
    type Raw = *mut T;
    unsafe fn from_raw(raw: *mut T) -> Self {
        // SAFETY: an initialised struct that nothing else accesses during the call.
        Fill(unsafe { &mut *raw })
    }
}

/// Address that is not accessed here.
pub(super) struct Address<T>(pub(super) T);

impl<T> Arg for Address<T> {
    type Raw = T;
    unsafe fn from_raw(raw: T) -> Self {
        Address(raw)
    }
}

/// Text, or NULL.
pub(super) struct Text<'a>(Option<&'a CStr>);

impl Arg for Text<'_> {
    type Raw = *const c_char;
    unsafe fn from_raw(raw: *const c_char) -> Self {
        // SAFETY: a text that ends with NUL and does not change during the call.
        Text((!raw.is_null()).then(|| unsafe { CStr::from_ptr(raw) }))
    }
}

impl<'a> Text<'a> {
    /// Returns the text; `None` for NULL. Fails if it is not UTF-8.
    pub(super) fn get(self, parameter: &str) -> Result<Option<&'a str>> {
        self.0.map(CStr::to_str).transpose().map_err(|_| {
            let text = format!("{parameter} is not UTF-8: names and options have to be");
            Error::new(sys::DTL_ERROR_INVALID_ARGUMENT, text)
        })
    }
}

/// Defines the functions of slots, each generic over a driver that implements a trait.
macro_rules! slots {
    ($(fn $name:ident<$bound:path>($driver:ident $(, $arg:ident: $type:ty)* $(,)?) $body:block)*) => {$(
        unsafe extern "C" fn $name<D: $bound>(
            this: *mut std::ffi::c_void
            $(, $arg: <$type as $crate::driver::slot::Arg>::Raw)*
        ) -> $crate::sys::dtl_status_t {
            // SAFETY: the pointer of the registration, which is valid until `destroy`.
            let $driver = unsafe { &*this.cast::<D>() };
            $(
                // SAFETY: the library passes what the header promises for this slot.
                let $arg = unsafe { <$type as $crate::driver::slot::Arg>::from_raw($arg) };
            )*
            $crate::driver::slot::guarded(stringify!($name), move || $body)
        }
    )*};
}
pub(super) use slots;

/// Returns the slot if the driver has the function for it, otherwise NULL.
pub(super) fn present<F, S>(function: Option<F>, slot: S) -> Option<S> {
    function.map(|_| slot)
}

/// Returns the function of a slot that the table has only if the driver has the function.
pub(super) fn function_of<F>(function: Option<F>) -> Result<F> {
    function.ok_or_else(|| Error::new(sys::DTL_ERROR_NOT_SUPPORTED, "the driver has no such slot"))
}

/// Converts a size of C. All of this address space has fewer bytes than `usize::MAX`.
pub(super) fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Runs the code of a slot. Returns its status; the text of a failure goes to the library.
pub(super) fn guarded(slot: &str, body: impl FnOnce() -> Result) -> sys::dtl_status_t {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => sys::DTL_SUCCESS,
        Ok(Err(error)) => failed(&error),
        Err(panic) => failed(&panic_error(slot, panic)),
    }
}

/// Passes the text of a failure to the library, and returns its status.
#[cold]
pub(super) fn failed(error: &Error) -> sys::dtl_status_t {
    // The text of a failed call of the library is known to it.
    if !error.text.is_empty() {
        host::set_error(&error.message());
    }
    // A failure must not look like a success.
    if error.status == sys::DTL_SUCCESS { sys::DTL_ERROR_BACKEND } else { error.status.0 }
}

/// Returns the error of a function that has panicked.
#[cold]
pub(super) fn panic_error(slot: &str, panic: Box<dyn Any + Send>) -> Error {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text");
    let error = Error::new(sys::DTL_ERROR_BACKEND, format!("panic in {slot}: {text}"));
    // Its destructor is the author's code, too, and may panic again.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(panic)));
    error
}
