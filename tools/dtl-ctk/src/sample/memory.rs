//! Function tables of the backend "sample" for memory and transfers.

use super::exec::{self, Stream};
use super::{Const, Out, Ptr, Status, fault, put, put_text, state};
use dtl_sys::*;
use std::alloc::{self, Layout};
use std::cell::RefCell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Name that `kind_info` reports for the memory kind HOST.
const HOST_NAME: &str = "sample host memory";

pub(super) fn memory_table() -> dtl_memory_vtable_t {
    dtl_memory_vtable_t {
        alloc: Some(take),
        free: Some(give_back),
        kind_info: Some(kind_info),
        memory_info: Some(memory_info),
        alloc_async: Some(take_async),
        free_async: Some(give_back_async),
        register_host: Some(register),
        unregister_host: Some(unregister),
        ..DTL_MEMORY_VTABLE_INIT
    }
}

pub(super) fn transfer_table() -> dtl_transfer_vtable_t {
    dtl_transfer_vtable_t {
        copy: Some(copy),
        copy_async: Some(copy_async),
        copy_2d: Some(copy_2d),
        fill: Some(fill),
        prefetch: Some(prefetch),
        ..DTL_TRANSFER_VTABLE_INIT
    }
}

/// State of planted faults.
static FAILS: AtomicBool = AtomicBool::new(false);
static LAST: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static NEIGHBOUR: RefCell<Vec<(usize, usize)>> = const { RefCell::new(Vec::new()) };
}

fn is_known(kind: u64) -> bool {
    kind == DTL_MEMORY_HOST || kind == DTL_MEMORY_DEVICE
}

unsafe extern "C" fn take(own: Ptr, size: u64, alignment: u64, kind: u64, out: Out) -> Status {
    if_fault!("memory.alloc.crashes" => std::process::abort());
    let any = fault::is("memory.alloc.any_kind");
    if !is_known(kind) && !any {
        FAILS.fetch_or(fault::is("memory.alloc.one_failure_for_all"), Ordering::Relaxed);
        return DTL_ERROR_NOT_SUPPORTED;
    }
    if FAILS.load(Ordering::Relaxed) {
        return DTL_ERROR_OUT_OF_MEMORY;
    }
    let Ok(layout) = Layout::from_size_align(size as usize, alignment.max(16) as usize) else {
        return DTL_ERROR_OUT_OF_MEMORY;
    };
    // SAFETY: size is at least 1 by the contract.
    let pointer = unsafe { alloc::alloc(layout) };
    if pointer.is_null() {
        return fault::or("memory.alloc.wrong_status", DTL_ERROR_BACKEND, DTL_ERROR_OUT_OF_MEMORY);
    }
    if fault::is("memory.alloc.ignores_alignment") && alignment > 16 {
        return put(out, std::ptr::without_provenance_mut(pointer.addr() | 1));
    }
    if fault::is("memory.alloc.same_block_twice") {
        let first = LAST.swap(pointer.expose_provenance(), Ordering::SeqCst);
        if first != 0 && size > 1 {
            LAST.store(0, Ordering::SeqCst);
            // Leaked: the block that was to be given stays where it is.
            return put(
                out,
                std::ptr::with_exposed_provenance_mut::<u8>(first).wrapping_add(1).cast(),
            );
        }
    }
    if fault::is("memory.free.wipes_the_neighbour") {
        NEIGHBOUR.with_borrow_mut(|known| known.push((pointer.expose_provenance(), size as usize)));
    }
    state(own).allocations.fetch_add(1, Ordering::SeqCst);
    put(out, pointer.cast())
}

unsafe extern "C" fn give_back(_: Ptr, pointer: Ptr, size: u64, alignment: u64, _: u64) -> Status {
    let Ok(layout) = Layout::from_size_align(size as usize, alignment.max(16) as usize) else {
        return DTL_ERROR_INVALID_ARGUMENT;
    };
    if_fault!("memory.free.fails" => return DTL_ERROR_BACKEND);
    if fault::is("memory.free.wipes_the_neighbour") {
        NEIGHBOUR.with_borrow_mut(|known| {
            known.retain(|(address, _)| *address != pointer.addr());
            if let Some((address, size)) = known.first() {
                // SAFETY: a live allocation of this backend's, which the fault is about.
                unsafe {
                    std::ptr::with_exposed_provenance_mut::<u8>(*address).write_bytes(0, *size)
                };
            }
        });
    }
    let kept =
        ["memory.free.leaks", "memory.alloc.same_block_twice", "memory.alloc.ignores_alignment"];
    if kept.into_iter().any(fault::is) {
        return DTL_SUCCESS;
    }
    // SAFETY: what `take` gave, with its size and alignment, by the contract.
    unsafe { alloc::dealloc(pointer.cast(), layout) };
    DTL_SUCCESS
}

