//! Copies and fills between any two kinds of memory: by a backend if one side is memory of that
//! backend, by the host if the host can access both sides, and through a host buffer between
//! devices of two backends.
//!
//! In reading order:
//! - `async_copy`: copies and fills in stream order
//! - `strided`: copies of strided elements

pub mod async_copy;
pub mod strided;

use super::{Located, locate};
use crate::abi::word::DTL_OPERATION_COPY;
use crate::error::{Error, Result, fail, failure};
use crate::runtime::component::{Rows, Transfer};
use crate::runtime::library_ops;
use crate::runtime::memory::handlers::{self, Axes};
use crate::runtime::registry::Backend;
use crate::runtime::trace::{self, Args};
use crate::runtime::{enums, explain};
use crate::sys::handles::epoch::{self, Guard};
use crate::sys::memory::buf::{Region, Scratch};

/// Maximum size in bytes of the host buffer for a copy between the memory of two backends.
const STAGE: usize = 4 << 20;

/// Determines the owner of each range and copies `src` to `dst`, which has the same length.
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

/// Copies through the user-defined dispatch handler for the two memory kinds if there is one,
/// otherwise with the library's own copy functions.
#[inline]
fn carry_out(inside: &Guard, dst: &Located<'_>, src: &Located<'_>) -> Result<()> {
    if library_ops::is_taken(DTL_OPERATION_COPY) && handlers::copy(inside, dst, src, None)? {
        return Ok(());
    }
    copy_located(dst, src)
}

/// Returns the arguments of the trace event of a copy: its size in bytes and its memory kinds.
pub fn what(dst: &Located<'_>, src: &Located<'_>) -> Args {
    let (from, to) = (enums::describe(src.place.kind), enums::describe(dst.place.kind));
    Args::NONE.bytes(dst.place.region.len() as u64).what(format_args!("{from} to {to}"))
}

/// Copies from memory that the host cannot access into a host buffer of the library.
pub fn stage_out(host: Region, device: Region) -> Result<()> {
    let inside = epoch::enter();
    let (host, device) = (Located::host(host), locate(&inside, "source", device)?);
    stage(&inside, &host, &device, &device)
}

/// Copies from a host buffer of the library into memory that the host cannot access.
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

/// Copies between the memory of two backends through host memory, because neither backend can
/// access the memory of the other.
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
        copy_located(&host, &src.part(offset as u64, STAGE as u64))?;
        copy_located(&dst.part(offset as u64, STAGE as u64), &host)?;
    }
    Ok(())
}

fn no_stage(len: usize) -> Error {
    failure!(DTL_ERROR_OUT_OF_MEMORY, "no {len} bytes of host memory for a staged transfer")
}

impl Rows {
    /// Returns true if a row of `dst` may share a byte with a row of `src`. Rows in disjoint column
    /// ranges of one array share no byte. If the row pitches of `dst` and `src` differ and the two
    /// regions overlap, rows are assumed to share bytes.
    fn overlap(&self, dst: Region, src: Region) -> bool {
        if !dst.overlaps(src) {
            return false;
        }
        let (pitch, src_pitch) = self.pitches;
        let apart = dst.addr().get().abs_diff(src.addr().get()) as u64;
        match apart.checked_rem(pitch) {
            Some(beside) if pitch == src_pitch => {
                beside < self.width || pitch - beside < self.width
            }
            _ => true,
        }
    }
}

/// Executes a 2-D copy. Each region begins with the first byte of its first row and ends with the
/// last byte of its last row.
pub fn copy_2d(inside: &Guard, dst: Region, src: Region, rows: Rows) -> Result<()> {
    trace::about(|| Args::NONE.bytes(rows.width.saturating_mul(rows.height)));
    if rows.width == 0 || rows.height == 0 {
        return Ok(());
    }
    if rows.overlap(dst, src) {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "rows of source {:?} and destination {:?} overlap: copy through a third buffer",
            src.addr(),
            dst.addr()
        );
    }
    let (to, from) = (locate(inside, "destination", dst)?, locate(inside, "source", src)?);
    copy_rows(inside, &to, &from, rows)
}

fn copy_rows(inside: &Guard, dst: &Located<'_>, src: &Located<'_>, rows: Rows) -> Result<()> {
    if library_ops::is_taken(DTL_OPERATION_COPY) && route_rows(inside, dst, src, rows)? {
        return Ok(());
    }
    let Rows { pitches: (to_pitch, from_pitch), width, height } = rows;
    let owner = match (dst.owner, src.owner) {
        (Some(one), Some(other)) if std::ptr::eq(one, other) => Some(one),
        (Some(one), None) | (None, Some(one)) => Some(one),
        _ => None,
    };
    if let Some(transfer) = owner.map(transfer).transpose()?.flatten() {
        if transfer.copy_2d(dst.place, src.place, rows)?.is_some() {
            return Ok(());
        }
    }
    (0..height).try_for_each(|row| {
        carry_out(inside, &dst.part(row * to_pitch, width), &src.part(row * from_pitch, width))
    })
}

/// Copies rows through the user-defined dispatch handler, as a strided copy with two axes and
/// elements of one byte. Returns false without copying if there is no handler, or if the handler is
/// a backend and not a user callback.
#[cold]
fn route_rows(inside: &Guard, dst: &Located<'_>, src: &Located<'_>, rows: Rows) -> Result<bool> {
    let axes = Axes {
        dst: dst.place.region.addr(),
        src: src.place.region.addr(),
        shape: &[rows.height, rows.width],
        dst_strides: &[rows.pitches.0 as i64, 1],
        src_strides: &[rows.pitches.1 as i64, 1],
        element_bytes: 1,
    };
    handlers::copy(inside, dst, src, Some(&axes))
}

/// Sets every byte of `dst` to `value`.
pub fn fill(inside: &Guard, dst: Region, value: u8) -> Result<()> {
    trace::about(|| Args::NONE.bytes(dst.len() as u64));
    if dst.is_empty() {
        return Ok(());
    }
    let dst = locate(inside, "destination", dst)?;
    if let Some(transfer) = dst.owner.map(transfer).transpose()?.flatten() {
        if transfer.fill(dst.place, value)?.is_some() {
            return Ok(());
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
        copy_located(&dst.part(offset as u64, STAGE as u64), &host)?;
    }
    Ok(())
}
