//! Event queries of a backend whose table the crate makes from traits, and of one whose functions are
//! written as in C, counted by instructions.sh.

#![allow(clippy::unwrap_used, reason = "a call that fails ends the program")]

use dtl_binding::driver::{Driver, Events, Streams, Table};
use dtl_binding::{Backend, Event, Result, Stream, check, sys};
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

/// State of each event: complete.
static DONE: AtomicI32 = AtomicI32::new(1);

struct Card;

impl Driver for Card {}

impl Streams for Card {
    type Stream = ();

    fn create_stream(&self, _device: i32, _flags: u64) -> Result {
        Ok(())
    }

    fn synchronize(&self, _stream: &()) -> Result {
        Ok(())
    }
}

impl Events for Card {
    type Event = &'static AtomicI32;

    fn create_event(&self, _flags: u64) -> Result<&'static AtomicI32> {
        Ok(&DONE)
    }

    fn record(&self, _event: &&'static AtomicI32, _stream: &()) -> Result {
        Ok(())
    }

    fn query(&self, event: &&'static AtomicI32) -> Result<bool> {
        Ok(event.load(Ordering::Acquire) != 0)
    }
}

unsafe extern "C" fn create(_this: *mut c_void, _flags: u64, out: *mut *mut c_void) -> i32 {
    // SAFETY: a writable place.
    unsafe { *out = ptr::from_ref(&DONE).cast_mut().cast() };
    sys::DTL_SUCCESS
}

unsafe extern "C" fn create_on(
    this: *mut c_void,
    _device: i32,
    flags: u64,
    out: *mut *mut c_void,
) -> i32 {
    // SAFETY: the arguments of the slot.
    unsafe { create(this, flags, out) }
}

unsafe extern "C" fn one(_this: *mut c_void, _object: *mut c_void) -> i32 {
    sys::DTL_SUCCESS
}

unsafe extern "C" fn two(_this: *mut c_void, _event: *mut c_void, _stream: *mut c_void) -> i32 {
    sys::DTL_SUCCESS
}

unsafe extern "C" fn query(_this: *mut c_void, event: *mut c_void, out: *mut i32) -> i32 {
    // SAFETY: the pointer of `create`.
    let event = unsafe { &*event.cast::<AtomicI32>() };
    // SAFETY: a writable place.
    unsafe { *out = event.load(Ordering::Acquire) };
    sys::DTL_SUCCESS
}

/// Registers a table as a program in C does.
fn register_as_in_c() -> Result<Backend> {
    let exec = sys::dtl_exec_vtable_t {
        stream_create: Some(create_on),
        stream_destroy: Some(one),
        stream_synchronize: Some(one),
        event_create: Some(create),
        event_destroy: Some(one),
        event_record: Some(two),
        event_query: Some(query),
        ..sys::DTL_EXEC_VTABLE_INIT
    };
    let table = sys::dtl_backend_vtable_t { exec: &raw const exec, ..sys::DTL_BACKEND_VTABLE_INIT };
    let (name, this, mut out) = (c"plain".as_ptr(), ptr::null_mut(), sys::DTL_BACKEND_NULL);
    // SAFETY: the name and the tables live through the call.
    let status =
        unsafe { sys::dtl_backend_register(name, &raw const table, this, 0, &raw mut out) };
    check("dtl_backend_register", status)?;
    Ok(Backend::from_raw(out))
}

fn event(backend: Backend) -> Event {
    let event = Event::new(backend, 0).unwrap();
    event.record(&Stream::new(backend.device(0)).unwrap()).unwrap();
    assert!(event.is_complete().unwrap()); // what happens once is not counted
    event
}

#[inline(always)]
fn queries(event: &Event) {
    for _ in 0..1000 {
        assert!(event.is_complete().unwrap());
    }
}

#[inline(never)]
fn row_plain(event: &Event) {
    queries(event);
    DONE.store(1, Ordering::Relaxed); // the two functions differ, so that they are not merged
}

#[inline(never)]
fn row_traits(event: &Event) {
    queries(event);
    DONE.store(2, Ordering::Relaxed);
}

fn main() {
    row_plain(&event(register_as_in_c().unwrap()));
    row_traits(&event(Table::new(Card).events().register("traits").unwrap()));
}