unsafe extern "C" fn take_async(
    own: Ptr,
    _: Ptr,
    size: u64,
    alignment: u64,
    kind: u64,
    out: Out,
) -> Status {
    let kind = if fault::is("memory.alloc_async.any_kind") { DTL_MEMORY_HOST } else { kind };
    let alignment = if fault::is("memory.alloc_async.ignores_alignment") { 1 } else { alignment };
    // SAFETY: passed on; memory that is taken at once is there for all later work.
    unsafe { take(own, size, alignment, kind, out) }
}

unsafe extern "C" fn give_back_async(
    own: Ptr,
    stream: Ptr,
    pointer: Ptr,
    size: u64,
    alignment: u64,
    kind: u64,
) -> Status {
    if_fault!("memory.free_async.leaks" => return DTL_SUCCESS);
    if fault::is("memory.free_async.at_once") {
        // SAFETY: passed on.
        return unsafe { give_back(own, pointer, size, alignment, kind) };
    }
    let address = pointer.expose_provenance();
    exec::stream(stream).push(move || {
        let pointer = std::ptr::with_exposed_provenance_mut(address);
        // SAFETY: passed on, once the work before it is done; this backend needs nothing of its own
        // to free.
        unsafe { give_back(std::ptr::null_mut(), pointer, size, alignment, kind) }
    });
    DTL_SUCCESS
}

/// Registered ranges of host memory: start address and size in bytes.
static REGISTERED: Mutex<Vec<(usize, u64)>> = Mutex::new(Vec::new());

unsafe extern "C" fn register(_: Ptr, pointer: Ptr, size: u64) -> Status {
    if fault::is("memory.register_host.whole_pages_only") && size % 4096 != 0 {
        return DTL_ERROR_INVALID_ARGUMENT;
    }
    let Ok(mut known) = REGISTERED.lock() else { return DTL_ERROR_INTERNAL };
    if known.iter().any(|(first, _)| *first == pointer.addr()) {
        return DTL_ERROR_ALREADY_EXISTS;
    }
    known.push((pointer.addr(), size));
    DTL_SUCCESS
}

unsafe extern "C" fn unregister(_: Ptr, pointer: Ptr, size: u64) -> Status {
    let Ok(mut known) = REGISTERED.lock() else { return DTL_ERROR_INTERNAL };
    let before = known.len();
    if !fault::is("memory.unregister_host.forgets") {
        known.retain(|range| *range != (pointer.addr(), size));
    }
    if known.len() < before || fault::is("memory.unregister_host.forgets") {
        return DTL_SUCCESS;
    }
    DTL_ERROR_NOT_FOUND
}

unsafe extern "C" fn prefetch(_: Ptr, _: Ptr, pointer: Ptr, _: u64, size: u64, _: i32) -> Status {
    if fault::is("transfer.prefetch.wipes") {
        // SAFETY: a range of an allocation of this backend's, which the fault is about.
        unsafe { pointer.cast::<u8>().write_bytes(0, size as usize) };
    }
    DTL_SUCCESS
}

unsafe extern "C" fn kind_info(_: Ptr, kind: u64, out: *mut dtl_mem_kind_info_t) -> Status {
    // What the program registers is described; none is given.
    if !is_known(kind) && kind != DTL_MEMORY_PINNED && !fault::is("memory.kind_info.any_kind") {
        return DTL_ERROR_NOT_SUPPORTED;
    }
    // SAFETY: the library passes its own zeroed struct.
    let out = unsafe { &mut *out };
    let is_host = kind == DTL_MEMORY_HOST;
    let (own, name) = if is_host {
        (DTL_MEMORY_HOST_ACCESSIBLE, HOST_NAME)
    } else if kind == DTL_MEMORY_PINNED {
        (DTL_MEMORY_HOST_ACCESSIBLE, "sample registered memory")
    } else {
        (DTL_MEMORY_DEVICE_ACCESSIBLE, "sample device memory")
    };
    out.properties = own | DTL_MEMORY_THREAD_SAFE;
    out.alignment = 16;
    if_fault!("memory.kind_info.unknown_bits" => out.properties |= 1 << 50);
    if_fault!("memory.kind_info.odd_alignment" => out.alignment = 24);
    let name = if fault::is("memory.kind_info.no_name") { "" } else { name };
    put_text(name, out.name.as_mut_ptr(), out.name.len());
    DTL_SUCCESS
}

