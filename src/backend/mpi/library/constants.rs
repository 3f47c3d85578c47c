//! The constants of the loaded MPI, resolved once: handles and numbers ready to be passed.
//!
//! Not here: their values in each binary interface (`abi`).

use super::abi::{self, Abi, Int, Pointer, ValueSource};
use super::functions::Handle;
use crate::abi::word::{dtl_dtype_t, dtl_reduce_op_t};
use crate::error::{Result, fail};
use crate::sys::memory::buf::Addr;
use std::ffi::{CStr, CString, c_int, c_void};

/// Numbers of dtypes and operations that a table is kept for.
const NUMBERS: usize = 32;

/// The constants.
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
    /// Where MPI_SOURCE is in a status.
    pub status_source: usize,
    /// Where MPI_TAG is in a status.
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
    /// MPI_TAG_UB, the attribute's key.
    pub tag_ub: c_int,
    /// MPI_LASTUSEDCODE, the attribute's key.
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
    /// MPIX_ERR_PROC_FAILED; [`abi::ABSENT`] where there is none.
    pub err_proc_failed: c_int,
    /// MPIX_ERR_PROC_FAILED_PENDING; [`abi::ABSENT`] where there is none.
    pub err_proc_failed_pending: c_int,
    /// MPI_WIN_MODEL, the attribute's key.
    pub win_model: c_int,
    /// MPI_WIN_UNIFIED.
    pub win_unified: c_int,
    /// MPI_MODE_NOCHECK.
    pub mode_nocheck: c_int,
    /// Size of a handle in memory.
    pub handle_size: usize,
    datatypes: [Option<Handle>; NUMBERS],
    ops: [Option<Handle>; NUMBERS],
}

/// Finds a symbol of the library, data or function.
pub type Find<'a> = &'a dyn Fn(&CStr) -> Option<Addr>;

impl Constants {
    /// Resolves them; the first symbol that is missing is named.
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

    /// An array of two handles as it lies in memory.
    #[must_use]
    pub fn pair(&self, first: Handle, second: Handle) -> [Handle; 2] {
        if self.handle_size == size_of::<Handle>() {
            [first, second]
        } else {
            [first | second << 32, 0]
        }
    }

    /// MPI's datatype for a built-in dtype; `None`: it has none of the same layout and meaning.
    #[inline]
    #[must_use]
    pub fn datatype(&self, dtype: dtl_dtype_t) -> Option<Handle> {
        *self.datatypes.get(usize::try_from(dtype).ok()?)?
    }

    /// MPI's operation for a built-in one; `None`: it has none.
    #[inline]
    #[must_use]
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
    // Small numbers, not addresses of anything: no provenance to keep.
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
