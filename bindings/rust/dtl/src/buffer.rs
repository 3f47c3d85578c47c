//! Buffers of messages and collectives: values, arrays, slices, vectors, memory of a backend.

use crate::{Byte, Dtype, Error, Memory, Result};

/// Buffer to read from: a value, an array, a slice or a vector of elements, or [`Memory`] of a
/// backend (as elements of type [`Byte`]).
///
/// # Safety
/// `as_ptr` must return the address of `count` elements that stay valid, and are changed by nobody,
/// while the buffer is borrowed.
pub unsafe trait Buffer {
    /// Type of the elements.
    type Element: Dtype;

    /// Returns the address of the first element.
    fn as_ptr(&self) -> *const Self::Element;

    /// Returns the number of elements.
    fn count(&self) -> usize;
}

/// Buffer to write to.
///
/// # Safety
/// `as_mut_ptr` must return the address of `count` elements that stay valid, and are accessed by
/// nobody else, while the buffer is borrowed exclusively.
pub unsafe trait BufferMut: Buffer {
    /// Returns the address of the first element.
    fn as_mut_ptr(&mut self) -> *mut Self::Element;
}

// SAFETY: one element.
unsafe impl<T: Dtype> Buffer for T {
    type Element = T;

    #[inline]
    fn as_ptr(&self) -> *const T {
        self
    }

    #[inline]
    fn count(&self) -> usize {
        1
    }
}

// SAFETY: one element, borrowed exclusively.
unsafe impl<T: Dtype> BufferMut for T {
    #[inline]
    fn as_mut_ptr(&mut self) -> *mut T {
        self
    }
}

macro_rules! sequences {
    ($([$($generic:tt)*] $sequence:ty),+ $(,)?) => {$(
        // SAFETY: the elements of the sequence, which owns or borrows them.
        unsafe impl<T: Dtype, $($generic)*> Buffer for $sequence {
            type Element = T;

            #[inline]
            fn as_ptr(&self) -> *const T {
                <[T]>::as_ptr(self)
            }

            #[inline]
            fn count(&self) -> usize {
                self.len()
            }
        }

        // SAFETY: the elements of the sequence, which is borrowed exclusively.
        unsafe impl<T: Dtype, $($generic)*> BufferMut for $sequence {
            #[inline]
            fn as_mut_ptr(&mut self) -> *mut T {
                <[T]>::as_mut_ptr(self)
            }
        }
    )+};
}
sequences! { [] [T], [const N: usize] [T; N], [] Vec<T>, [] Box<[T]> }

// SAFETY: the bytes of the allocation. Whatever else accesses them was started by an unsafe
// function.
unsafe impl Buffer for Memory {
    type Element = Byte;

    fn as_ptr(&self) -> *const Byte {
        Memory::as_ptr(self).cast()
    }

    fn count(&self) -> usize {
        self.size()
    }
}

// SAFETY: the bytes of the allocation, borrowed exclusively.
unsafe impl BufferMut for Memory {
    fn as_mut_ptr(&mut self) -> *mut Byte {
        Memory::as_ptr(self).cast()
    }
}

/// Fails if a buffer has fewer elements than a call accesses.
#[inline]
pub(crate) fn room(call: &'static str, parameter: &str, has: usize, needs: usize) -> Result {
    if has < needs { Err(lacks(call, parameter, has, needs)) } else { Ok(()) }
}

#[cold]
fn lacks(call: &'static str, parameter: &str, has: usize, needs: usize) -> Error {
    let text = format!(
        "{parameter} has {has} elements, and the call needs {needs}. Pass a buffer that is large \
         enough."
    );
    Error::out_of_bounds(call, text)
}
