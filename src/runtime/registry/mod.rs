//! Backend registry: the registered backends, lookup by name, and the automatic choice ("auto").
//!
//! The registry's lock is never held while a backend is called: lists are copied first.
//!
//! In reading order:
//! - `names`: valid names, and restoring the name of a replaced backend
//! - `usage`: counters of a backend's allocations

use super::component::{Availability, BackendProbe, Comm, Device, Exec, Memory, Modules, Transfer};
use super::environment::{self, Requirement};
use super::{check_flags, explain, settings};
use crate::abi::backend::vtable::DTL_BACKEND_NO_COMPUTE;
use crate::abi::devices::device::*;
use crate::abi::handle::dtl_backend_t;
use crate::error::{Error, Result, fail, failure};
use crate::sys::handles::epoch::{self, Guard};
use crate::sys::handles::handle_table::HandleTable;
use crate::sys::sync::lock::RwLock;
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

mod names;
mod usage;

pub use names::put_back;
pub use usage::{NO_POOL, RangeUser, Usage};

/// Type byte of backend handles.
pub const TAG: u8 = 1;

/// Backend: name, components, and the counters that the library maintains for the backend.
pub struct Backend {
    /// Name of the backend.
    pub name: CString,
    /// Priority in the automatic choice; `i32::MIN` = never chosen.
    pub auto_priority: i32,
    /// Flags of the backend's vtable.
    pub flags: u64,
    /// True if the backend is part of the library.
    pub builtin: bool,
    /// Functions that report the availability and the features of the backend.
    pub presence: Box<dyn BackendProbe>,
    /// Device component.
    pub device: Option<Box<dyn Device>>,
    /// Memory component.
    pub memory: Option<Box<dyn Memory>>,
    /// True if the memory kinds HOST, DEVICE and MANAGED of the backend are ordinary memory of the
    /// process, which the library's own allocator provides instead of the backend's memory
    /// component. True for at most one backend.
    pub plain_memory: bool,
    /// Transfer component.
    pub transfer: Option<Box<dyn Transfer>>,
    /// Exec component.
    pub exec: Option<Box<dyn Exec>>,
    /// Kernel compilers, part of the exec component.
    pub modules: Option<Box<dyn Modules>>,
    /// Communication component.
    pub comm: Option<Box<dyn Comm>>,
    /// Environments (external software) that the backend requires. They are started before the
    /// first use of the backend.
    pub needs: Vec<Requirement>,
    /// Memory counters that `dtl_mem_stats` reports.
    pub memory_use: Usage,
    /// Handle of the backend, once it is registered.
    id: AtomicU64,
    /// True once the backend is available and the environments (external software) that it requires
    /// are started. [`Backend::ready`] then no longer queries the backend.
    available: AtomicBool,
}

impl Backend {
    /// Creates a backend without components.
    pub fn new(
        name: &CStr,
        auto_priority: i32,
        builtin: bool,
        presence: Box<dyn BackendProbe>,
    ) -> Self {
        Backend {
            name: name.to_owned(),
            auto_priority,
            flags: 0,
            builtin,
            presence,
            device: None,
            memory: None,
            plain_memory: false,
            transfer: None,
            exec: None,
            modules: None,
            comm: None,
            needs: Vec::new(),
            memory_use: Usage::default(),
            id: AtomicU64::new(0),
            available: AtomicBool::new(false),
        }
    }

    /// Returns the backend's name as a string slice.
    pub fn name(&self) -> &str {
        self.name.to_str().unwrap_or("?")
    }

    /// Returns the backend's handle.
    pub fn handle(&self) -> dtl_backend_t {
        dtl_backend_t { id: self.id.load(Ordering::Relaxed) }
    }

    /// Returns the backend's components as DTL_COMPONENT_ bits.
    pub fn components(&self) -> u32 {
        let bit = |present: bool, bit: u32| if present { bit } else { 0 };
        bit(self.device.is_some(), DTL_COMPONENT_DEVICE)
            | bit(self.memory.is_some(), DTL_COMPONENT_MEMORY)
            | bit(self.transfer.is_some(), DTL_COMPONENT_TRANSFER)
            | bit(self.exec.is_some(), DTL_COMPONENT_EXEC)
            | bit(self.comm.is_some(), DTL_COMPONENT_COMM)
    }

