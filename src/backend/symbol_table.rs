//! Tables of C functions that are found by name in a library that was loaded: one list is the type
//! of the table, what finds them, and what a test compares with the C header.

use crate::error::Result;
use crate::sys::buf::Addr;
use std::ffi::CStr;

/// A function of the list, as C writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// The types of its parameters, between commas; nothing if it has none.
    pub parameters: &'static str,
    /// The type of its result.
    pub result: &'static str,
    /// Whether a library without it cannot be used.
    pub required: bool,
}

/// A name that ends with a NUL, as C has it.
#[must_use]
pub fn c_name(text: &'static str) -> &'static CStr {
    CStr::from_bytes_until_nul(text.as_bytes()).unwrap_or_default()
}

/// A table that is filled with the functions of a library.
pub trait SymbolTable: Sized + Send + Sync + 'static {
    /// Finds all functions; the error names the first required one that is missing.
    ///
    /// # Safety
    /// `find` returns the functions of one library that keeps the standard, under the names that
    /// they have there, and the library stays loaded.
    unsafe fn resolve(find: &dyn Fn(&CStr) -> Option<Addr>) -> Result<Self>;
}

macro_rules! function_table {
    (
        required { $($name:ident($($type:ident),*) -> $result:ident;)+ }
        optional { $($maybe:ident($($maybe_type:ident),*) -> $maybe_result:ident;)+ }
    ) => {
        /// The functions. Those in `Option` are not in every library.
        #[repr(C)]
        #[derive(Clone, Copy)]
        #[allow(missing_docs, reason = "named and specified by the standard")]
        #[allow(non_snake_case, reason = "the standard's own names, so that nobody has to \
            translate")]
        pub struct Functions {
            $(pub $name: unsafe extern "C" fn($($type),*) -> $result,)+
            $(pub $maybe: Option<unsafe extern "C" fn($($maybe_type),*) -> $maybe_result>,)+
        }

        impl $crate::backend::symbol_table::SymbolTable for Functions {
            unsafe fn resolve(find: &dyn Fn(&std::ffi::CStr) -> Option<$crate::sys::buf::Addr>)
                -> $crate::error::Result<Self> {
                Ok(Functions {
                    $($name: match find($crate::backend::symbol_table::c_name(
                        concat!(stringify!($name), "\0"),
                    )) {
                        // SAFETY: the function of this name has this signature in the standard.
                        Some(at) => unsafe {
                            std::mem::transmute::<*mut std::ffi::c_void,
                                unsafe extern "C" fn($($type),*) -> $result>(at.ptr())
                        },
                        None => return $crate::error::fail!(DTL_ERROR_UNAVAILABLE, "it has no \
                            function {}", stringify!($name)),
                    },)+
                    $($maybe: find($crate::backend::symbol_table::c_name(concat!(stringify!($maybe),
                        "\0"))).map(|at| {
                        // SAFETY: the function of this name has this signature in the standard.
                        unsafe {
                            std::mem::transmute::<*mut std::ffi::c_void,
                                unsafe extern "C" fn($($maybe_type),*) -> $maybe_result>(at.ptr())
                        }
                    }),)+
                })
            }
        }

        /// The list, for the test.
        pub const FUNCTIONS: &[$crate::backend::symbol_table::Function] = &[
            $($crate::backend::symbol_table::Function {
                name: stringify!($name),
                parameters: stringify!($($type),*),
                result: stringify!($result),
                required: true,
            },)+
            $($crate::backend::symbol_table::Function {
                name: stringify!($maybe),
                parameters: stringify!($($maybe_type),*),
                result: stringify!($maybe_result),
                required: false,
            },)+
        ];
    };
}
pub(crate) use function_table;

/// A constant of the library's C header: its name and value.
pub type Constant = (&'static str, i64);

macro_rules! constants {
    ($($name:ident = $value:expr;)+) => {
        $(#[doc = concat!("`", stringify!($name), "`")] pub const $name: i64 = $value;)+

        /// The list, for the test.
        pub const CONSTANTS: &[$crate::backend::symbol_table::Constant] = &[$((stringify!($name),
            $name),)+];
    };
}
pub(crate) use constants;
