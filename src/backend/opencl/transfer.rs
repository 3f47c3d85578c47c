//! Copies and fills, by the queue of the device that the memory was taken on.

use super::OpenCl;
use super::memory::Block;
use crate::error::{Result, fail};
use crate::runtime::backend::{Place, Token, Transfer};
use crate::sys::buf::{Addr, Region, Scratch};
use std::sync::Arc;

/// Bytes that a copy between two drivers moves at a time.
const STAGE: usize = 4 << 20;

impl OpenCl {
    /// The platforms of the sides' memory that is OpenCL's.
    fn platforms(&self, blocks: [Option<Block>; 2]) -> Result<[Option<usize>; 2]> {
        let driver = self.driver()?;
        let of =
            |block: Option<Block>| block.map(|block| driver.card(block.device).map(|card| card.platform));
        let [first, second] = blocks;
        Ok([of(first).transpose()?, of(second).transpose()?])
    }

    fn copy_on(&self, device: i32, dst: Region, src: Region) -> Result<()> {
        let queue = self.driver()?.copies(device)?;
        queue.copy(dst, src)?.finish("a copy")
    }

    /// Between two drivers, neither of which knows the other's memory.
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

    fn block_of(&self, addr: Addr) -> Result<Block> {
        match self.block(addr) {
            Some(block) => Ok(block),
            None => fail!(DTL_ERROR_INTERNAL, "{addr:?} is no memory of backend opencl"),
        }
    }
}

impl Transfer for Arc<OpenCl> {
    fn copy(&self, dst: Place, src: Place) -> Result<()> {
        let blocks = [self.block(dst.region.addr()), self.block(src.region.addr())];
        let platforms = self.platforms(blocks)?;
        match (blocks, platforms) {
            ([Some(to), Some(from)], [one, other]) if one != other => {
                self.copy_across(to.device, dst.region, from.device, src.region)
            }
            ([Some(block), _] | [None, Some(block)], _) => self.copy_on(block.device, dst.region, src.region),
            ([None, None], _) => self.block_of(dst.region.addr()).map(|_| ()),
        }
    }

    fn copy_async(&self, stream: Token, dst: Place, src: Place) -> Option<Result<()>> {
        let lane = match self.lane(stream) {
            Ok(lane) => lane,
            Err(error) => return Some(Err(error)),
        };
        let platforms = self.platforms([self.block(dst.region.addr()), self.block(src.region.addr())]);
        match platforms {
            Err(error) => Some(Err(error)),
            // Another driver's memory: the caller waits for the stream and copies.
            Ok(all) if all.iter().flatten().any(|platform| *platform != lane.queue().platform) => None,
            Ok(_) => Some(lane.copy(dst.region, src.region)),
        }
    }

    fn fill(&self, dst: Place, value: u8) -> Option<Result<()>> {
        let fill = || {
            let block = self.block_of(dst.region.addr())?;
            let queue = self.driver()?.copies(block.device)?;
            queue.fill(dst.region, value)?.finish("a fill")
        };
        Some(fill())
    }
}
