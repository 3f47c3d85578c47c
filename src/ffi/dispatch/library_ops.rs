//! Dispatchers: who does an operation.

use super::builtin_ops as own;
use super::query::{at_hand, take_query};
use crate::abi::devices::dispatch::*;
use crate::abi::handle::{dtl_dispatcher_t, dtl_event_t, dtl_registration_t};
use crate::abi::status::{DTL_SUCCESS, dtl_status_t};
use crate::abi::word::*;
use crate::backend::vtable_backend::NativeHandler;
use crate::error::{Result, fail};
use crate::ffi::args::{self, Out};
use crate::ffi::guard::{self, Entry, OpenCheck};
use crate::runtime::dispatch::{
    self, Action, Dispatcher, FastLookup, HandlerSpec, Query, Registration, Tables, bitmap_index,
    snapshot, text,
};
use crate::runtime::exec::handles;
use crate::sys::handles::epoch::Guard;
use crate::sys::memory::buf::Addr;
use std::cell::Cell;
use std::ffi::c_char;

const ALL_FLAGS: u64 = DTL_DISPATCH_REPLACE | DTL_DISPATCH_ILLEGAL | DTL_DISPATCH_DEFAULT;
const LONGEST_NAME: usize = 127;

/// Creates a dispatcher without handlers. The rules are at dtl_dispatch_key_t.
///
/// @param flags  0, or DTL_DISPATCHER_STRICT_DACE.
/// @param out    the dispatcher; destroy it with dtl_dispatcher_destroy.
/// @return DTL_ERROR_INVALID_ARGUMENT: flags. DTL_ERROR_LIMIT: no handle is left.
/// Threads: any. Equivalent: DaCe's TargetDispatcher.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_dispatcher_create(
    flags: u64,
    out: *mut dtl_dispatcher_t,
) -> dtl_status_t {
    Entry("dtl_dispatcher_create").call(|_| {
        let out = Out::new(out, "out")?;
        out.set(dispatch::create(flags)?);
        Ok(())
    })
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
#[unsafe(no_mangle)]
pub extern "C" fn dtl_dispatch_default() -> dtl_dispatcher_t {
    dispatch::DEFAULT
}

/// Registers a handler under one or several keys: under all of them, or, where one cannot be had,
/// under none. Calls that begin after it has returned find it; others may.
///
/// @param dispatcher  dtl_dispatch_default() or one of dtl_dispatcher_create.
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
        out.set(unsafe { register(inside, dispatcher, (keys, key_count), handler) }?);
        Ok(())
    })
}

/// As dtl_dispatch_register.
///
/// # Safety
/// As there.
pub(crate) unsafe fn register(
    inside: &Guard,
    dispatcher: dtl_dispatcher_t,
    (keys, key_count): (*const dtl_dispatch_key_t, u64),
    handler: *const dtl_dispatch_handler_t,
) -> Result<dtl_registration_t> {
    let found = dispatch::find(inside, dispatcher)?;
    // SAFETY: the caller's contract: `key_count` keys.
    let keys = unsafe { take_keys(keys, key_count) }?;
    // SAFETY: the caller's contract: a struct as long as its struct_size.
    let handler = unsafe { args::take(handler) }?;
    // SAFETY: the caller's contract: its texts are NUL-terminated or NULL.
    let wanted = unsafe { take_handler(inside, &handler, &keys) }?;
    found.register(dispatcher, keys, wanted)
}

