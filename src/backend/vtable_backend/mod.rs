//! Adapter from a backend's C function tables to the component traits: validation of the tables,
//! ownership of the backend's `self` pointer, and conversion of statuses. The runtime does not
//! distinguish an adapted backend from a built-in one.
//!
//! In reading order:
//! - `slot_call`: calls to slots (C functions of a table)
//! - `device`: the device table
//! - `memory`: the memory and transfer tables
//! - `exec`: the exec table
//! - `module`: modules of the exec table
//! - `comm`: the comm table
//! - `collective`: collectives of the comm table
//! - `comm_memory`: memory that the comm table registers
//! - `window`: windows of the comm table
//! - `environment`: functions of an environment
//! - `handler`: functions of a dispatch handler

mod collective;
mod comm;
mod comm_memory;
mod device;
mod environment;
mod exec;
mod handler;
mod memory;
mod module;
mod slot_call;
mod window;

pub use environment::environment_calls;
pub use handler::NativeHandler;

use crate::abi::backend::vtable::*;
use crate::abi::runtime::DTL_ABI_VERSION;
use crate::abi::status::*;
use crate::error::{self, Error, Result, fail, failure};
use crate::from_c::text_in;
use crate::last_error::Mark;
use crate::runtime::component::{Availability, BackendProbe};
use crate::runtime::registry::Backend;
use crate::sys::memory::buf::Addr;
use std::cell::Cell;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Priority of a backend whose table has priority 0.
const DEFAULT_PRIORITY: i32 = 40;

/// Lowest DTL_ABI_VERSION that tables and plugins may have been compiled with.
pub const OLDEST_ABI: u32 = 2;

/// Copies of the C tables of a backend, extended or truncated to the struct sizes of this library.
pub struct Tables {
    /// Main table of the backend.
    pub main: dtl_backend_vtable_t,
    /// Device table; `None` if the backend has no device component.
    pub device: Option<dtl_device_vtable_t>,
    /// Memory table; `None` if the backend has no memory component.
    pub memory: Option<dtl_memory_vtable_t>,
    /// Transfer table; `None` if the backend has no transfer component.
    pub transfer: Option<dtl_transfer_vtable_t>,
    /// Execution table; `None` if the backend has no exec component.
    pub exec: Option<dtl_exec_vtable_t>,
    /// Communication table; `None` if the backend has no comm component.
    pub comm: Option<dtl_comm_vtable_t>,
}

/// `self` pointer of a backend, shared by all components of the backend and passed to `destroy`
/// after its last use.
pub struct BackendObject {
    name: String,
    self_: Addr,
    destroy: Option<unsafe extern "C" fn(*mut std::ffi::c_void)>,
    armed: AtomicBool,
}

impl BackendObject {
    /// Marks the registration as successful: from now on, dropping this object calls `destroy`.
    pub fn arm(&self) {
        self.armed.store(true, Ordering::Release);
    }

    /// Converts the status that a slot (C function of a table) returned into a `Result` whose error
    /// names the backend and the slot.
    #[inline]
    fn check(&self, slot: &str, status: dtl_status_t, before: Mark) -> Result<()> {
        if status == DTL_SUCCESS { Ok(()) } else { Err(self.failed(slot, status, before)) }
    }

    #[cold]
    fn failed(&self, slot: &str, status: dtl_status_t, before: Mark) -> Error {
        foreign_error(&format!("backend {}: {slot}", self.name), status, before)
    }

