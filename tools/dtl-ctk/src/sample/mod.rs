//! The backend "sample" implements the function tables of all five components with host memory. It
//! has two devices, DEVICE memory that is declared inaccessible to the host, streams with a thread
//! each, and the comm table of `crate::minimal`, extended with the functions for windows.
//!
//! The registration tests modify these tables. With unmodified tables and no injected fault, the
//! backend passes all tests.

/// Runs code if a fault is injected: `if_fault!("memory.alloc.crashes" => abort())`, or
/// `if_fault!("name" if condition => ...)`.
macro_rules! if_fault {
    ($name:literal if $condition:expr => $($then:tt)+) => {
        if $crate::sample::fault::is($name) && $condition { $($then)+; }
    };
    ($name:literal => $($then:tt)+) => {
        if $crate::sample::fault::is($name) { $($then)+; }
    };
}
pub(crate) use if_fault;

mod arithmetic;
mod exec;
pub(crate) mod fault;
mod launch;
mod memory;
mod module;
pub(crate) mod window;
pub(crate) mod window_work;
pub(crate) mod window_wrong;

use crate::kit::calls::Backend;
use crate::kit::outcome::{Called, call};
use crate::kit::vtables;
use crate::minimal::{self, Job};
use dtl_sys::*;
use std::cell::Cell;
use std::ffi::{CString, c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

// Types of slots' parameters.
pub(crate) type Ptr = *mut c_void;
pub(crate) type Const = *const c_void;
pub(crate) type Out = *mut Ptr;
pub(crate) type Status = dtl_status_t;

/// Number of devices that the backend reports.
const DEVICES: i32 = 2;

/// Object to which the `self` argument of all table functions points. The field `job` comes first,
/// because the comm functions use `self` as a pointer to a [`Job`].
#[repr(C)]
pub(crate) struct State {
    job: Job,
    pub(crate) allocations: AtomicU64,
    pub(crate) destroyed: AtomicU64,
}

/// Function tables that can be modified before they are registered.
pub(crate) struct Parts {
    pub(crate) main: dtl_backend_vtable_t,
    pub(crate) device: dtl_device_vtable_t,
    pub(crate) memory: dtl_memory_vtable_t,
    pub(crate) transfer: dtl_transfer_vtable_t,
    pub(crate) exec: dtl_exec_vtable_t,
    pub(crate) comm: dtl_comm_vtable_t,
    /// True for each component whose table is registered, in the order device, memory, transfer,
    /// exec, comm.
    pub(crate) has: [bool; 5],
    /// Incorrect `struct_size` to use when the main table is registered, if any.
    pub(crate) size: Option<u32>,
    /// Extra 64-bit words appended to the main table and included in its `struct_size`.
    pub(crate) tail: Option<[u64; 8]>,
    /// Extra 64-bit words appended to the memory table and included in its `struct_size`.
    pub(crate) memory_tail: Option<[u64; 8]>,
    pub(crate) state: &'static State,
}

/// Function table followed by extra 64-bit words, in one block of memory.
#[repr(C)]
struct Longer<T>(T, [u64; 8]);

impl Parts {
    pub(crate) fn new() -> Parts {
        Parts::for_ranks(1)
    }

    /// Creates function tables for communicators of `ranks` ranks, which are threads of this
    /// process.
    pub(crate) fn for_ranks(ranks: u64) -> Parts {
        let (allocations, destroyed) = Default::default();
        let state = State { job: Job::new(ranks, false), allocations, destroyed };
        let mut comm = minimal::table();
        window::add_to(&mut comm);
        Parts {
            main: main_table(),
            device: device_table(),
            memory: memory::memory_table(),
            transfer: memory::transfer_table(),
            exec: exec::table(),
            comm,
            has: [true; 5],
            size: None,
            tail: None,
            memory_tail: None,
            // Backends live until the process ends.
            state: Box::leak(Box::new(state)),
        }
    }

    /// Creates function tables and applies `change` to them.
    pub(crate) fn with(change: impl FnOnce(&mut Parts)) -> Parts {
        let mut parts = Parts::new();
        change(&mut parts);
        parts
    }

    /// Removes most of the optional functions and function groups from the tables.
    pub(crate) fn only_required(&mut self) {
        (self.main.is_available, self.main.supports) = (None, None);
        let dtl_device_vtable_t { count, set, get, .. } = self.device;
        self.device = dtl_device_vtable_t { count, set, get, ..DTL_DEVICE_VTABLE_INIT };
        self.memory.memory_info = None;
        let dtl_transfer_vtable_t { copy, prefetch, .. } = self.transfer;
        self.transfer = dtl_transfer_vtable_t { copy, prefetch, ..DTL_TRANSFER_VTABLE_INIT };
        let exec = &mut self.exec;
        (exec.stream_query, exec.stream_wait_event, exec.stream_host_callback) = (None, None, None);
        (exec.event_sync, exec.event_elapsed, exec.launch) = (None, None, None);
        (exec.suggested_parallelism, exec.module_compile) = (None, None);
        (exec.module_destroy, exec.kernel_get) = (None, None);
        (exec.kernel_destroy, exec.kernel_launch) = (None, None);
        self.comm = minimal::table();
    }

    pub(crate) fn register(&self, name: &str, flags: u64) -> Called<Backend> {
        let mut longer_memory = Longer(self.memory, self.memory_tail.unwrap_or_default());
        if self.memory_tail.is_some() {
            longer_memory.0.struct_size += 64;
        }
        let given = |index: usize| self.has[index];
        let mut main = self.main;
        main.device = if given(0) { &raw const self.device } else { ptr::null() };
        main.memory = if given(1) { &raw const longer_memory.0 } else { ptr::null() };
        main.transfer = if given(2) { &raw const self.transfer } else { ptr::null() };
        main.exec = if given(3) { &raw const self.exec } else { ptr::null() };
        main.comm = if given(4) { &raw const self.comm } else { ptr::null() };
        let mut longer = Longer(main, self.tail.unwrap_or_default());
        if self.tail.is_some() {
            longer.0.struct_size += 64;
        }
        longer.0.struct_size = self.size.unwrap_or(longer.0.struct_size);
        let name = CString::new(name).unwrap_or_default();
        let (table, own) = (&raw const longer, ptr::from_ref(self.state).cast_mut().cast());
        let mut handle = DTL_BACKEND_NULL;
        call!(dtl_backend_register(name.as_ptr(), table.cast(), own, flags, &raw mut handle))?;
        // SAFETY: the tables that were registered just now.
        unsafe { vtables::keep(table.cast(), own) };
        Ok(Backend { handle })
    }
}

fn main_table() -> dtl_backend_vtable_t {
    dtl_backend_vtable_t {
        auto_priority: i32::MIN,
        is_available: Some(is_available),
        supports: Some(supports),
        destroy: Some(destroy),
        ..DTL_BACKEND_VTABLE_INIT
    }
}

fn device_table() -> dtl_device_vtable_t {
    dtl_device_vtable_t {
        count: Some(count),
        set: Some(set),
        get: Some(get),
        info: Some(info),
        memory_info: Some(memory_info),
        dlpack: Some(dlpack),
        ..DTL_DEVICE_VTABLE_INIT
    }
}

/// Writes an output argument of a table function.
pub(crate) fn put<T>(place: *mut T, value: T) -> dtl_status_t {
    // SAFETY: the library passes writable places for outputs.
    unsafe { place.write(value) };
    DTL_SUCCESS
}

/// Returns the state of the backend, to which the `self` argument of the table functions points.
fn state<'a>(own: *mut c_void) -> &'a State {
    // SAFETY: the library passes on what was given to dtl_backend_register, which lives for ever.
    unsafe { &*own.cast::<State>() }
}

/// Writes a string and a NUL into a field or buffer of `room` bytes. Truncates a string that does
/// not fit.
fn put_text(text: &str, place: *mut c_char, room: usize) {
    let count = text.len().min(room.saturating_sub(1));
    // SAFETY: the place has `room` bytes, the text `count`.
    unsafe { place.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), count) };
    // SAFETY: count < room.
    unsafe { place.wrapping_add(count).write(0) };
}

