//! Copies and fills of backend "cuda". A synchronous call uses an internal stream of the device and
//! waits for it; an asynchronous call uses the caller's stream.
//!
//! Unified addressing gives device and host memory distinct addresses, so the driver derives the
//! memory type from the address. For a copy between two devices, the library passes the contexts of
//! both devices to the driver, because memory from one device's pool is not accessible to the other
//! device.

use super::driver::{Block, Cuda, CudaDriver};
use super::stream::CudaStream;
use super::symbols::*;
use crate::abi::devices::device::DTL_PREFETCH_HOST;
use crate::backend::driver::{Driver as _, Queue as _, stream_of};
use crate::error::{Result, failure};
use crate::runtime::component::{CopySide, Rows, Token, Transfer};
use crate::sys::memory::buf::{Addr, Region};
use std::mem;
use std::sync::Arc;

impl Cuda {
    /// Returns the destination device and the source device of a copy. They are equal unless the
    /// copy involves device memory of two devices.
    fn devices(&self, dst: CopySide, src: CopySide) -> Result<(i32, i32)> {
        match (self.side(dst), self.side(src)) {
            (Some(to), Some(from)) if from.is_on_device() => {
                let target = if to.is_on_device() { to.device } else { from.device };
                Ok((target, from.device))
            }
            (Some(block), _) | (None, Some(block)) => Ok((block.device, block.device)),
            (None, None) => self.block_of(dst).map(|block| (block.device, block.device)),
        }
    }

    fn block_of(&self, place: CopySide) -> Result<Block> {
        self.side(place).ok_or_else(|| {
            failure!(DTL_ERROR_INTERNAL, "{:?} is no memory of backend cuda", place.region.addr())
        })
    }
}

/// Queues a copy from device `source` to device `target` on `stream`. The caller must have made the
/// stream's context current.
fn queue(
    driver: &CudaDriver,
    stream: Addr,
    (target, source): (i32, i32),
    dst: Region,
    src: Region,
) -> Result<()> {
    let cuda = driver.cuda;
    let (to, from, stream) =
        (dst.addr().get() as CUdeviceptr, src.addr().get() as CUdeviceptr, stream.ptr());
    if target == source {
        // SAFETY: both ranges have this length, and the caller reserves them for this copy until
        // the copy has ended.
        let code = unsafe { (cuda.cuMemcpyAsync)(to, from, dst.len(), stream) };
        return cuda.check(code, "a copy (cuMemcpyAsync)");
    }
    let (target, source) = (driver.context(target)?.ptr(), driver.context(source)?.ptr());
    // SAFETY: both ranges have this length, and the caller reserves them for this copy until the
    // copy has ended. Each range is accessible in the primary context of its device.
    let code = unsafe { (cuda.cuMemcpyPeerAsync)(to, target, from, source, dst.len(), stream) };
    cuda.check(code, "a copy between two devices (cuMemcpyPeerAsync)")
}

/// Queues a fill of every byte of `dst` on `stream`. The caller must have made the stream's context
/// current.
fn queue_fill(driver: &CudaDriver, stream: Addr, dst: Region, value: u8) -> Result<()> {
    let to = dst.addr().get() as CUdeviceptr;
    // SAFETY: the caller reserves the range for this fill until the fill has ended.
    let code = unsafe { (driver.cuda.cuMemsetD8Async)(to, value, dst.len(), stream.ptr()) };
    driver.cuda.check(code, "a fill (cuMemsetD8Async)")
}

/// Calls `work` to queue commands on the internal copy stream of `device`, and waits until the
/// commands have completed. The device's context is current during the call to `work`.
fn done_on(driver: &CudaDriver, device: i32, work: impl FnOnce(Addr) -> Result<()>) -> Result<()> {
    let _inside = driver.enter(device)?;
    let stream = driver.own_stream(&driver.card(device)?.copies)?;
    work(stream)?;
    // SAFETY: `stream` is an internal stream of the library, so it is alive.
    let code = unsafe { (driver.cuda.cuStreamSynchronize)(stream.ptr()) };
    driver.cuda.check(code, "a copy or fill (cuStreamSynchronize)")
}

/// Calls `work` to queue commands in the order of stream `on`, with a context of `device` current.
/// If `on` belongs to another device, `work` receives a temporary stream of `device`. The temporary
/// stream waits for the commands already queued on `on`, and `on` then waits for the temporary
/// stream.
fn in_order(on: &CudaStream, device: i32, work: impl FnOnce(Addr) -> Result<()>) -> Result<()> {
    let _inside = on.enter()?;
    if on.device == device {
        return work(on.id);
    }
    let before = on.record(false)?;
    let beside = CudaStream::create(&on.driver, device, 0)?;
    let there = beside.enter()?;
    beside.wait_event(&before)?;
    work(beside.id)?;
    let after = beside.record(false)?;
    // Destroys the temporary stream; the driver still executes the commands that are queued on the
    // stream.
    drop(beside);
    drop(there);
    on.wait_event(&after).map(drop)
}

