//! Devices of all drivers in one list.

use super::OpenCl;
use super::driver::{Card, Driver};
use super::symbols::*;
use crate::abi::device::dtl_device_info_t;
use crate::abi::word::DTL_DEVICE_CPU;
use crate::error::Result;
use crate::runtime::backend::Device;
use crate::runtime::copy_text;
use std::cell::Cell;
use std::sync::Arc;

/// DLPack's kDLCPU.
const DLPACK_CPU: i32 = 1;
/// DLPack's kDLOpenCL.
const DLPACK_OPENCL: i32 = 4;

thread_local! {
    /// The device that this thread chose, and of which driver: another one's list may be another.
    static CURRENT: Cell<(u64, i32)> = const { Cell::new((0, 0)) };
}

impl OpenCl {
    /// The calling thread's current device.
    pub(super) fn current(&self, driver: &Driver) -> i32 {
        let (generation, device) = CURRENT.get();
        if generation == driver.generation { device } else { 0 }
    }

    fn describe_device(&self, device: i32, out: &mut dtl_device_info_t) -> Result<()> {
        let driver = self.driver.get()?;
        let card = driver.card(device)?;
        out.kind = card.kind;
        out.total_bytes = driver.number(card, CL_DEVICE_GLOBAL_MEM_SIZE)?;
        out.compute_units = driver.number(card, CL_DEVICE_MAX_COMPUTE_UNITS)?;
        let threads: usize = driver.number(card, CL_DEVICE_MAX_WORK_GROUP_SIZE)?;
        let block: [usize; 3] = driver.number(card, CL_DEVICE_MAX_WORK_ITEM_SIZES)?;
        let small = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
        // OpenCL bounds only the number of all threads along a dimension, by 64 bits.
        (out.max_block_threads, out.max_block, out.max_grid) =
            (small(threads), block.map(small), [u32::MAX; 3]);
        copy_text(&mut out.name, &card.name);
        Ok(())
    }
}

impl Device for Arc<OpenCl> {
    fn count(&self) -> Result<i32> {
        Ok(self.driver.get()?.devices.len() as i32)
    }

    fn set(&self, device: i32) -> Result<()> {
        let driver = self.driver.get()?;
        driver.card(device)?;
        CURRENT.set((driver.generation, device));
        Ok(())
    }

    fn get(&self) -> Result<i32> {
        Ok(self.current(&*self.driver.get()?))
    }

    fn info(&self, device: i32, out: &mut dtl_device_info_t) -> Option<Result<()>> {
        Some(self.describe_device(device, out))
    }

    fn memory_info(&self, device: i32) -> Option<Result<(u64, u64)>> {
        let total = || {
            let driver = self.driver.get()?;
            driver.number(driver.card(device)?, CL_DEVICE_GLOBAL_MEM_SIZE)
        };
        // OpenCL does not tell how much is free.
        Some(total().map(|total| (0, total)))
    }

    fn synchronize(&self, device: i32) -> Option<Result<()>> {
        // Streams are the runtime's to wait for.
        let copies =
            || self.driver.get()?.copies_so_far(device)?.map_or(Ok(()), |queue| queue.finish());
        Some(copies())
    }

    fn dlpack(&self, device: i32) -> Option<Result<(i32, i32)>> {
        let driver = match self.driver.get() {
            Ok(driver) => driver,
            Err(error) => return Some(Err(error)),
        };
        let is_cpu = |card: &Card| card.kind == DTL_DEVICE_CPU;
        let of = |card: &Card| {
            if !is_cpu(card) {
                return (DLPACK_OPENCL, device);
            }
            // What a CPU computes with any code of the process can reach. The first one is number
            // 0.
            let before = driver.devices.iter().take(device as usize).filter(|card| is_cpu(card));
            (DLPACK_CPU, before.count() as i32)
        };
        Some(driver.card(device).map(of))
    }
}
