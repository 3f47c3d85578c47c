//! Tables of C functions that are found by name in a library that was loaded: one list of names is
//! the type of the table and finds them.

use crate::error::Result;
use crate::sys::memory::buf::Addr;
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
    // Functions whose types `sys` has, which is generated.
    (
        sys;
        required { $($name:ident)+ }
        optional { $($maybe:ident)* }
    ) => {
        $crate::backend::symbol_table::function_table! {
            types;
            $($name: sys::$name,)+;
            $($maybe: sys::$maybe,)*
        }
    };
    // Functions with their signatures, which a test compares with the header.
    (
        required { $($name:ident($($type:ident),*) -> $result:ident;)+ }
        optional { $($maybe:ident($($maybe_type:ident),*) -> $maybe_result:ident;)+ }
    ) => {
        $crate::backend::symbol_table::function_table! {
            types;
            $($name: unsafe extern "C" fn($($type),*) -> $result,)+;
            $($maybe: unsafe extern "C" fn($($maybe_type),*) -> $maybe_result,)+
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
    (
        types;
        $($name:ident: $type:ty,)+;
        $($maybe:ident: $maybe_type:ty,)*
    ) => {
        /// The functions. Those in `Option` are not in every library.
        #[repr(C)]
        #[derive(Clone, Copy)]
        #[allow(missing_docs, reason = "named and specified by the standard")]
        #[allow(non_snake_case, reason = "the standard's own names, so that nobody has to \
            translate")]
        pub struct Functions {
            $(pub $name: $type,)+
            $(pub $maybe: Option<$maybe_type>,)*
        }

        impl $crate::backend::symbol_table::SymbolTable for Functions {
            unsafe fn resolve(
                find: &dyn Fn(&std::ffi::CStr) -> Option<$crate::sys::memory::buf::Addr>,
            )
                -> $crate::error::Result<Self> {
                Ok(Functions {
                    $($name: match find($crate::backend::symbol_table::c_name(concat!(
                        stringify!($name), "\0"))) {
                        // SAFETY: the function of this name has this signature in the standard.
                        Some(at) => unsafe {
                            std::mem::transmute::<*mut std::ffi::c_void, $type>(at.ptr())
                        },
                        None => return $crate::error::fail!(DTL_ERROR_UNAVAILABLE, "it has no \
                            function {}", stringify!($name)),
                    },)+
                    $($maybe: find($crate::backend::symbol_table::c_name(concat!(
                        stringify!($maybe), "\0"))).map(|at| {
                        // SAFETY: the function of this name has this signature in the standard.
                        unsafe {
                            std::mem::transmute::<*mut std::ffi::c_void, $maybe_type>(at.ptr())
                        }
                    }),)*
                })
            }
        }
    };
}
pub(crate) use function_table;

macro_rules! constant_names {
    ($($name:ident)+) => { &[$(($name, stringify!($name)),)+] };
}
pub(crate) use constant_names;
