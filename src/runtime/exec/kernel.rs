//! Kernels, and the execution of their host code over a grid of thread blocks.
//!
//! Each thread of the grid is one call to the kernel function; host code compiled from a module
//! runs all threads of a block in one call. The threads of a block run one after another, so a
//! barrier between them is not supported. The blocks run in parallel on the cores of the machine if
//! the launch takes longer than waking the other threads.
//!
//! `stream` queues launches, and `module` connects kernels to their modules.

use super::host::thread_pool;
use super::module::ModuleKernel;
use super::{Limits, failed};
use crate::abi::devices::exec::*;
use crate::abi::status::*;
use crate::abi::word::DTL_SCHEDULE_SEQUENTIAL;
use crate::error::{Error, Result, fail};
use crate::from_c::blank;
use crate::last_error::Mark;
use crate::runtime::component::KernelFn;
use crate::runtime::registry::Backend;
use crate::sys::compute::callback::ArgPack;
use crate::sys::memory::buf::{Addr, Scratch};
use crate::sys::sync::wait::now_ns;
use std::sync::Arc;

/// Minimum duration in nanoseconds of a launch whose blocks run on several threads. One thread runs
/// all blocks of a shorter launch, because waking other threads takes about this long.
const WORTH_WAKING_NS: u64 = 20_000;

/// Maximum shared memory of a block on the host, in bytes.
const SHARED_MOST: u32 = 64 << 20;

/// Function that can be launched over a grid of threads on the streams of one backend.
pub struct Kernel {
    pub(super) backend: Arc<Backend>,
    /// Host code of the kernel. `None` if the backend implements the kernel; `part` then contains
    /// the backend-private pointer to the kernel.
    pub(super) code: Option<Code>,
    /// Kernel of a module, with a reference to that module; `None` if the kernel was created from a
    /// function.
    pub(super) part: Option<ModuleKernel>,
}

/// Host code of a kernel.
#[derive(Clone, Copy)]
pub struct Code {
    /// Function of the kernel.
    pub function: KernelFn,
    /// User pointer that is passed to each call to `function`.
    pub user: Addr,
    /// True if one call executes all threads of a block; false if it executes one thread.
    pub is_whole_block: bool,
}

impl Kernel {
    /// Creates a kernel from a function and the user pointer that each call receives.
    pub fn from_function(backend: Arc<Backend>, function: KernelFn, user: Addr) -> Self {
        Kernel { backend, code: Some(Code { function, user, is_whole_block: false }), part: None }
    }

    /// Returns the name of the kernel in its module, or "a function" for a kernel created from a
    /// function.
    pub fn name(&self) -> &str {
        self.part.as_ref().map_or("a function", ModuleKernel::name)
    }
}

/// Fails if a dimension of `shape` is 0, exceeds the limits of the device, or makes the number of
/// threads overflow.
pub fn check_shape(shape: &dtl_launch_t, limits: &Limits) -> Result<()> {
    let dimensions = [("grid", shape.grid, limits.grid), ("block", shape.block, limits.block)];
    for (name, size, limit) in dimensions {
        for ((axis, size), limit) in ["x", "y", "z"].into_iter().zip(size).zip(limit) {
            if size == 0 {
                return fail!(
                    DTL_ERROR_INVALID_ARGUMENT,
                    "{name}.{axis} of the launch is 0; every dimension is at least 1"
                );
            }
            if limit != 0 && size > limit {
                return fail!(
                    DTL_ERROR_INVALID_ARGUMENT,
                    "{name}.{axis} of the launch is {size}; this device takes at most {limit}"
                );
            }
        }
    }
    let threads = product(shape.block).filter(|threads| *threads <= u64::from(u32::MAX));
    let most = if limits.block_threads == 0 { u32::MAX } else { limits.block_threads };
    if threads.is_none_or(|threads| threads > u64::from(most)) {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "a block of {:?} threads is larger than the {most} that this device takes",
            shape.block
        );
    }
    if product(shape.grid).and_then(|blocks| blocks.checked_mul(threads.unwrap_or(1))).is_none() {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "a grid of {:?} blocks has more threads than 64 bits can count; launch it in parts",
            shape.grid
        );
    }
    Ok(())
}

