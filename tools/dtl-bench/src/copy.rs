//! Subcommand `copy`: measures dtl_mem_copy between blocks of host memory, compared with memcpy.

use crate::library::{call, open_host};
use crate::local::{self, Case, time};
use crate::machine;
use crate::options::Sizes;
use crate::out::Outcome;
use crate::table::Unit;
use dtl_sys::*;
use serde_json::json;
use std::ffi::c_void;
use std::hint::black_box;
use std::ptr;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
const SIZES: &[usize] = &[8, 64, KIB, 16 * KIB, 256 * KIB, MIB, 4 * MIB, 64 * MIB];

/// Block of memory that the library has allocated.
struct Block {
    backend: dtl_backend_t,
    at: *mut c_void,
}

impl Block {
    fn new(backend: dtl_backend_t, bytes: usize, value: u8) -> Outcome<Block> {
        let mut at = ptr::null_mut();
        call!(dtl_mem_alloc(backend, DTL_MEMORY_HOST, bytes as u64, 0, &raw mut at))?;
        // SAFETY: the block has that many bytes.
        unsafe { at.cast::<u8>().write_bytes(value, bytes) };
        Ok(Block { backend, at })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let _ = call!(dtl_mem_free(self.backend, self.at));
    }
}

/// Runs the measurements of `copy` that the command line selects.
pub(crate) fn run(wanted: &Sizes) -> Outcome {
    let backend = open_host()?;
    let processors = machine::settle(&wanted.place);
    let sizes = if wanted.sizes.is_empty() { SIZES } else { &wanted.sizes };
    let most = sizes.iter().copied().max().unwrap_or(1).max(1);
    let (from, into) = (Block::new(backend, most, 1)?, Block::new(backend, most, 2)?);
    verify(&from, &into, most)?;
    let cases =
        sizes.iter().filter(|&&bytes| bytes > 0).map(|&bytes| case(&from, &into, bytes)).collect();
    let lines = local::measure(cases, &wanted.common, None)?;
    let more = json!({ "pinned": !wanted.place.no_pin, "peer": { "name": "memcpy" } });
    local::show("copy", lines, processors, &wanted.common, more);
    drop((from, into));
    call!(dtl_finalize())
}

fn case<'a>(from: &'a Block, into: &'a Block, bytes: usize) -> Case<'a> {
    // About 10 microseconds of work.
    let repeats = (256 * KIB / bytes).clamp(1, 1000);
    let ours = move || time(repeats, || call!(dtl_mem_copy(into.at, from.at, bytes as u64)));
    let theirs = move || {
        time(repeats, || {
            let (from, into) = (black_box(from.at), black_box(into.at));
            // SAFETY: two blocks of at least that many bytes.
            unsafe { into.cast::<u8>().copy_from_nonoverlapping(from.cast(), black_box(bytes)) };
            Ok(())
        })
    };
    let unit = Unit::Bandwidth(bytes as f64);
    Case { bytes: Some(bytes), unit, ..Case::new("copy", ours, ("memcpy", theirs)) }
}

/// Checks that a copy transfers all bytes.
fn verify(from: &Block, into: &Block, bytes: usize) -> Outcome {
    call!(dtl_mem_copy(into.at, from.at, bytes as u64))?;
    // SAFETY: the block has that many bytes, which are initialized.
    let found = unsafe { std::slice::from_raw_parts(into.at.cast::<u8>(), bytes) };
    match found.iter().position(|&byte| byte != 1) {
        None => Ok(()),
        Some(at) => {
            Err(format!("dtl_mem_copy of {bytes} bytes: byte {at} is {}, expected 1", found[at]))
        }
    }
}