    /// Queries whether the backend can run on this machine. If the backend's answer is invalid,
    /// reports the backend as unavailable.
    pub fn availability(&self) -> Availability {
        self.query_available().unwrap_or_else(|error| Err(error.text().to_owned()))
    }

    /// Queries whether the backend can run on this machine. Fails if the backend's answer is
    /// invalid.
    pub fn query_available(&self) -> Result<Availability> {
        let answer = match self.needs.iter().try_for_each(environment::availability) {
            Ok(()) => self.presence.query_available(),
            Err(error) => Ok(Err(error.text().to_owned())),
        };
        let is_yes = matches!(answer, Ok(Ok(())));
        // A backend without required environments needs no start before its first use.
        self.available.store(is_yes && self.needs.is_empty(), Ordering::Relaxed);
        if is_yes {
            (events().available)(self);
        }
        answer
    }

    /// Fails with UNAVAILABLE and the reason if the backend cannot run on this machine. Costs one
    /// load once the backend has been found available.
    pub fn ready(&self) -> Result<()> {
        if self.available.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.ready_slow()
    }

    /// Starts the environments (external software) that the backend requires. They keep running
    /// until finalize.
    #[cold]
    fn ready_slow(&self) -> Result<()> {
        if let Err(why) = self.query_available()? {
            return fail!(DTL_ERROR_UNAVAILABLE, "backend {} cannot run here: {why}", self.name());
        }
        let mut held = environment::EnvironmentRefs::default();
        let started = self.needs.iter().try_for_each(|need| held.add(need));
        started
            .map_err(|error| error.within(&format!("backend {} cannot run here", self.name())))?;
        held.keep();
        self.available.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Returns true if the backend has a feature: a component, or a feature that the backend itself
    /// defines.
    pub fn supports(&self, feature: &str) -> Result<bool> {
        match feature {
            "device" => Ok(self.device.is_some()),
            "memory" => Ok(self.memory.is_some()),
            "transfer" => Ok(self.transfer.is_some()),
            "exec" => Ok(self.exec.is_some()),
            "modules" => Ok(self.modules.is_some()),
            "comm" => Ok(self.comm.is_some()),
            // The library's streams are available where a backend has no native ones.
            "streams" | "async" => Ok(self.has_devices()),
            "shared_memory" => Ok(self.has_devices() && self.flags & DTL_BACKEND_NO_COMPUTE == 0),
            _ => self.presence.supports(feature).unwrap_or(Ok(false)),
        }
    }

    /// Returns true if the backend has a device, memory or exec component.
    fn has_devices(&self) -> bool {
        self.device.is_some() || self.memory.is_some() || self.exec.is_some()
    }

    /// Makes the backend ready for use and returns its device component.
    pub fn device(&self) -> Result<&dyn Device> {
        self.ready()?;
        self.device.as_deref().ok_or_else(|| self.lacks("device"))
    }

    /// Makes the backend ready for use and returns its memory component.
    pub fn memory(&self) -> Result<&dyn Memory> {
        self.ready()?;
        self.memory.as_deref().ok_or_else(|| self.lacks("memory"))
    }

    /// Creates the NOT_SUPPORTED error for a component that the backend lacks.
    #[cold]
    pub fn lacks(&self, what: &str) -> Error {
        failure!(
            DTL_ERROR_NOT_SUPPORTED,
            "backend {} provides no {what}, and there is no generic version of it",
            self.name()
        )
    }
}

/// Functions of higher-level modules that the registry calls when a backend is registered, removed,
/// found to be available, or not found.
pub struct Events {
    /// Handles the registration of a backend, before other threads can find the backend.
    pub adding: fn(&Backend),
    /// Unregisters a backend that another backend has replaced, once the replaced backend is no
    /// longer in use. Not called for built-in backends.
    pub replaced: fn(dtl_backend_t),
    /// Called when a backend has reported that it can run on this machine.
    pub available: fn(&Backend),
    /// Returns the number of references to a backend from its default streams. These references do
    /// not keep the backend from being unregistered.
    pub default_shares: fn(&Guard, &Arc<Backend>) -> usize,
    /// Handles the removal of a backend that is not in use, before the backend is destroyed.
    pub removed: fn(&Guard, &Arc<Backend>),
    /// Handles the removal of all backends, before they are destroyed.
    pub all_removed: fn(),
    /// Returns the name of a dispatch handler that uses the backend, if there is one.
    pub handler_of: fn(&Guard, &Arc<Backend>) -> Option<String>,
    /// Returns the advice to append to the error message for an unknown backend name: possible
    /// sources of a backend with this name.
    pub advice: fn(&str) -> String,
}

static EVENTS: OnceLock<&'static Events> = OnceLock::new();

/// Sets, for the lifetime of the process, the functions that the registry calls. Must be called
/// before a backend is registered.
pub fn notify(events: &'static Events) {
    EVENTS.get_or_init(|| events);
}

/// Returns the functions that [`notify`] has set, or functions that do nothing.
fn events() -> &'static Events {
    static NONE: Events = Events {
        adding: |_| {},
        replaced: |_| {},
        available: |_| {},
        default_shares: |_, _| 0,
        removed: |_, _| {},
        all_removed: || {},
        handler_of: |_, _| None,
        advice: |_| String::new(),
    };
    EVENTS.get().copied().unwrap_or(&NONE)
}

