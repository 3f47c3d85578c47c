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

    fn info(&self, device: i32, out: &mut dtl_device_info_t) -> Result<()> {
        self.driver.get()?.describe(device, out)
    }

    fn memory_info(&self, device: i32) -> Result<Option<(u64, u64)>> {
        self.driver.get()?.memory_info(device).map(Some)
    }

    fn synchronize(&self, device: i32) -> Result<()> {
        self.driver.get()?.synchronize(device)
    }

    fn dlpack(&self, device: i32) -> Result<Option<(i32, i32)>> {
        self.driver.get()?.dlpack(device).map(Some)
    }
}
