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

/// Selects the dimensions of a grid for a number of ranks. Each dimension that is 0 gets a size
/// such that the largest is as small as possible (then the next, and so on), in descending order. A
/// local call.
///
/// @param size  Number of ranks, at least 1.
/// @param dims  `ndim` sizes. Those that are not 0 stay. Unchanged after a failure.
/// @param ndim  Number of dimensions, 1 to 16.
/// @return DTL_ERROR_INVALID_ARGUMENT: the given sizes do not divide `size`, or `size` or `ndim` is
///         out of range. Equivalent: MPI_Dims_create.
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

/// Returns the rank at a position of a grid. The order is row-major: the last coordinate varies
/// fastest. A local call.
///
/// @param dims      `ndim` sizes, each at least 1, with at most INT32_MAX ranks in total.
/// @param periods   `ndim` flags: not 0 means that the dimension is periodic. NULL: no dimension
///                  is.
/// @param coords    `ndim` coordinates, 0 to size of the dimension - 1; any number in a periodic
///                  dimension.
/// @param ndim      Number of dimensions, 1 to 16.
/// @param out_rank  The rank.
/// @return DTL_ERROR_INVALID_ARGUMENT: a coordinate is outside of a dimension that is not periodic,
///         or `dims` or `ndim` is out of range. Equivalent: MPI_Cart_rank.
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

/// Returns the position of a rank in a grid, the inverse of dtl_cart_rank. A local call.
///
/// @param dims        `ndim` sizes, as for dtl_cart_rank.
/// @param ndim        Number of dimensions, 1 to 16.
/// @param rank        0 to product of dims - 1.
/// @param out_coords  Room for `ndim` coordinates.
/// @return DTL_ERROR_INVALID_RANK: `rank` is not in the grid. DTL_ERROR_INVALID_ARGUMENT: `dims` or
///         `ndim` is out of range. Equivalent: MPI_Cart_coords.
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

/// Returns the source and destination of a shift along a dimension, for dtl_comm_sendrecv. Every
/// rank sends to the rank that is `displacement` steps further and receives from the rank as many
/// steps back. Beyond an open border the result is DTL_PROC_NULL. A local call.
///
/// @param dims          `ndim` sizes, as for dtl_cart_rank.
/// @param periods       `ndim` flags, as for dtl_cart_rank; NULL: no dimension is periodic.
/// @param ndim          Number of dimensions, 1 to 16.
/// @param rank          Rank that shifts.
/// @param dimension     0 to ndim-1.
/// @param displacement  Number of steps; negative: in the other direction.
/// @param out_source    Rank to receive from.
/// @param out_dest      Rank to send to.
/// @return DTL_ERROR_INVALID_RANK: `rank` is not in the grid. DTL_ERROR_INVALID_ARGUMENT:
///         `dimension`, `dims` or `ndim` is out of range. Equivalent: MPI_Cart_shift.
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
