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

/// Creates a dispatcher without handlers. The rules are at dtl_dispatch_key_t.
///
/// @param flags  0, or DTL_DISPATCHER_STRICT_DACE.
/// @param out    the dispatcher; destroy it with dtl_dispatcher_destroy.
/// @return DTL_ERROR_INVALID_ARGUMENT: flags. DTL_ERROR_LIMIT: no handle is left.
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

/// Destroys a dispatcher and unregisters all of its handlers. Invocations that run go on; `destroy`
/// of their data follows them. The null dispatcher and the default one: nothing happens.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_dispatcher_destroy(dispatcher: dtl_dispatcher_t) -> dtl_status_t {
    Entry("dtl_dispatcher_destroy").call(|inside| dispatch::destroy(inside, dispatcher))
}

/// The dispatcher that the library itself consults before it allocates, copies, launches or
/// compiles: handlers that are registered here also serve programs that are unaware of them. The
/// library's built-in way is the default of each of its operations here (rule 4);
/// dtl_dispatch_explain shows it. It exists whenever the library does.
///
/// Without handlers here nothing becomes slower. Pools, fills and the memory of communicators and
/// windows are not dispatched.
/// dtl:return borrowed
#[unsafe(no_mangle)]
pub extern "C" fn dtl_dispatcher_default() -> dtl_dispatcher_t {
    dispatch::DEFAULT
}

/// Registers a handler under one or several keys: under all of them, or, where one cannot be had,
/// under none. Calls that begin after it has returned find it; others may.
///
/// @param dispatcher  dtl_dispatcher_default() or one of dtl_dispatcher_create.
/// @param keys        key_count of them, all different; copied.
/// @param key_count   1 to 1024. Of each operation a dispatcher takes 1024 keys with predicates and
///                    1024 without.
/// @param handler     start from DTL_DISPATCH_HANDLER_INIT; copied. `user` must live until
///                    `destroy` is called.
/// @param out         the registration: dtl_dispatch_unregister ends it, dtl_dispatcher_destroy and
///                    dtl_finalize do too.
/// @return DTL_ERROR_ALREADY_EXISTS: rule 6, the text names key and handler.
///         DTL_ERROR_INVALID_ARGUMENT: a key (the text has its index), for example one of the
///         library's operations with a word of the wrong enumeration in a slot (see
///         dtl_dispatch_query_t); flags, name, or parts that do not go together.
///         DTL_ERROR_NOT_SUPPORTED: `backend` has no memory, transfer or compiler. DTL_ERROR_LIMIT:
///         too many keys. After a failure `destroy` is not called.
/// Threads: any. Equivalent: DaCe's register_copy_dispatcher and its like.
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

/// Ends a registration: its handler is not chosen any more. A handler that it replaced is there
/// again. Invocations that run go on; `destroy` is called before this returns if nobody is in the
/// library meanwhile, else after the last of them left.
///
/// @return DTL_ERROR_INVALID_HANDLE: unregistered before. DTL_ERROR_INVALID_ARGUMENT: it is another
///         dispatcher's, or the library's own.
/// Threads: any; also in the handler itself.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_dispatch_unregister(
    dispatcher: dtl_dispatcher_t,
    registration: dtl_registration_t,
) -> dtl_status_t {
    Entry("dtl_dispatch_unregister").call(|inside| {
        dispatch::find(inside, dispatcher)?.unregister(inside, dispatcher, registration)
    })
}

/// Finds the handler of a query, by the rules at dtl_dispatch_key_t. Asks predicates; invokes
/// nothing.
///
/// @param query  start from DTL_DISPATCH_QUERY_INIT.
/// @param out    its registration; may be stale as soon as another thread unregisters it.
/// @return DTL_ERROR_NOT_FOUND: no key fits. DTL_ERROR_AMBIGUOUS: rule 2. DTL_ERROR_NOT_SUPPORTED:
///         it is illegal, with the handler's reason. DTL_ERROR_INVALID_ARGUMENT: a word that is
///         none (where a key fits, the query's words are not looked up). Else what a predicate
///         failed with.
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

/// Finds the handler of a query and has it perform the operation. The library's built-in operations
/// can be invoked like any other, with the args that the table at dtl_dispatch_query_t names.
///
/// @param query      start from DTL_DISPATCH_QUERY_INIT; args are the operation's own.
/// @param out_event  NULL: all is done when this returns. Else an event for work that goes on, to
///                   be destroyed with dtl_event_destroy; null if all is done.
/// @return as dtl_dispatch_find; else what the handler failed with. DTL_ERROR_LIMIT: 64 handlers
///         run within each other on this thread, so one invokes what it does itself; the handler is
///         not called. (A query of the library itself, as in dtl_mem_copy, never leads to a handler
///         that the thread is in.)
/// Threads: any; takes no lock. May block as the handler does.
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

/// Describes how the handler of a query is chosen: a line for each one whose key fits, in the order
/// of the rules, with the result of its predicate (all of them are called), then the choice or the
/// refusal. For the default dispatcher there is also a line for each built-in operation that fits:
/// for DTL_OPERATION_ALLOC and DTL_OPERATION_COPY of every backend and every memory kind that it
/// has (dtl_mem_kind_info is called), for DTL_OPERATION_LAUNCH of every schedule, for
/// DTL_OPERATION_COMPILE of every compiler. A slot that the query leaves open (DTL_DISPATCH_ANY)
/// fits all of these. The handlers that other values there would lead to follow as lines
/// "elsewhere".
///
/// @param query    start from DTL_DISPATCH_QUERY_INIT.
/// @param buf      room for the text and its NUL; NULL with cap 0 asks for the length alone.
/// @param cap      bytes of room.
/// @param out_len  bytes of the text without its NUL; may be NULL.
/// @return DTL_ERROR_BUFFER_TOO_SMALL: cap is too small; out_len is written. A query that finds
///         nothing is no failure here.
/// Threads: any.
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
