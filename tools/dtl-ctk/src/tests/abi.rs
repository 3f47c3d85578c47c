//! Tests of registration: tables that the kit makes, right and wrong, against the rules of the
//! header.

use crate::kit::calls::Backend;
use crate::kit::catalog::{Group, tables, tests_of_tables};
use crate::kit::exec_calls::{Event, Stream};
use crate::kit::outcome::{Called, Outcome, call, ensure, refused, wrong};
use crate::sample::Parts;
use dtl_sys::*;
use std::mem::offset_of;
use std::sync::atomic::Ordering;

/// A table without one of its slots.
macro_rules! without {
    ($component:ident . $slot:ident) => {
        tables(
            concat!(
                "abi.required.",
                stringify!($component),
                "_",
                stringify!($slot),
                "_null_refused"
            ),
            "a table without this slot is DTL_ERROR_INVALID_ARGUMENT, and the text names the slot",
            || {
                let mut parts = Parts::new();
                parts.$component.$slot = None;
                named(&mut parts, concat!(stringify!($component), ".", stringify!($slot)))
            },
        )
    };
}

/// A component table's `reserved` that is not 0.
macro_rules! reserved {
    ($component:ident) => {
        tables(
            concat!("abi.sizes.", stringify!($component), "_reserved_refused"),
            "a table whose reserved is not 0 is DTL_ERROR_INVALID_ARGUMENT",
            || {
                let mut parts = Parts::new();
                parts.$component.reserved = 7;
                named(&mut parts, concat!(stringify!($component), ".reserved"))
            },
        )
    };
}

pub(crate) const GROUPS: &[Group] = &[
    Group {
        slot: "dtl_backend_register (names)",
        needs: &[],
        rule: "A name has 1 to 63 letters, digits, '_', '-', '.', and is not \"auto\"; a taken one \
            is \
               DTL_ERROR_ALREADY_EXISTS without DTL_REGISTER_REPLACE.",
        usually: "The library and the header that the kit was built with do not belong together.",
        tests: tests_of_tables![
            "abi.register.full_table_accepted": "a table with all components is registered and \
             found" => accepted;
            "abi.register.bad_names_refused": "empty, too long, spaces, slashes, \
             \"auto\"" => bad_names;
            "abi.register.longest_name_accepted": "63 bytes" => longest_name;
            "abi.register.taken_name_refused": "the second registration of a name" => taken_name;
            "abi.register.replace_takes_over": "the new one is found; the old one ends with its \
             last use" => replace;
            "abi.register.unknown_flags_refused": "flags 1 << 20" => unknown_flags;
            "abi.register.table_is_copied": "changes after the registration are not seen" => copied;
            "abi.register.empty_table_refused": "no component at all is \
             DTL_ERROR_INVALID_ARGUMENT" => empty_table;
            "abi.register.self_is_passed_to_slots": "slots get the pointer of their \
             registration" => self_passed;
            "abi.register.destroy_called_once": "when unregistered, and not again" => destroy_once;
            "abi.register.no_destroy_after_failure": "a refused registration owes \
             nothing" => destroy_never;
            "abi.register.busy_while_in_use": "unregister with a live allocation, stream or event \
             is DTL_ERROR_BUSY" => busy;
            "abi.register.stale_after_unregister": "the handle is DTL_ERROR_INVALID_HANDLE \
             then" => stale;
            "abi.register.name_is_free_again": "after unregister it can be used anew" => name_again;
            "abi.register.builtin_stays": "host cannot be unregistered" => builtin_stays;
        ],
    },
    Group {
        slot: "struct_size, abi_version, reserved",
        needs: &[],
        rule: "A size that an older version had: missing fields are NULL. Any other shorter one is \
            refused. Longer with a \
               tail of zeros is accepted, with anything else DTL_ERROR_INCOMPATIBLE_ABI. Above \
               4096 bytes nothing is read.",
        usually: "A table was not started from its _INIT macro.",
        tests: &[
            tables("abi.sizes.zero_refused", "struct_size 0", size_zero),
            tables(
                "abi.sizes.cut_main_table_refused",
                "a table that ends before its comm pointer: no version has that",
                cut_main,
            ),
            tables(
                "abi.sizes.short_component_accepted",
                "an older memory table without its optional slots",
                short_component,
            ),
            tables(
                "abi.sizes.short_of_a_required_slot_refused",
                "a table that ends before a required slot",
                short_required,
            ),
            tables("abi.sizes.cut_slot_refused", "a table that ends inside a slot", cut_slot),
            tables("abi.sizes.zero_tail_accepted", "64 more bytes, all 0", zero_tail),
            tables(
                "abi.sizes.garbage_tail_refused",
                "64 more bytes, one not 0; the text names the offset",
                garbage_tail,
            ),
            tables(
                "abi.sizes.garbage_in_component_tail_refused",
                "the same in a memory table",
                garbage_component,
            ),
            tables("abi.sizes.enormous_refused_unread", "struct_size 2^30", size_enormous),
            tables(
                "abi.sizes.newer_abi_refused",
                "abi_version of the future is DTL_ERROR_INCOMPATIBLE_ABI",
                newer_abi,
            ),
            tables("abi.sizes.main_reserved_refused", "reserved is not 0", main_reserved),
            tables("abi.sizes.unknown_table_flags_refused", "flags 1 << 40", table_flags),
            reserved!(device),
            reserved!(memory),
            reserved!(transfer),
            reserved!(exec),
        ],
    },
    Group {
        slot: "required slots",
        needs: &[],
        rule: "Slots marked (required) must be there; a group of exec slots is whole or absent.",
        usually: "A slot was forgotten in the table.",
        tests: &[
            without!(device.count),
            without!(device.set),
            without!(device.get),
            without!(memory.alloc),
            without!(memory.free),
            without!(transfer.copy),
            without!(exec.stream_create),
            without!(exec.stream_destroy),
            without!(exec.stream_synchronize),
            without!(exec.event_create),
            without!(exec.event_destroy),
            without!(exec.event_record),
            without!(exec.event_query),
            without!(exec.execute),
            without!(exec.parallel_for),
            without!(exec.max_parallelism),
            without!(comm.open),
            without!(comm.close),
            without!(comm.isend),
            without!(comm.irecv),
            without!(comm.test),
            tables(
                "abi.required.events_without_streams_refused",
                "event slots need the stream slots",
                events_alone,
            ),
            tables(
                "abi.required.match_bits_out_of_range_refused",
                "27 and 65 match bits",
                match_bits,
            ),
            tables("abi.required.comm_flags_refused", "comm.flags has an unknown bit", comm_flags),
        ],
    },
];

