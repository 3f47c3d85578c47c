//! Copies and fills between any two kinds of memory: by a backend if one side is its memory, by the
//! host if the host can access both sides, through a host buffer between devices of two backends.
//!
//! In reading order:
//! - `async_copy`: copies and fills in stream order
//! - `strided`: copies of strided elements

pub mod async_copy;
pub mod strided;

use super::{Located, locate};
use crate::abi::word::DTL_OPERATION_COPY;
use crate::error::{Error, Result, fail, failure};
use crate::runtime::component::{CopySide, Transfer};
use crate::runtime::library_ops;
use crate::runtime::memory::handlers::{self, Axes};
use crate::runtime::registry::Backend;
use crate::runtime::trace::{self, Args};
use crate::runtime::{enums, explain};
use crate::sys::handles::epoch::{self, Guard};
use crate::sys::memory::buf::{Region, Scratch};

/// Size in bytes of the host buffer for a copy between two devices.
const STAGE: usize = 4 << 20;

/// Copies `src` to `dst` (same length) and determines the owner of each range.
pub fn copy(inside: &Guard, dst: Region, src: Region) -> Result<()> {
    if dst.is_empty() {
        return Ok(());
    }
    check_apart(dst, src)?;
    let (dst, src) = (locate(inside, "destination", dst)?, locate(inside, "source", src)?);
    trace::about(|| what(&dst, &src));
    carry_out(inside, &dst, &src)
}

/// Fails if the ranges of a copy overlap.
#[inline]
fn check_apart(dst: Region, src: Region) -> Result<()> {
    if !dst.overlaps(src) {
        return Ok(());
    }
    fail!(
        DTL_ERROR_INVALID_ARGUMENT,
        "source {:?} and destination {:?} overlap: {} bytes are to be copied, and the ranges \
         begin {} bytes apart; copy through a third buffer",
        src.addr(),
        dst.addr(),
        dst.len(),
        src.addr().get().abs_diff(dst.addr().get())
    )
}

/// Copies by the program's handler of the two memory kinds if there is one, else by the library.
#[inline]
fn carry_out(inside: &Guard, dst: &Located<'_>, src: &Located<'_>) -> Result<()> {
    if library_ops::is_taken(DTL_OPERATION_COPY) && handlers::copy(inside, dst, src, None)? {
        return Ok(());
    }
    copy_located(dst, src)
}

/// Returns the trace arguments of a copy.
pub fn what(dst: &Located<'_>, src: &Located<'_>) -> Args {
    let (from, to) = (enums::describe(src.place.kind), enums::describe(dst.place.kind));
    Args::NONE.bytes(dst.place.region.len() as u64).what(format_args!("{from} to {to}"))
}

/// Copies memory that the host cannot access to a buffer of the library.
pub fn stage_out(host: Region, device: Region) -> Result<()> {
    let inside = epoch::enter();
    let (host, device) = (Located::host(host), locate(&inside, "source", device)?);
    stage(&inside, &host, &device, &device)
}

/// Copies a buffer of the library to memory that the host cannot access.
pub fn stage_in(device: Region, host: Region) -> Result<()> {
    let inside = epoch::enter();
    let (host, device) = (Located::host(host), locate(&inside, "destination", device)?);
    stage(&inside, &device, &host, &device)
}

fn stage(inside: &Guard, dst: &Located<'_>, src: &Located<'_>, device: &Located<'_>) -> Result<()> {
    let _span = trace::span("mem", "stage", || what(dst, src));
    if device.owner.is_none() {
        return fail!(
            DTL_ERROR_INVALID_STATE,
            "the device buffer of a message was freed before the message was over"
        );
    }
    carry_out(inside, dst, src)
}

fn copy_located(dst: &Located<'_>, src: &Located<'_>) -> Result<()> {
    match (dst.owner, src.owner) {
        (None, None) => {
            dst.place.region.copy_from(src.place.region);
            Ok(())
        }
        (Some(one), Some(other)) if !std::ptr::eq(one, other) => copy_between(dst, src),
        (Some(owner), _) | (None, Some(owner)) => match transfer(owner)? {
            Some(transfer) => transfer.copy(dst.place, src.place),
            None => copy_by_host(dst, src, owner),
        },
    }
}

fn transfer(owner: &Backend) -> Result<Option<&dyn Transfer>> {
    owner.ready()?;
    Ok(owner.transfer.as_deref())
}

fn copy_by_host(dst: &Located<'_>, src: &Located<'_>, owner: &Backend) -> Result<()> {
    if dst.host_accessible()? && src.host_accessible()? {
        dst.place.region.copy_from(src.place.region);
        return Ok(());
    }
    Err(owner.lacks("transfer for memory that the host cannot reach"))
}

/// Copies between memory of two backends. Neither backend can access the memory of the other, so
/// the copy goes through host memory.
fn copy_between(dst: &Located<'_>, src: &Located<'_>) -> Result<()> {
    if src.host_accessible()? {
        let host = Located::host(src.place.region);
        return copy_located(dst, &host);
    }
    if dst.host_accessible()? {
        let host = Located::host(dst.place.region);
        return copy_located(&host, src);
    }
    explain::chose("copy between backends", "through a buffer on the host, 4 MiB at a time");
    let len = dst.place.region.len();
    let _span = trace::span("mem", "copy through the host", || what(dst, src));
    let stage = Scratch::new(len.min(STAGE)).ok_or_else(|| no_stage(len.min(STAGE)))?;
    for offset in (0..len).step_by(STAGE) {
        let host = Located::host(stage.region().part(0, len - offset));
        copy_located(&host, &part(src, offset))?;
        copy_located(&part(dst, offset), &host)?;
    }
    Ok(())
}

