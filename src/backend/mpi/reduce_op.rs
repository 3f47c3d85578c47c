//! Reductions that MPI runs: its own operation where it gives what `dtl.h` promises, else one made
//! with MPI_Op_create that calls ours.
//!
//! MPI passes nothing but the datatype to an operation's function. So each of our pairs of dtype
//! and operation has a datatype of its own, and one function looks up the pair.

use crate::abi::word::*;
use crate::backend::mpi::library::functions::Handle;
use crate::backend::mpi::library::mpi_library::Mpi;
use crate::backend::mpi::message;
use crate::error::Result;
use crate::runtime::component::Reductions;
use crate::runtime::types::Reduction;
use crate::sys::handles::epoch;
use crate::sys::memory::buf::Region;
use crate::sys::sync::lock::RwLock;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

/// A pair that MPI was given a datatype for. They stay: their numbers are never used again for
/// others.
struct PairDatatype {
    datatype: Handle,
    by: Reduction,
}

static OWN: RwLock<Vec<PairDatatype>> = RwLock::new(Vec::new());
/// MPI's operations that call `fold`: any order of operands, order of ranks.
static OPERATIONS: RwLock<[Option<Handle>; 2]> = RwLock::new([None; 2]);

/// MPI's datatype and operation for a reduction. Inside a turn.
pub(in crate::backend::mpi) fn pair(mpi: &Mpi, by: &Reduction) -> Result<(Handle, Handle)> {
    if let Some(pair) = mpis_own(mpi).get(by.dtype, by.op) {
        return Ok(pair);
    }
    let known = OWN
        .read()
        .iter()
        .find(|own| (own.by.dtype, own.by.op) == (by.dtype, by.op))
        .map(|own| own.datatype);
    let datatype = match known {
        Some(datatype) => datatype,
        None => make_datatype(mpi, by)?,
    };
    Ok((datatype, operation(mpi, by.commutes)?))
}

/// Whether MPI runs it without calling us.
pub(in crate::backend::mpi) fn is_mpis(mpi: &Mpi, by: &Reduction) -> bool {
    mpis_own(mpi).get(by.dtype, by.op).is_some()
}

/// MPI's own that are the same as ours.
pub(in crate::backend::mpi) fn mpis_own(mpi: &Mpi) -> &'static Reductions {
    static NAMED: OnceLock<Reductions> = OnceLock::new();
    NAMED.get_or_init(|| {
        Reductions::named(|dtype, op| {
            is_same(dtype, op).then_some(())?;
            Some((mpi.k.datatype(dtype)?, mpi.k.op(op)?))
        })
    })
}

/// Whether MPI's operation of the same name gives the same as ours, also for NaN and BOOL. Open MPI
/// 4 and 5 end sums of small integers at their largest and smallest value (op/avx), MPICH 4.0 takes
/// the highest bit of unsigned ones for a sign in MIN and MAX.
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

fn make_datatype(mpi: &Mpi, by: &Reduction) -> Result<Handle> {
    let mut own = OWN.write();
    if let Some(own) = own.iter().find(|own| (own.by.dtype, own.by.op) == (by.dtype, by.op)) {
        return Ok(own.datatype);
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
    // SAFETY: MPI is running; the function lives as long as the library, which is never unloaded.
    let code = unsafe { (mpi.call.MPI_Op_create)(fold, c_int::from(commutes), &raw mut operation) };
    mpi.check("MPI_Op_create", code)?;
    if let Some(slot) = all.get_mut(slot) {
        *slot = Some(operation);
    }
    Ok(operation)
}

/// Frees what was made for MPI. When MPI is about to end.
pub(in crate::backend::mpi) fn release_all(mpi: &Mpi) {
    let _aside = epoch::aside(); // in MPI_Finalize, maybe of the program
    for own in OWN.write().drain(..) {
        // What MPI refuses to free now goes with it.
        let _ = message::free(mpi, own.datatype);
    }
    for slot in &mut *OPERATIONS.write() {
        if let Some(mut operation) = slot.take() {
            // SAFETY: made by `operation`, freed once.
            unsafe { (mpi.call.MPI_Op_free)(&raw mut operation) };
        }
    }
}

/// What MPI calls: `right = left op right` over `count` elements.
unsafe extern "C" fn fold(
    left: *mut c_void,
    right: *mut c_void,
    count: *const c_int,
    datatype: *const Handle,
) {
    // SAFETY: MPI passes the number of elements by address.
    let count = unsafe { count.read() };
    // SAFETY: and the datatype, a handle of four bytes at least; of those with eight, all are read
    // below.
    let low = unsafe { datatype.cast::<u32>().read() };
    let found = {
        let _aside = epoch::aside(); // MPI may call it in an MPI call of the program's
        let own = OWN.read();
        own.iter()
            .find(|own| own.datatype as u32 == low && is_whole(own.datatype, datatype))
            .map(|own| own.by)
    };
    let (Some(by), Ok(count)) = (found, usize::try_from(count)) else { return };
    // SAFETY: MPI's contract: `count` elements of the datatype at either address, for this call.
    let left = unsafe { Region::new(left, count * by.element) };
    // SAFETY: MPI's contract: `count` elements of the datatype at either address, for this call.
    let right = unsafe { Region::new(right, count * by.element) };
    by.apply_to_right(left, right);
}

/// Whether a handle of eight bytes is this one also in its upper half. Those of four bytes have
/// none.
fn is_whole(known: Handle, datatype: *const Handle) -> bool {
    if known >> 32 == 0 {
        return true;
    }
    // SAFETY: only handles of eight bytes have an upper half, and MPI passes the address of one.
    (unsafe { datatype.read_unaligned() }) == known
}
