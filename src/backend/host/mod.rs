//! Backend "host": one CPU device, memory of the process, and copies by the CPU. This backend is
//! always available.
//!
//! `runtime::exec` implements streams, events, executors and kernels for the host; [`modules`]
//! compiles kernels from source.
//!
//! In reading order:
//! - `blocks`: memory of kind DTL_MEMORY_SHARED
//! - `compiler`: the machine's C compiler
//! - `modules`: kernels from C source

mod blocks;
mod compiler;
mod modules;

use crate::abi::devices::device::*;
use crate::abi::word::*;
use crate::error::{Result, fail, failure};
use crate::runtime::component::{
    BackendProbe, CopySide, Device, Exports, Extent, Memory, Transfer,
};
use crate::runtime::device::new_kind_info;
use crate::runtime::enums::describe;
use crate::runtime::registry::Backend;
use crate::runtime::{copy_text, explain};
use crate::sys::memory::buf::{self, Addr, Region};
use crate::sys::memory::{heap, host_pages};
use crate::sys::os::{hwinfo, process};
use crate::sys::sync::lock::Mutex;
use blocks::HostBlocks;
use std::collections::BTreeMap;

/// Alignment of every host allocation, in bytes: one cache line.
const ALIGNMENT: u64 = heap::ALIGNMENT;
const PAGE: u64 = 4096;

/// Creates the backend "host".
pub fn backend() -> Backend {
    let mut backend = Backend::new(c"host", 0, true, Box::new(Host));
    backend.device = Some(Box::new(Host));
    backend.memory = Some(Box::new(HostMemory::default()));
    backend.plain_memory = true;
    backend.transfer = Some(Box::new(Host));
    backend.modules = Some(Box::new(modules::HostModules::default()));
    backend
}

struct Host;

impl BackendProbe for Host {}

impl Device for Host {
    fn info(&self, _device: i32, out: &mut dtl_device_info_t) -> Result<()> {
        out.kind = DTL_DEVICE_CPU;
        out.total_bytes = hwinfo::memory().1;
        out.compute_units = process::usable_cores();
        (out.max_block_threads, out.max_block, out.max_grid) = (1024, [1024; 3], [u32::MAX; 3]);
        copy_text(&mut out.name, &hwinfo::cpu_name());
        Ok(())
    }

    fn memory_info(&self, _device: i32) -> Result<Option<(u64, u64)>> {
        Ok(Some(hwinfo::memory()))
    }

    fn dlpack(&self, _device: i32) -> Result<Option<(i32, i32)>> {
        Ok(Some((1, 0))) // kDLCPU
    }
}

/// Returns the size and the alignment, in bytes, of a page-locked allocation. The allocation
/// occupies whole pages, because unlocking it must not unlock other memory.
fn pages(size: u64, align: u64) -> (u64, u64) {
    (size.next_multiple_of(PAGE), align.max(PAGE))
}

/// Page-locked and shared host memory. Memory of all other kinds (DTL_MEMORY_*) is ordinary
/// pageable memory of the process.
#[derive(Default)]
struct HostMemory {
    shared: HostBlocks,
    /// For each page, the number of registered ranges that begin in it plus the number that end in
    /// it, keyed by page number. A page remains locked until the last range that begins or ends in
    /// it is unregistered.
    edges: Mutex<BTreeMap<u64, u32>>,
}

/// Returns the numbers of the first and the last page that a range touches.
fn edge_pages(region: Region) -> [u64; 2] {
    let first = region.addr().get() as u64;
    [first / PAGE, (first + region.len() as u64 - 1) / PAGE]
}

impl Memory for HostMemory {
    fn alloc(&self, Extent { kind, size, align }: Extent) -> Result<Addr> {
        kind_properties(kind)?;
        if kind == DTL_MEMORY_SHARED {
            return self.shared.alloc(size, align);
        }
        let (room, align) = pages(size, align);
        let addr = buf::alloc(room, align).ok_or_else(|| {
            failure!(DTL_ERROR_OUT_OF_MEMORY, "no {size} bytes of host memory aligned to {align}")
        })?;
        lock(addr, room).inspect_err(|_| buf::free(addr, room, align))?;
        Ok(addr)
    }