/// Copies and checks keys.
///
/// # Safety
/// `keys` is null or has `count` elements.
unsafe fn take_keys(
    keys: *const dtl_dispatch_key_t,
    count: u64,
) -> Result<Vec<dtl_dispatch_key_t>> {
    if keys.is_null() || !keys.is_aligned() {
        return fail!(DTL_ERROR_NULL_POINTER, "keys is NULL, or not aligned");
    }
    if count == 0 {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "key_count is 0: a handler needs at least one key"
        );
    }
    if count > bitmap_index::MOST as u64 {
        return fail!(
            DTL_ERROR_LIMIT,
            "key_count is {count}, at most {} are taken",
            bitmap_index::MOST
        );
    }
    // SAFETY: not null, aligned, `count` elements by the contract.
    let keys = unsafe { std::slice::from_raw_parts(keys, count as usize) };
    for (index, key) in keys.iter().enumerate() {
        check_key(key).map_err(|error| error.within(&format!("keys[{index}]")))?;
        if let Some(same) = keys.iter().take(index).position(|earlier| earlier == key) {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "keys[{index}] is the same as keys[{same}]: name each key once"
            );
        }
    }
    Ok(keys.to_vec())
}

fn check_key(key: &dtl_dispatch_key_t) -> Result<()> {
    check_operation(key.operation)?;
    if bitmap_index::is_instance(key.operation) {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "operation {} is an instance; pass the plain member",
            text::word(key.operation)
        );
    }
    let slots = [key.source, key.destination, key.schedule];
    check_slots(slots)?;
    snapshot::check_words(key.operation, slots)?;
    snapshot::check_enumerations(key.operation, slots)?;
    if key.reserved != [0; 2] {
        return fail!(DTL_ERROR_INVALID_ARGUMENT, "reserved is not 0");
    }
    Ok(())
}

pub(crate) fn check_operation(operation: dtl_enum_word_t) -> Result<()> {
    if operation == DTL_DISPATCH_ANY {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "operation is 0: pass DTL_OPERATION_… or a registered one"
        );
    }
    check_word("operation", operation)
}

pub(crate) fn check_slots(slots: bitmap_index::Slots) -> Result<()> {
    let named = ["source", "destination", "schedule"].into_iter().zip(slots);
    let mut named = named.filter(|(_, word)| *word != DTL_DISPATCH_ANY);
    named.try_for_each(|(name, word)| check_word(name, word))
}

fn check_word(name: &str, word: dtl_enum_word_t) -> Result<()> {
    if word >> 48 == 0 || word >> 32 & 0xFFFF == 0 {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{name} {word:#x} is no member of an enumeration (bits 63..48 or 47..32 are 0)"
        );
    }
    Ok(())
}

/// Takes a handler over.
///
/// # Safety
/// Its texts are NUL-terminated or null.
unsafe fn take_handler(
    inside: &Guard,
    handler: &dtl_dispatch_handler_t,
    keys: &[dtl_dispatch_key_t],
) -> Result<HandlerSpec> {
    if handler.flags & !ALL_FLAGS != 0 {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "handler flags {:#x}: only DTL_DISPATCH_REPLACE, _ILLEGAL and _DEFAULT are known",
            handler.flags
        );
    }
    // SAFETY: passed on.
    let name = unsafe { args::text(handler.name, "dtl_dispatch_handler_t.name") }?;
    if name.is_empty() || name.len() > LONGEST_NAME {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "handler name \"{name}\": use 1 to {LONGEST_NAME} bytes"
        );
    }
    check_flags(handler, name, keys)?;
    // SAFETY: passed on.
    let action = unsafe { take_action(inside, handler, name, keys) }?;
    let functions = NativeHandler::new(
        name,
        handler.predicate,
        handler.invoke,
        handler.destroy,
        Addr::new(handler.user),
    );
    Ok(HandlerSpec {
        name: name.to_owned(),
        flags: handler.flags,
        priority: handler.priority,
        has_predicate: handler.predicate.is_some(),
        action,
        functions: Some(Box::new(functions)),
    })
}

