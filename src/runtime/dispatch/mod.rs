//! Dispatchers, which select the handler of an operation by the source and destination of the data
//! and by the schedule.
//!
//! The rules are numbered as in the documentation of `dtl_dispatch_key_t` in the header. Readers
//! use only [`Tables`], a snapshot that is rebuilt when a handler is registered or unregistered,
//! and published as a whole. So readers take no lock, and predicates run without a lock.
//!
//! In reading order:
//! - `bitmap_index`: finds the keys that match a query
//! - `snapshot`: immutable tables, and the order of the rules
//! - `nesting`: handlers that the calling thread is running
//! - `text`: formatting of keys and queries
//! - `explain`: description of a selection, with the built-in rules

pub mod bitmap_index;
pub mod explain;
mod nesting;
pub mod snapshot;
pub mod text;

use self::bitmap_index::{Slots, template};
use super::registry::Backend;
use super::{check_flags, invalid_handle};
use crate::abi::devices::dispatch::*;
use crate::abi::handle::{dtl_dispatcher_t, dtl_event_t, dtl_registration_t};
use crate::abi::word::*;
use crate::error::{Result, fail};
use crate::from_c::blank;
use crate::sys::handles::epoch::{self, Guard};
use crate::sys::handles::handle_table::{HandleTable, HazardRef, Rcu};
use crate::sys::sync::lock::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use self::snapshot::{FastLookup, Tables};

/// Type byte (most significant byte) of dispatcher handles.
pub const TAG: u8 = 14;
/// Type byte (most significant byte) of registration handles.
pub const REGISTRATION_TAG: u8 = 15;

/// Query for a handler: the enumeration words of the operation, the source, the destination and the
/// schedule.
pub type Query = dtl_dispatch_query_t;

/// Handle of the default dispatcher, which exists from the first use of the library on.
pub const DEFAULT: dtl_dispatcher_t = dtl_dispatcher_t { id: (TAG as u64) << 56 };

pub(super) static DISPATCHERS: HandleTable<Dispatcher> = HandleTable::new();
pub(super) static REGISTRATIONS: HandleTable<Registration> = HandleTable::new();

/// User-defined functions that implement a handler.
pub trait Handler: Send + Sync {
    /// Calls the predicate of the handler with the query.
    fn accepts(&self, query: &Query) -> Result<bool>;
    /// Executes the operation. If `event` is passed, the operation may continue after this function
    /// returns.
    fn invoke(&self, query: &Query, event: Option<&mut dtl_event_t>) -> Result<()>;
    /// Prevents this object from calling the user-defined destroy function when it is dropped.
    /// Called after a failed registration, because the caller then keeps ownership of the user
    /// data.
    fn forget(&self);
}

/// Action that the library performs if it selects a handler.
pub enum Action {
    /// Calls the user-defined handler function.
    Function,
    /// Runs the operation on this backend, even if another backend was requested.
    Backend(Arc<Backend>),
    /// Fails with this reason.
    Illegal(String),
    /// Runs the default implementation of the library.
    Own,
}

/// Rule of `dtl_dispatch_key_t` that applies to a handler.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Handler with a predicate (rule 2).
    Predicated,
    /// Handler without a predicate (rule 3).
    Plain,
    /// Default handler of its operation (rule 4).
    Default,
}

/// Registered handler with its keys.
pub struct Registration {
    /// Name of the handler, for error messages and reports.
    pub name: String,
    /// Keys under which the handler is registered.
    pub keys: Vec<dtl_dispatch_key_t>,
    /// Action that the library performs if it selects the handler.
    pub action: Action,
    role: Role,
    priority: i32,
    replaces: bool,
    functions: Option<Box<dyn Handler>>,
    dispatcher: dtl_dispatcher_t,
    /// Sequence number of the registration; later registrations have higher numbers.
    number: u64,
    id: AtomicU64,
}

impl Registration {
    /// Returns the handle of the registration.
    pub fn handle(&self) -> dtl_registration_t {
        dtl_registration_t { id: self.id.load(Ordering::Relaxed) }
    }

    fn accepts(&self, query: &Query) -> Result<bool> {
        self.functions.as_ref().map_or(Ok(true), |functions| functions.accepts(query))
    }

