//! Parallel reductions whose result does not depend on the number of threads.
//!
//! The grain (number of iterations in a piece) alone determines how the range is divided into
//! pieces. The fold of each piece starts with the identity and yields a partial result. The calling
//! thread combines the partial results in the order of the pieces. Long ranges are processed in
//! rounds, so that the memory for the partial results is bounded.

use super::thread_pool::LoopBody;
use crate::abi::status::*;
use crate::error::{Result, fail};
use crate::runtime::exec::executor::Executor;
use crate::runtime::exec::outcome;
use crate::sys::memory::buf::{Addr, Region, Scratch};
use std::ffi::c_void;
use std::sync::Arc;

/// Maximum number of pieces (ranges of iterations) if the grain is 0; a constant, so that the
/// results are the same on every machine.
const PIECES: u64 = 64;
/// Maximum number of pieces (ranges of iterations) in a round. At the end of each round, the
/// partial results of its pieces are combined. ROUND_BYTES is the maximum total size of these
/// partial results in bytes.
const ROUND_PIECES: u64 = 1024;
const ROUND_BYTES: usize = 1 << 24;
/// Alignment of each partial result in bytes, so that no two partial results share a cache line.
const LINE: usize = 64;

/// User-defined fold function, never NULL.
pub type FoldFn = extern "C" fn(u64, u64, *mut c_void, *mut c_void) -> dtl_status_t;
/// User-defined combine function, never NULL.
pub type CombineFn = extern "C" fn(*mut c_void, *const c_void, *mut c_void);

/// Parameters of a reduction.
#[derive(Clone, Copy)]
pub struct Reduction {
    /// Range of iterations: begin ... end-1.
    pub range: (u64, u64),
    /// Number of iterations in a piece; 0 = the number of iterations of the range divided by 64,
    /// rounded up.
    pub grain: u64,
    /// Initial value of every partial result; its length is the size of a partial result in bytes.
    pub identity: Region,
    /// Function that reduces the iterations of a piece (range of iterations) into a partial result.
    pub fold: FoldFn,
    /// Function that combines two partial results.
    pub combine: CombineFn,
    /// User pointer that is passed to `fold` and `combine`.
    pub user: Addr,
}

/// Runs the reduction. Writes the result to `out`, which has the same length as the identity, on
/// success only.
pub fn run(executor: &Executor, reduction: Reduction, out: Region) -> Result<()> {
    let (begin, end) = reduction.range;
    crate::runtime::exec::executor::check_range(begin, end)?;
    let iterations = end - begin;
    let grain =
        if reduction.grain == 0 { iterations.div_ceil(PIECES).max(1) } else { reduction.grain };
    let pieces = iterations.div_ceil(grain);
    let size = reduction.identity.len();
    let Some(stride) = size.checked_next_multiple_of(LINE) else { return no_memory(size) };
    let per_round =
        ROUND_PIECES.min((ROUND_BYTES / stride.max(1)).max(1) as u64).min(pieces.max(1));
    let total = stride.checked_mul(per_round as usize).and_then(Scratch::new);
    let (Some(partials), Some(result)) = (total, Scratch::copy_of(reduction.identity)) else {
        return no_memory(size);
    };
    // If the library chose the grain, a thread may take several pieces at once; this does not
    // change the result.
    let at_once = u64::from(reduction.grain > 0);
    let round = Arc::new(Round { reduction, count: per_round, pieces, grain, stride, partials });
    let mut first = 0;
    while first < pieces {
        let count = per_round.min(pieces - first);
        let share = Arc::clone(&round);
        let body = LoopBody::Shared(Arc::new(move |from, to| share.fold(first, from, to)));
        executor.run_loop(0, count, at_once, body)?;
        for index in 0..count {
            let from = round.partial(index).addr().ptr();
            if first + index == 0 {
                result.region().copy_from(round.partial(0).part(0, size));
            } else {
                (reduction.combine)(result.region().addr().ptr(), from, reduction.user.ptr());
            }
        }
        first += count;
    }
    out.copy_from(result.region());
    Ok(())
}

fn no_memory(size: usize) -> Result<()> {
    fail!(DTL_ERROR_OUT_OF_MEMORY, "no memory for partial results of {size} bytes each")
}

struct Round {
    reduction: Reduction,
    /// Maximum number of pieces in a round. At the end of a round, the partial results of its
    /// pieces are combined. `pieces` is the number of pieces of the whole reduction.
    count: u64,
    pieces: u64,
    grain: u64,
    stride: usize,
    partials: Scratch,
}

impl Round {
    fn partial(&self, index: u64) -> Region {
        self.partials.region().part(index as usize * self.stride, self.stride)
    }

    fn fold(&self, first: u64, from: u64, to: u64) -> Result<()> {
        let Reduction { range, identity, fold, user, .. } = self.reduction;
        if to > self.count || first + to > self.pieces {
            // Reached only if a backend's own loop violates its range.
            return fail!(
                DTL_ERROR_NATIVE_BACKEND,
                "the executor ran pieces {from}..{to} of a loop over {}: its parallel_for must \
                 keep to the range",
                self.count
            );
        }
        for index in from..to {
            let partial = self.partial(index);
            partial.copy_from(identity);
            let begin = range.0 + (first + index) * self.grain;
            let end = begin + self.grain.min(range.1 - begin);
            let fold = || fold(begin, end, partial.addr().ptr(), user.ptr());
            outcome(fold, || format!("the fold of {begin}..{end}"))?;
        }
        Ok(())
    }
}
