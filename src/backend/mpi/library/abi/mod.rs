//! What differs between MPI's binary interfaces: the values behind MPI's names, and the layout of
//! its types. Plain data; nothing here calls MPI or opens a library.
//!
//! One list per kind of name, a row per name, a column per interface: [`Handle`] and [`Pointer`] in
//! handles.rs, [`Int`] in ints.rs. `tests/mpi_constants.rs` makes a C program of the same lists and
//! has every mpicc it finds prove each row against its own mpi.h.
//!
//! Valid where pointers and `long` are 64 bits (x86-64, aarch64). What is the same in all three is
//! not here: `int` has 32 bits, `MPI_Aint`, `MPI_Count` and `MPI_Offset` 64, `MPI_Fint` 32,
//! `MPI_SUCCESS` is 0. Nor are the functions: their list is `functions`.
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

/// A binary interface that MPI libraries share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Open MPI 4 and 5: handles are addresses of objects in the library.
    OpenMpi,
    /// MPICH 3.1 to 5, Intel MPI, MVAPICH, Cray: handles are 32-bit numbers.
    Mpich,
    /// The standard ABI of MPI 5 (libmpi_abi): small numbers in 64-bit handles.
    Standard,
}

/// Where the value of a name comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueSource {
    /// This value, in the low 32 bits where handles have 4 bytes.
    Value(u64),
    /// The address of this data symbol. In a program linked with the library it can lie in the
    /// executable, so it is to be looked up in the whole process.
    Address(&'static str),
}

/// Layout of an interface, in bytes. Every kind of handle (communicator, datatype, request, ...)
/// has the same size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abi {
    /// Which one.
    pub family: Family,
    /// What people call it.
    pub name: &'static str,
    /// Size of a handle. An array of requests has them this far apart.
    pub handle_size: usize,
    /// Size of `MPI_Status`.
    pub status_size: usize,
    /// Offset of `MPI_SOURCE` in it.
    pub status_source: usize,
    /// Offset of `MPI_TAG` in it.
    pub status_tag: usize,
}

/// Open MPI 4 and 5.
pub const OPENMPI: Abi = Abi {
    family: Family::OpenMpi,
    name: "Open MPI",
    handle_size: 8,
    status_size: 24,
    status_source: 0,
    status_tag: 4,
};

/// MPICH and what descends from it.
pub const MPICH: Abi = Abi {
    family: Family::Mpich,
    name: "MPICH",
    handle_size: 4,
    status_size: 20,
    status_source: 8,
    status_tag: 12,
};

/// The standard ABI.
pub const STANDARD: Abi = Abi {
    family: Family::Standard,
    name: "MPI standard ABI",
    handle_size: 8,
    status_size: 32,
    status_source: 0,
    status_tag: 4,
};

/// Room for the status of any interface.
pub use crate::sys::compute::foreign_test::STATUS_ROOM;

impl Abi {
    /// The value of a predefined handle.
    #[must_use]
    pub const fn handle(&self, name: Handle) -> ValueSource {
        name.place(self.family)
    }

    /// The value of a pointer constant.
    #[must_use]
    pub const fn pointer(&self, name: Pointer) -> ValueSource {
        name.place(self.family)
    }

    /// The value of an integer constant; [`ABSENT`] if the interface has no such name.
    #[must_use]
    pub const fn int(&self, name: Int) -> i32 {
        name.value(self.family)
    }
}

/// Makes an enumeration of MPI's names from rows
/// `Variant MPI_NAME: Open MPI, MPICH family, standard ABI;`.
macro_rules! names {
    ($(#[$doc:meta])* $enumeration:ident, $method:ident -> $value:ty,
     $($variant:ident $mpi:ident: $openmpi:expr, $mpich:expr, $standard:expr;)+) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $enumeration {
            $(#[doc = concat!("`", stringify!($mpi), "`")] $variant),+
        }

        impl $enumeration {
            /// Every name, in the order of the list.
            pub const ALL: &'static [$enumeration] = &[$($enumeration::$variant),+];

            /// MPI's own name.
            #[must_use]
            pub const fn mpi(self) -> &'static str {
                match self { $(Self::$variant => stringify!($mpi)),+ }
            }

            /// What stands behind it in this interface.
            #[must_use]
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