    /// Fails with NOT_SUPPORTED if the handler was registered as illegal (rule 7 of
    /// `dtl_dispatch_key_t`).
    pub fn check_legal(&self, query: &Query) -> Result<()> {
        match &self.action {
            Action::Illegal(reason) => fail!(
                DTL_ERROR_NOT_SUPPORTED,
                "{}: {reason} (so says handler \"{}\")",
                text::of_query(query),
                self.name
            ),
            _ => Ok(()),
        }
    }
}

/// Parameters of a handler to be registered.
pub struct HandlerSpec {
    /// Name of the handler, for error messages and reports.
    pub name: String,
    /// Bit mask of DTL_DISPATCH_... flags.
    pub flags: u64,
    /// Priority among handlers with a predicate.
    pub priority: i32,
    /// True if the handler has a predicate.
    pub has_predicate: bool,
    /// Action that the library performs if it selects the handler.
    pub action: Action,
    /// User-defined functions of the handler, with their user data.
    pub functions: Option<Box<dyn Handler>>,
}

/// Table of handlers.
pub struct Dispatcher {
    is_strict: bool,
    tables: Rcu<Tables>,
    writer: Mutex<Writer>,
}

#[derive(Default)]
struct Writer {
    registered: Vec<Arc<Registration>>,
    count: u64,
    is_closed: bool,
}

/// Creates a dispatcher and returns its handle.
pub fn create(flags: u64) -> Result<dtl_dispatcher_t> {
    let known = DTL_DISPATCHER_STRICT_DACE;
    check_flags("dispatcher flags", flags, known, "DTL_DISPATCHER_STRICT_DACE")?;
    match DISPATCHERS.insert(TAG, Arc::new(Dispatcher::new(flags & known != 0))) {
        Some(id) => Ok(dtl_dispatcher_t { id }),
        None => fail!(DTL_ERROR_LIMIT, "no dispatcher handle is left; destroy some"),
    }
}

/// Destroys a dispatcher with all its handlers. Does nothing for the handle 0 and for the default
/// dispatcher.
pub fn destroy(inside: &Guard, dispatcher: dtl_dispatcher_t) -> Result<()> {
    if dispatcher.id == 0 || dispatcher == DEFAULT {
        return Ok(());
    }
    let stale = || invalid_handle("dispatcher", TAG, dispatcher.id);
    DISPATCHERS.remove(inside, dispatcher.id).ok_or_else(stale)?.clear(inside);
    Ok(())
}

/// Returns a dispatcher, borrowed for the duration of a call; `None` if the handle is invalid.
#[inline]
pub fn find_quickly(inside: &Guard, dispatcher: dtl_dispatcher_t) -> Option<&Dispatcher> {
    DISPATCHERS.get(inside, dispatcher.id)
}

/// Returns a dispatcher, borrowed for the duration of a call. Fails if the handle is invalid.
#[inline]
pub fn find(inside: &Guard, dispatcher: dtl_dispatcher_t) -> Result<&Dispatcher> {
    find_quickly(inside, dispatcher).ok_or_else(|| invalid_handle("dispatcher", TAG, dispatcher.id))
}

/// Returns a counted reference to a registration, for a call that may block.
#[must_use]
pub fn pin(inside: &Guard, registration: dtl_registration_t) -> Option<Arc<Registration>> {
    REGISTRATIONS.pin(inside, registration.id)
}

impl Dispatcher {
    fn new(is_strict: bool) -> Self {
        Dispatcher { is_strict, tables: Rcu::new(Tables::new(&[])), writer: Mutex::default() }
    }

    /// Returns the current snapshot of the registered handlers.
    pub fn tables<'g>(&'g self, inside: &'g Guard) -> &'g Tables {
        self.tables.get(inside)
    }

    /// Returns true if a query with these slots may select a handler that the user has registered.
    /// Does not call any predicates.
    pub fn may_take(&self, inside: &Guard, operation: dtl_enum_word_t, slots: &Slots) -> bool {
        let Some(operation) = self.tables.get(inside).of(operation) else { return false };
        let plain = operation.without_predicates(slots);
        let is_theirs = plain.is_some_and(|found| !matches!(found.action, Action::Own));
        is_theirs || operation.predicated.fitting(slots).next().is_some()
    }