pub(super) static TABLE: HandleTable<Backend> = HandleTable::new();

/// Backends that a lookup by name finds, in registration order. A replaced backend is no longer in
/// this list, but its handle stays valid as long as the backend is in use. The handle of a replaced
/// built-in backend stays valid until finalize.
static NAMED: RwLock<Vec<Arc<Backend>>> = RwLock::new(Vec::new());
/// Handle of the cached result of `dtl_backend_get(NULL)`; 0 = none. A handle whose backend was
/// removed resolves to nothing.
static DEFAULT: AtomicU64 = AtomicU64::new(0);

/// Backend that another backend of the same name has replaced, and its former position in
/// [`NAMED`].
pub struct Replaced {
    place: usize,
    backend: Arc<Backend>,
}

/// Registers a backend under its name.
pub fn add(backend: Arc<Backend>, flags: u64) -> Result<dtl_backend_t> {
    add_in_place(backend, flags).map(|(handle, _)| handle)
}

/// Registers a backend under its name. Returns the new handle, and the previous backend of that
/// name if one was replaced.
pub fn add_in_place(
    backend: Arc<Backend>,
    flags: u64,
) -> Result<(dtl_backend_t, Option<Replaced>)> {
    check_flags("flags", flags, DTL_REGISTER_REPLACE, "DTL_REGISTER_REPLACE")?;
    names::check_backend_name(backend.name())?;
    let mut named = NAMED.write();
    let taken = named.iter().position(|known| known.name == backend.name);
    if taken.is_some() && flags & DTL_REGISTER_REPLACE == 0 {
        return fail!(
            DTL_ERROR_ALREADY_EXISTS,
            "a backend named {} is registered already: choose another name or pass \
             DTL_REGISTER_REPLACE",
            backend.name()
        );
    }
    let Some(id) = TABLE.insert(TAG, Arc::clone(&backend)) else {
        return fail!(DTL_ERROR_LIMIT, "no handle left for another backend");
    };
    backend.id.store(id, Ordering::Relaxed);
    (events().adding)(&backend);
    let before = taken.and_then(|place| named.get_mut(place).map(|known| (place, known)));
    let replaced = match before {
        Some((place, known)) => {
            Some(Replaced { place, backend: std::mem::replace(known, backend) })
        }
        None => {
            named.push(backend);
            None
        }
    };
    drop(named);
    choose_again();
    if let Some(old) = replaced.as_ref().filter(|replaced| !replaced.backend.builtin) {
        (events().replaced)(old.backend.handle());
    }
    Ok((dtl_backend_t { id }, replaced))
}

/// Discards the cached result of `dtl_backend_get(NULL)`, because candidates or settings have
/// changed.
pub fn choose_again() {
    DEFAULT.store(0, Ordering::Relaxed);
}

