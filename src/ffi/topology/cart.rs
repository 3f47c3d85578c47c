//! Cartesian grids: local arithmetic without a communicator.

use crate::abi::status::dtl_status_t;
use crate::error::{Result, fail};
use crate::ffi::args::{Out, put_all, put_both, slice};
use crate::ffi::guard::Entry;
use crate::runtime::topology::cart;

/// Most dimensions of a grid.
const MOST_DIMENSIONS: i32 = 16;

/// Checks a number of dimensions.
fn dimensions(ndim: i32) -> Result<usize> {
    if (1..=MOST_DIMENSIONS).contains(&ndim) {
        return Ok(ndim as usize);
    }
    fail!(DTL_ERROR_INVALID_ARGUMENT, "ndim {ndim}: use 1 to {MOST_DIMENSIONS} dimensions")
}

/// Whether dimensions are periodic; NULL: none is.
///
/// # Safety
/// As [`slice`].
unsafe fn periodic<'a>(periods: *const i32, ndim: usize) -> Result<impl Fn(usize) -> bool + 'a> {
    let periods: &'a [i32] = match periods.is_null() {
        true => &[],
        // SAFETY: passed on.
        false => unsafe { slice(periods, ndim, "periods") }?,
    };
    Ok(move |dimension| periods.get(dimension).is_some_and(|&flag| flag != 0))
}

/// Chooses a grid for a number of ranks: each dimension that is 0 gets a size, so that the largest
/// is as small as possible (then the next, and so on), in descending order. A local call.
///
/// @param size  number of ranks, from 1.
/// @param dims  ndim sizes: those that are not 0 stay. Unchanged after a failure.
/// @param ndim  1 to 16.
/// @return DTL_ERROR_INVALID_ARGUMENT: the sizes that are given do not divide `size`; size, ndim.
/// Equivalent: MPI_Dims_create.
/// dtl:dims inout len(ndim)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_cart_dims(size: i32, dims: *mut i32, ndim: i32) -> dtl_status_t {
    Entry("dtl_cart_dims").call(|_| {
        let ndim = dimensions(ndim)?;
        // SAFETY: the caller's contract.
        let mut chosen = unsafe { slice(dims, ndim, "dims") }?.to_vec();
        cart::choose(size, &mut chosen)?;
        put_all(dims, &chosen, "dims")
    })
}

/// The rank at a place of a grid. Row-major: the last coordinate varies fastest. A local call.
///
/// @param dims      ndim sizes, each 1 or more; all together at most INT32_MAX ranks.
/// @param periods   ndim numbers: not 0 = that dimension wraps around. NULL: none does.
/// @param coords    ndim coordinates, 0 ... size of the dimension - 1, or any in a periodic one.
/// @param ndim     1 to 16.
/// @param out_rank  the rank.
/// @return DTL_ERROR_INVALID_ARGUMENT: a coordinate beyond an open border; dims, ndim.
/// Equivalent: MPI_Cart_rank.
/// dtl:dims len(ndim)
/// dtl:periods len(ndim) opt bool
/// dtl:coords len(ndim)
/// dtl:out_rank rank
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_cart_rank(
    dims: *const i32,
    periods: *const i32,
    coords: *const i32,
    ndim: i32,
    out_rank: *mut i32,
) -> dtl_status_t {
    Entry("dtl_cart_rank").call(|_| {
        let ndim = dimensions(ndim)?;
        let out = Out::new(out_rank, "out_rank")?;
        // SAFETY: the caller's contract.
        let dims = unsafe { slice(dims, ndim, "dims") }?;
        // SAFETY: as above.
        let periods = unsafe { periodic(periods, ndim) }?;
        // SAFETY: as above.
        let coords = unsafe { slice(coords, ndim, "coords") }?;
        out.put(cart::rank(dims, periods, coords))
    })
}

/// The place of a rank in a grid, the inverse of dtl_cart_rank. A local call.
///
/// @param dims, ndim  as for dtl_cart_rank.
/// @param rank         0 ... product of dims - 1.
/// @param out_coords   room for ndim coordinates.
/// @return DTL_ERROR_INVALID_RANK; DTL_ERROR_INVALID_ARGUMENT: dims, ndim. Equivalent:
///         MPI_Cart_coords.
/// dtl:dims len(ndim)
/// dtl:rank rank
/// dtl:out_coords len(ndim)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_cart_coords(
    dims: *const i32,
    ndim: i32,
    rank: i32,
    out_coords: *mut i32,
) -> dtl_status_t {
    Entry("dtl_cart_coords").call(|_| {
        let ndim = dimensions(ndim)?;
        Out::new(out_coords, "out_coords")?;
        // SAFETY: the caller's contract.
        let dims = unsafe { slice(dims, ndim, "dims") }?;
        put_all(out_coords, &cart::coords(dims, rank)?, "out_coords")
    })
}

/// Partners of a shift along a dimension, for dtl_comm_sendrecv: every rank sends to the one
/// `displacement` further and receives from the one as far before. DTL_PROC_NULL beyond an open
/// border. A local call.
///
/// @param dims, periods, ndim  as for dtl_cart_rank.
/// @param rank                  whose partners.
/// @param dimension             0 ... ndim-1.
/// @param displacement          steps; negative: the other way.
/// @param out_source            whom to receive from.
/// @param out_dest              whom to send to.
/// @return DTL_ERROR_INVALID_RANK; DTL_ERROR_INVALID_ARGUMENT: dimension, dims, ndim.
/// Equivalent: MPI_Cart_shift.
/// dtl:dims len(ndim)
/// dtl:periods len(ndim) opt bool
/// dtl:rank rank
/// dtl:out_source rank(null)
/// dtl:out_dest rank(null)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_cart_shift(
    dims: *const i32,
    periods: *const i32,
    ndim: i32,
    rank: i32,
    dimension: i32,
    displacement: i32,
    out_source: *mut i32,
    out_dest: *mut i32,
) -> dtl_status_t {
    Entry("dtl_cart_shift").call(|_| {
        let ndim = dimensions(ndim)?;
        let (source, dest) = (Out::new(out_source, "out_source")?, Out::new(out_dest, "out_dest")?);
        // SAFETY: the caller's contract.
        let dims = unsafe { slice(dims, ndim, "dims") }?;
        // SAFETY: as above.
        let periods = unsafe { periodic(periods, ndim) }?;
        let shifted = cart::shift(dims, periods, rank, dimension, displacement);
        put_both((source, dest), shifted)
    })
}