    /// Finds the handler for a query. The result may be a handler that is registered as
    /// DTL_DISPATCH_ILLEGAL. Returns `None` if no handler matches (rule 5 of `dtl_dispatch_key_t`).
    pub fn look<'g>(
        &'g self,
        inside: &'g Guard,
        query: &Query,
    ) -> Result<Option<&'g Registration>> {
        let Some(operation) = self.tables.get(inside).of(template(query.operation)) else {
            return Ok(None);
        };
        Ok(operation.choose(query, self.is_strict)?.map(Arc::as_ref))
    }

    /// Returns the handler for a query. Fails with NOT_FOUND if no handler matches, and with
    /// NOT_SUPPORTED if the handler is registered as illegal.
    pub fn choose<'g>(&'g self, inside: &'g Guard, query: &Query) -> Result<&'g Registration> {
        let Some(found) = self.look(inside, query)? else {
            snapshot::check_words(query.operation, slots(query))
                .map_err(|error| error.within("query"))?;
            return fail!(
                DTL_ERROR_NOT_FOUND,
                "no handler for {}; dtl_dispatch_register adds one",
                text::of_query(query)
            );
        };
        found.check_legal(query)?;
        Ok(found)
    }

    /// Returns the handler for a query, for use in a call that may block: leaves the reclamation
    /// epoch, and protects the handler with a hazard pointer.
    pub fn hold(
        handle: dtl_dispatcher_t,
        mut inside: Guard,
        query: &Query,
    ) -> Result<HazardRef<Registration>> {
        loop {
            let chosen = find(&inside, handle)?.choose(&inside, query)?.handle();
            match REGISTRATIONS.hold(inside, chosen.id) {
                Ok(held) => return Ok(held),
                // The handler was unregistered concurrently: repeat the lookup.
                Err(still_inside) => inside = still_inside,
            }
        }
    }

    /// Registers a handler under all of its keys. If the function fails, the handler is registered
    /// under none of them.
    pub fn register(
        &self,
        handle: dtl_dispatcher_t,
        keys: Vec<dtl_dispatch_key_t>,
        wanted: HandlerSpec,
    ) -> Result<dtl_registration_t> {
        let role = match (wanted.has_predicate, wanted.flags & DTL_DISPATCH_DEFAULT != 0) {
            (true, _) => Role::Predicated,
            (false, false) => Role::Plain,
            (false, true) => Role::Default,
        };
        let mut made = Registration {
            name: wanted.name,
            keys,
            action: wanted.action,
            role,
            priority: if wanted.has_predicate { wanted.priority } else { 0 },
            replaces: wanted.flags & DTL_DISPATCH_REPLACE != 0,
            functions: wanted.functions,
            dispatcher: handle,
            number: 0,
            id: AtomicU64::new(0),
        };
        let mut writer = self.writer.lock();
        writer.check(&made).inspect_err(|_| made.disown())?;
        writer.count += 1;
        made.number = writer.count;
        let made = Arc::new(made);
        let Some(id) = REGISTRATIONS.insert(REGISTRATION_TAG, Arc::clone(&made)) else {
            made.disown();
            return fail!(DTL_ERROR_LIMIT, "no registration handle is left; unregister some");
        };
        made.id.store(id, Ordering::Relaxed);
        writer.registered.push(made);
        self.publish(&writer);
        Ok(dtl_registration_t { id })
    }

    /// Removes a handler from the dispatcher.
    pub fn unregister(
        &self,
        inside: &Guard,
        handle: dtl_dispatcher_t,
        registration: dtl_registration_t,
    ) -> Result<()> {
        let stale = || invalid_handle("registration", REGISTRATION_TAG, registration.id);
        let found = REGISTRATIONS.get(inside, registration.id).ok_or_else(stale)?;
        if found.dispatcher != handle {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "handler \"{}\" is another dispatcher's",
                found.name
            );
        }
        if matches!(found.action, Action::Own) {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "handler \"{}\" is the library's own and stays",
                found.name
            );
        }
        let mut writer = self.writer.lock();
        let Some(at) = writer.registered.iter().position(|known| known.handle() == registration)
        else {
            return Err(stale()); // another thread has unregistered the handler
        };
        let gone = writer.registered.remove(at);
        self.publish(&writer);
        drop(writer); // the drops below may call the program's destroy function
        drop(gone);
        drop(REGISTRATIONS.remove(inside, registration.id));
        Ok(())
    }

    /// Publishes a new snapshot of the registered handlers. The caller must hold the lock `writer`.
    /// The previous snapshot is not freed before the calling thread leaves its current reclamation
    /// epoch.
    fn publish(&self, writer: &Writer) {
        // An additional guard besides that of `replace`, so that no memory is freed, and no user
        // callback called, under the lock.
        let _still_inside = epoch::enter();
        self.tables.replace(Tables::new(&writer.registered), epoch::enter());
        if DISPATCHERS
            .get(&epoch::enter(), DEFAULT.id)
            .is_some_and(|default| std::ptr::eq(default, self))
        {
            snapshot::note(writer.registered.iter().map(Arc::as_ref));
        }
    }

    fn clear(&self, inside: &Guard) {
        let mut writer = self.writer.lock();
        writer.is_closed = true;
        let gone = std::mem::take(&mut writer.registered);
        self.publish(&writer);
        drop(writer);
        for registration in gone {
            let id = registration.handle().id;
            drop(registration);
            drop(REGISTRATIONS.remove(inside, id));
        }
    }
}

