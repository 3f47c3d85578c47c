//! Properties of OpenCL devices.

use super::driver::{Card, ClDriver};
use super::symbols::*;
use crate::abi::devices::device::dtl_device_info_t;
use crate::abi::word::DTL_DEVICE_CPU;
use crate::backend::driver::{Devices, Driver as _};
use crate::error::Result;
use crate::runtime::copy_text;

/// Device type kDLCPU of DLPack.
const DLPACK_CPU: i32 = 1;
/// Device type kDLOpenCL of DLPack.
const DLPACK_OPENCL: i32 = 4;

impl Devices for ClDriver {
    fn default_device(&self) -> i32 {
        0
    }

    fn describe(&self, device: i32, out: &mut dtl_device_info_t) -> Result<()> {
        let card = self.card(device)?;
        out.kind = card.kind;
        out.total_bytes = self.number(card, CL_DEVICE_GLOBAL_MEM_SIZE)?;
        out.compute_units = self.number(card, CL_DEVICE_MAX_COMPUTE_UNITS)?;
        let threads: usize = self.number(card, CL_DEVICE_MAX_WORK_GROUP_SIZE)?;
        // A device may have more than three dimensions.
        let [x, y, z, ..]: [usize; 8] = self.number(card, CL_DEVICE_MAX_WORK_ITEM_SIZES)?;
        let small = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
        // OpenCL limits only the total number of work-items along a dimension (64 bits), not the
        // grid.
        (out.max_block_threads, out.max_block, out.max_grid) =
            (small(threads), [x, y, z].map(small), [u32::MAX; 3]);
        copy_text(&mut out.name, &card.name);
        Ok(())
    }

    fn memory_info(&self, device: i32) -> Result<(u64, u64)> {
        // OpenCL does not report the free memory.
        let total = self.number(self.card(device)?, CL_DEVICE_GLOBAL_MEM_SIZE)?;
        Ok((0, total))
    }

    fn synchronize(&self, device: i32) -> Result<()> {
        self.card(device)?.copies.get().map_or(Ok(()), |queue| queue.finish())
    }

    fn dlpack(&self, device: i32) -> Result<(i32, i32)> {
        let is_cpu = |card: &Card| card.kind == DTL_DEVICE_CPU;
        if !is_cpu(self.card(device)?) {
            return Ok((DLPACK_OPENCL, device));
        }
        // Any code of the process can access memory of a CPU device. The first CPU device is number
        // 0.
        let before = self.devices.iter().take(device as usize).filter(|card| is_cpu(card));
        Ok((DLPACK_CPU, before.count() as i32))
    }
}
