//! Constants of the loaded MPI: handles and numbers that can be passed to MPI. They are resolved
//! once.
//!
//! `abi` has the values of each ABI.

use super::abi::{self, Abi, Int, Pointer, ValueSource};
use super::functions::Handle;
use crate::abi::word::{dtl_dtype_t, dtl_reduce_op_t};
use crate::error::{Result, failure};
use crate::sys::memory::buf::Addr;
use std::ffi::{CStr, CString, c_int, c_void};

/// Capacity of the table of built-in dtypes and of the table of built-in operations.
const NUMBERS: usize = 32;

/// Constants of the loaded MPI library.
#[repr(C)]
pub struct Constants {
    /// MPI_BYTE.
    pub byte: Handle,
    /// MPI_REQUEST_NULL.
    pub request_null: Handle,
    /// MPI_ANY_SOURCE.
    pub any_source: c_int,
    /// MPI_ANY_TAG.
    pub any_tag: c_int,
    /// MPI_COMM_WORLD.
    pub comm_world: Handle,
    /// MPI_COMM_SELF.
    pub comm_self: Handle,
    /// MPI_COMM_NULL.
    pub comm_null: Handle,
    /// MPI_INFO_NULL.
    pub info_null: Handle,
    /// MPI_INT.
    pub int: Handle,
    /// MPI_ERRORS_RETURN. The value differs in an MPI library that implements a draft of the
    /// standard ABI.
    pub errors_return: Handle,
    /// MPI_IN_PLACE.
    pub in_place: Addr,
    /// MPI_STATUS_IGNORE.
    pub status_ignore: Addr,
    datatypes: [Option<Handle>; NUMBERS],
    ops: [Option<Handle>; NUMBERS],
}

/// Function that returns the address of a data or function symbol of the MPI library.
pub type Find<'a> = &'a dyn Fn(&CStr) -> Option<Addr>;

impl Constants {
    /// Resolves all constants; the error names the first missing symbol.
    pub fn resolve(abi: &Abi, find: Find<'_>) -> Result<Self> {
        let handle = |name: abi::Handle| place(abi.handle(name), find);
        let pointer = |name: Pointer| place(abi.pointer(name), find).map(address);
        Ok(Constants {
            comm_world: handle(abi::Handle::CommWorld)?,
            comm_self: handle(abi::Handle::CommSelf)?,
            comm_null: handle(abi::Handle::CommNull)?,
            request_null: handle(abi::Handle::RequestNull)?,
            info_null: handle(abi::Handle::InfoNull)?,
            byte: handle(abi::Handle::Byte)?,
            int: handle(abi::Handle::Int)?,
            any_source: abi.int(Int::AnySource),
            any_tag: abi.int(Int::AnyTag),
            errors_return: handle(abi::Handle::ErrorsReturn)?,
            in_place: pointer(Pointer::InPlace)?,
            status_ignore: pointer(Pointer::StatusIgnore)?,
            datatypes: table(|number| abi::datatype(number).map(handle))?,
            ops: table(|number| abi::operation(number).map(handle))?,
        })
    }

    /// Returns the MPI datatype with the layout and meaning of a built-in dtype; `None` if MPI has
    /// no such datatype.
    pub fn datatype(&self, dtype: dtl_dtype_t) -> Option<Handle> {
        *self.datatypes.get(usize::try_from(dtype).ok()?)?
    }

    /// Returns the MPI operation that corresponds to a built-in operation; `None` if MPI has no
    /// such operation.
    pub fn op(&self, op: dtl_reduce_op_t) -> Option<Handle> {
        *self.ops.get(usize::try_from(op).ok()?)?
    }
}

fn table(entry: impl Fn(i32) -> Option<Result<Handle>>) -> Result<[Option<Handle>; NUMBERS]> {
    let mut table = [None; NUMBERS];
    for (number, place) in (0..).zip(&mut table) {
        *place = entry(number).transpose()?;
    }
    Ok(table)
}

fn address(value: u64) -> Addr {
    // The values are small numbers, not addresses of objects, so they have no provenance.
    Addr::new(std::ptr::without_provenance_mut::<c_void>(usize::try_from(value).unwrap_or(0)))
}

fn place(place: ValueSource, find: Find<'_>) -> Result<u64> {
    match place {
        ValueSource::Value(value) => Ok(value),
        ValueSource::Address(symbol) => CString::new(symbol)
            .ok()
            .and_then(|name| find(&name))
            .map(|at| at.get() as u64)
            .ok_or_else(|| failure!(DTL_ERROR_UNAVAILABLE, "it has no symbol {symbol}")),
    }
}