impl Registration {
    /// Prevents the user-defined destroy function of the handler from being called. Used after a
    /// failed registration, because the caller then keeps ownership of the user data.
    fn disown(&self) {
        if let Some(functions) = &self.functions {
            functions.forget();
        }
    }
}

impl Writer {
    /// Fails if registering `new` would violate rule 6 of `dtl_dispatch_key_t` or a limit.
    fn check(&self, new: &Registration) -> Result<()> {
        if self.is_closed {
            return fail!(DTL_ERROR_INVALID_HANDLE, "another thread destroys the dispatcher");
        }
        for key in &new.keys {
            let has = |known: &&Arc<Registration>| known.keys.contains(key);
            let same = self.registered.iter().filter(|known| known.role == new.role);
            let known = same.clone().find(has);
            if let Some(known) = known.filter(|_| new.role != Role::Predicated && !new.replaces) {
                return fail!(
                    DTL_ERROR_ALREADY_EXISTS,
                    "\"{}\" is there for operation {}, {} already: pass DTL_DISPATCH_REPLACE to \
                     stand before it, or give \"{}\" a predicate",
                    known.name,
                    text::word(key.operation),
                    text::of_key(&slots_of(key)),
                    new.name
                );
            }
            let keys = same.flat_map(|known| &known.keys);
            let count =
                keys.chain(&new.keys).filter(|other| other.operation == key.operation).count();
            if count > bitmap_index::MOST {
                return fail!(
                    DTL_ERROR_LIMIT,
                    "{count} keys of operation {}: a dispatcher takes {} with predicates and {} \
                     without",
                    text::word(key.operation),
                    bitmap_index::MOST,
                    bitmap_index::MOST
                );
            }
        }
        Ok(())
    }
}

fn slots(query: &Query) -> Slots {
    [query.source, query.destination, query.schedule]
}

fn slots_of(key: &dtl_dispatch_key_t) -> Slots {
    [key.source, key.destination, key.schedule]
}

/// Creates the default dispatcher with the library's own handlers. Called when the library is
/// initialized.
pub fn open() -> Result<()> {
    let default = Arc::new(Dispatcher::new(false));
    if !DISPATCHERS.put_fixed(TAG, 0, Arc::clone(&default)) {
        return Ok(());
    }
    for (operation, _) in snapshot::LIBRARYS {
        let key = dtl_dispatch_key_t { operation, ..blank() };
        let wanted = HandlerSpec {
            name: "the library".to_owned(),
            flags: DTL_DISPATCH_DEFAULT,
            priority: 0,
            has_predicate: false,
            action: Action::Own,
            functions: None,
        };
        default.register(DEFAULT, vec![key], wanted)?;
    }
    Ok(())
}

/// Destroys all dispatchers and handlers. Called at finalize.
pub fn destroy_all() {
    let inside = epoch::enter();
    DISPATCHERS.drain(&inside).for_each(|dispatcher| dispatcher.clear(&inside));
    snapshot::forget();
}

/// Removes all handles in a forked child without dropping the handlers, which belong to the parent.
pub fn forget_all() {
    let inside = epoch::enter();
    DISPATCHERS.drain(&inside).for_each(std::mem::forget);
    REGISTRATIONS.drain(&inside).for_each(std::mem::forget);
    snapshot::forget();
}