    /// Checks and converts a boolean output of a slot (C function of a table).
    #[inline]
    fn boolean(&self, slot: &str, value: i32) -> Result<bool> {
        match value {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.not_boolean(slot, value)),
        }
    }

    #[cold]
    fn not_boolean(&self, slot: &str, value: i32) -> Error {
        self.invalid(slot, &format!("wrote {value} into its boolean output: use 0 or 1"))
    }

    /// Returns the error for an invalid output of a slot (C function of a table).
    #[cold]
    fn invalid(&self, slot: &str, what: &str) -> Error {
        Error::new(DTL_ERROR_NATIVE_BACKEND, format!("backend {}: {slot} {what}", self.name))
    }

    /// Checks the object that a slot (C function of a table) created. A null pointer is an error,
    /// because it cannot identify an object.
    fn not_null(&self, slot: &str, object: *mut std::ffi::c_void) -> Result<Addr> {
        if object.is_null() {
            return Err(self.invalid(slot, "returned success and wrote NULL to its output"));
        }
        Ok(Addr::new(object))
    }

    /// Returns the error NOT_SUPPORTED for a missing slot (C function of a table) of an optional
    /// group. `runtime` checks the groups first, so its calls do not return this error.
    #[cold]
    fn absent(&self, slot: &str) -> Error {
        Error::new(DTL_ERROR_NOT_SUPPORTED, format!("backend {} has no {slot}", self.name))
    }
}

impl Drop for BackendObject {
    fn drop(&mut self) {
        if let Some(destroy) = self.destroy.filter(|_| self.armed.load(Ordering::Acquire)) {
            let destroy = slot_call::Slot::unwinding(destroy);
            let inside = slot_call::SlotGuard { owner: self, slot: "destroy" };
            // SAFETY: the table's contract is met: `destroy` is called once, after the last use,
            // with the `self` of its backend.
            unsafe { destroy(self.self_.ptr()) };
            std::mem::forget(inside);
        }
    }
}

thread_local! {
    static ERROR_TEXT: Cell<String> = const { Cell::new(String::new()) };
}

/// Sets the error message of a slot (C function of a table) that is about to fail
/// (`dtl_backend_set_error`). If the adapter itself detects a fault, the adapter's message replaces
/// that of the slot.
pub fn set_error_text(text: String) {
    let _ = ERROR_TEXT.try_with(|left| left.set(text));
}

/// Prepares a call to plugin code outside the fast path: drops the error message of an earlier
/// call, and returns a mark for the present point in time. The mark is used to find errors that are
/// recorded during the call.
pub(super) fn begin() -> Mark {
    drop(take_error_text());
    Mark::now()
}

/// Removes and returns the error message that plugin code set in this thread; empty if none.
pub(super) fn take_error_text() -> String {
    ERROR_TEXT.try_with(Cell::take).unwrap_or_default()
}

/// Stores the error message for a status that plugin code reports by a means other than its return
/// value. If the plugin code did not set a message, stores the message of a library call that
/// failed with this status since the point in time `before`.
#[cold]
fn keep_said(before: Mark, status: dtl_status_t) {
    let _ = ERROR_TEXT.try_with(|left| {
        let text = left.take();
        left.set(if text.is_empty() { before.recorded(status).unwrap_or_default() } else { text });
    });
}

/// Returns the error for an error status that foreign code (a C callback or plugin function)
/// returned. `before` is the mark (point in time) that this thread took before it called the
/// foreign code. The error has the message that the foreign code set or, if there is none, the
/// message of the failed library call whose status the foreign code returns.
#[cold]
pub(super) fn foreign_error(who: &str, status: dtl_status_t, before: Mark) -> Error {
    let left = take_error_text();
    let suffix = if left.is_empty() { String::new() } else { format!(": {left}") };
    if !error::is_status(status) {
        let text = format!("{who} answered {status}, which is no status{suffix}");
        return Error::new(DTL_ERROR_NATIVE_BACKEND, text);
    }
    let meaning = match status {
        DTL_ERROR_INTERNAL => "it reports an error of its own (DTL_ERROR_INTERNAL)".into(),
        status => error::status_message(status).to_string_lossy(),
    };
    let error = Error::new(status, format!("{who}: {meaning}{suffix}"));
    if left.is_empty() { before.explain(error) } else { error }
}

/// Calls a slot (C function of a table) with the backend's `self` and returns its status.
macro_rules! status_of {
    ($owner:expr, $name:expr, $slot:expr $(, $arg:expr)* $(,)?) => {{
        let slot = $crate::backend::vtable_backend::slot_call::Slot::unwinding($slot);
        let inside = $crate::backend::vtable_backend::slot_call::SlotGuard {
            owner: &$owner,
            slot: $name,
        };
        // SAFETY: the author of the table guarantees the header's contract for the slot. The
        // arguments are those of the contract, checked by `ffi` and `runtime`.
        let status = unsafe { slot($owner.self_.ptr() $(, $arg)*) };
        std::mem::forget(inside);
        status
    }};
}
use status_of;

