//! Handlers of a dispatcher and their keys: checks of what C programs and plugins pass. Exports no
//! symbol.

use crate::abi::devices::dispatch::*;
use crate::abi::handle::{dtl_dispatcher_t, dtl_registration_t};
use crate::abi::word::*;
use crate::backend::vtable_backend::NativeHandler;
use crate::error::{Result, fail};
use crate::ffi::args;
use crate::runtime::dispatch::{self, Action, HandlerSpec, bitmap_index, snapshot, text};
use crate::runtime::exec::handles;
use crate::sys::handles::epoch::Guard;

const ALL_FLAGS: u64 = DTL_DISPATCH_REPLACE | DTL_DISPATCH_ILLEGAL | DTL_DISPATCH_DEFAULT;
const LONGEST_NAME: usize = 127;
const MOST_KEYS: u64 = bitmap_index::MOST as u64;

/// Registers a handler under keys, as dtl_dispatch_register documents.
///
/// # Safety
/// `keys` is null or has `key_count` elements. `handler` is null or a struct as long as its
/// struct_size, with texts that are NUL-terminated or null.
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
    let handler = unsafe { args::take(handler, "handler") }?;
    // SAFETY: the caller's contract: its texts are NUL-terminated or NULL.
    let wanted = unsafe { take_handler(inside, &handler, &keys) }?;
    found.register(dispatcher, keys, wanted)
}

/// Copies and checks keys.
///
/// # Safety
/// `keys` is null, misaligned or has `count` elements.
unsafe fn take_keys(
    keys: *const dtl_dispatch_key_t,
    count: u64,
) -> Result<Vec<dtl_dispatch_key_t>> {
    if count == 0 {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "key_count is 0: a handler needs at least one key"
        );
    }
    if count > MOST_KEYS {
        return fail!(DTL_ERROR_LIMIT, "key_count is {count}, at most {MOST_KEYS} are taken");
    }
    // SAFETY: null, misaligned or `count` elements by the contract.
    let keys = unsafe { args::slice(keys, count as usize, "keys") }?;
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

#[inline]
pub(crate) fn check_operation(operation: dtl_enum_word_t) -> Result<()> {
    if operation == DTL_DISPATCH_ANY {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "operation is 0: pass DTL_OPERATION_… or a registered one"
        );
    }
    check_word("operation", operation)
}

#[inline]
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

/// Copies and checks a handler.
///
/// # Safety
/// The handler's texts are NUL-terminated or null.
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
    // SAFETY: the caller guarantees that the texts are NUL-terminated or null.
    let name = unsafe { args::text(handler.name, "dtl_dispatch_handler_t.name") }?;
    if name.is_empty() || name.len() > LONGEST_NAME {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "handler name \"{name}\": use 1 to {LONGEST_NAME} bytes"
        );
    }
    check_flags(handler, name, keys)?;
    // SAFETY: the caller guarantees that the texts are NUL-terminated or null.
    let action = unsafe { take_action(inside, handler, name, keys) }?;
    Ok(HandlerSpec {
        name: name.to_owned(),
        flags: handler.flags,
        priority: handler.priority,
        has_predicate: handler.predicate.is_some(),
        action,
        functions: Some(Box::new(NativeHandler::new(name, handler))),
    })
}

/// Fails if the flags do not match the other fields.
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

/// Returns the action of a handler when it is chosen.
///
/// # Safety
/// The handler's texts are NUL-terminated or null.
unsafe fn take_action(
    inside: &Guard,
    handler: &dtl_dispatch_handler_t,
    name: &str,
    keys: &[dtl_dispatch_key_t],
) -> Result<Action> {
    if handler.flags & DTL_DISPATCH_ILLEGAL != 0 {
        // SAFETY: the caller guarantees that the texts are NUL-terminated or null.
        let reason = unsafe { args::text(handler.reason, "dtl_dispatch_handler_t.reason") }?;
        return Ok(Action::Illegal(reason.to_owned()));
    }
    if handler.backend.id == 0 {
        return Ok(Action::Function);
    }
    let backend = handles::backend_of(inside, handler.backend)?;
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
