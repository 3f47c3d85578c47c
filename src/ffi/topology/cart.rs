//! Cartesian grids of ranks: local arithmetic without a communicator.

use crate::abi::status::dtl_status_t;
use crate::error::{Result, fail};
use crate::ffi::args::{Out, put_all, put_both, slice};
use crate::ffi::guard::Entry;
use crate::runtime::topology::cart;

/// Most dimensions of a grid.
const MOST_DIMENSIONS: i32 = 16;

/// Checks a number of dimensions.
fn dimensions(ndims: i32) -> Result<usize> {
    if (1..=MOST_DIMENSIONS).contains(&ndims) {
        return Ok(ndims as usize);
    }
    fail!(DTL_ERROR_INVALID_ARGUMENT, "ndims {ndims}: use 1 to {MOST_DIMENSIONS} dimensions")
}

/// Whether dimensions are periodic; NULL: none is.
///
/// # Safety
/// As [`slice`].
unsafe fn periodic<'a>(periods: *const i32, ndims: usize) -> Result<impl Fn(usize) -> bool + 'a> {
    let periods: &'a [i32] = match periods.is_null() {
        true => &[],
        // SAFETY: passed on.
        false => unsafe { slice(periods, ndims, "periods") }?,
    };
    Ok(move |dimension| periods.get(dimension).is_some_and(|&flag| flag != 0))
}

/// Chooses a grid for a number of ranks: each dimension that is 0 gets a size, so that the largest
/// is as small as possible (then the next, and so on), in descending order. A local call.
///
/// @param size   number of ranks, from 1.
/// @param ndims  1 to 16.
/// @param dims   ndims sizes: those that are not 0 stay. Unchanged after a failure.
/// @return DTL_ERROR_INVALID_ARGUMENT: the sizes that are given do not divide `size`; size, ndims.
/// Equivalent: MPI_Dims_create.
/// dtl:dims inout len(ndims)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_cart_dims(size: i32, ndims: i32, dims: *mut i32) -> dtl_status_t {
    Entry("dtl_cart_dims").call(|_| {
        let ndims = dimensions(ndims)?;
        // SAFETY: the caller's contract.
        let mut chosen = unsafe { slice(dims, ndims, "dims") }?.to_vec();
        cart::choose(size, &mut chosen)?;
        put_all(dims, &chosen, "dims")
    })
}

/// The rank at a place of a grid. Row-major: the last coordinate varies fastest. A local call.
///
/// @param ndims     1 to 16.
/// @param dims      ndims sizes, each 1 or more; all together at most INT32_MAX ranks.
/// @param periods   ndims numbers: not 0 = that dimension wraps around. NULL: none does.
/// @param coords    ndims coordinates, 0 ... size of the dimension - 1, or any in a periodic one.
/// @param out_rank  the rank.
/// @return DTL_ERROR_INVALID_ARGUMENT: a coordinate beyond an open border; dims, ndims.
/// Equivalent: MPI_Cart_rank.
/// dtl:dims len(ndims)
/// dtl:periods len(ndims) opt bool
/// dtl:coords len(ndims)
/// dtl:out_rank rank
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_cart_rank(
    ndims: i32,
    dims: *const i32,
    periods: *const i32,
    coords: *const i32,
    out_rank: *mut i32,
) -> dtl_status_t {
    Entry("dtl_cart_rank").call(|_| {
        let ndims = dimensions(ndims)?;
        let out = Out::new(out_rank, "out_rank")?;
        // SAFETY: the caller's contract.
        let dims = unsafe { slice(dims, ndims, "dims") }?;
        // SAFETY: as above.
        let periods = unsafe { periodic(periods, ndims) }?;
        // SAFETY: as above.
        let coords = unsafe { slice(coords, ndims, "coords") }?;
        out.put(cart::rank(dims, periods, coords))
    })
}

/// The place of a rank in a grid, the inverse of dtl_cart_rank. A local call.
///
/// @param ndims, dims  as for dtl_cart_rank.
/// @param rank         0 ... product of dims - 1.
/// @param out_coords   room for ndims coordinates.
/// @return DTL_ERROR_INVALID_RANK; DTL_ERROR_INVALID_ARGUMENT: dims, ndims. Equivalent:
///         MPI_Cart_coords.
/// dtl:dims len(ndims)
/// dtl:rank rank
/// dtl:out_coords len(ndims)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_cart_coords(
    ndims: i32,
    dims: *const i32,
    rank: i32,
    out_coords: *mut i32,
) -> dtl_status_t {
    Entry("dtl_cart_coords").call(|_| {
        let ndims = dimensions(ndims)?;
        Out::new(out_coords, "out_coords")?;
        // SAFETY: the caller's contract.
        let dims = unsafe { slice(dims, ndims, "dims") }?;
        put_all(out_coords, &cart::coords(dims, rank)?, "out_coords")
    })
}

/// Partners of a shift along a dimension, for dtl_comm_sendrecv: every rank sends to the one
/// `displacement` further and receives from the one as far before. DTL_PROC_NULL beyond an open
/// border. A local call.
///
/// @param ndims, dims, periods  as for dtl_cart_rank.
/// @param rank                  whose partners.
/// @param dimension             0 ... ndims-1.
/// @param displacement          steps; negative: the other way.
/// @param out_source            whom to receive from.
/// @param out_dest              whom to send to.
/// @return DTL_ERROR_INVALID_RANK; DTL_ERROR_INVALID_ARGUMENT: dimension, dims, ndims.
/// Equivalent: MPI_Cart_shift.
/// dtl:dims len(ndims)
/// dtl:periods len(ndims) opt bool
/// dtl:rank rank
/// dtl:out_source rank(null)
/// dtl:out_dest rank(null)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_cart_shift(
    ndims: i32,
    dims: *const i32,
    periods: *const i32,
    rank: i32,
    dimension: i32,
    displacement: i32,
    out_source: *mut i32,
    out_dest: *mut i32,
) -> dtl_status_t {
    Entry("dtl_cart_shift").call(|_| {
        let ndims = dimensions(ndims)?;
        let (source, dest) = (Out::new(out_source, "out_source")?, Out::new(out_dest, "out_dest")?);
        // SAFETY: the caller's contract.
        let dims = unsafe { slice(dims, ndims, "dims") }?;
        // SAFETY: as above.
        let periods = unsafe { periodic(periods, ndims) }?;
        let shifted = cart::shift(dims, periods, rank, dimension, displacement);
        put_both((source, dest), shifted)
    })
}