/// Calls a slot (C function) of `self.table` with the backend's `self` and converts its status into
/// a `Result`. If the slot is NULL, `call!(self.component.slot(arguments))` returns NOT_SUPPORTED
/// from the calling function, and `call!(self.component.slot?(arguments))` returns `Ok(None)`.
macro_rules! call {
    ($self:ident.$component:ident.$slot:ident($($arg:expr),* $(,)?)) => {
        $crate::backend::vtable_backend::call!(
            $self,
            concat!(stringify!($component), ".", stringify!($slot)),
            $self.table.$slot.ok_or_else(|| {
                $self.owner.absent(concat!(stringify!($component), ".", stringify!($slot)))
            })?
            $(, $arg)*
        )
    };
    ($self:ident.$component:ident.$slot:ident?($($arg:expr),* $(,)?)) => {
        $crate::backend::vtable_backend::call!(
            $self,
            concat!(stringify!($component), ".", stringify!($slot)),
            match $self.table.$slot {
                Some(slot) => slot,
                None => return Ok(None),
            }
            $(, $arg)*
        )
    };
    ($self:ident, $name:expr, $slot:expr $(, $arg:expr)* $(,)?) => {{
        let before = $crate::last_error::Mark::now();
        let status =
            $crate::backend::vtable_backend::status_of!($self.owner, $name, $slot $(, $arg)*);
        $self.owner.check($name, status, before)
    }};
}
use call;

/// Evaluates to a list of pairs: the name of a slot (C function of a table), and true if the table
/// has that slot.
macro_rules! presence {
    ($table:ident, $($slot:ident),+ $(,)?) => {
        &[$((stringify!($slot), $table.$slot.is_some())),+]
    };
}
use presence;

/// Returns an error that names the first missing slot, if any; all of `slots` are mandatory
/// functions of a table.
fn required(component: &str, slots: &[(&str, bool)]) -> Result<()> {
    match slots.iter().find(|(_, present)| !present) {
        None => Ok(()),
        Some((name, _)) => fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{component}.{name} is NULL: a {component} table needs it"
        ),
    }
}

/// Returns true if all slots (C functions of a table) of an optional group are present and false if
/// none is. Returns an error that names the first missing slot if only some are present.
fn whole(component: &str, group: &str, slots: &[(&str, bool)]) -> Result<bool> {
    let missing = slots.iter().find(|(_, present)| !present);
    match missing {
        None => Ok(true),
        Some(_) if slots.iter().all(|(_, present)| !present) => Ok(false),
        Some((name, _)) => Err(failure!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{component}.{name} is NULL: the {group} slots come all together or not at all"
        )),
    }
}

/// Creates a backend from C tables. If the tables are invalid, returns an error for the first fault
/// found; `destroy` is then not called.
pub fn adapt(name: &str, tables: &Tables, self_: Addr) -> Result<(Backend, Arc<BackendObject>)> {
    check_main(&tables.main)?;
    let owner = Arc::new(BackendObject {
        name: name.to_owned(),
        self_,
        destroy: tables.main.destroy,
        armed: AtomicBool::new(false),
    });
    let share = || Arc::clone(&owner);
    let presence = NativePresence { owner: share(), table: tables.main };
    let priority =
        if tables.main.auto_priority == 0 { DEFAULT_PRIORITY } else { tables.main.auto_priority };
    let c_name = CString::new(name).unwrap_or_default();
    let mut backend = Backend::new(&c_name, priority, false, Box::new(presence));
    backend.flags = tables.main.flags;
    check_reserved(tables)?;
    if let Some(table) = tables.device {
        backend.device = Some(Box::new(device::NativeDevice::new(share(), &table)?));
    }
    if let Some(table) = tables.memory {
        memory::check(&table)?;
        backend.memory = Some(Box::new(memory::NativeMemory::new(share(), table)));
    }
    if let Some(table) = tables.transfer {
        required("transfer", presence!(table, copy))?;
        backend.transfer = Some(Box::new(NativeComponent { owner: share(), table }));
    }
    if let Some(table) = tables.exec {
        exec::check(&table)?;
        backend.exec = Some(Box::new(NativeComponent { owner: share(), table }));
        if module::check(&table)? {
            backend.modules = Some(Box::new(NativeComponent { owner: share(), table }));
        }
    }
    if let Some(table) = tables.comm {
        comm::check(&table)?;
        backend.comm = Some(Box::new(NativeComponent { owner: share(), table }));
    }
    if backend.components() == 0 {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "all component tables are NULL: set at least one of device, memory, transfer, exec, \
             comm"
        );
    }
    Ok((backend, owner))
}

