//! Devices of a driver backend: the device list, and the current device of each thread.

use super::{DeviceBackend, Driver};
use crate::abi::devices::device::dtl_device_info_t;
use crate::error::Result;
use crate::runtime::component::Device;
use std::sync::Arc;

impl<D: Driver> Device for Arc<DeviceBackend<D>> {
    fn count(&self) -> Result<i32> {
        Ok(self.driver.get()?.cards().len() as i32)
    }

    fn set(&self, device: i32) -> Result<()> {
        self.driver.get()?.card(device)?;
        D::CHOSEN.set((self.generation, device));
        Ok(())
    }

    fn get(&self) -> Result<i32> {
        Ok(self.current(&*self.driver.get()?))
    }

    fn info(&self, device: i32, out: &mut dtl_device_info_t) -> Option<Result<()>> {
        Some(self.driver.get().and_then(|driver| driver.describe(device, out)))
    }

    fn memory_info(&self, device: i32) -> Option<Result<(u64, u64)>> {
        Some(self.driver.get().and_then(|driver| driver.memory_info(device)))
    }

    fn synchronize(&self, device: i32) -> Option<Result<()>> {
        Some(self.driver.get().and_then(|driver| driver.synchronize(device)))
    }

    fn dlpack(&self, device: i32) -> Option<Result<(i32, i32)>> {
        Some(self.driver.get().and_then(|driver| driver.dlpack(device)))
    }
}