fn part<'g>(whole: &Located<'g>, offset: usize) -> Located<'g> {
    Located {
        place: CopySide { region: whole.place.region.part(offset, STAGE), ..whole.place },
        owner: whole.owner,
    }
}

fn no_stage(len: usize) -> Error {
    failure!(DTL_ERROR_OUT_OF_MEMORY, "no {len} bytes of host memory for a staged transfer")
}

/// Pitched 2-D range: rows of equal width, `pitch` bytes apart.
#[derive(Clone, Copy)]
pub struct Rows {
    /// Range from the first byte of the first row to the last byte of the last row.
    pub region: Region,
    /// Distance between the starts of consecutive rows, in bytes.
    pub pitch: u64,
}

/// Returns true if a row of `a` may share a byte with a row of `b`. Adjacent columns of one array
/// do not; rows of different pitches within one area count as shared.
fn rows_overlap(a: &Rows, b: &Rows, width: u64) -> bool {
    if !a.region.overlaps(b.region) {
        return false;
    }
    let apart = a.region.addr().get().abs_diff(b.region.addr().get()) as u64;
    match apart.checked_rem(a.pitch) {
        Some(beside) if a.pitch == b.pitch => beside < width || a.pitch - beside < width,
        _ => true,
    }
}

/// Copies `height` rows of `width` bytes.
pub fn copy_2d(inside: &Guard, dst: Rows, src: Rows, width: u64, height: u64) -> Result<()> {
    trace::about(|| Args::NONE.bytes(width.saturating_mul(height)));
    if width == 0 || height == 0 {
        return Ok(());
    }
    if rows_overlap(&dst, &src, width) {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "rows of source {:?} and destination {:?} overlap: copy through a third buffer",
            src.region.addr(),
            dst.region.addr()
        );
    }
    let to = LocatedRows { all: locate(inside, "destination", dst.region)?, pitch: dst.pitch };
    let from = LocatedRows { all: locate(inside, "source", src.region)?, pitch: src.pitch };
    copy_rows(inside, &to, &from, width, height)
}

/// Rows together with the owner of their memory.
struct LocatedRows<'g> {
    all: Located<'g>,
    pitch: u64,
}

/// Returns the `height` rows that begin `offset` bytes into a range.
fn rows_of<'g>(
    whole: &Located<'g>,
    offset: u64,
    pitch: u64,
    width: u64,
    height: u64,
) -> LocatedRows<'g> {
    LocatedRows { all: row_of(whole, offset, pitch * (height - 1) + width), pitch }
}

fn copy_rows(
    inside: &Guard,
    to: &LocatedRows<'_>,
    from: &LocatedRows<'_>,
    width: u64,
    height: u64,
) -> Result<()> {
    if library_ops::is_taken(DTL_OPERATION_COPY) && route_rows(inside, to, from, width, height)? {
        return Ok(());
    }
    let (dst, src) = (&to.all, &from.all);
    let owner = match (dst.owner, src.owner) {
        (Some(one), Some(other)) if std::ptr::eq(one, other) => Some(one),
        (Some(one), None) | (None, Some(one)) => Some(one),
        _ => None,
    };
    if let Some(transfer) = owner.map(transfer).transpose()?.flatten() {
        if let Some(answer) =
            transfer.copy_2d(dst.place, to.pitch, src.place, from.pitch, width, height)
        {
            return answer;
        }
    }
    for row in 0..height {
        carry_out(
            inside,
            &row_of(dst, row * to.pitch, width),
            &row_of(src, row * from.pitch, width),
        )?;
    }
    Ok(())
}

/// Copies rows by the program's handler, as a shape of two axes of bytes. Returns false if there is
/// no handler.
#[cold]
fn route_rows(
    inside: &Guard,
    to: &LocatedRows<'_>,
    from: &LocatedRows<'_>,
    width: u64,
    height: u64,
) -> Result<bool> {
    let axes = Axes {
        dst: to.all.place.region.addr(),
        src: from.all.place.region.addr(),
        shape: &[height, width],
        dst_strides: &[to.pitch as i64, 1],
        src_strides: &[from.pitch as i64, 1],
        element_bytes: 1,
    };
    handlers::copy(inside, &to.all, &from.all, Some(&axes))
}

fn row_of<'g>(whole: &Located<'g>, offset: u64, width: u64) -> Located<'g> {
    Located {
        place: CopySide {
            region: whole.place.region.part(offset as usize, width as usize),
            ..whole.place
        },
        owner: whole.owner,
    }
}

/// Sets every byte of `dst` to `value`.
pub fn fill(inside: &Guard, dst: Region, value: u8) -> Result<()> {
    trace::about(|| Args::NONE.bytes(dst.len() as u64));
    if dst.is_empty() {
        return Ok(());
    }
    let dst = locate(inside, "destination", dst)?;
    if let Some(transfer) = dst.owner.map(transfer).transpose()?.flatten() {
        if let Some(answer) = transfer.fill(dst.place, value) {
            return answer;
        }
    }
    if dst.host_accessible()? {
        dst.place.region.fill(value);
        return Ok(());
    }
    let len = dst.place.region.len();
    let stage = Scratch::new(len.min(STAGE)).ok_or_else(|| no_stage(len.min(STAGE)))?;
    stage.region().fill(value);
    for offset in (0..len).step_by(STAGE) {
        let host = Located::host(stage.region().part(0, len - offset));
        copy_located(&part(&dst, offset), &host)?;
    }
    Ok(())
}
