//! Queries of dispatchers, as C programs pass them.

use super::handler::{check_operation, check_slots};
use crate::abi::devices::dispatch::dtl_dispatch_query_t;
use crate::abi::handle::{dtl_dispatcher_t, dtl_registration_t};
use crate::error::Result;
use crate::ffi::args;
use crate::runtime::dispatch::{self, FastLookup, Query, Tables};
use crate::sys::handles::epoch::Guard;

/// Looks up a handler and writes its handle if it is found. Returns `None` if an argument is
/// invalid or has the size of another version.
#[inline]
pub(crate) fn at_hand(
    inside: &Guard,
    dispatcher: dtl_dispatcher_t,
    query: *const dtl_dispatch_query_t,
    out: *mut dtl_registration_t,
    look: impl FnOnce(&Tables, &Query) -> FastLookup,
) -> Option<FastLookup> {
    const { assert!(align_of::<dtl_registration_t>() == align_of::<dtl_dispatch_query_t>()) };
    let is_aligned = (out.addr() | query.addr()) % align_of::<dtl_dispatch_query_t>() == 0;
    if out.is_null() || query.is_null() || !is_aligned {
        return None;
    }
    // SAFETY: the caller's contract: what is not null can be read up to its struct_size.
    let query = unsafe { whole(query) }?;
    let found = look(dispatch::find_quickly(inside, dispatcher)?.tables(inside), query);
    if let FastLookup::Found(id) = found {
        // SAFETY: not null, so writable by the contract.
        unsafe { out.write(dtl_registration_t { id }) };
    }
    Some(found)
}

/// Returns the query if it has the size of this library's struct.
#[inline]
unsafe fn whole<'a>(query: *const dtl_dispatch_query_t) -> Option<&'a dtl_dispatch_query_t> {
    if query.is_null() || !query.is_aligned() {
        return None;
    }
    // SAFETY: every struct of the interface begins with this field.
    let size = unsafe { query.cast::<u32>().read() };
    if size as usize != size_of::<dtl_dispatch_query_t>() {
        return None;
    }
    // SAFETY: all of it can be read by the contract.
    unsafe { query.as_ref() }
}

/// Copies and checks a query.
///
/// # Safety
/// `query` is null or a struct as long as its struct_size.
#[inline(always)] // row: dispatch_predicate
pub(crate) unsafe fn take_query(query: *const dtl_dispatch_query_t) -> Result<Query> {
    // SAFETY: passed on.
    let query = match unsafe { whole(query) } {
        Some(query) => *query,
        // SAFETY: passed on.
        None => unsafe { take_part(query) }?,
    };
    args::check_reserved(query.reserved, "query.reserved")?;
    check_operation(query.operation)?;
    check_slots([query.source, query.destination, query.schedule])?;
    Ok(query)
}

/// Copies a query of another version, with defaults for missing fields.
#[cold]
#[inline(never)]
unsafe fn take_part(query: *const dtl_dispatch_query_t) -> Result<Query> {
    // SAFETY: passed on.
    let query = unsafe { args::take(query, "query") }?;
    Ok(Query { struct_size: size_of::<Query>() as u32, ..query })
}
