//! Copies and fills: on a stream of the device's own that is waited for, or on the caller's.
//!
//! One address names one place, on devices and host alike, so the driver finds out by itself what a pointer is. Between two
//! devices it is told: what a pool gave is not open to the other device.

use super::Cuda;
use super::driver::{Driver, Use};
use super::exec::lane;
use super::functions::*;
use super::memory::Block;
use crate::error::{Result, fail};
use crate::runtime::backend::{Place, Token, Transfer};
use crate::sys::buf::{Addr, Region};
use std::ptr;
use std::sync::Arc;

/// How a copy goes.
enum Way {
    /// All that lies on a device lies on this one.
    On(i32),
    /// From one device to another.
    Between(i32, i32),
}

impl Cuda {
    fn way(&self, dst: Region, src: Region) -> Result<Way> {
        match (self.block(dst.addr()), self.block(src.addr())) {
            (Some(to), Some(from))
                if to.is_on_device() && from.is_on_device() && to.device != from.device =>
            {
                Ok(Way::Between(to.device, from.device))
            }
            (Some(to), Some(from)) if from.is_on_device() && !to.is_on_device() => Ok(Way::On(from.device)),
            (Some(block), _) | (None, Some(block)) => Ok(Way::On(block.device)),
            (None, None) => self.block_of(dst.addr()).map(|block| Way::On(block.device)),
        }
    }

    fn block_of(&self, addr: Addr) -> Result<Block> {
        match self.block(addr) {
            Some(block) => Ok(block),
            None => fail!(DTL_ERROR_INTERNAL, "{addr:?} is no memory of backend cuda"),
        }
    }
}

/// Queues a copy on a stream, whose context is current.
fn queue(driver: &Driver, stream: Addr, way: &Way, dst: Region, src: Region) -> Result<()> {
    let cuda = driver.cuda;
    let (to, from, stream) = (dst.addr().get() as Ptr, src.addr().get() as Ptr, stream.ptr());
    match *way {
        Way::On(_) => {
            // SAFETY: two ranges of this length that the caller has given to this copy until it has ended.
            cuda.check(unsafe { (cuda.cuMemcpyAsync)(to, from, dst.len(), stream) }, "a copy (cuMemcpyAsync)")
        }
        Way::Between(target, source) => {
            let (target, source) = (driver.context(target)?.ptr(), driver.context(source)?.ptr());
            // SAFETY: as above, each in its device's primary context.
            let code = unsafe { (cuda.cuMemcpyPeerAsync)(to, target, from, source, dst.len(), stream) };
            cuda.check(code, "a copy between two devices (cuMemcpyPeerAsync)")
        }
    }
}

/// Queues setting every byte on a stream, whose context is current.
fn queue_fill(driver: &Driver, stream: Addr, dst: Region, value: u8) -> Result<()> {
    let to = dst.addr().get() as Ptr;
    // SAFETY: a range that the caller has given to this call until it has ended.
    let code = unsafe { (driver.cuda.cuMemsetD8Async)(to, value, dst.len(), stream.ptr()) };
    driver.cuda.check(code, "a fill (cuMemsetD8Async)")
}

/// Does something on a device's own stream, whose context is current meanwhile, and waits for it.
fn done_on(driver: &Driver, device: i32, work: impl FnOnce(Addr) -> Result<()>) -> Result<()> {
    let _inside = driver.enter(device)?;
    let stream = driver.own_stream(device, Use::Copies)?;
    work(stream)?;
    // SAFETY: the library's own stream.
    let code = unsafe { (driver.cuda.cuStreamSynchronize)(stream.ptr()) };
    driver.cuda.check(code, "a copy or fill (cuStreamSynchronize)")
}

impl Transfer for Arc<Cuda> {
    fn copy(&self, dst: Place, src: Place) -> Result<()> {
        let (driver, way) = (self.driver()?, self.way(dst.region, src.region)?);
        let (Way::On(device) | Way::Between(device, _)) = way;
        done_on(&driver, device, |stream| queue(&driver, stream, &way, dst.region, src.region))
    }

    fn copy_async(&self, stream: Token, dst: Place, src: Place) -> Option<Result<()>> {
        let lane = lane(stream);
        let way = match self.way(dst.region, src.region) {
            Ok(way) => way,
            Err(error) => return Some(Err(error)),
        };
        let is_here = match way {
            Way::On(device) => device == lane.device,
            Way::Between(target, source) => [target, source].contains(&lane.device),
        };
        // Memory of another device alone: the caller waits for the stream and copies.
        is_here.then(|| {
            let _inside = lane.enter()?;
            queue(&lane.driver, lane.stream, &way, dst.region, src.region)
        })
    }

    fn copy_2d(
        &self,
        dst: Place,
        dst_pitch: u64,
        src: Place,
        src_pitch: u64,
        width: u64,
        height: u64,
    ) -> Option<Result<()>> {
        let work = || {
            let driver = self.driver()?;
            let Way::On(device) = self.way(dst.region, src.region)? else { return Ok(false) };
            // One row may be as long as it likes: then the pitch does not matter, but may not be less.
            let (target_pitch, source_pitch) = (dst_pitch.max(width), src_pitch.max(width));
            let most = driver.attribute(driver.card(device)?, CU_DEVICE_ATTRIBUTE_MAX_PITCH) as u64;
            if target_pitch.max(source_pitch) > most {
                return Ok(false);
            }
            let rows = Rows {
                source_x: 0,
                source_y: 0,
                source_type: CU_MEMORYTYPE_UNIFIED as Uint,
                source_host: ptr::null(),
                source: src.region.addr().get() as Ptr,
                source_array: ptr::null_mut(),
                source_pitch: source_pitch as usize,
                target_x: 0,
                target_y: 0,
                target_type: CU_MEMORYTYPE_UNIFIED as Uint,
                target_host: ptr::null_mut(),
                target: dst.region.addr().get() as Ptr,
                target_array: ptr::null_mut(),
                target_pitch: target_pitch as usize,
                width: width as usize,
                height: height as usize,
            };
            let queue = |stream: Addr| {
                // SAFETY: rows within two ranges that the caller has given to this copy until it has ended.
                let code = unsafe { (driver.cuda.cuMemcpy2DAsync_v2)(&raw const rows, stream.ptr()) };
                driver.cuda.check(code, "a copy of rows (cuMemcpy2DAsync)")
            };
            done_on(&driver, device, queue).map(|()| true)
        };
        match work() {
            Ok(true) => Some(Ok(())),
            Ok(false) => None, // row by row
            Err(error) => Some(Err(error)),
        }
    }

    fn fill(&self, dst: Place, value: u8) -> Option<Result<()>> {
        let fill = || {
            let (driver, block) = (self.driver()?, self.block_of(dst.region.addr())?);
            done_on(&driver, block.device, |stream| queue_fill(&driver, stream, dst.region, value))
        };
        Some(fill())
    }

    fn fill_async(&self, stream: Token, dst: Place, value: u8) -> Option<Result<()>> {
        let lane = lane(stream);
        let is_here = self.block(dst.region.addr()).is_some_and(|block| block.device == lane.device);
        is_here.then(|| {
            let _inside = lane.enter()?;
            queue_fill(&lane.driver, lane.stream, dst.region, value)
        })
    }
}