fn product(dimensions: [u32; 3]) -> Option<u64> {
    dimensions.into_iter().try_fold(1_u64, |product, size| product.checked_mul(u64::from(size)))
}

/// Complete kernel launch for execution on the host: launch parameters, host code and copies of the
/// arguments.
pub struct Grid {
    shape: dtl_launch_t,
    code: Code,
    args: ArgPack,
}

impl Grid {
    /// Creates a launch of host code over a grid. Fails if the shared memory of a block exceeds
    /// SHARED_MOST bytes.
    pub fn new(code: Code, shape: dtl_launch_t, args: ArgPack) -> Result<Self> {
        if shape.shared_bytes > SHARED_MOST {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "shared_bytes of the launch is {}; the host gives a block at most {SHARED_MOST}",
                shape.shared_bytes
            );
        }
        Ok(Grid { shape, code, args })
    }

    /// Runs all blocks of the grid, in one or more ranges. After the first failed call to the
    /// kernel function, the other blocks of the same range are skipped, and no further range is
    /// started.
    pub fn run(self) -> Result<()> {
        let blocks = product(self.shape.grid).unwrap_or(u64::MAX);
        if self.shape.schedule == DTL_SCHEDULE_SEQUENTIAL {
            return self.run_blocks(0, blocks);
        }
        let begin = now_ns();
        self.run_blocks(0, 1)?;
        let one_block_ns = (now_ns() - begin).max(1);
        if one_block_ns.saturating_mul(blocks - 1) < WORTH_WAKING_NS {
            return self.run_blocks(1, blocks);
        }
        let grid = Arc::new(self);
        thread_pool::machine().run(
            1,
            blocks,
            0,
            thread_pool::LoopBody::Shared(Arc::new(move |from, to| grid.run_blocks(from, to))),
        )
    }

    fn run_blocks(&self, begin: u64, end: u64) -> Result<()> {
        let (mut space, mut spill) = ([Addr::NULL; 16], Vec::new());
        let args = self.args.pointers(&mut space, &mut spill);
        let Some(shared) = Scratch::new(self.shape.shared_bytes as usize) else {
            return fail!(
                DTL_ERROR_OUT_OF_MEMORY,
                "no memory for the {} bytes that the threads of a block share",
                self.shape.shared_bytes
            );
        };
        let mut context = self.context(&shared);
        for block in begin..end {
            context.block_index = position(block, self.shape.grid);
            shared.region().fill(0);
            self.run_block(&mut context, args)?;
        }
        Ok(())
    }

    fn context(&self, shared: &Scratch) -> dtl_kernel_context_t {
        let region = shared.region();
        dtl_kernel_context_t {
            shared_bytes: self.shape.shared_bytes,
            grid: self.shape.grid,
            block: self.shape.block,
            shared: if region.is_empty() { std::ptr::null_mut() } else { region.addr().ptr() },
            user: self.code.user.ptr(),
            ..blank()
        }
    }

    fn run_block(&self, context: &mut dtl_kernel_context_t, args: &[Addr]) -> Result<()> {
        let [width, height, depth] =
            if self.code.is_whole_block { [1; 3] } else { self.shape.block };
        // one mark for the block, because a thread may take only a few nanoseconds
        let before = Mark::now();
        for z in 0..depth {
            for y in 0..height {
                for x in 0..width {
                    context.thread_index = [x, y, z];
                    let status = (self.code.function)(context, args.as_ptr().cast());
                    if status != DTL_SUCCESS {
                        return Err(before.explain(thread_failed(status, context)));
                    }
                }
            }
        }
        Ok(())
    }
}

fn thread_failed(status: dtl_status_t, context: &dtl_kernel_context_t) -> Error {
    let (block, thread) = (context.block_index, context.thread_index);
    failed(status, &format!("a kernel (block {block:?}, thread {thread:?})"))
}

fn position(block: u64, grid: [u32; 3]) -> [u32; 3] {
    let (width, height) = (u64::from(grid[0]), u64::from(grid[1]));
    [(block % width) as u32, (block / width % height) as u32, (block / width / height) as u32]
}
