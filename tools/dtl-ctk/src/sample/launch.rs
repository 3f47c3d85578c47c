//! Kernel launches of the backend "sample". A launch calls the kernel's function for each thread of
//! the grid, in stream order.

use super::exec::stream;
use super::{Const, Ptr, Status, fault};
use dtl_sys::*;

/// Kernel launch with copies of the kernel arguments.
struct Grid {
    shape: dtl_launch_t,
    kernel: extern "C" fn(*const dtl_kernel_context_t, *const Const) -> Status,
    user: usize,
    args: Vec<Vec<u64>>,
}

impl Grid {
    fn run(&self) -> Status {
        let args: Vec<Const> = self.args.iter().map(|arg| arg.as_ptr().cast()).collect();
        let shape = &self.shape;
        let (blocks, missing) =
            (positions(shape.grid).count(), fault::is("exec.launch.last_block_missing"));
        let mut shared = vec![0u64; (shape.shared_bytes as usize).div_ceil(8)];
        for block in positions(shape.grid).take(blocks - usize::from(missing && blocks > 1)) {
            if !fault::is("exec.launch.shared_not_zeroed") {
                shared.fill(0);
            }
            for thread in positions(shape.block) {
                let context = dtl_kernel_context_t {
                    struct_size: size_of::<dtl_kernel_context_t>() as u32,
                    shared_bytes: shape.shared_bytes,
                    grid: shape.grid,
                    block: shape.block,
                    block_index: fault::or(
                        "exec.launch.axes_swapped",
                        [block[2], block[1], block[0]],
                        block,
                    ),
                    thread_index: thread,
                    shared: if shared.is_empty() {
                        std::ptr::null_mut()
                    } else {
                        shared.as_mut_ptr().cast()
                    },
                    user: std::ptr::with_exposed_provenance_mut(self.user),
                };
                let status = (self.kernel)(&raw const context, args.as_ptr());
                if status != DTL_SUCCESS {
                    return status;
                }
            }
        }
        DTL_SUCCESS
    }
}

/// Iterates over all positions of a grid of this size. The x index varies fastest.
fn positions([width, height, depth]: [u32; 3]) -> impl Iterator<Item = [u32; 3]> {
    (0..depth).flat_map(move |z| (0..height).flat_map(move |y| (0..width).map(move |x| [x, y, z])))
}

/// Copies the `size` bytes of an argument to memory with an alignment of 8 bytes.
fn copied(arg: Const, size: u64) -> Vec<u64> {
    let mut copy = vec![0u64; (size as usize).div_ceil(8)];
    super::memory::move_bytes(copy.as_mut_ptr().cast(), arg, size);
    copy
}

pub(super) unsafe extern "C" fn launch(
    _: Ptr,
    on: Ptr,
    shape: *const dtl_launch_t,
    kernel: dtl_kernel_fn_t,
    user: Ptr,
    args: *const Const,
    sizes: *const u64,
    count: u64,
) -> Status {
    let Some(kernel) = kernel else { return DTL_ERROR_NULL_POINTER };
    // SAFETY: the library passes a valid shape.
    let shape = unsafe { *shape };
    let read = |index: usize| {
        // SAFETY: `count` arguments.
        let arg = unsafe { args.wrapping_add(index).read() };
        // SAFETY: and as many sizes.
        (arg, unsafe { sizes.wrapping_add(index).read() })
    };
    let one = fault::is("exec.launch.one_argument_only");
    let place = move |index: usize| if one { 0 } else { index };
    let most = if fault::is("exec.launch.arguments_cut") { 1024 } else { u64::MAX };
    let whole = |(arg, size): (Const, u64)| {
        let mut copy = copied(arg, size.min(most));
        copy.resize((size as usize).div_ceil(8), 0);
        copy
    };
    let args = (0..count as usize).map(place).map(read).map(whole).collect();
    let grid = Grid { shape, kernel, user: user.expose_provenance(), args };
    if_fault!("exec.launch.at_once" => return grid.run());
    let drops = fault::is("exec.launch.drops_failure");
    stream(on).push(move || if drops { grid.run().min(DTL_SUCCESS) } else { grid.run() });
    DTL_SUCCESS
}