    fn free(&self, addr: Addr, Extent { kind, size, align }: Extent) -> Result<()> {
        if kind == DTL_MEMORY_SHARED {
            return self.shared.free(addr);
        }
        let (room, align) = pages(size, align);
        host_pages::unlock(addr, room);
        buf::free(addr, room, align);
        Ok(())
    }

    fn register(&self, region: Region) -> Result<Option<()>> {
        let (addr, size) = (region.addr(), region.len() as u64);
        if let Some(hole) = host_pages::first_hole(addr, size) {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "{size} bytes at {addr:?}: there is no memory at {hole:#x}; register what the \
                 program has"
            );
        }
        let mut edges = self.edges.lock();
        lock(addr, size)?;
        edge_pages(region).into_iter().for_each(|page| *edges.entry(page).or_default() += 1);
        Ok(Some(()))
    }

    fn unregister(&self, region: Region) -> Result<Option<()>> {
        let mut edges = self.edges.lock();
        let mut is_last = |page: u64| {
            let left = edges.get_mut(&page).map_or(0, |count| {
                *count = count.saturating_sub(1);
                *count
            });
            if left == 0 {
                edges.remove(&page);
            }
            left == 0
        };
        // The pages between the first and the last one belong to this range only.
        let [first, last] = edge_pages(region);
        let (first_goes, last_goes) = (is_last(first), is_last(last));
        let (begin, end) = (first + u64::from(!first_goes), last + u64::from(last_goes));
        if begin < end {
            let addr = Addr::new(std::ptr::without_provenance_mut((begin * PAGE) as usize));
            host_pages::unlock(addr, (end - begin) * PAGE);
        }
        Ok(Some(()))
    }

    fn kind_info(&self, kind: dtl_enum_word_t) -> Result<Option<dtl_mem_kind_info_t>> {
        let common = DTL_MEMORY_HOST_ACCESSIBLE
            | DTL_MEMORY_DEVICE_ACCESSIBLE
            | DTL_MEMORY_UNIFIED
            | DTL_MEMORY_ATOMICS
            | DTL_MEMORY_THREAD_SAFE;
        let (properties, alignment, name) = kind_properties(kind)?;
        Ok(Some(new_kind_info(common | properties, alignment, name)))
    }

    fn exports(&self) -> Option<&dyn Exports> {
        Some(&self.shared)
    }
}

/// Page-locks memory. A failure is recorded (`explain::degraded`), but is returned as an error only
/// if DTL_STRICT=1 is set, because the limit (RLIMIT_MEMLOCK) is often small and memory that is not
/// page-locked is merely slower.
fn lock(addr: Addr, size: u64) -> Result<()> {
    host_pages::lock(addr, size)
        .or_else(|why| explain::degraded("pinned host memory", &format!("not page-locked: {why}")))
}

/// Returns three values for the memory kind `kind`: its properties in addition to those of all host
/// memory, its alignment, and its name. Fails unless the host supports the kind. For the host,
/// DTL_MEMORY_DEVICE means host memory, so that programs written for a device run unchanged.
fn kind_properties(kind: dtl_enum_word_t) -> Result<(u64, u64, &'static str)> {
    match kind {
        DTL_MEMORY_HOST | DTL_MEMORY_DEVICE | DTL_MEMORY_MANAGED => {
            Ok((DTL_MEMORY_PAGEABLE, ALIGNMENT, "host"))
        }
        DTL_MEMORY_PINNED => Ok((0, ALIGNMENT, "host (page-locked where the limit allows)")),
        DTL_MEMORY_SHARED => {
            let properties = DTL_MEMORY_PAGEABLE | DTL_MEMORY_EXPORTABLE;
            Ok((properties, PAGE, "host (other processes of the node can map it)"))
        }
        _ => fail!(
            DTL_ERROR_NOT_SUPPORTED,
            "backend host has no memory kind {}: use HOST, DEVICE, PINNED, MANAGED or SHARED",
            describe(kind)
        ),
    }
}

impl Transfer for Host {
    fn copy(&self, dst: CopySide, src: CopySide) -> Result<()> {
        dst.region.copy_from(src.region);
        Ok(())
    }

    fn fill(&self, dst: CopySide, value: u8) -> Result<Option<()>> {
        dst.region.fill(value);
        Ok(Some(()))
    }
}