/// Removes a backend that is not in use. `others` is the number of references to the backend that
/// do not count as uses, because the caller removes them together with the backend.
pub fn remove(inside: &Guard, handle: dtl_backend_t, others: usize) -> Result<()> {
    epoch::collect(); // a user destroyed just now may have a deferred reference
    if remove_unused(inside, handle, others)? {
        return Ok(());
    }
    let backend = pin(inside, handle)?;
    let usage = &backend.memory_use;
    let [allocations, ranges] =
        [&usage.live_count, &usage.range_count].map(|count| count.load(Ordering::Acquire));
    let handler = (events().handler_of)(inside, &backend).map_or(String::new(), |name| {
        format!("handler \"{name}\" of a dispatcher has it: dtl_dispatch_unregister; ")
    });
    fail!(
        DTL_ERROR_BUSY,
        "backend {} is in use ({handler}{allocations} live allocations, {ranges} ranges of adopted \
         or registered memory; \
         streams, events, executors and communicators count too): destroy what uses it first",
        backend.name()
    )
}

/// Removes a backend as [`remove`] does, but returns false if the backend is in use.
pub fn remove_unused(inside: &Guard, handle: dtl_backend_t, others: usize) -> Result<bool> {
    let mut named = NAMED.write(); // of two threads, the second finds the handle stale
    let backend = pin(inside, handle)?;
    if backend.builtin {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "backend {} is built in and stays",
            backend.name()
        );
    }
    let listed = named.iter().any(|known| Arc::ptr_eq(known, &backend));
    // The references of the table, of this function and of the lists. Any more belong to streams,
    // communicators, executors and other users.
    let expected = 2 + others + usize::from(listed) + (events().default_shares)(inside, &backend);
    if Arc::strong_count(&backend) > expected || !backend.memory_use.close() {
        return Ok(false);
    }
    let _ = DEFAULT.compare_exchange(handle.id, 0, Ordering::Relaxed, Ordering::Relaxed);
    names::take_out(inside, &mut named, &backend);
    drop(named);
    (events().removed)(inside, &backend);
    drop(TABLE.remove(inside, handle.id)); // the destroy slot may run here, with no lock held
    Ok(true)
}

/// Returns true if a backend was replaced by another backend of the same name and still exists.
pub fn is_replaced(inside: &Guard, handle: dtl_backend_t) -> bool {
    let named = NAMED.read();
    TABLE.get(inside, handle.id).is_some() && named.iter().all(|known| known.handle() != handle)
}

/// Returns the backend that a (non-null) handle names. The reference is valid while the guard
/// `inside` lives.
pub fn find(inside: &Guard, handle: dtl_backend_t) -> Result<&Backend> {
    TABLE.get(inside, handle.id).ok_or_else(|| stale(handle))
}

/// Returns a reference-counted pointer to the backend that a (non-null) handle names.
pub fn pin(inside: &Guard, handle: dtl_backend_t) -> Result<Arc<Backend>> {
    TABLE.pin(inside, handle.id).ok_or_else(|| stale(handle))
}

#[cold]
fn stale(handle: dtl_backend_t) -> Error {
    super::invalid_handle("backend", TAG, handle.id)
}

/// Returns all backends that a lookup by name finds, in registration order. Loads plugins first.
///
/// Returns borrowed references, not reference-counted pointers: a thread that only inspects a
/// backend must not make another thread's `dtl_backend_unregister` fail with BUSY.
pub fn all(inside: &Guard) -> Vec<&Backend> {
    environment::search_plugins();
    listed(inside)
}

fn listed(inside: &Guard) -> Vec<&Backend> {
    let handles: Vec<_> = NAMED.read().iter().map(|known| known.handle()).collect();
    handles.into_iter().filter_map(|handle| find(inside, handle).ok()).collect()
}

/// Looks up the handle of a backend by name. Loads plugins only if the name is unknown, so that a
/// lookup of a built-in backend never waits for plugins.
fn handle_of(name: &str) -> Option<dtl_backend_t> {
    let look =
        || NAMED.read().iter().find(|known| known.name() == name).map(|known| known.handle());
    look().or_else(|| {
        environment::search_plugins();
        look()
    })
}

/// Looks up a backend by name and returns a reference-counted pointer, for callers that create an
/// object that uses the backend.
pub fn lookup(name: &str) -> Option<Arc<Backend>> {
    pin(&epoch::enter(), handle_of(name)?).ok()
}

