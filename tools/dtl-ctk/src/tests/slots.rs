//! First stage of a test run: calls every function of the device, memory, transfer and exec tables
//! separately, in one process. If a function crashes, hangs or throws, the report names the
//! function and no other test is run.

use crate::kit::prelude::*;
use crate::kit::vtables::{Vtables, slot};
use std::ffi::c_void;

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Slots "device.slots.":
        each_returns = device;
    Slots "memory.slots.":
        each_returns = memory;
    Slots "transfer.slots.":
        each_returns = transfer;
    Slots "exec.slots.":
        each_returns = exec;
];

/// Calls a function of a backend's table. Evaluates to false if the table has no such function. The
/// test fails unless the function succeeds.
macro_rules! has {
    ($vtables:ident, $component:ident.$slot:ident($($argument:expr),*)) => {{
        let name = concat!(stringify!($component), ".", stringify!($slot));
        match $vtables.tables.$component.as_ref().and_then(|table| table.$slot) {
            Some(function) => {
                Vtables::check(name, slot!($vtables, name, function($($argument),*)))?;
                true
            }
            None => false,
        }
    }};
}

fn device(vtables: &Vtables) -> Outcome {
    if vtables.tables.device.is_none() {
        skip!("the backend has no device table");
    }
    let (mut count, mut current) = (-1, -1);
    if has!(vtables, device.count(&raw mut count)) {
        ensure!(count >= 1, "device.count wrote {count}: a backend that is available has a device");
    }
    if has!(vtables, device.get(&raw mut current)) {
        let is_one = (0..count).contains(&current);
        ensure!(is_one, "device.get wrote {current}; device.count is {count}");
    }
    has!(vtables, device.set(current));
    let mut info = DTL_DEVICE_INFO_INIT;
    has!(vtables, device.info(0, &raw mut info));
    let (mut free, mut total) = (0, 0);
    has!(vtables, device.memory_info(0, &raw mut free, &raw mut total));
    has!(vtables, device.synchronize(0));
    Ok(())
}

/// Memory that was allocated through the backend's memory vtable.
struct Own<'a> {
    vtables: &'a Vtables,
    kind: dtl_enum_word_t,
    pointer: *mut c_void,
}

const SIZE: u64 = 64;