/// Refuses flags that do not go with the rest.
fn check_flags(
    handler: &dtl_dispatch_handler_t,
    name: &str,
    keys: &[dtl_dispatch_key_t],
) -> Result<()> {
    let has = |flag: u64| handler.flags & flag != 0;
    if handler.predicate.is_some() && (has(DTL_DISPATCH_REPLACE) || has(DTL_DISPATCH_DEFAULT)) {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "handler \"{name}\" has a predicate: DTL_DISPATCH_REPLACE and _DEFAULT are for \
             handlers without"
        );
    }
    let is_general = |key: &dtl_dispatch_key_t| {
        [key.source, key.destination, key.schedule] == [DTL_DISPATCH_ANY; 3]
    };
    if has(DTL_DISPATCH_DEFAULT) && !keys.iter().all(is_general) {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "handler \"{name}\" is a default: its keys have DTL_DISPATCH_ANY as source, \
             destination and schedule"
        );
    }
    if has(DTL_DISPATCH_ILLEGAL) == handler.reason.is_null() {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "handler \"{name}\": DTL_DISPATCH_ILLEGAL and a reason go together, and one is missing"
        );
    }
    let ways = [has(DTL_DISPATCH_ILLEGAL), handler.invoke.is_some(), handler.backend.id != 0];
    if ways.into_iter().filter(|&way| way).count() != 1 {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "handler \"{name}\": give exactly one of invoke, backend and DTL_DISPATCH_ILLEGAL"
        );
    }
    Ok(())
}

/// What a handler does when it is chosen.
///
/// # Safety
/// As [`take_handler`].
unsafe fn take_action(
    inside: &Guard,
    handler: &dtl_dispatch_handler_t,
    name: &str,
    keys: &[dtl_dispatch_key_t],
) -> Result<Action> {
    if handler.flags & DTL_DISPATCH_ILLEGAL != 0 {
        // SAFETY: passed on.
        let reason = unsafe { args::text(handler.reason, "dtl_dispatch_handler_t.reason") }?;
        return Ok(Action::Illegal(reason.to_owned()));
    }
    if handler.backend.id == 0 {
        return Ok(Action::Function);
    }
    let backend = handles::home(inside, handler.backend)?;
    for key in keys {
        let part = match key.operation {
            DTL_OPERATION_ALLOC => ("memory", backend.memory.is_some()),
            DTL_OPERATION_COPY => ("transfer", backend.transfer.is_some()),
            DTL_OPERATION_COMPILE => ("compiler", backend.modules.is_some()),
            other => {
                return fail!(
                    DTL_ERROR_INVALID_ARGUMENT,
                    "handler \"{name}\": a backend by itself allocates, copies and compiles; \
                     operation {} needs invoke",
                    text::word(other)
                );
            }
        };
        if !part.1 {
            return Err(backend.lacks(part.0));
        }
    }
    Ok(Action::Backend(backend))
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
            out.set(found.choose(inside, &query)?.handle());
            Ok(())
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
            OpenCheck::Library,
            move |visit| match at_hand(&visit, dispatcher, query, out, look)? {
                FastLookup::Found(_) => Some(()),
                _ => None,
            },
            move || find(dispatcher, query, out),
        )
    }

    let look = Tables::look_quickly;
    guard::quick(
        OpenCheck::Library,
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
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_dispatch_invoke(
    dispatcher: dtl_dispatcher_t,
    query: *const dtl_dispatch_query_t,
    out_event: *mut dtl_event_t,
) -> dtl_status_t {
    let taken = Cell::new(None);
    Entry("dtl_dispatch_invoke").hold(
        |inside| {
            if !out_event.is_null() {
                Out::new(out_event, "out_event")?;
            }
            dispatch::find(&inside, dispatcher)?;
            // SAFETY: the caller's contract: a struct as long as its struct_size.
            let query = unsafe { take_query(query) }?;
            taken.set(Some(query));
            Dispatcher::hold(dispatcher, inside, &query)
        },
        // SAFETY: the caller's contract: args are what the operation wants.
        |handler| taken.get().map_or(Ok(()), |query| unsafe { invoke(handler, &query, out_event) }),
    )
}

/// Runs the action of a handler.
///
/// # Safety
/// The query's args are what the operation wants; `out_event` is null or writable.
unsafe fn invoke(handler: &Registration, query: &Query, out_event: *mut dtl_event_t) -> Result<()> {
    let mut event = dtl_event_t::NULL;
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
        unsafe { args::put_text(&text::explain(found, inside, &query), buf, cap, out_len) }
    })
}
