//! Tests of backend registration: the library accepts valid function tables and rejects tables that
//! violate the rules of `dtl.h`.

use crate::kit::prelude::*;
use crate::sample::Parts;
use std::mem::offset_of;

const BAD: i32 = DTL_ERROR_INVALID_ARGUMENT;
const INCOMPATIBLE: i32 = DTL_ERROR_INCOMPATIBLE_ABI;

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Tables "abi.register.":
        full_table_accepted, bad_names_refused,
        longest_name_accepted = || Ok(unregister(Parts::new().register(&"x".repeat(63), 0)?)?),
        taken_name_refused, replace_takes_over,
        unknown_flags_refused = || {
            refused(Parts::new().register(NAME, 1 << 20), BAD, "flags 1 << 20")
        },
        table_is_copied,
        empty_table_refused = || {
            fails(|parts| parts.has = [false; 5], BAD, "a table without any component")
        },
        self_is_passed_to_slots, destroy_called_once, no_destroy_after_failure,
        busy_while_in_use, stale_after_unregister,
        name_is_free_again = || (0..20).try_for_each(|_| registered(&Parts::new(), counts_devices)),
        builtin_stays = || refused(unregister(Backend::find("host")?), BAD, "unregister of host");
    Tables "abi.sizes.":
        zero_refused = || fails(|parts| parts.size = Some(0), BAD, "struct_size 0"),
        cut_main_table_refused = || named(
            |parts| parts.size = Some(offset_of!(dtl_backend_vtable_t, comm) as u32),
            "ends before comm",
        ),
        short_component_accepted, short_of_a_required_slot_refused,
        cut_slot_refused = || fails(
            |parts| {
                parts.memory.struct_size = offset_of!(dtl_memory_vtable_t, kind_info) as u32 + 5
            },
            INCOMPATIBLE,
            "a table that ends inside kind_info",
        ),
        zero_tail_accepted = || {
            registered(&Parts::with(|parts| parts.tail = Some([0; 8])), counts_devices)
        },
        garbage_tail_refused,
        garbage_in_component_tail_refused = || fails(
            |parts| parts.memory_tail = Some([0, 0, 0, 0, 0, 0, 0, 9]),
            INCOMPATIBLE,
            "a memory table's tail that is not 0",
        ),
        enormous_refused_unread = || {
            fails(|parts| parts.size = Some(1 << 30), INCOMPATIBLE, "struct_size 2^30")
        },
        newer_abi_refused = || fails(
            |parts| parts.main.abi_version += 1000,
            INCOMPATIBLE,
            "an abi_version of the future",
        ),
        main_reserved_refused = || named(|parts| parts.main.reserved = 1, "reserved"),
        unknown_table_flags_refused = || named(|parts| parts.main.flags = 1 << 40, "flags"),
        device_reserved_refused = || named(|parts| parts.device.reserved = 7, "device.reserved"),
        memory_reserved_refused = || named(|parts| parts.memory.reserved = 7, "memory.reserved"),
        transfer_reserved_refused = || {
            named(|parts| parts.transfer.reserved = 7, "transfer.reserved")
        },
        exec_reserved_refused = || named(|parts| parts.exec.reserved = 7, "exec.reserved");
    Tables "abi.required.":
        events_without_streams_refused, match_bits_out_of_range_refused,
        comm_flags_refused = || named(|parts| parts.comm.flags = 1 << 40, "comm.flags");
];

/// Defines tests that register function tables in which one required function pointer is NULL.
macro_rules! without {
    ($($component:ident: $($slot:ident)+;)+) => {
        &[$($((
            concat!(
                "abi.required.", stringify!($component), "_", stringify!($slot), "_null_refused"
            ),
            Body::Tables(|| {
                let field = concat!(stringify!($component), ".", stringify!($slot));
                named(|parts| parts.$component.$slot = None, field)
            }),
        ),)+)+]
    };
}

pub(crate) const REQUIRED: &[(&str, Body)] = without![
    device: count set get;
    memory: alloc free;
    transfer: copy;
    exec: stream_create stream_destroy stream_synchronize event_create event_destroy event_record
        event_query execute parallel_for max_parallelism;
    comm: open close isend irecv test;
];

/// Name under which the tests register a backend.
const NAME: &str = "ctk.abi";

/// Registers a backend with these function tables, runs the check on the backend, and unregisters
/// the backend.
pub(crate) fn registered(parts: &Parts, check: impl FnOnce(Backend) -> Outcome) -> Outcome {
    let backend = parts.register(NAME, 0)?;
    let outcome = check(backend);
    let gone = unregister(backend);
    outcome?;
    Ok(gone?)
}

fn unregister(backend: Backend) -> Called {
    call!(dtl_backend_unregister(backend.handle))
}

fn counts_devices(backend: Backend) -> Outcome {
    Ok(backend.device_count().map(drop)?)
}

/// Checks that the registration of modified tables fails with an error message that names the
/// field.
pub(crate) fn named(change: impl FnOnce(&mut Parts), field: &str) -> Outcome {
    match Parts::with(change).register(NAME, 0) {
        Err(refused) if refused.status == BAD => {
            check!(refused.text.contains(field), "the text does not name {field}: {}", refused.text)
        }
        Err(refused) => Err(refused.into()),
        Ok(backend) => {
            unregister(backend)?;
            wrong!("the table was accepted, {field} is wrong in it")
        }
    }
}

