//! Copies and fills, queued on the device on which the memory was allocated. OpenCL treats pinned
//! memory as host memory.
//!
//! OpenCL copies shared virtual memory only in contiguous ranges (clEnqueueSVMMemcpy). A
//! two-dimensional copy is therefore one command per row, with one wait for each batch of up to
//! `ROWS` rows. A kernel cannot perform the copy, because host memory cannot be a kernel argument.

use super::OpenCl;
use super::driver::ClDriver;
use crate::abi::word::{DTL_MEMORY_DEVICE, DTL_MEMORY_MANAGED};
use crate::backend::driver::{Command, Driver as _, stream_of};
use crate::error::{Result, fail};
use crate::runtime::component::{CopySide, Rows, Token, Transfer};
use crate::sys::memory::buf::{Region, Scratch};
use std::sync::Arc;

/// Maximum number of bytes that one step of a copy between two drivers moves through host memory.
const STAGE: usize = 4 << 20;
/// Maximum number of row copies queued at the same time.
const ROWS: usize = 64;

impl OpenCl {
    /// Returns the device and the platform index of one side of a copy or fill; `None` unless the
    /// side is shared virtual memory that this backend or the application allocated.
    fn shared(&self, side: CopySide) -> Result<Option<(i32, usize)>> {
        let driver = self.driver.get()?;
        let device = match self.blocks.find(side.region.addr()) {
            Some(block) if block.origin.is_some() => return Ok(None), // pinned host memory
            Some(block) => block.device,
            None if !matches!(side.kind, DTL_MEMORY_DEVICE | DTL_MEMORY_MANAGED) => {
                return Ok(None);
            }
            None if driver.card(side.device).is_err() => return Ok(None),
            None => side.device,
        };
        Ok(Some((device, driver.card(device)?.platform)))
    }

    fn copy_rows(
        &self,
        device: i32,
        dst: ClRows,
        src: ClRows,
        width: usize,
        height: u64,
    ) -> Result<()> {
        let queue = self.driver.get()?.copies(device)?;
        if dst.pitch == width as u64 && src.pitch == width as u64 {
            return queue.copy(dst.region, src.region)?.finish("a copy");
        }
        let mut events = [const { None }; ROWS];
        for first in (0..height).step_by(ROWS) {
            let mut queued = Ok(());
            for (slot, row) in events.iter_mut().zip(first..height) {
                match queue.copy(dst.row(row, width), src.row(row, width)) {
                    Ok(event) => *slot = Some(event),
                    Err(error) => {
                        queued = Err(error);
                        break;
                    }
                }
            }
            // Wait even after a failure: no queued command may access the caller's rows after the
            // return.
            for event in events.iter_mut().filter_map(Option::take) {
                let ended = event.finish("a copy of rows");
                queued = queued.and(ended);
            }
            queued?;
        }
        Ok(())
    }

    fn copy_on(&self, device: i32, dst: Region, src: Region) -> Result<()> {
        let queue = self.driver.get()?.copies(device)?;
        queue.copy(dst, src)?.finish("a copy")
    }

    /// Copies between devices of two drivers through host memory, because neither driver can access
    /// the memory of the other.
    fn copy_across(&self, to: i32, dst: Region, from: i32, src: Region) -> Result<()> {
        let len = dst.len().min(STAGE);
        let Some(stage) = Scratch::unwritten(len) else {
            return fail!(
                DTL_ERROR_OUT_OF_MEMORY,
                "no {len} bytes of host memory for a copy between two drivers"
            );
        };
        for offset in (0..dst.len()).step_by(STAGE) {
            let piece = stage.region().part(0, dst.len() - offset);
            self.copy_on(from, piece, src.part(offset, STAGE))?;
            self.copy_on(to, dst.part(offset, STAGE), piece)?;
        }
        Ok(())
    }
}

/// Source rows or destination rows of a two-dimensional copy.
#[derive(Clone, Copy)]
struct ClRows {
    region: Region,
    pitch: u64,
}

impl ClRows {
    fn row(&self, row: u64, width: usize) -> Region {
        self.region.part((row * self.pitch) as usize, width)
    }
}

impl Transfer for Arc<OpenCl> {
    fn copy(&self, dst: CopySide, src: CopySide) -> Result<()> {
        match (self.shared(dst)?, self.shared(src)?) {
            (Some((to, one)), Some((from, other))) if one != other => {
                self.copy_across(to, dst.region, from, src.region)
            }
            (Some((device, _)), _) | (None, Some((device, _))) => {
                self.copy_on(device, dst.region, src.region)
            }
            (None, None) => {
                dst.region.copy_from(src.region);
                Ok(())
            }
        }
    }

    fn copy_async(&self, stream: Token, dst: CopySide, src: CopySide) -> Result<Option<()>> {
        let stream = stream_of::<ClDriver>(stream);
        // Memory of another driver: the caller waits for the stream and copies.
        let sides = [self.shared(dst)?, self.shared(src)?];
        if sides.iter().flatten().any(|(_, platform)| *platform != stream.queue.platform) {
            return Ok(None);
        }
        stream.enqueue(Command::Copy, |queue| queue.copy(dst.region, src.region)).map(Some)
    }

    fn copy_2d(&self, dst: CopySide, src: CopySide, rows: Rows) -> Result<Option<()>> {
        let Rows { pitches: (dst_pitch, src_pitch), width, height } = rows;
        let device = match (self.shared(dst)?, self.shared(src)?) {
            (Some((_, one)), Some((_, other))) if one != other => return Ok(None),
            (Some((device, _)), _) | (None, Some((device, _))) => device,
            (None, None) => return Ok(None),
        };
        let dst = ClRows { region: dst.region, pitch: dst_pitch };
        let src = ClRows { region: src.region, pitch: src_pitch };
        self.copy_rows(device, dst, src, width as usize, height).map(Some)
    }

    fn fill(&self, dst: CopySide, value: u8) -> Result<Option<()>> {
        let Some((device, _)) = self.shared(dst)? else {
            dst.region.fill(value);
            return Ok(Some(()));
        };
        let queue = self.driver.get()?.copies(device)?;
        queue.fill(dst.region, value)?.finish("a fill").map(Some)
    }

    fn fill_async(&self, stream: Token, dst: CopySide, value: u8) -> Result<Option<()>> {
        let stream = stream_of::<ClDriver>(stream);
        // For pinned memory or memory of another driver, the caller waits for the stream and
        // fills.
        if self.shared(dst)?.is_none_or(|(_, platform)| platform != stream.queue.platform) {
            return Ok(None);
        }
        stream.enqueue(Command::Fill, |queue| queue.fill(dst.region, value)).map(Some)
    }
}