/// Returns the backend with this name. For `None`, returns the default backend: the backend that
/// DTL_BACKEND or dtl_init names, otherwise the automatic choice.
pub fn by_name<'g>(inside: &'g Guard, name: Option<&str>) -> Result<&'g Backend> {
    match name {
        Some("auto") => automatic(inside),
        Some(name) => named(inside, settings::alias(name)),
        None => {
            if let Some(chosen) = TABLE.get(inside, DEFAULT.load(Ordering::Relaxed)) {
                return Ok(chosen);
            }
            let settings = settings::current();
            let chosen = match settings.backend.as_deref() {
                None | Some("auto") => automatic(inside)?,
                Some(name) => {
                    let backend = named(inside, name)
                        .map_err(|e| e.within("the default backend (DTL_BACKEND or dtl_init)"))?;
                    backend.ready()?;
                    explain::chose(
                        "backend",
                        &format!("{name}, because DTL_BACKEND or dtl_init names it"),
                    );
                    backend
                }
            };
            // Under the lock of NAMED, so that no backend that was replaced meanwhile is cached.
            let listed = NAMED.read();
            if listed.iter().any(|known| known.handle() == chosen.handle()) {
                DEFAULT.store(chosen.handle().id, Ordering::Relaxed);
            }
            drop(listed);
            Ok(chosen)
        }
    }
}

fn named<'g>(inside: &'g Guard, name: &str) -> Result<&'g Backend> {
    if let Some(found) = handle_of(name).and_then(|handle| find(inside, handle).ok()) {
        return Ok(found);
    }
    let known: Vec<_> = all(inside).into_iter().map(Backend::name).collect();
    fail!(
        DTL_ERROR_NOT_FOUND,
        "no backend is named \"{name}\"; known: {}{}",
        known.join(", "),
        (events().advice)(name)
    )
}

/// Returns the available backend with device and memory components that has the highest priority;
/// equal priorities are ordered by name.
fn automatic(inside: &Guard) -> Result<&Backend> {
    let mut candidates = all(inside);
    candidates.retain(|b| b.device.is_some() && b.memory.is_some() && b.auto_priority != i32::MIN);
    candidates
        .sort_by(|a, b| b.auto_priority.cmp(&a.auto_priority).then_with(|| a.name.cmp(&b.name)));
    let mut passed_over = Vec::new();
    for backend in candidates {
        let answer =
            backend.presence.passed_over_reason().map_or_else(|| backend.availability(), Err);
        match answer {
            Ok(()) => {
                let reasons = if passed_over.is_empty() {
                    String::new()
                } else {
                    format!("; not {}", passed_over.join("; not "))
                };
                explain::chose(
                    "backend",
                    &format!(
                        "{}, the available one with the highest priority ({}){reasons}",
                        backend.name(),
                        backend.auto_priority
                    ),
                );
                return Ok(backend);
            }
            Err(why) => passed_over.push(format!("{}: {why}", backend.name())),
        }
    }
    fail!(
        DTL_ERROR_UNAVAILABLE,
        "no backend with device and memory can run here: {}",
        passed_over.join("; ")
    )
}

/// Initializes the built-in backends whose driver the application already uses, so that the library
/// recognizes pointers to memory that the application has allocated through the driver.
pub fn detect_driver_use() {
    let inside = epoch::enter();
    let is_used = |backend: &&Backend| {
        backend.builtin
            && !backend.available.load(Ordering::Relaxed)
            && backend.presence.is_in_use()
    };
    for backend in listed(&inside).into_iter().filter(is_used) {
        // A failure is reported when a call names the backend.
        let _ = backend.availability();
    }
}

/// Destroys every backend at finalize. This calls the `destroy` functions of the backends' vtables.
pub fn clear() {
    (events().all_removed)();
    choose_again();
    NAMED.write().clear();
    TABLE.drain(&epoch::enter()).for_each(drop);
}

/// Empties the registry in a forked child without destroying the backends.
pub fn forget_all() {
    choose_again();
    std::mem::take(&mut *NAMED.write()).into_iter().for_each(std::mem::forget);
    TABLE.drain(&epoch::enter()).for_each(std::mem::forget);
}