/// Checks that the registration of modified tables fails with this status.
fn fails(change: impl FnOnce(&mut Parts), status: i32, when: &str) -> Outcome {
    let result = Parts::with(change).register(NAME, 0);
    if let Ok(backend) = &result {
        unregister(*backend)?;
    }
    refused(result, status, when)
}

fn full_table_accepted() -> Outcome {
    registered(&Parts::new(), |backend| {
        let found = Backend::find(NAME)?;
        ensure!(found.handle.id == backend.handle.id, "the name leads to another backend");
        let components = backend.info()?.components;
        check!(components == 31, "five tables were given, components are {components:#x}")
    })
}

fn bad_names_refused() -> Outcome {
    let parts = Parts::new();
    for name in ["", "a b", "a/b", "auto", "ä", &"x".repeat(64)] {
        let result = parts.register(name, 0);
        refused(result, DTL_ERROR_INVALID_ARGUMENT, &format!("the name \"{name}\""))?;
    }
    Ok(())
}

fn taken_name_refused() -> Outcome {
    let parts = Parts::new();
    registered(&parts, |_| {
        refused(parts.register(NAME, 0), DTL_ERROR_ALREADY_EXISTS, "a name that is taken")
    })
}

fn replace_takes_over() -> Outcome {
    let (first, second) = (Parts::new(), Parts::new());
    let old = first.register(NAME, 0)?;
    let block = old.alloc(DTL_MEMORY_HOST, 64, 0)?;
    let new = second.register(NAME, dtl_sys::DTL_REGISTER_REPLACE)?;
    let found = Backend::find(NAME)?;
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

fn table_is_copied() -> Outcome {
    let mut parts = Parts::new();
    let backend = parts.register(NAME, 0)?;
    (parts.device.count, parts.memory.alloc) = (None, None);
    std::hint::black_box(&parts);
    let works = backend.device_count().is_ok() && backend.alloc(DTL_MEMORY_HOST, 64, 0).is_ok();
    unregister(backend)?;
    check!(works, "the tables are read after the registration")
}

fn self_is_passed_to_slots() -> Outcome {
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
    check!(calls == (1, 0), "one allocation of the first of two: they counted {calls:?}")
}

fn destroy_called_once() -> Outcome {
    let parts = Parts::new();
    registered(&parts, |backend| {
        backend.alloc(DTL_MEMORY_HOST, 64, 0)?.free()?;
        let early = parts.state.destroyed.load(Ordering::SeqCst);
        check!(early == 0, "destroy was called before the end")
    })?;
    let times = parts.state.destroyed.load(Ordering::SeqCst);
    check!(times == 1, "destroy was called {times} times")
}

fn no_destroy_after_failure() -> Outcome {
    let mut parts = Parts::new();
    parts.memory.alloc = None;
    ensure!(parts.register(NAME, 0).is_err(), "a table without memory.alloc was accepted");
    let times = parts.state.destroyed.load(Ordering::SeqCst);
    check!(times == 0, "destroy was called after a registration that failed")
}

fn busy_while_in_use() -> Outcome {
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

fn stale_after_unregister() -> Outcome {
    let backend = Parts::new().register(NAME, 0)?;
    unregister(backend)?;
    refused(backend.device_count(), DTL_ERROR_INVALID_HANDLE, "a call on an unregistered backend")?;
    refused(unregister(backend), DTL_ERROR_INVALID_HANDLE, "the second unregister")
}

fn short_component_accepted() -> Outcome {
    let size = offset_of!(dtl_memory_vtable_t, alloc_async) as u32;
    let parts = Parts::with(|parts| parts.memory.struct_size = size);
    registered(&parts, |backend| Ok(backend.alloc(DTL_MEMORY_HOST, 64, 0)?.free()?))
}

fn short_of_a_required_slot_refused() -> Outcome {
    let size = offset_of!(dtl_memory_vtable_t, free) as u32;
    let text = "dtl_memory_vtable_t.struct_size is 16 and ends before free";
    named(|parts| parts.memory.struct_size = size, text)
}

fn garbage_tail_refused() -> Outcome {
    let parts = Parts::with(|parts| parts.tail = Some([0, 0, 1, 0, 0, 0, 0, 0]));
    let result = parts.register(NAME, 0);
    let offset = size_of::<dtl_backend_vtable_t>() + 16;
    if let Err(refused) = &result {
        ensure!(
            refused.text.contains(&offset.to_string()),
            "the text does not name offset {offset}: {}",
            refused.text
        );
    }
    refused(result, INCOMPATIBLE, "a tail that is not 0")
}

fn events_without_streams_refused() -> Outcome {
    let without = |parts: &mut Parts| {
        (parts.exec.stream_create, parts.exec.stream_destroy) = (None, None);
        parts.exec.stream_synchronize = None;
    };
    named(without, "stream_create")
}

fn match_bits_out_of_range_refused() -> Outcome {
    for bits in [1, 27, 65] {
        named(|parts| parts.comm.match_bits = bits, "match_bits")?;
    }
    registered(&Parts::with(|parts| parts.comm.match_bits = 28), |_| Ok(()))
}
