//! Dispatchers: select the handler of an operation.
//! dtl: header(dtl_select.h)

use super::builtin_ops as own;
use super::handler;
use super::query::{at_hand, take_query};
use crate::abi::devices::dispatch::*;
use crate::abi::handle::{dtl_dispatcher_t, dtl_event_t, dtl_registration_t};
use crate::abi::status::{DTL_SUCCESS, dtl_status_t};
use crate::error::Result;
use crate::ffi::args::{self, Out};
use crate::ffi::guard::{self, Entry};
use crate::runtime::dispatch::{
    self, Action, Dispatcher, FastLookup, Query, Registration, Tables, explain,
};
use std::cell::Cell;
use std::ffi::c_char;

/// Creates a dispatcher without handlers. dtl_dispatch_key_t states the rules.
///
/// @param flags  0 or DTL_DISPATCHER_STRICT_DACE.
/// @param out    The dispatcher. The caller owns it; destroy it with dtl_dispatcher_destroy.
/// @return DTL_ERROR_INVALID_ARGUMENT: `flags` has unknown bits.
///         DTL_ERROR_LIMIT: no handle is left.
/// Threads: any. Equivalent: DaCe's TargetDispatcher.
/// dtl:flags flags(DTL_DISPATCHER_)
/// dtl:out owned(dtl_dispatcher_destroy)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_dispatcher_create(
    flags: u64,
    out: *mut dtl_dispatcher_t,
) -> dtl_status_t {
    Entry("dtl_dispatcher_create").call(|_| Out::new(out, "out")?.put(dispatch::create(flags)))
}

/// Destroys a dispatcher and unregisters all its handlers.
///
/// Invocations in progress continue, and `destroy` of their data is called after them. For
/// DTL_DISPATCHER_NULL and the default dispatcher the call has no effect.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_dispatcher_destroy(dispatcher: dtl_dispatcher_t) -> dtl_status_t {
    Entry("dtl_dispatcher_destroy").call(|inside| dispatch::destroy(inside, dispatcher))
}

/// Returns the dispatcher that the library itself queries before it allocates, copies, launches or
/// compiles.
///
/// Handlers registered here also serve programs that are unaware of them. The library's
/// implementation is the default of each of its operations here (rule 4 of dtl_dispatch_key_t), as
/// dtl_dispatch_explain shows. The dispatcher exists while the library is initialised. Without
/// handlers it costs no time. Pools, fills, and the memory of communicators and windows are not
/// dispatched.
/// dtl:return borrowed
#[unsafe(no_mangle)]
pub extern "C" fn dtl_dispatcher_default() -> dtl_dispatcher_t {
    dispatch::DEFAULT
}

/// Registers a handler under one or several keys: under all of them, or under none if one is
/// refused.
///
/// Calls that begin after the return find it; calls in progress may.
///
/// @param dispatcher  dtl_dispatcher_default(), or one from dtl_dispatcher_create.
/// @param keys        `key_count` keys, all different. Copied.
/// @param key_count   1 to 1024. For each operation a dispatcher accepts 1024 keys with predicates
///                    and 1024 without.
/// @param handler     Start from DTL_DISPATCH_HANDLER_INIT. Copied. `user` must live until
///                    `destroy` is called.
/// @param out         The registration. End it with dtl_dispatch_unregister; dtl_dispatcher_destroy
///                    and dtl_finalize end it too.
/// @return After a failure `destroy` is not called.
///         DTL_ERROR_ALREADY_EXISTS: a key has a handler (rule 6). The text names both.
///         DTL_ERROR_INVALID_ARGUMENT: a key is not valid (the text has its index), for example
///         because a field of one of the library's operations has a word of a wrong enumeration
///         (see dtl_dispatch_query_t). Also if flags, name or a field of the handler is not valid.
///         DTL_ERROR_NOT_SUPPORTED: `backend` has no memory, transfer or compiler.
///         DTL_ERROR_LIMIT: there are too many keys.
/// Threads: any. Equivalent: DaCe's register_copy_dispatcher and similar functions.
/// dtl:keys len(key_count)
/// dtl:out owned(dtl_dispatch_unregister)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_dispatch_register(
    dispatcher: dtl_dispatcher_t,
    keys: *const dtl_dispatch_key_t,
    key_count: u64,
    handler: *const dtl_dispatch_handler_t,
    out: *mut dtl_registration_t,
) -> dtl_status_t {
    Entry("dtl_dispatch_register").call(|inside| {
        let out = Out::new(out, "out")?;
        // SAFETY: passed on.
        out.put(unsafe { handler::register(inside, dispatcher, (keys, key_count), handler) })
    })
}

