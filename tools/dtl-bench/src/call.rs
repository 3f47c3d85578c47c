//! Subcommand `call`: measures the overhead of a library call over a direct call to the backend
//! function that it calls. This program registers a backend whose functions do nothing, and calls
//! these functions both through the library and directly. benches/call.c measures the same from C,
//! with the shared library.

use crate::library::{call, check};
use crate::local::{self, Case, time};
use crate::machine;
use crate::options::Call;
use crate::out::Outcome;
use dtl_sys::*;
use serde_json::json;
use std::ffi::c_void;
use std::hint::black_box;
use std::ptr;

const CALLS: usize = 1000;

type Object = *mut c_void;

/// Writes `value` to the output parameter `place`.
fn put<T>(place: *mut T, value: T) -> dtl_status_t {
    // SAFETY: the library and the rows below pass writable places.
    unsafe { place.write(value) };
    DTL_SUCCESS
}

unsafe extern "C" fn create_stream(own: Object, _: i32, _: u64, out: *mut Object) -> dtl_status_t {
    put(out, own)
}
unsafe extern "C" fn create_event(own: Object, _: u64, out: *mut Object) -> dtl_status_t {
    put(out, own)
}
unsafe extern "C" fn one(_: Object, _: Object) -> dtl_status_t {
    DTL_SUCCESS
}
unsafe extern "C" fn record(_: Object, _: Object, _: Object) -> dtl_status_t {
    DTL_SUCCESS
}
unsafe extern "C" fn query(_: Object, _: Object, done: *mut i32) -> dtl_status_t {
    put(done, 1)
}
unsafe extern "C" fn count(_: Object, out: *mut i32) -> dtl_status_t {
    put(out, 1)
}
unsafe extern "C" fn zero(_: Object, out: *mut i32) -> dtl_status_t {
    put(out, 0)
}
unsafe extern "C" fn set(_: Object, _: i32) -> dtl_status_t {
    DTL_SUCCESS
}

/// Object whose address is passed to the functions of the registered backend as their `self`
/// argument.
static OWN: u8 = 0;

fn device() -> dtl_device_vtable_t {
    dtl_device_vtable_t {
        count: Some(count),
        set: Some(set),
        get: Some(zero),
        ..DTL_DEVICE_VTABLE_INIT
    }
}

fn exec() -> dtl_exec_vtable_t {
    dtl_exec_vtable_t {
        stream_create: Some(create_stream),
        stream_destroy: Some(one),
        stream_synchronize: Some(one),
        stream_query: Some(query),
        event_create: Some(create_event),
        event_destroy: Some(one),
        event_record: Some(record),
        event_query: Some(query),
        ..DTL_EXEC_VTABLE_INIT
    }
}

fn register() -> Outcome<dtl_backend_t> {
    let (device, exec) = (device(), exec());
    let table = dtl_backend_vtable_t {
        auto_priority: i32::MIN,
        device: &raw const device,
        exec: &raw const exec,
        ..DTL_BACKEND_VTABLE_INIT
    };
    let own = (&raw const OWN).cast_mut().cast();
    let mut backend = DTL_BACKEND_NULL;
    call!(dtl_backend_register(c"nothing".as_ptr(), &raw const table, own, 0, &raw mut backend))?;
    Ok(backend)
}

/// Creates a row of the result table, which compares a call through the library with the equivalent
/// direct call.
fn row<'a>(
    name: &'static str,
    ours: impl Fn() -> dtl_status_t + 'a,
    bare: impl Fn() -> dtl_status_t + 'a,
) -> Case<'a> {
    let ours = move || time(CALLS, || check(name, ours()));
    let bare = move || time(CALLS, || check(name, bare()));
    Case::new(name, ours, ("bare", bare))
}

/// Creates a closure that calls a function in a backend's function table directly, through a
/// pointer whose target is unknown at compile time, as in C code.
macro_rules! slot {
    ($table:ident.$name:ident($($argument:expr),*)) => {
        move || match black_box($table).$name {
            // SAFETY: functions above; they write to places for outputs only.
            Some(function) => unsafe { function($($argument),*) },
            None => DTL_ERROR_INTERNAL,
        }
    };
}

/// Creates a closure that calls a library function through a pointer whose target is unknown at
/// compile time, as a separately compiled program does.
macro_rules! through {
    ($kind:ty: $function:ident($($argument:expr),*)) => {{
        let function = black_box($function as $kind);
        #[allow(unused_unsafe, reason = "some functions take no pointers")]
        // SAFETY: handles of this run, and places for outputs.
        move || unsafe { function($($argument),*) }
    }};
}

type OfTwo<A, B> = unsafe extern "C" fn(A, B) -> dtl_status_t;

/// Runs the measurements of `call` that the command line selects.
pub(crate) fn run(wanted: &Call) -> Outcome {
    call!(dtl_init(ptr::null()))?;
    let processors = machine::settle(&wanted.place);
    let backend = register()?;
    let (mut stream, mut event) = (DTL_STREAM_NULL, DTL_EVENT_NULL);
    call!(dtl_stream_create(backend, 0, 0, &raw mut stream))?;
    call!(dtl_event_create(backend, 0, &raw mut event))?;
    let (device, exec) = (&device(), &exec());
    let mut place = 0_i32;
    let (own, out) = ((&raw const OWN).cast_mut().cast(), &raw mut place);
    let cases = vec![
        row(
            "event_record",
            through!(OfTwo<_, _>: dtl_event_record(event, stream)),
            slot!(exec.event_record(own, own, own)),
        ),
        row(
            "event_query",
            through!(OfTwo<_, _>: dtl_event_query(event, out)),
            slot!(exec.event_query(own, own, out)),
        ),
        row(
            "stream_query",
            through!(OfTwo<_, _>: dtl_stream_query(stream, out)),
            slot!(exec.stream_query(own, own, out)),
        ),
        row(
            "stream_sync",
            through!(OfTwo<_, _>: dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE)),
            slot!(exec.stream_synchronize(own, own)),
        ),
        row(
            "device_count",
            through!(OfTwo<_, _>: dtl_backend_device_count(backend, out)),
            slot!(device.count(own, out)),
        ),
    ];
    let lines = local::measure(cases, &wanted.common, None)?;
    let more = json!({ "pinned": !wanted.place.no_pin, "peer": { "name": "bare" } });
    local::show("call", lines, processors, &wanted.common, more);
    call!(dtl_event_destroy(event))?;
    call!(dtl_stream_destroy(stream))?;
    call!(dtl_backend_unregister(backend))?;
    call!(dtl_finalize())
}
