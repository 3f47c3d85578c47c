//! Constants of the loaded MPI: handles and numbers, resolved once, that can be passed to MPI.
//!
//! `abi` has the values of each binary interface.

use super::abi::{self, Abi, Int, Pointer, ValueSource};
use super::functions::Handle;
use crate::abi::word::{dtl_dtype_t, dtl_reduce_op_t};
use crate::error::{Result, fail};
use crate::sys::memory::buf::Addr;
use std::ffi::{CStr, CString, c_int, c_void};

/// Number of built-in dtypes, and of built-in operations, that the tables have room for.
const NUMBERS: usize = 32;

/// Constants of the loaded MPI.
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
    /// Offset of MPI_SOURCE in a status, in bytes.
    pub status_source: usize,
    /// Offset of MPI_TAG in a status, in bytes.
    pub status_tag: usize,
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
    /// MPI_COMM_TYPE_SHARED.
    pub comm_type_shared: c_int,
    /// MPI_TAG_UB, key of the attribute.
    pub tag_ub: c_int,
    /// MPI_LASTUSEDCODE, key of the attribute.
    pub lastusedcode: c_int,
    /// MPI_ERR_LASTCODE.
    pub err_lastcode: c_int,
    /// MPI_ERRORS_RETURN, see `Mpi::make_quiet`.
    pub errors_return: Handle,
    /// MPI_IN_PLACE.
    pub in_place: Addr,
    /// MPI_STATUS_IGNORE.
    pub status_ignore: Addr,
    /// MPI_THREAD_FUNNELED.
    pub thread_funneled: c_int,
    /// MPI_THREAD_SERIALIZED.
    pub thread_serialized: c_int,
    /// MPI_THREAD_MULTIPLE.
    pub thread_multiple: c_int,
    /// MPI_ERR_TRUNCATE.
    pub err_truncate: c_int,
    /// MPI_ERR_NO_MEM.
    pub err_no_mem: c_int,
    /// MPIX_ERR_PROC_FAILED; [`abi::ABSENT`] if the interface lacks it.
    pub err_proc_failed: c_int,
    /// MPIX_ERR_PROC_FAILED_PENDING; [`abi::ABSENT`] if the interface lacks it.
    pub err_proc_failed_pending: c_int,
    /// MPI_WIN_MODEL, key of the attribute.
    pub win_model: c_int,
    /// MPI_WIN_UNIFIED.
    pub win_unified: c_int,
    /// MPI_MODE_NOCHECK.
    pub mode_nocheck: c_int,
    /// Size of a handle in memory, in bytes.
    pub handle_size: usize,
    datatypes: [Option<Handle>; NUMBERS],
    ops: [Option<Handle>; NUMBERS],
}

/// Function that finds a data or function symbol of the library.
pub type Find<'a> = &'a dyn Fn(&CStr) -> Option<Addr>;

impl Constants {
    /// Resolves all constants; the error names the first missing symbol.
    pub fn resolve(abi: &Abi, find: Find<'_>) -> Result<Self> {
        let handle = |name: abi::Handle| place(abi.handle(name), find);
        let pointer = |name: Pointer| place(abi.pointer(name), find).map(address);
        let int = |name: Int| abi.int(name);
        Ok(Constants {
            comm_world: handle(abi::Handle::CommWorld)?,
            comm_self: handle(abi::Handle::CommSelf)?,
            comm_null: handle(abi::Handle::CommNull)?,
            request_null: handle(abi::Handle::RequestNull)?,
            info_null: handle(abi::Handle::InfoNull)?,
            byte: handle(abi::Handle::Byte)?,
            int: handle(abi::Handle::Int)?,
            any_source: int(Int::AnySource),
            any_tag: int(Int::AnyTag),
            comm_type_shared: int(Int::CommTypeShared),
            tag_ub: int(Int::TagUb),
            lastusedcode: int(Int::Lastusedcode),
            err_lastcode: int(Int::ErrLastcode),
            errors_return: handle(abi::Handle::ErrorsReturn)?,
            in_place: pointer(Pointer::InPlace)?,
            status_ignore: pointer(Pointer::StatusIgnore)?,
            thread_funneled: int(Int::ThreadFunneled),
            thread_serialized: int(Int::ThreadSerialized),
            thread_multiple: int(Int::ThreadMultiple),
            err_truncate: int(Int::ErrTruncate),
            err_no_mem: int(Int::ErrNoMem),
            err_proc_failed: int(Int::ErrProcFailed),
            err_proc_failed_pending: int(Int::ErrProcFailedPending),
            win_model: int(Int::WinModel),
            win_unified: int(Int::WinUnified),
            mode_nocheck: int(Int::ModeNocheck),
            status_source: abi.status_source,
            status_tag: abi.status_tag,
            handle_size: abi.handle_size,
            datatypes: table(&|number| abi::datatype(number).map(handle))?,
            ops: table(&|number| abi::operation(number).map(handle))?,
        })
    }

    /// Returns an array of two handles in the memory layout of the interface.
    pub fn pair(&self, first: Handle, second: Handle) -> [Handle; 2] {
        if self.handle_size == size_of::<Handle>() {
            [first, second]
        } else {
            [first | second << 32, 0]
        }
    }

    /// Returns MPI's datatype of a built-in dtype's layout and meaning; `None` if MPI has none.
    pub fn datatype(&self, dtype: dtl_dtype_t) -> Option<Handle> {
        *self.datatypes.get(usize::try_from(dtype).ok()?)?
    }

    /// Returns MPI's operation for a built-in operation; returns `None` if MPI has none.
    pub fn op(&self, op: dtl_reduce_op_t) -> Option<Handle> {
        *self.ops.get(usize::try_from(op).ok()?)?
    }
}

type Entry<'a> = &'a dyn Fn(i32) -> Option<Result<Handle>>;

fn table(entry: Entry<'_>) -> Result<[Option<Handle>; NUMBERS]> {
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
        ValueSource::Address(symbol) => Ok(symbol_of(symbol, find)?.get() as u64),
    }
}

fn symbol_of(symbol: &str, find: Find<'_>) -> Result<Addr> {
    match CString::new(symbol).ok().and_then(|name| find(&name)) {
        Some(address) => Ok(address),
        None => fail!(DTL_ERROR_UNAVAILABLE, "it has no symbol {symbol}"),
    }
}
