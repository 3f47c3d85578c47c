//! First stage: every slot of the tables of one process is called once, by itself. A slot that
//! crashes, hangs or throws is named, and no other test is run.

use crate::kit::bare::{Bare, slot};
use crate::kit::catalog::{Body, Group, Test};
use crate::kit::outcome::{Outcome, ensure, skip};
use crate::kit::subject::{KINDS, difference, kind_name, pattern};
use dtl_sys::{
    DTL_ERROR_NOT_SUPPORTED, DTL_MEMORY_HOST, DTL_SUCCESS, dtl_enum_word_t, dtl_exec_vtable_t,
    dtl_mem_kind_info_t, dtl_memory_vtable_t, dtl_status_t,
};
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

const fn slots(name: &'static str, what: &'static str, body: fn(&Bare) -> Outcome) -> Test {
    Test { name, what, body: Body::Slots(body), also: None }
}

pub(crate) const GROUPS: &[Group] = &[Group {
    slot: "every slot of one process",
    needs: &[],
    rule: "A slot returns a status. It does not end the process, and no exception leaves it.",
    usually: "The slot crashes, waits for something that never comes, throws, or calls exit. It is \
        named; the tests \
              behind it are not run.",
    tests: &[
        slots(
            "device.slots.each_returns",
            "each slot of the device table, called by itself, returns",
            device,
        ),
        slots(
            "memory.slots.each_returns",
            "alloc and free of each kind, called by themselves, return",
            memory,
        ),
        slots(
            "transfer.slots.each_returns",
            "copy and fill, called by themselves, move 64 bytes",
            transfer,
        ),
        slots(
            "exec.slots.each_returns",
            "streams, events and host execution, called by themselves, return",
            exec,
        ),
    ],
}];

fn device(bare: &Bare) -> Outcome {
    let Some(table) = &bare.tables.device else { skip!("the backend has no device table") };
    let (mut count, mut current) = (-1, -1);
    if let Some(function) = table.count {
        Bare::check("device.count", slot!(bare, "device.count", function, &raw mut count))?;
        ensure!(count >= 1, "device.count wrote {count}: a backend that is available has a device");
    }
    if let Some(function) = table.get {
        Bare::check("device.get", slot!(bare, "device.get", function, &raw mut current))?;
        ensure!(
            (0..count).contains(&current),
            "device.get wrote {current}; device.count is {count}"
        );
    }
    if let Some(function) = table.set {
        Bare::check("device.set", slot!(bare, "device.set", function, current))?;
    }
    let mut info = crate::kit::calls::no_device_info();
    if let Some(function) = table.info {
        Bare::check("device.info", slot!(bare, "device.info", function, 0, &raw mut info))?;
    }
    let (mut free, mut total) = (0, 0);
    if let Some(function) = table.memory_info {
        let status = slot!(bare, "device.memory_info", function, 0, &raw mut free, &raw mut total);
        Bare::check("device.memory_info", status)?;
    }
    if let Some(function) = table.synchronize {
        Bare::check("device.synchronize", slot!(bare, "device.synchronize", function, 0))?;
    }
    Ok(())
}

/// Memory of the table's own.
struct Block<'a> {
    bare: &'a Bare,
    table: &'a dtl_memory_vtable_t,
    kind: dtl_enum_word_t,
    pointer: *mut c_void,
}

const SIZE: u64 = 64;

impl<'a> Block<'a> {
    /// `None`: the table does not have the kind.
    fn new(
        bare: &'a Bare,
        table: &'a dtl_memory_vtable_t,
        kind: dtl_enum_word_t,
    ) -> Outcome<Option<Block<'a>>> {
        let Some(alloc) = table.alloc else { return Ok(None) };
        let (name, mut pointer) = ("memory.alloc", ptr::null_mut());
        match slot!(bare, name, alloc, SIZE, 64, kind, &raw mut pointer) {
            DTL_ERROR_NOT_SUPPORTED => return Ok(None),
            status => Bare::check(&format!("{name} of kind {}", kind_name(kind)), status)?,
        }
        ensure!(!pointer.is_null(), "{name} of kind {} succeeded and wrote NULL", kind_name(kind));
        ensure!(pointer.addr() % 64 == 0, "{name} wrote {pointer:p} for an alignment of 64");
        Ok(Some(Block { bare, table, kind, pointer }))
    }

    fn free(self) -> Outcome {
        let Some(free) = self.table.free else { return Ok(()) };
        Bare::check(
            "memory.free",
            slot!(self.bare, "memory.free", free, self.pointer, SIZE, 64, self.kind),
        )
    }
}

fn memory(bare: &Bare) -> Outcome {
    let Some(table) = &bare.tables.memory else { skip!("the backend has no memory table") };
    let mut kinds = 0;
    for (kind, _) in KINDS {
        if let Some(function) = table.kind_info {
            let mut info = dtl_mem_kind_info_t {
                struct_size: size_of::<dtl_mem_kind_info_t>() as u32,
                reserved: 0,
                properties: 0,
                alignment: 0,
                name: [0; 64],
            };
            match slot!(bare, "memory.kind_info", function, kind, &raw mut info) {
                DTL_ERROR_NOT_SUPPORTED => continue,
                status => {
                    Bare::check(&format!("memory.kind_info of kind {}", kind_name(kind)), status)?
                }
            }
        }
        if let Some(block) = Block::new(bare, table, kind)? {
            block.free()?;
            kinds += 1;
        }
    }
    ensure!(kinds > 0, "memory.alloc returns DTL_ERROR_NOT_SUPPORTED for every kind of memory");
    let (mut free, mut total) = (0, 0);
    if let Some(function) = table.memory_info {
        let status = slot!(bare, "memory.memory_info", function, &raw mut free, &raw mut total);
        Bare::check("memory.memory_info", status)?;
    }
    Ok(())
}