/// Unregisters a handler: it is no longer chosen.
///
/// A handler that it replaced becomes active again. Invocations in progress continue. `destroy` is
/// called before the return if no other thread is inside the library, otherwise after the last of
/// them has left.
///
/// @return DTL_ERROR_INVALID_HANDLE: it was unregistered before.
///         DTL_ERROR_INVALID_ARGUMENT: it belongs to another dispatcher or to the library.
/// Threads: any, even in the handler itself.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_dispatch_unregister(
    dispatcher: dtl_dispatcher_t,
    registration: dtl_registration_t,
) -> dtl_status_t {
    Entry("dtl_dispatch_unregister").call(|inside| {
        dispatch::find(inside, dispatcher)?.unregister(inside, dispatcher, registration)
    })
}

/// Finds the handler of a query by the rules of dtl_dispatch_key_t. Calls predicates; invokes
/// nothing.
///
/// @param query  Start from DTL_DISPATCH_QUERY_INIT.
/// @param out    The registration. It becomes stale when another thread unregisters it.
/// @return The status of a predicate that failed. DTL_ERROR_NOT_FOUND: no key matches.
///         DTL_ERROR_AMBIGUOUS: several handlers match (rule 2).
///         DTL_ERROR_NOT_SUPPORTED: the handler is DTL_DISPATCH_ILLEGAL. The text is its reason.
///         DTL_ERROR_INVALID_ARGUMENT: a word belongs to no enumeration. (If a key matches, the
///         words of the query are not verified.)
/// Threads: any; takes no lock.
/// dtl:out borrowed
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_dispatch_find(
    dispatcher: dtl_dispatcher_t,
    query: *const dtl_dispatch_query_t,
    out: *mut dtl_registration_t,
) -> dtl_status_t {
    /// By C's convention, so that it cannot unwind: the fast path jumps to it.
    #[cold]
    #[inline(never)]
    extern "C" fn find(
        dispatcher: dtl_dispatcher_t,
        query: *const dtl_dispatch_query_t,
        out: *mut dtl_registration_t,
    ) -> dtl_status_t {
        Entry("dtl_dispatch_find").call(|inside| {
            let out = Out::new(out, "out")?;
            let found = dispatch::find(inside, dispatcher)?;
            // SAFETY: the caller's contract: a struct as long as its struct_size.
            let query = unsafe { take_query(query) }?;
            out.put(found.choose(inside, &query).map(Registration::handle))
        })
    }

    /// Out of line, and a function that cannot unwind, so that the fast path needs no stack space.
    #[cold]
    #[inline(never)]
    extern "C" fn search(
        dispatcher: dtl_dispatcher_t,
        query: *const dtl_dispatch_query_t,
        out: *mut dtl_registration_t,
    ) -> dtl_status_t {
        let look = Tables::search_quickly;
        guard::quick(
            guard::is_open_for_quick,
            move |visit| match at_hand(&visit, dispatcher, query, out, look)? {
                FastLookup::Found(_) => Some(()),
                _ => None,
            },
            move || find(dispatcher, query, out),
        )
    }

    let look = Tables::look_quickly;
    guard::quick(
        guard::is_open_for_quick,
        move |visit| match at_hand(&visit, dispatcher, query, out, look)? {
            FastLookup::Found(_) => {
                // Here, so that success shares nothing with the paths that go on.
                drop(visit);
                Some(DTL_SUCCESS)
            }
            FastLookup::Search => {
                drop(visit);
                Some(search(dispatcher, query, out))
            }
            _ => None,
        },
        move || find(dispatcher, query, out),
    )
}