unsafe extern "C" fn is_available(_: Ptr, yes: *mut i32, _: *mut c_char, _: u64) -> Status {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let refuses = fault::is("is_available.changes") && CALLS.fetch_add(1, Ordering::Relaxed) > 20;
    put(yes, i32::from(!refuses))
}

unsafe extern "C" fn supports(_: Ptr, _: *const c_char, yes: *mut i32) -> Status {
    put(yes, i32::from(fault::is("supports.everything")))
}

unsafe extern "C" fn destroy(own: *mut c_void) {
    state(own).destroyed.fetch_add(1, Ordering::SeqCst);
}

thread_local! {
    /// Current device of the thread. The devices differ only in their index.
    static CURRENT: Cell<i32> = const { Cell::new(0) };
}

unsafe extern "C" fn count(_: Ptr, out: *mut i32) -> Status {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let more = fault::is("device.count.changes") && CALLS.fetch_add(1, Ordering::Relaxed) % 8 == 7;
    put(out, if fault::is("device.count.zero") { 0 } else { DEVICES + i32::from(more) })
}

unsafe extern "C" fn set(_: Ptr, device: i32) -> Status {
    if_fault!("device.set.last_fails" if device == DEVICES - 1 => return DTL_ERROR_BACKEND);
    CURRENT.set(device);
    DTL_SUCCESS
}