fn transfer(bare: &Bare) -> Outcome {
    let Some(table) = &bare.tables.transfer else { skip!("the backend has no transfer table") };
    let (Some(memory), Some(copy)) = (&bare.tables.memory, table.copy) else {
        skip!("the backend has no memory table")
    };
    for (kind, _) in KINDS {
        let Some(block) = Block::new(bare, memory, kind)? else { continue };
        let (mut sent, mut back) = (pattern(kind, SIZE), vec![0_u8; SIZE as usize]);
        let (at, from, into) = (block.pointer, sent.as_ptr().cast(), back.as_mut_ptr().cast());
        let name = "transfer.copy";
        Bare::check(name, slot!(bare, name, copy, at, kind, from, DTL_MEMORY_HOST, SIZE))?;
        if let Some(fill) = table.fill {
            Bare::check("transfer.fill", slot!(bare, "transfer.fill", fill, at, kind, 7, 8))?;
            sent[..8].fill(7);
        }
        Bare::check(
            name,
            slot!(bare, name, copy, into, DTL_MEMORY_HOST, at.cast_const(), kind, SIZE),
        )?;
        let difference = difference(&back, &sent);
        ensure!(
            difference.is_none(),
            "{name} to kind {} and back: {difference:?}",
            kind_name(kind)
        );
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
    ensure!(calls == expected, "{slot} ran {calls} of {expected} calls");
    Ok(())
}

fn exec(bare: &Bare) -> Outcome {
    let Some(table) = &bare.tables.exec else { skip!("the backend has no exec table") };
    streams(bare, table)?;
    if let Some(function) = table.execute {
        let status = slot!(bare, "exec.execute", function, Some(count_call), ptr::null_mut());
        Bare::check("exec.execute", status)?;
        calls_are("exec.execute", 1)?;
    }
    if let Some(function) = table.parallel_for {
        let name = "exec.parallel_for";
        Bare::check(
            name,
            slot!(bare, name, function, 0, 100, 7, Some(count_range), ptr::null_mut()),
        )?;
        calls_are(name, 100)?;
    }
    let mut threads = 0;
    for (name, function) in [
        ("exec.max_parallelism", table.max_parallelism),
        ("exec.suggested_parallelism", table.suggested_parallelism),
    ] {
        if let Some(function) = function {
            Bare::check(name, slot!(bare, name, function, &raw mut threads))?;
        }
    }
    Ok(())
}

fn streams(bare: &Bare, table: &dtl_exec_vtable_t) -> Outcome {
    let (Some(create), Some(destroy), Some(synchronize)) =
        (table.stream_create, table.stream_destroy, table.stream_synchronize)
    else {
        return Ok(());
    };
    let mut stream = ptr::null_mut();
    Bare::check(
        "exec.stream_create",
        slot!(bare, "exec.stream_create", create, 0, 0, &raw mut stream),
    )?;
    ensure!(!stream.is_null(), "exec.stream_create succeeded and wrote NULL");
    let work = u64::from(table.stream_host_callback.is_some());
    if let Some(function) = table.stream_host_callback {
        let name = "exec.stream_host_callback";
        Bare::check(name, slot!(bare, name, function, stream, Some(count_call), ptr::null_mut()))?;
    }
    events(bare, table, stream)?;
    Bare::check(
        "exec.stream_synchronize",
        slot!(bare, "exec.stream_synchronize", synchronize, stream),
    )?;
    calls_are("exec.stream_host_callback", work)?;
    let mut done = -1;
    if let Some(function) = table.stream_query {
        let name = "exec.stream_query";
        Bare::check(name, slot!(bare, name, function, stream, &raw mut done))?;
        ensure!(done == 1, "{name} wrote {done} for a stream that was synchronized, expected 1");
    }
    Bare::check("exec.stream_destroy", slot!(bare, "exec.stream_destroy", destroy, stream))
}

fn events(bare: &Bare, table: &dtl_exec_vtable_t, stream: *mut c_void) -> Outcome {
    let (Some(create), Some(destroy), Some(record), Some(query)) =
        (table.event_create, table.event_destroy, table.event_record, table.event_query)
    else {
        return Ok(());
    };
    let (mut event, mut done) = (ptr::null_mut(), -1);
    Bare::check("exec.event_create", slot!(bare, "exec.event_create", create, 0, &raw mut event))?;
    ensure!(!event.is_null(), "exec.event_create succeeded and wrote NULL");
    Bare::check("exec.event_record", slot!(bare, "exec.event_record", record, event, stream))?;
    if let Some(function) = table.stream_wait_event {
        let name = "exec.stream_wait_event";
        Bare::check(name, slot!(bare, name, function, stream, event))?;
    }
    if let Some(function) = table.event_sync {
        Bare::check("exec.event_sync", slot!(bare, "exec.event_sync", function, event))?;
    }
    Bare::check("exec.event_query", slot!(bare, "exec.event_query", query, event, &raw mut done))?;
    ensure!(
        [0, 1].contains(&done),
        "exec.event_query wrote {done} into its boolean output: use 0 or 1"
    );
    Bare::check("exec.event_destroy", slot!(bare, "exec.event_destroy", destroy, event))
}
