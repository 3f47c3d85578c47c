//! Tables of C functions, resolved by name in a loaded library. One list of names both defines the
//! table's type and resolves its functions.

use crate::error::Result;
use crate::sys::memory::buf::Addr;
use std::ffi::CStr;

/// C signature of a function in a symbol table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function {
    /// Symbol name of the function.
    pub name: &'static str,
    /// Parameter types, separated by commas; empty if the function has no parameters.
    pub parameters: &'static str,
    /// Result type.
    pub result: &'static str,
    /// True if loading fails when the library lacks this function.
    pub required: bool,
}

/// Converts a NUL-terminated string to a `CStr`; returns an empty `CStr` if the string contains no
/// NUL.
pub fn c_name(text: &'static str) -> &'static CStr {
    CStr::from_bytes_until_nul(text.as_bytes()).unwrap_or_default()
}

/// Table of C functions that are resolved by name in a loaded library.
pub trait SymbolTable: Sized + Send + Sync + 'static {
    /// Resolves all functions; fails with the name of the first required function that is missing.
    ///
    /// # Safety
    /// `find` must return only functions of one library and must find each function by its standard
    /// name. The library must conform to the standard that specifies these functions, and it must
    /// stay loaded.
    unsafe fn resolve(find: &dyn Fn(&CStr) -> Option<Addr>) -> Result<Self>;
}

macro_rules! function_table {
    // Functions whose types are in the generated `sys` module.
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
        required { $($name:ident($($type:ty),*) -> $result:ty;)+ }
        optional { $($maybe:ident($($maybe_type:ty),*) -> $maybe_result:ty;)+ }
    ) => {
        $crate::backend::symbol_table::function_table! {
            types;
            $($name: unsafe extern "C" fn($($type),*) -> $result,)+;
            $($maybe: unsafe extern "C" fn($($maybe_type),*) -> $maybe_result,)+
        }

        /// Signatures of the functions, for the test that compares them with the library's header
        /// file.
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
        /// Function pointers of a loaded library. An optional function that the library lacks is
        /// `None`.
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
                        // SAFETY: the standard defines the function of this name with this
                        // signature.
                        Some(at) => unsafe {
                            std::mem::transmute::<*mut std::ffi::c_void, $type>(at.ptr())
                        },
                        None => return $crate::error::fail!(DTL_ERROR_UNAVAILABLE, "it has no \
                            function {}", stringify!($name)),
                    },)+
                    $($maybe: find($crate::backend::symbol_table::c_name(concat!(
                        stringify!($maybe), "\0"))).map(|at| {
                        // SAFETY: the standard defines the function of this name with this
                        // signature.
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