impl<'a> Own<'a> {
    /// Allocates memory of a kind. Returns `None` if the memory table has no `alloc` function or
    /// does not support the kind.
    fn new(vtables: &'a Vtables, kind: dtl_enum_word_t) -> Outcome<Option<Own<'a>>> {
        let alloc = vtables.tables.memory.as_ref().and_then(|table| table.alloc);
        let Some(alloc) = alloc else { return Ok(None) };
        let (name, mut pointer) = ("memory.alloc", ptr::null_mut());
        match slot!(vtables, name, alloc(SIZE, 64, kind, &raw mut pointer)) {
            DTL_ERROR_NOT_SUPPORTED => return Ok(None),
            status => Vtables::check(&format!("{name} of kind {}", kind_name(kind)), status)?,
        }
        ensure!(!pointer.is_null(), "{name} of kind {} succeeded and wrote NULL", kind_name(kind));
        ensure!(pointer.addr() % 64 == 0, "{name} wrote {pointer:p} for an alignment of 64");
        Ok(Some(Own { vtables, kind, pointer }))
    }

    fn free(self) -> Outcome {
        let Own { vtables, kind, pointer } = self;
        has!(vtables, memory.free(pointer, SIZE, 64, kind));
        Ok(())
    }
}

fn memory(vtables: &Vtables) -> Outcome {
    let Some(table) = &vtables.tables.memory else { skip!("the backend has no memory table") };
    let mut kinds = 0;
    for (kind, name) in KINDS {
        if let Some(function) = table.kind_info {
            let mut info = DTL_MEM_KIND_INFO_INIT;
            match slot!(vtables, "memory.kind_info", function(kind, &raw mut info)) {
                DTL_ERROR_NOT_SUPPORTED => continue,
                status => Vtables::check(&format!("memory.kind_info of kind {name}"), status)?,
            }
        }
        if let Some(block) = Own::new(vtables, kind)? {
            block.free()?;
            kinds += 1;
        }
    }
    ensure!(kinds > 0, "memory.alloc returns DTL_ERROR_NOT_SUPPORTED for every kind of memory");
    let (mut free, mut total) = (0, 0);
    has!(vtables, memory.memory_info(&raw mut free, &raw mut total));
    Ok(())
}

fn transfer(vtables: &Vtables) -> Outcome {
    let Some(table) = &vtables.tables.transfer else { skip!("the backend has no transfer table") };
    if vtables.tables.memory.is_none() || table.copy.is_none() {
        skip!("the backend has no memory table");
    }
    for (kind, name) in KINDS {
        let Some(block) = Own::new(vtables, kind)? else { continue };
        let (mut sent, mut back) = (pattern(kind, SIZE), vec![0_u8; SIZE as usize]);
        let (at, from, into) = (block.pointer, sent.as_ptr().cast(), back.as_mut_ptr().cast());
        has!(vtables, transfer.copy(at, kind, from, DTL_MEMORY_HOST, SIZE));
        if has!(vtables, transfer.fill(at, kind, 7, 8)) {
            sent[..8].fill(7);
        }
        has!(vtables, transfer.copy(into, DTL_MEMORY_HOST, at.cast_const(), kind, SIZE));
        if let Some(difference) = difference(&back, &sent) {
            wrong!("transfer.copy to kind {name} and back: {:?}", Some(difference));
        }
        block.free()?;
    }
    Ok(())
}

static CALLS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count_call(_: *mut c_void) -> dtl_status_t {
    CALLS.fetch_add(1, Ordering::SeqCst);
    DTL_SUCCESS
}

extern "C" fn count_range(begin: u64, end: u64, _: *mut c_void) -> dtl_status_t {
    CALLS.fetch_add(end - begin, Ordering::SeqCst);
    DTL_SUCCESS
}

fn calls_are(slot: &str, expected: u64) -> Outcome {
    let calls = CALLS.swap(0, Ordering::SeqCst);
    check!(calls == expected, "{slot} ran {calls} of {expected} calls")
}

fn exec(vtables: &Vtables) -> Outcome {
    let Some(table) = &vtables.tables.exec else { skip!("the backend has no exec table") };
    streams(vtables, table)?;
    priorities(vtables)?;
    if has!(vtables, exec.execute(Some(count_call), ptr::null_mut())) {
        calls_are("exec.execute", 1)?;
    }
    if has!(vtables, exec.parallel_for(0, 100, 7, Some(count_range), ptr::null_mut())) {
        calls_are("exec.parallel_for", 100)?;
    }
    let mut threads = 0;
    has!(vtables, exec.max_parallelism(&raw mut threads));
    has!(vtables, exec.suggested_parallelism(&raw mut threads));
    Ok(())
}

fn streams(vtables: &Vtables, table: &dtl_exec_vtable_t) -> Outcome {
    if table.stream_destroy.is_none() || table.stream_synchronize.is_none() {
        return Ok(());
    }
    let mut stream = ptr::null_mut();
    if !has!(vtables, exec.stream_create(0, 0, &raw mut stream)) {
        return Ok(());
    }
    ensure!(!stream.is_null(), "exec.stream_create succeeded and wrote NULL");
    let work = has!(vtables, exec.stream_host_callback(stream, Some(count_call), ptr::null_mut()));
    events(vtables, table, stream)?;
    has!(vtables, exec.stream_synchronize(stream));
    calls_are("exec.stream_host_callback", u64::from(work))?;
    let mut done = -1;
    if has!(vtables, exec.stream_query(stream, &raw mut done)) {
        ensure!(
            done == 1,
            "exec.stream_query wrote {done} for a stream that was synchronized, expected 1"
        );
    }
    has!(vtables, exec.stream_destroy(stream));
    Ok(())
}

/// Calls the slots of priorities. A stream is made at each end of the range except 0, for which the
/// library calls `stream_create`.
fn priorities(vtables: &Vtables) -> Outcome {
    let (mut least, mut greatest) = (i32::MIN, i32::MAX);
    if !has!(vtables, exec.stream_priorities(0, &raw mut least, &raw mut greatest)) {
        return Ok(());
    }
    ensure!(
        greatest <= 0 && 0 <= least,
        "exec.stream_priorities wrote {least} as the least and {greatest} as the greatest priority"
    );
    for priority in [least, greatest].into_iter().filter(|priority| *priority != 0) {
        let mut made = ptr::null_mut();
        has!(vtables, exec.stream_create_with_priority(0, 0, priority, &raw mut made));
        ensure!(!made.is_null(), "exec.stream_create_with_priority succeeded and wrote NULL");
        has!(vtables, exec.stream_destroy(made));
    }
    Ok(())
}

fn events(vtables: &Vtables, table: &dtl_exec_vtable_t, stream: *mut c_void) -> Outcome {
    if table.event_destroy.is_none() || table.event_record.is_none() || table.event_query.is_none()
    {
        return Ok(());
    }
    let (mut event, mut done) = (ptr::null_mut(), -1);
    if !has!(vtables, exec.event_create(0, &raw mut event)) {
        return Ok(());
    }
    ensure!(!event.is_null(), "exec.event_create succeeded and wrote NULL");
    has!(vtables, exec.event_record(event, stream));
    has!(vtables, exec.stream_wait_event(stream, event));
    has!(vtables, exec.event_sync(event));
    has!(vtables, exec.event_query(event, &raw mut done));
    ensure!(
        [0, 1].contains(&done),
        "exec.event_query wrote {done} into its boolean output: use 0 or 1"
    );
    has!(vtables, exec.event_destroy(event));
    Ok(())
}
