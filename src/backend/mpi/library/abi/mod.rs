//! Differences between the binary interfaces (ABIs) of MPI libraries: the values of MPI's
//! constants, and the layout of MPI's types. This module is plain data; it neither calls MPI nor
//! opens a library.
//!
//! There is one list per kind of constant, with a row per constant and a column per ABI: [`Handle`]
//! and [`Pointer`] in handles.rs, [`Int`] in ints.rs. `tests/mpi_constants.rs` generates a C
//! program from these lists and has every mpicc that it finds check each row against its own mpi.h.
//!
//! The lists are valid where pointers and `long` are 64 bits (x86-64, aarch64). Values that are
//! equal in all three ABIs (Open MPI, MPICH, MPI 5 standard) are not listed: `int` has 32 bits,
//! `MPI_Aint`, `MPI_Count` and `MPI_Offset` have 64 bits, `MPI_Fint` has 32 bits, and `MPI_SUCCESS`
//! is 0. The functions are listed in `functions`.
//!
//! In reading order:
//! - `handles`: handles and pointers
//! - `ints`: integer constants
//! - `dtypes`: datatypes

mod dtypes;
mod handles;
mod ints;

pub use dtypes::{datatype, operation};
pub use handles::{DRAFT_ERRORS_RETURN, Handle, Pointer};
pub use ints::{ABSENT, Int};

/// ABI that several MPI libraries share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Open MPI 4 and 5: handles are addresses of objects in the library.
    OpenMpi,
    /// MPICH 3.1 to 5, Intel MPI, MVAPICH, Cray MPICH: handles are 32-bit numbers.
    Mpich,
    /// The standard ABI of MPI 5 (libmpi_abi): small numbers in 64-bit handles.
    Standard,
}

/// Source of the value of a handle or pointer constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueSource {
    /// Constant value, in the low 32 bits if handles have 4 bytes.
    Value(u64),
    /// Address of this data symbol. In a program linked with the library the symbol can be in the
    /// executable, so it must be looked up in the whole process.
    Address(&'static str),
}

/// Layout of the types of one MPI binary interface (ABI), in bytes. Handles of all kinds have the
/// same size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abi {
    /// Family of the interface.
    pub family: Family,
    /// Common name of the interface.
    pub name: &'static str,
    /// Size of a handle, which is also the stride of an array of requests.
    pub handle_size: usize,
    /// Size of `MPI_Status`.
    pub status_size: usize,
    /// Offset of `MPI_SOURCE` in `MPI_Status`.
    pub status_source: usize,
    /// Offset of `MPI_TAG` in `MPI_Status`.
    pub status_tag: usize,
}

/// Layout of Open MPI 4 and 5.
pub const OPENMPI: Abi = Abi {
    family: Family::OpenMpi,
    name: "Open MPI",
    handle_size: 8,
    status_size: 24,
    status_source: 0,
    status_tag: 4,
};

/// Layout of MPICH and its derivatives.
pub const MPICH: Abi = Abi {
    family: Family::Mpich,
    name: "MPICH",
    handle_size: 4,
    status_size: 20,
    status_source: 8,
    status_tag: 12,
};

/// Layout of the standard ABI.
pub const STANDARD: Abi = Abi {
    family: Family::Standard,
    name: "MPI standard ABI",
    handle_size: 8,
    status_size: 32,
    status_source: 0,
    status_tag: 4,
};

/// Size, in bytes, of a buffer for an `MPI_Status` of any ABI.
pub use crate::sys::compute::callback::STATUS_ROOM;

impl Abi {
    /// Returns the value of a predefined handle.
    pub const fn handle(&self, name: Handle) -> ValueSource {
        name.place(self.family)
    }

    /// Returns the value of a pointer constant.
    pub const fn pointer(&self, name: Pointer) -> ValueSource {
        name.place(self.family)
    }

    /// Returns the value of an integer constant, or [`ABSENT`] if the ABI lacks it.
    pub const fn int(&self, name: Int) -> i32 {
        name.value(self.family)
    }

    /// Returns an array of two handles in the memory layout of the ABI.
    pub fn pair(&self, first: u64, second: u64) -> [u64; 2] {
        if self.handle_size == size_of::<u64>() {
            [first, second]
        } else {
            [first | second << 32, 0]
        }
    }
}

/// Defines an enumeration of MPI's names from rows `Variant MPI_NAME: Open MPI, MPICH family,
/// standard ABI;`.
macro_rules! names {
    ($(#[$doc:meta])* $enumeration:ident, $method:ident -> $value:ty,
     $($variant:ident $mpi:ident: $openmpi:expr, $mpich:expr, $standard:expr;)+) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $enumeration {
            $(#[doc = concat!("`", stringify!($mpi), "`")] $variant),+
        }

        impl $enumeration {
            /// All variants, in the order of the rows.
            pub const ALL: &'static [$enumeration] = &[$($enumeration::$variant),+];

            /// Returns MPI's own name for the constant.
            pub const fn mpi(self) -> &'static str {
                match self { $(Self::$variant => stringify!($mpi)),+ }
            }

            /// Returns the value of the constant in the ABI `family`.
            pub const fn $method(
                self,
                family: $crate::backend::mpi::library::abi::Family,
            ) -> $value {
                let (openmpi, mpich, standard) = match self {
                    $(Self::$variant => ($openmpi, $mpich, $standard)),+
                };
                match family {
                    $crate::backend::mpi::library::abi::Family::OpenMpi => openmpi,
                    $crate::backend::mpi::library::abi::Family::Mpich => mpich,
                    $crate::backend::mpi::library::abi::Family::Standard => standard,
                }
            }
        }
    };
}
use names;