unsafe extern "C" fn get(_: Ptr, out: *mut i32) -> Status {
    put(out, if fault::is("device.get.beyond_count") { DEVICES } else { CURRENT.get() })
}

unsafe extern "C" fn info(_: Ptr, device: i32, out: *mut dtl_device_info_t) -> Status {
    // SAFETY: the library passes its own zeroed struct.
    let out = unsafe { &mut *out };
    (out.kind, out.numa_node, out.compute_units) = (DTL_DEVICE_ACCELERATOR, -1, 3);
    (out.max_block_threads, out.max_block, out.max_grid) = (1024, [1024; 3], [u32::MAX; 3]);
    put_text(&format!("sample device {device}"), out.name.as_mut_ptr(), out.name.len());
    let number = if fault::is("device.info.all_the_same") { 0 } else { device };
    let pci = if fault::is("device.info.no_pci_address") {
        "slot 3"
    } else {
        &format!("0000:0{number}:00.0")
    };
    put_text(pci, out.pci.as_mut_ptr(), out.pci.len());
    static CALLS: AtomicU64 = AtomicU64::new(0);
    if_fault!("device.info.changes" => out.total_bytes = CALLS.fetch_add(1, Ordering::Relaxed));
    if_fault!("device.info.no_device_kind" => out.kind = DTL_MEMORY_DEVICE);
    if_fault!("device.info.limits_contradict" => out.max_block = [1, 1, 1]);
    DTL_SUCCESS
}

unsafe extern "C" fn memory_info(_: Ptr, _: i32, free: *mut u64, total: *mut u64) -> Status {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let swapped = fault::is("device.memory_info.swapped");
    let (less, more) = (1 << 20, 1 << 30);
    put(free, if swapped { more } else { less });
    let stray = if fault::is("device.memory_info.unwritten") {
        CALLS.fetch_add(1, Ordering::Relaxed)
    } else {
        0
    };
    put(total, if swapped { less } else { more + stray })
}

unsafe extern "C" fn dlpack(_: Ptr, device: i32, kind: *mut i32, id: *mut i32) -> Status {
    put(kind, if fault::is("device.dlpack.own_number") { 0 } else { 12 }); // kDLExtDev
    put(id, if fault::is("device.dlpack.same_id") { 0 } else { device })
}

// Slots that do it wrong, for the tests of what the library makes of that.

/// Error message that `fails_with_text` sets. `WHY` is the reason that `is_unavailable` gives.
pub(crate) const TEXT: &str = "vendor error 42: the card is on fire";
pub(crate) const WHY: &str = "no card in slot 3";

pub(crate) unsafe extern "C" fn answers_nonsense(_: Ptr, out: *mut i32) -> Status {
    put(out, 1);
    31_337
}

pub(crate) unsafe extern "C" fn fails_with_text(_: Ptr, _: *mut i32) -> Status {
    let text = CString::new(TEXT).unwrap_or_default();
    // SAFETY: a text that lives through the call.
    let _ = unsafe { dtl_backend_set_error(text.as_ptr()) };
    DTL_ERROR_BACKEND
}

pub(crate) unsafe extern "C" fn allocates_null(_: Ptr, _: u64, _: u64, _: u64, out: Out) -> Status {
    put(out, ptr::null_mut())
}

pub(crate) unsafe extern "C" fn allocates_misaligned(
    _: Ptr,
    _: u64,
    _: u64,
    _: u64,
    out: Out,
) -> Status {
    put(out, ptr::without_provenance_mut(0x1001))
}

pub(crate) unsafe extern "C" fn frees_misaligned(_: Ptr, _: Ptr, _: u64, _: u64, _: u64) -> Status {
    DTL_SUCCESS
}

pub(crate) unsafe extern "C" fn creates_null_stream(_: Ptr, _: i32, _: u64, out: Out) -> Status {
    put(out, ptr::null_mut())
}

pub(crate) unsafe extern "C" fn creates_null_event(_: Ptr, _: u64, out: Out) -> Status {
    put(out, ptr::null_mut())
}

pub(crate) unsafe extern "C" fn is_unavailable(
    _: Ptr,
    yes: *mut i32,
    why: *mut c_char,
    cap: u64,
) -> Status {
    put_text(WHY, why, cap as usize);
    put(yes, 0)
}