impl Transfer for Arc<Cuda> {
    fn copy(&self, dst: CopySide, src: CopySide) -> Result<()> {
        let (driver, (target, source)) = (self.driver.get()?, self.devices(dst, src)?);
        done_on(&driver, target, |stream| {
            queue(&driver, stream, (target, source), dst.region, src.region)
        })
    }

    fn copy_async(&self, stream: Token, dst: CopySide, src: CopySide) -> Result<Option<()>> {
        let on = &stream_of::<CudaDriver>(stream).queue;
        let (target, source) = self.devices(dst, src)?;
        // The driver reads pageable memory before the call returns. The copy is in stream order
        // only if no command precedes it; otherwise the caller waits for the stream.
        if self.side(src).is_none() && !on.is_idle(0, 0)? {
            return Ok(None);
        }
        let device = if on.device == source { source } else { target };
        let queued = in_order(on, device, |stream| {
            queue(&on.driver, stream, (target, source), dst.region, src.region)
        });
        queued.map(Some)
    }

    fn copy_2d(&self, dst: CopySide, src: CopySide, rows: Rows) -> Result<Option<()>> {
        let Rows { pitches: (dst_pitch, src_pitch), width, height } = rows;
        let driver = self.driver.get()?;
        let (device, source) = self.devices(dst, src)?;
        if device != source {
            return Ok(None); // the caller copies row by row
        }
        let most = driver.attribute(driver.card(device)?, CU_DEVICE_ATTRIBUTE_MAX_PITCH);
        if dst_pitch.max(src_pitch) > u64::try_from(most).unwrap_or(0) {
            return Ok(None);
        }
        // SAFETY: the struct has only integers and raw pointers, which may be 0.
        let zeroed: CUDA_MEMCPY2D = unsafe { mem::zeroed() };
        let rows = CUDA_MEMCPY2D {
            srcMemoryType: CU_MEMORYTYPE_UNIFIED,
            srcDevice: src.region.addr().get() as CUdeviceptr,
            srcPitch: src_pitch as usize,
            dstMemoryType: CU_MEMORYTYPE_UNIFIED,
            dstDevice: dst.region.addr().get() as CUdeviceptr,
            dstPitch: dst_pitch as usize,
            WidthInBytes: width as usize,
            Height: height as usize,
            ..zeroed
        };
        let queue = |stream: Addr| {
            // SAFETY: all rows lie within two ranges that the caller reserves for this copy
            // until the copy has ended.
            let code = unsafe { (driver.cuda.cuMemcpy2DAsync_v2)(&raw const rows, stream.ptr()) };
            driver.cuda.check(code, "a copy of rows (cuMemcpy2DAsync)")
        };
        done_on(&driver, device, queue).map(Some)
    }

    fn fill(&self, dst: CopySide, value: u8) -> Result<Option<()>> {
        let (driver, block) = (self.driver.get()?, self.block_of(dst)?);
        done_on(&driver, block.device, |stream| queue_fill(&driver, stream, dst.region, value))
            .map(Some)
    }

    fn fill_async(&self, stream: Token, dst: CopySide, value: u8) -> Result<Option<()>> {
        let on = &stream_of::<CudaDriver>(stream).queue;
        let device = self.block_of(dst)?.device;
        in_order(on, device, |stream| queue_fill(&on.driver, stream, dst.region, value)).map(Some)
    }

    fn prefetch(&self, stream: Token, place: CopySide, device: i32) -> Result<Option<()>> {
        let on = &stream_of::<CudaDriver>(stream).queue;
        let driver = &on.driver;
        let (Some(prefetch), true) = (
            driver.cuda.cuMemPrefetchAsync,
            self.side(place).is_some_and(|block| block.is_managed()),
        ) else {
            return Ok(None);
        };
        // Prefetching is possible only where pages migrate while devices work. The host has no
        // device index, so the attribute of the stream's device decides for a prefetch to it.
        let mover = driver.card(if device == DTL_PREFETCH_HOST { on.device } else { device })?;
        if driver.attribute(mover, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS) == 0 {
            return Ok(Some(()));
        }
        let to = if device == DTL_PREFETCH_HOST { CU_DEVICE_CPU } else { mover.id };
        let _inside = on.enter()?;
        let (at, len) = (place.region.addr().get() as CUdeviceptr, place.region.len());
        // SAFETY: the range is managed memory, and the context of the stream is current.
        let code = unsafe { prefetch(at, len, to, on.id.ptr()) };
        driver.cuda.check(code, "cuMemPrefetchAsync").map(Some)
    }
}