fn check_main(main: &dtl_backend_vtable_t) -> Result<()> {
    if !(OLDEST_ABI..=DTL_ABI_VERSION).contains(&main.abi_version) {
        return fail!(
            DTL_ERROR_INCOMPATIBLE_ABI,
            "dtl_backend_vtable_t.abi_version is {}: this library speaks {OLDEST_ABI} to \
             {DTL_ABI_VERSION} (set it to DTL_ABI_VERSION)",
            main.abi_version
        );
    }
    if main.reserved != 0 || main.flags & !DTL_BACKEND_NO_COMPUTE != 0 {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "dtl_backend_vtable_t: reserved is {}, flags {:#x}: only DTL_BACKEND_NO_COMPUTE is \
             known",
            main.reserved,
            main.flags
        );
    }
    Ok(())
}

/// Checks that the reserved fields of the component tables are 0; the comm table has no such field.
fn check_reserved(tables: &Tables) -> Result<()> {
    let words = [
        ("device", tables.device.map_or(0, |table| table.reserved)),
        ("memory", tables.memory.map_or(0, |table| table.reserved)),
        ("transfer", tables.transfer.map_or(0, |table| table.reserved)),
        ("exec", tables.exec.map_or(0, |table| table.reserved)),
    ];
    match words.iter().find(|(_, word)| *word != 0) {
        None => Ok(()),
        Some((name, word)) => {
            fail!(DTL_ERROR_INVALID_ARGUMENT, "{name}.reserved is {word}: it must be 0")
        }
    }
}

/// C function table that implements the traits of a component.
struct NativeComponent<T> {
    owner: Arc<BackendObject>,
    table: T,
}

struct NativePresence {
    owner: Arc<BackendObject>,
    table: dtl_backend_vtable_t,
}

// SAFETY: the table holds function pointers and pointers to component tables that are not read
// here; slots may be called from any thread by contract.
unsafe impl Send for NativePresence {}
// SAFETY: the table holds function pointers and pointers to component tables that are not read
// here; slots may be called from any thread by contract; the table is immutable.
unsafe impl Sync for NativePresence {}

impl BackendProbe for NativePresence {
    fn query_available(&self) -> Result<Availability> {
        let Some(slot) = self.table.is_available else { return Ok(Ok(())) };
        let mut yes = 0;
        let mut why = [0_u8; 512];
        let (to, room) = (why.as_mut_ptr().cast(), why.len() as u64 - 1); // keeps the final NUL
        let before = Mark::now();
        let status = status_of!(self.owner, "is_available", slot, &raw mut yes, to, room);
        if let Err(error) = self.owner.check("is_available", status, before) {
            // A failing status is a reason why the backend is unavailable; a number that is not a
            // status is an error.
            return if error::is_status(status) {
                Ok(Err(error.text().to_owned()))
            } else {
                Err(error)
            };
        }
        if self.owner.boolean("is_available", yes)? {
            return Ok(Ok(()));
        }
        let why = text_in(&why);
        Ok(Err(if why.is_empty() { "it gives no reason".to_owned() } else { why }))
    }

    fn supports(&self, feature: &str) -> Option<Result<bool>> {
        let slot = self.table.supports?;
        let Ok(feature) = CString::new(feature) else { return Some(Ok(false)) };
        let mut yes = 0;
        let answer = call!(self, "supports", slot, feature.as_ptr(), &raw mut yes);
        Some(answer.and_then(|()| self.owner.boolean("supports", yes)))
    }
}
