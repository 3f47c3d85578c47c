//! Arithmetic of Cartesian grids of ranks, without a communicator. Ranks are numbered in row-major
//! order, as in MPI's Cartesian topologies: the last dimension varies fastest.

use crate::abi::comm::communicator::DTL_PROC_NULL;
use crate::error::{Result, fail};

/// Returns the number of ranks of a grid.
fn volume(dims: &[i32]) -> Result<i32> {
    let mut all = 1_i32;
    for (dimension, &extent) in dims.iter().enumerate() {
        if extent < 1 {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "dims[{dimension}] is {extent}: use 1 or more"
            );
        }
        let Some(more) = all.checked_mul(extent) else {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "dims[{dimension}] = {extent}: the grid has more than {} ranks",
                i32::MAX
            );
        };
        all = more;
    }
    Ok(all)
}

/// Chooses an extent for each dimension whose extent is 0, so that the grid has `size` ranks. The
/// chosen extents are in non-increasing order. The first of them is as small as possible, then the
/// second is as small as possible, and so on.
pub fn choose(size: i32, dims: &mut [i32]) -> Result<()> {
    if size < 1 {
        return fail!(DTL_ERROR_INVALID_ARGUMENT, "size {size}: a grid has 1 rank or more");
    }
    if let Some((at, given)) = dims.iter().enumerate().find(|(_, given)| **given < 0) {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "dims[{at}] is {given}: use 0 to have it chosen, or 1 or more"
        );
    }
    let given: Vec<i32> = dims.iter().copied().filter(|&extent| extent != 0).collect();
    let (fixed, free) = (volume(&given)?, dims.len() - given.len());
    if size % fixed != 0 || (free == 0 && size != fixed) {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "size {size}: the dimensions that are given make {fixed}, which {} it",
            if free == 0 { "is not" } else { "does not divide" }
        );
    }
    let rest = (size / fixed) as u32;
    let divisors: Vec<u32> = divisors(rest);
    let mut chosen = vec![1; free];
    split(rest, &divisors, u32::MAX, &mut chosen);
    for (place, extent) in dims.iter_mut().filter(|extent| **extent == 0).zip(chosen) {
        *place = extent as i32;
    }
    Ok(())
}

/// Returns the divisors of a number in ascending order.
fn divisors(of: u32) -> Vec<u32> {
    let small = (1..)
        .take_while(|d| u64::from(*d) * u64::from(*d) <= u64::from(of))
        .filter(|d| of % d == 0);
    let mut all: Vec<u32> = small.flat_map(|d| [d, of / d]).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Splits `rest` into `into.len()` factors of at most `most` each, in non-increasing order, and
/// stores them in `into`. The first factor is as small as possible, then the second, and so on.
/// `divisors` are the candidates in ascending order. Returns false if no such factors exist.
fn split(rest: u32, divisors: &[u32], most: u32, into: &mut [u32]) -> bool {
    let Some((first, others)) = into.split_first_mut() else { return rest == 1 };
    let slots = others.len() as u32 + 1;
    for &factor in divisors.iter().take_while(|factor| **factor <= most) {
        // With this factor as the largest of all, the product cannot reach `rest`.
        let is_enough =
            u64::from(factor).checked_pow(slots).is_none_or(|reach| reach >= u64::from(rest));
        if is_enough && rest % factor == 0 && split(rest / factor, divisors, factor, others) {
            *first = factor;
            return true;
        }
    }
    false
}

/// Returns the rank at the coordinates. Coordinates outside the extent of a dimension wrap around
/// if the dimension is periodic; otherwise they are an error.
pub fn rank(dims: &[i32], is_periodic: impl Fn(usize) -> bool, coords: &[i32]) -> Result<i32> {
    volume(dims)?;
    let mut rank = 0;
    for (dimension, (&extent, &coord)) in dims.iter().zip(coords).enumerate() {
        let inside = (0..extent).contains(&coord);
        if !inside && !is_periodic(dimension) {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "coords[{dimension}] is {coord}: that dimension is not periodic and goes from 0 to \
                 {}",
                extent - 1
            );
        }
        rank = rank * extent + coord.rem_euclid(extent);
    }
    Ok(rank)
}

/// Returns the coordinates of a rank, in the order of the dimensions.
pub fn coords(dims: &[i32], rank: i32) -> Result<Vec<i32>> {
    check_rank(dims, rank)?;
    let mut coords = dims.to_vec();
    let mut rest = rank;
    for (coord, extent) in coords.iter_mut().zip(dims).rev() {
        *coord = rest % extent;
        rest /= extent;
    }
    Ok(coords)
}

fn check_rank(dims: &[i32], rank: i32) -> Result<()> {
    let all = volume(dims)?;
    if (0..all).contains(&rank) {
        return Ok(());
    }
    fail!(DTL_ERROR_INVALID_RANK, "rank {rank}: the grid has ranks 0 to {}", all - 1)
}

/// Returns the source and the destination of `rank` in a shift along a dimension, as MPI_Cart_shift
/// does. A peer beyond the boundary of a dimension that is not periodic is DTL_PROC_NULL.
pub fn shift(
    dims: &[i32],
    is_periodic: impl Fn(usize) -> bool,
    rank: i32,
    dimension: i32,
    displacement: i32,
) -> Result<(i32, i32)> {
    check_rank(dims, rank)?;
    let index = usize::try_from(dimension).unwrap_or(usize::MAX);
    let Some(&extent) = dims.get(index) else {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "dimension {dimension}: the grid has dimensions 0 to {}",
            dims.len() - 1
        );
    };
    // Distance in ranks between two neighbors along the dimension; at most the number of ranks.
    let stride: i32 = dims.iter().skip(index + 1).product();
    let here = i64::from(rank / stride % extent);
    let at = |there: i64| {
        let wrapped = there.rem_euclid(i64::from(extent));
        if there != wrapped && !is_periodic(index) {
            return DTL_PROC_NULL;
        }
        // Both coordinates lie inside the grid, so the ranks fit into 32 bits.
        (i64::from(rank) + (wrapped - here) * i64::from(stride)) as i32
    };
    let by = i64::from(displacement);
    Ok((at(here - by), at(here + by)))
}

#[cfg(test)]
#[path = "tests/cart.rs"]
mod tests;