unsafe extern "C" fn memory_info(_: Ptr, free: *mut u64, total: *mut u64) -> Status {
    put(free, 0);
    put(total, 0)
}

/// Copies bytes between two ranges that do not overlap.
pub(super) fn move_bytes(dst: Ptr, src: Const, size: u64) {
    // SAFETY: both ranges are valid and apart by the contract of copies.
    unsafe { dst.cast::<u8>().copy_from_nonoverlapping(src.cast(), size as usize) }
}

unsafe extern "C" fn copy(_: Ptr, dst: Ptr, _: u64, src: Const, _: u64, size: u64) -> Status {
    let (from, to) = (src.addr() as u64, dst.addr() as u64);
    let cut = match () {
        () if fault::is("transfer.copy.one_short") => size - 1,
        () if fault::is("transfer.copy.one_long") && size > 8 => size + 1,
        () if fault::is("transfer.copy.words_only") => size / 8 * 8,
        () if fault::is("transfer.copy.cut_at_16_mib") => size.min(16 << 20),
        () if fault::is("transfer.copy.aligned_only") && (from | to) % 8 != 0 && size > 900 => {
            size - 8
        }
        () => size,
    };
    if fault::is("transfer.copy.swapped") && size < 6000 {
        move_bytes(src.cast_mut(), dst, size);
    } else {
        move_bytes(dst, src, cut);
    }
    DTL_SUCCESS
}

unsafe extern "C" fn copy_async(
    _: Ptr,
    stream: Ptr,
    dst: Ptr,
    _: u64,
    src: Const,
    _: u64,
    size: u64,
) -> Status {
    let (to, from) = (dst.expose_provenance(), src.expose_provenance());
    let stream: &Stream = exec::stream(stream);
    if_fault!("transfer.copy_async.never" => return DTL_SUCCESS);
    if fault::is("transfer.copy_async.at_once") {
        move_bytes(dst, src, size);
        return DTL_SUCCESS;
    }
    let size = size - u64::from(fault::is("transfer.copy_async.one_short"));
    if fault::is("transfer.copy_async.late") {
        std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(50));
            let to = std::ptr::with_exposed_provenance_mut(to);
            move_bytes(to, std::ptr::with_exposed_provenance(from), size);
        });
        return DTL_SUCCESS;
    }
    stream.push(move || {
        let to = std::ptr::with_exposed_provenance_mut(to);
        move_bytes(to, std::ptr::with_exposed_provenance(from), size);
        DTL_SUCCESS
    });
    DTL_SUCCESS
}

unsafe extern "C" fn copy_2d(
    _: Ptr,
    dst: Ptr,
    _: u64,
    dst_pitch: u64,
    src: Const,
    _: u64,
    src_pitch: u64,
    width: u64,
    height: u64,
) -> Status {
    let swapped = fault::is("transfer.copy_2d.pitches_swapped");
    let (dst_pitch, src_pitch) =
        if swapped { (src_pitch, dst_pitch) } else { (dst_pitch, src_pitch) };
    let wide = fault::is("transfer.copy_2d.width_is_pitch");
    let width = if wide { src_pitch.min(dst_pitch) } else { width };
    let height = height - u64::from(wide || fault::is("transfer.copy_2d.last_row_missing"));
    for row in 0..height {
        let to = dst.wrapping_byte_add((row * dst_pitch) as usize);
        move_bytes(to, src.wrapping_byte_add((row * src_pitch) as usize), width);
    }
    DTL_SUCCESS
}

unsafe extern "C" fn fill(_: Ptr, dst: Ptr, _: u64, value: u8, size: u64) -> Status {
    let size = size - u64::from(fault::is("transfer.fill.one_short"));
    let value = if fault::is("transfer.fill.seven_bits") { value & 0x7F } else { value };
    let value = if fault::is("transfer.fill.zero") { 0 } else { value };
    // SAFETY: a valid range by the contract of fills.
    unsafe { dst.cast::<u8>().write_bytes(value, size as usize) };
    DTL_SUCCESS
}