/// Registers, gives the backend to the check, unregisters.
pub(crate) fn registered(parts: &Parts, check: impl FnOnce(Backend) -> Outcome) -> Outcome {
    let backend = parts.register("ctk.abi", 0)?;
    let outcome = check(backend);
    let gone = unregister(backend);
    outcome?;
    Ok(gone?)
}

pub(crate) fn unregister(backend: Backend) -> Called {
    call!(dtl_backend_unregister(backend.handle))
}

/// The registration must fail, and the text name the field.
pub(crate) fn named(parts: &mut Parts, field: &str) -> Outcome {
    match parts.register("ctk.abi", 0) {
        Err(refused) if refused.status == DTL_ERROR_INVALID_ARGUMENT => {
            ensure!(
                refused.text.contains(field),
                "the text does not name {field}: {}",
                refused.text
            );
            Ok(())
        }
        Err(refused) => Err(refused.into()),
        Ok(backend) => {
            unregister(backend)?;
            wrong!("the table was accepted, {field} is wrong in it")
        }
    }
}

pub(crate) fn fails(parts: &Parts, status: i32, when: &str) -> Outcome {
    let result = parts.register("ctk.abi", 0);
    if let Ok(backend) = &result {
        unregister(*backend)?;
    }
    refused(result, status, when)
}

fn accepted() -> Outcome {
    registered(&Parts::new(), |backend| {
        let found = Backend::find("ctk.abi")?;
        ensure!(found.handle.id == backend.handle.id, "the name leads to another backend");
        let components = backend.info()?.components;
        ensure!(components == 31, "five tables were given, components are {components:#x}");
        Ok(())
    })
}

fn bad_names() -> Outcome {
    let parts = Parts::new();
    for name in ["", "a b", "a/b", "auto", "ä", &"x".repeat(64)] {
        let result = parts.register(name, 0);
        refused(result, DTL_ERROR_INVALID_ARGUMENT, &format!("the name \"{name}\""))?;
    }
    Ok(())
}

fn longest_name() -> Outcome {
    Ok(unregister(Parts::new().register(&"x".repeat(63), 0)?)?)
}

