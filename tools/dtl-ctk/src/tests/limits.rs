//! Limits of a device for the grid and the blocks of a launch, to which tests adapt their launches.

use crate::kit::prelude::*;

/// Largest grid and block of the first device. Without a limit a size is `u32::MAX`.
struct Limits {
    grid: [u32; 3],
    block: [u32; 3],
    threads: u64,
}

impl Limits {
    fn of(s: &Subject) -> Limits {
        let size = |most: u32| if most == 0 { u32::MAX } else { most };
        match s.backend.device_info(0) {
            Ok(info) => Limits {
                grid: info.max_grid.map(size),
                block: info.max_block.map(size),
                threads: size(info.max_block_threads).into(),
            },
            Err(_) => {
                Limits { grid: [u32::MAX; 3], block: [u32::MAX; 3], threads: u32::MAX.into() }
            }
        }
    }
}

fn threads(size: [u32; 3]) -> u64 {
    size.iter().map(|size| u64::from(*size)).fold(1, u64::saturating_mul)
}

fn smaller(size: [u32; 3], most: [u32; 3]) -> [u32; 3] {
    [0, 1, 2].map(|axis: usize| size[axis].min(most[axis]))
}

/// Returns the launch with a grid and blocks that the device accepts: as large as the given ones,
/// or as large as possible.
pub(crate) fn clamped(s: &Subject, launch: dtl_launch_t) -> dtl_launch_t {
    let limits = Limits::of(s);
    let (grid, mut block) =
        (smaller(launch.grid, limits.grid), smaller(launch.block, limits.block));
    while threads(block) > limits.threads {
        let largest = block.iter().copied().max().unwrap_or(1);
        if let Some(size) = block.iter_mut().find(|size| **size == largest) {
            *size = (largest / 2).max(1);
        }
    }
    dtl_launch_t { grid, block, ..launch }
}

/// Returns the number of threads of a launch.
pub(crate) fn threads_of(launch: &dtl_launch_t) -> u64 {
    threads(launch.grid).saturating_mul(threads(launch.block))
}