/// Finds the handler of a query and performs the operation with it.
///
/// Built-in operations of the library can be invoked like any other, with the args that
/// dtl_dispatch_query_t lists. Blocks as long as the handler does.
///
/// @param query      Start from DTL_DISPATCH_QUERY_INIT. `args` is the struct of the operation.
/// @param out_event  NULL = all work is complete when the call returns. Otherwise it receives an
///                   event for work that continues, which the caller owns and destroys with
///                   dtl_event_destroy, or null if all work is complete.
/// @return The status of the handler or of a predicate that failed.
///         DTL_ERROR_NOT_FOUND: no key matches. DTL_ERROR_AMBIGUOUS: several handlers match.
///         DTL_ERROR_NOT_SUPPORTED: the handler is DTL_DISPATCH_ILLEGAL. The text is its reason.
///         DTL_ERROR_INVALID_ARGUMENT: a word belongs to no enumeration.
///         DTL_ERROR_NATIVE_BACKEND: the handler returned an event that is not live.
///         DTL_ERROR_LIMIT: 64 handlers are nested on this thread, so one invokes itself. The
///         handler is not called. (A query of the library itself, as in dtl_mem_copy, never leads
///         to a handler that is running on the thread.)
/// Threads: any; takes no lock.
/// dtl:out_event opt owned(dtl_event_destroy)
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_dispatch_invoke(
    dispatcher: dtl_dispatcher_t,
    query: *const dtl_dispatch_query_t,
    out_event: *mut dtl_event_t,
) -> dtl_status_t {
    let taken = Cell::new(None);
    Entry("dtl_dispatch_invoke").hold(
        |inside, dispatcher| {
            Out::optional(out_event, "out_event")?;
            dispatch::find(&inside, dispatcher)?;
            // SAFETY: the caller's contract: a struct as long as its struct_size.
            let query = unsafe { take_query(query) }?;
            taken.set(Some(query));
            Dispatcher::hold(dispatcher, inside, &query)
        },
        dispatcher,
        // SAFETY: the caller's contract: args are what the operation wants.
        |handler| taken.get().map_or(Ok(()), |query| unsafe { invoke(handler, &query, out_event) }),
    )
}

/// Runs the action of a handler.
///
/// # Safety
/// The query's args are what the operation wants; `out_event` is null or writable.
unsafe fn invoke(handler: &Registration, query: &Query, out_event: *mut dtl_event_t) -> Result<()> {
    let mut event = dtl_event_t { id: 0 };
    match &handler.action {
        Action::Function => handler.invoke(query, (!out_event.is_null()).then_some(&mut event))?,
        // SAFETY: passed on.
        Action::Own => unsafe { own::perform(query, None) }?,
        // SAFETY: passed on.
        Action::Backend(backend) => unsafe { own::perform(query, Some(backend)) }?,
        Action::Illegal(_) => handler.check_legal(query)?,
    }
    if !out_event.is_null() {
        // SAFETY: not null, so writable by the contract.
        unsafe { out_event.write(event) };
    }
    Ok(())
}

/// Describes how the handler of a query is chosen.
///
/// The text has a line for each handler whose key matches, in the order of the rules, with the
/// result of its predicate. All these predicates are called. Then comes the choice or the refusal.
/// For the default dispatcher there is also a line for each built-in operation that matches: for
/// DTL_OPERATION_ALLOC and DTL_OPERATION_COPY of every backend and every memory kind that it has
/// (dtl_mem_kind_info is called), for DTL_OPERATION_LAUNCH of every schedule, for
/// DTL_OPERATION_COMPILE of every compiler. DTL_DISPATCH_ANY in the query matches all of these.
/// Lines that begin with "elsewhere" list the handlers for other values of these fields.
///
/// @param query    Start from DTL_DISPATCH_QUERY_INIT.
/// @param buf      Buffer for the text and its NUL. NULL with cap 0 to query only the length.
/// @param cap      Size of `buf` in bytes.
/// @param out_len  Length of the text in bytes without the NUL; may be NULL.
/// @return A query without a handler is not a failure here.
///         DTL_ERROR_BUFFER_TOO_SMALL: `cap` is too small. *out_len was written.
/// dtl:buf out len(cap) opt(cap==0)
/// dtl:out_len opt
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_dispatch_explain(
    dispatcher: dtl_dispatcher_t,
    query: *const dtl_dispatch_query_t,
    buf: *mut c_char,
    cap: u64,
    out_len: *mut u64,
) -> dtl_status_t {
    Entry("dtl_dispatch_explain").call(|inside| {
        let found = dispatch::find(inside, dispatcher)?;
        // SAFETY: the caller's contract: a struct as long as its struct_size.
        let query = unsafe { take_query(query) }?;
        // SAFETY: the caller's contract: `cap` bytes of room, a place for the length.
        unsafe { args::put_text(&explain::explain(found, inside, &query), buf, cap, out_len) }
    })
}