fn taken_name() -> Outcome {
    let parts = Parts::new();
    registered(&parts, |_| {
        refused(parts.register("ctk.abi", 0), DTL_ERROR_ALREADY_EXISTS, "a name that is taken")
    })
}

fn replace() -> Outcome {
    let (first, second) = (Parts::new(), Parts::new());
    let old = first.register("ctk.abi", 0)?;
    let block = old.alloc(DTL_MEMORY_HOST, 64, 0)?;
    let new = second.register("ctk.abi", dtl_sys::DTL_REGISTER_REPLACE)?;
    let found = Backend::find("ctk.abi")?;
    ensure!(
        found.handle.id == new.handle.id && new.handle.id != old.handle.id,
        "the old one is found"
    );
    old.device_count()?;
    ensure!(
        first.state.destroyed.load(Ordering::SeqCst) == 0,
        "the old one was destroyed while in use"
    );
    block.free()?;
    let times = first.state.destroyed.load(Ordering::SeqCst);
    ensure!(
        times == 1,
        "destroy of the old one was called {times} times when its last block was gone"
    );
    refused(old.device_count(), DTL_ERROR_INVALID_HANDLE, "a call on the old one after that")?;
    Ok(unregister(new)?)
}

fn unknown_flags() -> Outcome {
    refused(Parts::new().register("ctk.abi", 1 << 20), DTL_ERROR_INVALID_ARGUMENT, "flags 1 << 20")
}

fn copied() -> Outcome {
    let mut parts = Parts::new();
    let backend = parts.register("ctk.abi", 0)?;
    (parts.device.count, parts.memory.alloc) = (None, None);
    std::hint::black_box(&parts);
    let works = backend.device_count().is_ok() && backend.alloc(DTL_MEMORY_HOST, 64, 0).is_ok();
    unregister(backend)?;
    ensure!(works, "the tables are read after the registration");
    Ok(())
}

fn empty_table() -> Outcome {
    let mut parts = Parts::new();
    parts.has = [false; 5];
    fails(&parts, DTL_ERROR_INVALID_ARGUMENT, "a table without any component")
}

fn self_passed() -> Outcome {
    let (one, other) = (Parts::new(), Parts::new());
    let (a, b) = (one.register("ctk.abi.a", 0)?, other.register("ctk.abi.b", 0)?);
    let block = a.alloc(DTL_MEMORY_HOST, 64, 0)?;
    let calls = (
        one.state.allocations.load(Ordering::SeqCst),
        other.state.allocations.load(Ordering::SeqCst),
    );
    block.free()?;
    unregister(a)?;
    unregister(b)?;
    ensure!(calls == (1, 0), "one allocation of the first of two: they counted {calls:?}");
    Ok(())
}

fn destroy_once() -> Outcome {
    let parts = Parts::new();
    registered(&parts, |backend| {
        backend.alloc(DTL_MEMORY_HOST, 64, 0)?.free()?;
        let early = parts.state.destroyed.load(Ordering::SeqCst);
        ensure!(early == 0, "destroy was called before the end");
        Ok(())
    })?;
    let times = parts.state.destroyed.load(Ordering::SeqCst);
    ensure!(times == 1, "destroy was called {times} times");
    Ok(())
}

fn destroy_never() -> Outcome {
    let mut parts = Parts::new();
    parts.memory.alloc = None;
    ensure!(parts.register("ctk.abi", 0).is_err(), "a table without memory.alloc was accepted");
    let times = parts.state.destroyed.load(Ordering::SeqCst);
    ensure!(times == 0, "destroy was called after a registration that failed");
    Ok(())
}

fn busy() -> Outcome {
    registered(&Parts::new(), |backend| {
        let block = backend.alloc(DTL_MEMORY_HOST, 64, 0)?;
        refused(unregister(backend), DTL_ERROR_BUSY, "unregister with a live allocation")?;
        block.free()?;
        let stream = Stream::new(backend, 0)?;
        refused(unregister(backend), DTL_ERROR_BUSY, "unregister with a live stream")?;
        stream.destroy()?;
        let event = Event::new(backend)?;
        refused(unregister(backend), DTL_ERROR_BUSY, "unregister with a live event")?;
        Ok(event.destroy()?)
    })
}

fn stale() -> Outcome {
    let backend = Parts::new().register("ctk.abi", 0)?;
    unregister(backend)?;
    refused(backend.device_count(), DTL_ERROR_INVALID_HANDLE, "a call on an unregistered backend")?;
    refused(unregister(backend), DTL_ERROR_INVALID_HANDLE, "the second unregister")
}

