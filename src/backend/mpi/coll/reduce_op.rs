//! Reductions that MPI executes: with MPI's own operation if its results are those that `dtl.h`
//! promises, otherwise with a user-defined MPI operation (MPI_Op_create) that calls the library's
//! implementation.
//!
//! MPI passes the datatype, but not the operation, to the callback of a user-defined operation. So
//! each pair of dtype and operation has an MPI datatype of its own. One callback serves all pairs,
//! and determines the pair from this datatype.

use crate::abi::word::*;
use crate::backend::mpi::library::functions::Handle;
use crate::backend::mpi::library::mpi_library::{Mpi, checked};
use crate::backend::mpi::message;
use crate::error::Result;
use crate::runtime::component::Reductions;
use crate::runtime::types::Reduction;
use crate::sys::handles::epoch;
use crate::sys::memory::buf::Region;
use crate::sys::sync::lock::RwLock;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

/// Pair of dtype and operation, with the MPI datatype created for it. Pairs are kept until MPI is
/// finalized. They stay valid, because the numbers of dtypes and operations are not reused.
struct PairDatatype {
    datatype: Handle,
    by: Reduction,
}

static OWN: RwLock<Vec<PairDatatype>> = RwLock::new(Vec::new());
/// User-defined MPI operations that call `fold`: the noncommutative one at index 0, the commutative
/// one at index 1.
static OPERATIONS: RwLock<[Option<Handle>; 2]> = RwLock::new([None; 2]);

/// Returns MPI's datatype and operation for a reduction. Requires an `MpiGuard`.
pub(crate) fn pair(mpi: &Mpi, by: &Reduction) -> Result<(Handle, Handle)> {
    if let Some(pair) = mpis_own(mpi).get(by.dtype, by.op) {
        return Ok(pair);
    }
    let known = datatype_in(&OWN.read(), by);
    let datatype = match known {
        Some(datatype) => datatype,
        None => make_datatype(mpi, by)?,
    };
    Ok((datatype, operation(mpi, by.commutes)?))
}

/// Returns the reductions for which MPI's predefined operation produces the same results as the
/// library.
pub(crate) fn mpis_own(mpi: &Mpi) -> &'static Reductions {
    static NAMED: OnceLock<Reductions> = OnceLock::new();
    NAMED.get_or_init(|| {
        Reductions::named(|dtype, op| {
            is_same(dtype, op).then_some(())?;
            Some((mpi.k.datatype(dtype)?, mpi.k.op(op)?))
        })
    })
}

/// Returns true if MPI's predefined operation for `op` gives the same results on `dtype` as the
/// library's operation `op`, also for NaN and BOOL. Open MPI 4 and 5 saturate sums of 8-bit and
/// 16-bit integers (component op/avx). MPICH 4.0 interprets the highest bit of unsigned integers as
/// a sign in MIN and MAX.
fn is_same(dtype: dtl_dtype_t, op: dtl_reduce_op_t) -> bool {
    match dtype {
        DTL_DTYPE_INT8 | DTL_DTYPE_INT16 | DTL_DTYPE_UINT8 | DTL_DTYPE_UINT16
            if op == DTL_OP_SUM =>
        {
            false
        }
        DTL_DTYPE_UINT8..=DTL_DTYPE_UINT64 if [DTL_OP_MIN, DTL_OP_MAX].contains(&op) => false,
        DTL_DTYPE_INT8..=DTL_DTYPE_UINT64 => (DTL_OP_SUM..=DTL_OP_BXOR).contains(&op),
        DTL_DTYPE_FLOAT32 | DTL_DTYPE_FLOAT64 => [DTL_OP_SUM, DTL_OP_PROD].contains(&op),
        DTL_DTYPE_COMPLEX64 | DTL_DTYPE_COMPLEX128 => op == DTL_OP_SUM,
        DTL_DTYPE_BYTE => [DTL_OP_BAND, DTL_OP_BOR, DTL_OP_BXOR].contains(&op),
        _ => false,
    }
}

fn datatype_in(list: &[PairDatatype], by: &Reduction) -> Option<Handle> {
    let own = list.iter().find(|own| (own.by.dtype, own.by.op) == (by.dtype, by.op));
    own.map(|own| own.datatype)
}

fn make_datatype(mpi: &Mpi, by: &Reduction) -> Result<Handle> {
    let mut own = OWN.write();
    if let Some(datatype) = datatype_in(&own, by) {
        return Ok(datatype);
    }
    let datatype = message::make_unit(mpi, c_int::try_from(by.element).unwrap_or(c_int::MAX))?;
    own.push(PairDatatype { datatype, by: *by });
    Ok(datatype)
}

fn operation(mpi: &Mpi, commutes: bool) -> Result<Handle> {
    let slot = usize::from(commutes);
    if let Some(operation) = OPERATIONS.read().get(slot).copied().flatten() {
        return Ok(operation);
    }
    let mut all = OPERATIONS.write();
    let mut operation: Handle = 0;
    // SAFETY: MPI is initialized; the function is part of the library, which is never unloaded.
    unsafe { checked!(mpi, MPI_Op_create(fold, c_int::from(commutes), &raw mut operation)) }?;
    if let Some(slot) = all.get_mut(slot) {
        *slot = Some(operation);
    }
    Ok(operation)
}

impl Mpi {
    /// Frees the MPI datatypes and operations that were created for reductions. Called at the
    /// beginning of MPI_Finalize.
    pub(crate) fn free_reductions(&self) {
        let _aside = epoch::aside(); // inside MPI_Finalize, which the program may have called
        for own in OWN.write().drain(..) {
            // MPI_Finalize releases every datatype that MPI does not free now.
            let _ = message::free(self, own.datatype);
        }
        for slot in &mut *OPERATIONS.write() {
            if let Some(mut operation) = slot.take() {
                // SAFETY: `operation` created this operation, which is freed once.
                unsafe { (self.call.MPI_Op_free)(&raw mut operation) };
            }
        }
    }
}

/// User function of the MPI operation (MPI_User_function): `right = left op right` for `count`
/// elements.
unsafe extern "C" fn fold(
    left: *mut c_void,
    right: *mut c_void,
    count: *const c_int,
    datatype: *const Handle,
) {
    // SAFETY: MPI passes the number of elements by address.
    let count = unsafe { count.read() };
    // SAFETY: MPI passes the address of a handle of at least 4 bytes; `is_whole` reads all of 8.
    let low = unsafe { datatype.cast::<u32>().read() };
    let found = {
        let _aside = epoch::aside(); // MPI may call it in an MPI call of the program
        let own = OWN.read();
        own.iter()
            .find(|own| own.datatype as u32 == low && is_whole(own.datatype, datatype))
            .map(|own| own.by)
    };
    let (Some(by), Ok(count)) = (found, usize::try_from(count)) else { return };
    // SAFETY: by MPI's contract both addresses have `count` elements of `datatype` in this call.
    let left = unsafe { Region::new(left, count * by.element) };
    // SAFETY: by MPI's contract both addresses have `count` elements of `datatype` in this call.
    let right = unsafe { Region::new(right, count * by.element) };
    by.apply_to_right(left, right);
}

/// Returns true if the handle at `datatype` has the same upper half as `known`, or if handles have
/// only 4 bytes and thus no upper half.
fn is_whole(known: Handle, datatype: *const Handle) -> bool {
    if known >> 32 == 0 {
        return true;
    }
    // SAFETY: only handles of eight bytes have an upper half; MPI passes such a handle's address.
    (unsafe { datatype.read_unaligned() }) == known
}
