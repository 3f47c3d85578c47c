//! Subcommand `dispatch`: measures how long it takes to find and to invoke the handler that a
//! dispatcher selects for a query, compared with a direct call to the handler's function.

use crate::library::{call, check};
use crate::local::{self, Case, time};
use crate::machine;
use crate::options::Call;
use crate::out::Outcome;
use dtl_sys::*;
use serde_json::json;
use std::ffi::{CString, c_void};
use std::hint::black_box;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

const CALLS: usize = 1000;
/// Number of keys, in addition to the key that the measured query matches, in the tests of a
/// dispatcher with many keys.
const MANY: u64 = 1000;
const OPERATION: u64 = 0x0006_03E8_0000_0000;

/// Returns the value that represents the user-defined memory kind `number` in dispatch keys.
/// [`register_words`] registers it.
const fn kind(number: u64) -> u64 {
    0x0001_0000_0000_0000 | (number + 1000) << 32
}

/// Registers the memory kinds and the operation that the dispatch keys contain. Has no effect on
/// those that are already registered.
fn register_words() -> Outcome<()> {
    let words = (0..=MANY).map(kind).chain([OPERATION]);
    for (number, word) in words.enumerate() {
        let mut known = ptr::null();
        // SAFETY: a place for the name.
        if unsafe { dtl_ev_name(word, &raw mut known) } == DTL_SUCCESS {
            continue;
        }
        let name = CString::new(format!("bench{number}")).map_err(|error| error.to_string())?;
        let (of, value, mut made) = ((word >> 48) as u32, (word >> 32) as u32 & 0xFFFF, 0);
        call!(dtl_enum_register_value(of, name.as_ptr(), value, &raw mut made))?;
    }
    Ok(())
}

unsafe extern "C" fn yes(_: *const dtl_dispatch_query_t, _: *mut c_void) -> i32 {
    1
}
unsafe extern "C" fn done(
    _: *const dtl_dispatch_query_t,
    _: *mut dtl_event_t,
    _: *mut c_void,
) -> dtl_status_t {
    DTL_SUCCESS
}

fn query() -> dtl_dispatch_query_t {
    dtl_dispatch_query_t {
        operation: OPERATION,
        source: kind(0),
        destination: kind(1),
        ..DTL_DISPATCH_QUERY_INIT
    }
}

/// Creates a dispatcher with one handler, registered for the key that matches the query and for
/// `others` further keys.
fn dispatcher(has_predicate: bool, others: u64) -> Outcome<dtl_dispatcher_t> {
    register_words()?;
    let mut made = DTL_DISPATCHER_NULL;
    call!(dtl_dispatcher_create(0, &raw mut made))?;
    let key = |source| dtl_dispatch_key_t {
        operation: OPERATION,
        source,
        destination: kind(1),
        schedule: 0,
        reserved: [0; 2],
    };
    let keys: Vec<_> = (0..=others).map(|number| key(kind(number))).collect();
    let handler = dtl_dispatch_handler_t {
        name: c"bench".as_ptr(),
        predicate: if has_predicate { Some(yes) } else { None },
        invoke: Some(done),
        ..DTL_DISPATCH_HANDLER_INIT
    };
    let mut registration = DTL_REGISTRATION_NULL;
    let (keys, count) = (keys.as_ptr(), keys.len() as u64);
    call!(dtl_dispatch_register(made, keys, count, &raw const handler, &raw mut registration))?;
    Ok(made)
}

/// Looks up the handler for the query repeatedly; returns nanoseconds per lookup.
fn find(dispatcher: dtl_dispatcher_t) -> Outcome<f64> {
    let (query, mut found) = (query(), DTL_REGISTRATION_NULL);
    time(CALLS, || {
        call!(dtl_dispatch_find(black_box(dispatcher), black_box(&raw const query), &raw mut found))
    })
}

/// Looks up the handler of the query repeatedly while another thread does the same; returns
/// nanoseconds per lookup.
fn find_beside(dispatcher: dtl_dispatcher_t) -> Outcome<f64> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                find(dispatcher)?;
            }
            Ok(())
        });
        let found = find(dispatcher).and_then(|_| find(dispatcher));
        is_over.store(true, Ordering::Relaxed);
        other.join().unwrap_or_else(|_| Err("the other thread panicked".to_owned()))?;
        found
    })
}

fn invoke(dispatcher: dtl_dispatcher_t) -> Outcome<f64> {
    let (query, event) = (query(), ptr::null_mut());
    time(CALLS, || {
        call!(dtl_dispatch_invoke(black_box(dispatcher), black_box(&raw const query), event))
    })
}

/// Calls the handler's function directly; returns nanoseconds per call.
fn bare() -> Outcome<f64> {
    let query = query();
    time(CALLS, || {
        let function = black_box(done as unsafe extern "C" fn(_, _, _) -> _);
        let (query, none) = (black_box(&raw const query), ptr::null_mut());
        // SAFETY: the function above, which touches nothing.
        check("bare", unsafe { function(query, none, ptr::null_mut()) })
    })
}

/// Runs the measurements of `dispatch` that the command line selects.
pub(crate) fn run(wanted: &Call) -> Outcome {
    call!(dtl_init(ptr::null()))?;
    let processors = machine::settle(&wanted.place);
    let (plain, many, asking) =
        (dispatcher(false, 4)?, dispatcher(false, MANY)?, dispatcher(true, 4)?);
    let cases = vec![
        Case::new("find", move || find(plain), ("bare", bare)),
        Case::new("find of 1000", move || find(many), ("bare", bare)),
        Case::new("find predicate", move || find(asking), ("bare", bare)),
        Case::new("find 2 threads", move || find_beside(plain), ("bare", bare)),
        Case::new("invoke", move || invoke(plain), ("bare", bare)),
    ];
    let lines = local::measure(cases, &wanted.common, None)?;
    let more = json!({ "pinned": !wanted.place.no_pin, "peer": { "name": "bare" } });
    local::show("dispatch", lines, processors, &wanted.common, more);
    for made in [plain, many, asking] {
        call!(dtl_dispatcher_destroy(made))?;
    }
    call!(dtl_finalize())
}