fn name_again() -> Outcome {
    (0..20).try_for_each(|_| {
        registered(&Parts::new(), |backend| Ok(backend.device_count().map(|_| ())?))
    })
}

fn builtin_stays() -> Outcome {
    refused(unregister(Backend::find("host")?), DTL_ERROR_INVALID_ARGUMENT, "unregister of host")
}

fn size_zero() -> Outcome {
    let mut parts = Parts::new();
    parts.size = Some(0);
    fails(&parts, DTL_ERROR_INVALID_ARGUMENT, "struct_size 0")
}

fn cut_main() -> Outcome {
    let mut parts = Parts::new();
    parts.size = Some(offset_of!(dtl_backend_vtable_t, comm) as u32);
    named(&mut parts, "ends before comm")
}

fn short_component() -> Outcome {
    let mut parts = Parts::new();
    parts.memory.struct_size = offset_of!(dtl_memory_vtable_t, alloc_async) as u32;
    registered(&parts, |backend| Ok(backend.alloc(DTL_MEMORY_HOST, 64, 0)?.free()?))
}

fn short_required() -> Outcome {
    let mut parts = Parts::new();
    parts.memory.struct_size = offset_of!(dtl_memory_vtable_t, free) as u32;
    named(&mut parts, "dtl_memory_vtable_t.struct_size is 16 and ends before free")
}

fn cut_slot() -> Outcome {
    let mut parts = Parts::new();
    parts.memory.struct_size = offset_of!(dtl_memory_vtable_t, kind_info) as u32 + 5;
    fails(&parts, DTL_ERROR_INCOMPATIBLE_ABI, "a table that ends inside kind_info")
}

fn zero_tail() -> Outcome {
    let mut parts = Parts::new();
    parts.tail = Some([0; 8]);
    registered(&parts, |backend| Ok(backend.device_count().map(|_| ())?))
}

fn garbage_tail() -> Outcome {
    let mut parts = Parts::new();
    parts.tail = Some([0, 0, 1, 0, 0, 0, 0, 0]);
    let result = parts.register("ctk.abi", 0);
    let offset = size_of::<dtl_backend_vtable_t>() + 16;
    if let Err(refused) = &result {
        ensure!(
            refused.text.contains(&offset.to_string()),
            "the text does not name offset {offset}: {}",
            refused.text
        );
    }
    refused(result, DTL_ERROR_INCOMPATIBLE_ABI, "a tail that is not 0")
}

fn garbage_component() -> Outcome {
    let mut parts = Parts::new();
    parts.memory_tail = Some([0, 0, 0, 0, 0, 0, 0, 9]);
    fails(&parts, DTL_ERROR_INCOMPATIBLE_ABI, "a memory table's tail that is not 0")
}

fn size_enormous() -> Outcome {
    let mut parts = Parts::new();
    parts.size = Some(1 << 30);
    fails(&parts, DTL_ERROR_INCOMPATIBLE_ABI, "struct_size 2^30")
}

fn newer_abi() -> Outcome {
    let mut parts = Parts::new();
    parts.main.abi_version += 1000;
    fails(&parts, DTL_ERROR_INCOMPATIBLE_ABI, "an abi_version of the future")
}

fn main_reserved() -> Outcome {
    let mut parts = Parts::new();
    parts.main.reserved = 1;
    named(&mut parts, "reserved")
}

fn table_flags() -> Outcome {
    let mut parts = Parts::new();
    parts.main.flags = 1 << 40;
    named(&mut parts, "flags")
}

fn events_alone() -> Outcome {
    let mut parts = Parts::new();
    parts.exec.stream_create = None;
    parts.exec.stream_destroy = None;
    parts.exec.stream_synchronize = None;
    named(&mut parts, "stream_create")
}

fn match_bits() -> Outcome {
    for bits in [1, 27, 65] {
        let mut parts = Parts::new();
        parts.comm.match_bits = bits;
        named(&mut parts, "match_bits")?;
    }
    let mut parts = Parts::new();
    parts.comm.match_bits = 28;
    registered(&parts, |_| Ok(()))
}

fn comm_flags() -> Outcome {
    let mut parts = Parts::new();
    parts.comm.flags = 1 << 40;
    named(&mut parts, "comm.flags")
}
