//! Devices: the calling thread's one, and what they tell.

use super::Cuda;
use super::driver::{Driver, text};
use super::errors::SUCCESS;
use super::symbols::*;
use crate::abi::device::dtl_device_info_t;
use crate::abi::word::DTL_DEVICE_GPU;
use crate::error::Result;
use crate::runtime::backend::Device;
use crate::runtime::copy_text;
use std::cell::Cell;
use std::fs;
use std::sync::Arc;

/// DLPack's kDLCUDA.
const DLPACK_CUDA: i32 = 2;

thread_local! {
    /// The device that this thread chose, and of which driver.
    static CURRENT: Cell<(u64, i32)> = const { Cell::new((0, 0)) };
}

impl Cuda {
    /// The calling thread's current device: what it chose here, else that of the CUDA context that
    /// it has, else the first.
    pub(super) fn current(&self, driver: &Driver) -> i32 {
        let (generation, device) = CURRENT.get();
        if generation == driver.generation {
            return device;
        }
        let mut id = 0;
        // SAFETY: room for a device.
        if unsafe { (driver.cuda.cuCtxGetDevice)(&raw mut id) } != SUCCESS {
            return 0;
        }
        driver.cards.iter().position(|card| card.id == id).unwrap_or(0) as i32
    }

    fn describe_device(&self, device: i32, out: &mut dtl_device_info_t) -> Result<()> {
        let driver = self.driver.get()?;
        let card = driver.card(device)?;
        let mut bytes = 0;
        // SAFETY: a device of the driver's and room for a size.
        let code = unsafe { (driver.cuda.cuDeviceTotalMem_v2)(&raw mut bytes, card.id) };
        driver.cuda.check(code, "cuDeviceTotalMem")?;
        let number = |what| u32::try_from(driver.attribute(card, what)).unwrap_or(0);
        (out.kind, out.total_bytes) = (DTL_DEVICE_GPU, bytes as u64);
        out.compute_units = number(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
        out.max_block_threads = number(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
        let (block, grid) =
            (CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
        out.max_block = [0, 1, 2].map(|axis| number(block + axis));
        out.max_grid = [0, 1, 2].map(|axis| number(grid + axis));
        copy_text(&mut out.name, &card.name);
        let pci = text::<32>(|room, to| {
            // SAFETY: a device of the driver's and room for as many bytes as are said.
            unsafe { (driver.cuda.cuDeviceGetPCIBusId)(to, room, card.id) }
        });
        out.numa_node = numa_node(&pci);
        copy_text(&mut out.pci, &pci);
        Ok(())
    }

    fn free_and_total(&self, device: i32) -> Result<(u64, u64)> {
        let driver = self.driver.get()?;
        let inside = driver.enter(device)?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: room for two sizes.
        let code = unsafe { (driver.cuda.cuMemGetInfo_v2)(&raw mut free, &raw mut total) };
        drop(inside);
        driver.cuda.check(code, "cuMemGetInfo").map(|()| (free as u64, total as u64))
    }

    fn finish(&self, device: i32) -> Result<()> {
        let driver = self.driver.get()?;
        let _inside = driver.enter(device)?;
        // SAFETY: takes nothing; the device's context is current.
        driver.cuda.check(unsafe { (driver.cuda.cuCtxSynchronize)() }, "cuCtxSynchronize")
    }
}

/// The kernel's word for where a PCI device hangs; -1 = it does not say.
fn numa_node(pci: &str) -> i32 {
    let file = format!("/sys/bus/pci/devices/{}/numa_node", pci.to_ascii_lowercase());
    fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(-1)
}

impl Device for Arc<Cuda> {
    fn count(&self) -> Result<i32> {
        Ok(self.driver.get()?.cards.len() as i32)
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
        Some(self.free_and_total(device))
    }

    fn synchronize(&self, device: i32) -> Option<Result<()>> {
        Some(self.finish(device))
    }

    fn dlpack(&self, device: i32) -> Option<Result<(i32, i32)>> {
        Some(
            self.driver
                .get()
                .and_then(|driver| driver.card(device).map(|card| (DLPACK_CUDA, card.id))),
        )
    }
}
