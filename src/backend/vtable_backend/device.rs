//! Adapter from a C table of device functions to [`Device`].

use super::{BackendObject, call, presence, required};
use crate::abi::backend::vtable::dtl_device_vtable_t;
use crate::abi::devices::device::dtl_device_info_t;
use crate::error::Result;
use crate::runtime::component::Device;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

pub(super) struct NativeDevice {
    owner: Arc<BackendObject>,
    table: dtl_device_vtable_t,
    /// Device count that the function `count` of the table reported last; 0 before the first call.
    known: AtomicI32,
}

impl NativeDevice {
    pub(super) fn new(owner: Arc<BackendObject>, table: &dtl_device_vtable_t) -> Result<Self> {
        required("device", presence!(table, count, get, set))?;
        Ok(NativeDevice { owner, table: *table, known: AtomicI32::new(0) })
    }
}

impl Device for NativeDevice {
    fn count(&self) -> Result<i32> {
        let mut count = 0;
        call!(self.device.count(&raw mut count))?;
        if count < 0 {
            let text = format!("wrote {count}: use a number from 0");
            return Err(self.owner.invalid("device.count", &text));
        }
        // Relaxed: the count is only a bound for a comparison, and `get` queries it again before it
        // fails.
        self.known.store(count, Ordering::Relaxed);
        Ok(count)
    }

    fn set(&self, device: i32) -> Result<()> {
        call!(self.device.set(device))
    }

    fn get(&self) -> Result<i32> {
        let mut device = 0;
        call!(self.device.get(&raw mut device))?;
        let is_known = (0..self.known.load(Ordering::Relaxed)).contains(&device);
        if !is_known && !(0..self.count()?).contains(&device) {
            let count = self.known.load(Ordering::Relaxed);
            let text = format!(
                "wrote device {device}, and device.count {count}: use a number below it, from 0"
            );
            return Err(self.owner.invalid("device.get", &text));
        }
        Ok(device)
    }

    fn info(&self, device: i32, out: &mut dtl_device_info_t) -> Result<()> {
        out.struct_size = size_of::<dtl_device_info_t>() as u32;
        let Some(slot) = self.table.info else { return Ok(()) };
        let answer = call!(self, "device.info", slot, device, &raw mut *out);
        // Terminate the texts inside their fields, whatever the slot wrote.
        if let (Some(name), Some(pci)) = (out.name.last_mut(), out.pci.last_mut()) {
            (*name, *pci) = (0, 0);
        }
        answer
    }

    fn memory_info(&self, device: i32) -> Result<Option<(u64, u64)>> {
        let (mut free, mut total) = (0, 0);
        call!(self.device.memory_info?(device, &raw mut free, &raw mut total))?;
        Ok(Some((free, total)))
    }

    fn synchronize(&self, device: i32) -> Result<()> {
        let Some(slot) = self.table.synchronize else { return Ok(()) };
        call!(self, "device.synchronize", slot, device)
    }

    fn dlpack(&self, device: i32) -> Result<Option<(i32, i32)>> {
        let (mut kind, mut id) = (0, 0);
        call!(self.device.dlpack?(device, &raw mut kind, &raw mut id))?;
        Ok(Some((kind, id)))
    }
}
