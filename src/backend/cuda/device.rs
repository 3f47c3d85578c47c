//! Properties of CUDA devices.

use super::driver::{CudaDriver, text};
use super::symbols::*;
use crate::abi::devices::device::dtl_device_info_t;
use crate::abi::word::DTL_DEVICE_GPU;
use crate::backend::driver::{Devices, Driver as _};
use crate::error::Result;
use crate::runtime::copy_text;
use std::cell::Cell;
use std::fs;

/// DLPack device type kDLCUDA.
const DLPACK_CUDA: i32 = 2;

thread_local! {
    /// Device that the thread has selected, with the number of the backend
    /// (`DeviceBackend::generation`) for which the selection is valid.
    pub(super) static CHOSEN: Cell<(u64, i32)> = const { Cell::new((0, 0)) };
}

impl Devices for CudaDriver {
    /// Returns the device of the calling thread's CUDA context, or device 0 if the thread has no
    /// context.
    fn default_device(&self) -> i32 {
        let mut id = 0;
        // SAFETY: `id` is valid for writing a device handle.
        if unsafe { (self.cuda.cuCtxGetDevice)(&raw mut id) } != CUDA_SUCCESS {
            return 0;
        }
        self.cards.iter().position(|card| card.id == id).unwrap_or(0) as i32
    }

    fn describe(&self, device: i32, out: &mut dtl_device_info_t) -> Result<()> {
        let card = self.card(device)?;
        let mut bytes = 0;
        // SAFETY: `card.id` is a device of the driver, and `bytes` is valid for writing a size.
        let code = unsafe { (self.cuda.cuDeviceTotalMem_v2)(&raw mut bytes, card.id) };
        self.cuda.check(code, "cuDeviceTotalMem")?;
        let number = |what| u32::try_from(self.attribute(card, what)).unwrap_or(0);
        (out.kind, out.total_bytes) = (DTL_DEVICE_GPU, bytes as u64);
        out.compute_units = number(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
        out.max_block_threads = number(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
        let (block, grid) =
            (CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
        out.max_block = [0, 1, 2].map(|axis| number(block + axis));
        out.max_grid = [0, 1, 2].map(|axis| number(grid + axis));
        copy_text(&mut out.name, &card.name);
        let pci = text::<32>(|room, to| {
            // SAFETY: `card.id` is a device of the driver, and `to` is valid for writing `room`
            // bytes.
            unsafe { (self.cuda.cuDeviceGetPCIBusId)(to, room, card.id) }
        });
        out.numa_node = numa_node(&pci);
        copy_text(&mut out.pci, &pci);
        Ok(())
    }

    fn memory_info(&self, device: i32) -> Result<(u64, u64)> {
        let _inside = self.enter(device)?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: `free` and `total` are valid for writing a size.
        let code = unsafe { (self.cuda.cuMemGetInfo_v2)(&raw mut free, &raw mut total) };
        self.cuda.check(code, "cuMemGetInfo").map(|()| (free as u64, total as u64))
    }

    fn synchronize(&self, device: i32) -> Result<()> {
        let _inside = self.enter(device)?;
        // SAFETY: cuCtxSynchronize takes no arguments, and the device's context is current.
        self.cuda.check(unsafe { (self.cuda.cuCtxSynchronize)() }, "cuCtxSynchronize")
    }

    fn dlpack(&self, device: i32) -> Result<(i32, i32)> {
        self.card(device).map(|card| (DLPACK_CUDA, card.id))
    }
}

/// Returns the NUMA node of a PCI device as the operating system reports it, or -1 if unknown.
fn numa_node(pci: &str) -> i32 {
    let file = format!("/sys/bus/pci/devices/{}/numa_node", pci.to_ascii_lowercase());
    fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(-1)
}
