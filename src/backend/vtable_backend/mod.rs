//! The one adapter from C tables to the component traits. After it, a registered backend and a
//! built-in one are the same thing.
//!
//! Here: validation, the owner of the foreign `self`, statuses.
//!
//! In reading order:
//! - `slot_call`: calls of slots
//! - `device`: the device table
//! - `memory`: the memory and transfer tables
//! - `exec`: the exec table
//! - `module`: modules of the exec table
//! - `comm`: the comm table
//! - `window`: windows of the comm table
//! - `environment`: functions of an environment
//! - `handler`: functions of a dispatch handler

mod comm;
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
use crate::error::{self, Error, Result, fail};
use crate::last_error::Mark;
use crate::runtime::component::{Availability, BackendProbe};
use crate::runtime::registry::Backend;
use crate::sys::memory::buf::Addr;
use std::cell::Cell;
use std::ffi::{CStr, CString, c_char};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Priority of a table that leaves the field 0.
const DEFAULT_PRIORITY: i32 = 40;

/// The lowest DTL_ABI_VERSION that tables and plugins may have been compiled with.
pub const OLDEST_ABI: u32 = 1;

/// The tables as C gave them, taken over into our sizes.
pub struct Tables {
    /// The main table.
    pub main: dtl_backend_vtable_t,
    /// Devices.
    pub device: Option<dtl_device_vtable_t>,
    /// Memory.
    pub memory: Option<dtl_memory_vtable_t>,
    /// Transfers.
    pub transfer: Option<dtl_transfer_vtable_t>,
    /// Execution.
    pub exec: Option<dtl_exec_vtable_t>,
    /// Communication.
    pub comm: Option<dtl_comm_vtable_t>,
}

/// The foreign object behind all components of one backend; destroyed after its last user.
pub struct BackendObject {
    name: String,
    self_: Addr,
    destroy: Option<unsafe extern "C" fn(*mut std::ffi::c_void)>,
    armed: AtomicBool,
}

impl BackendObject {
    /// From here on `destroy` is owed: the registration has succeeded.
    pub fn arm(&self) {
        self.armed.store(true, Ordering::Release);
    }

    /// Turns the status of a slot into a result that names backend and slot.
    #[inline]
    fn check(&self, slot: &str, status: dtl_status_t, before: Mark) -> Result<()> {
        if status == DTL_SUCCESS { Ok(()) } else { Err(self.failed(slot, status, before)) }
    }

    #[cold]
    fn failed(&self, slot: &str, status: dtl_status_t, before: Mark) -> Error {
        foreign_error(&format!("backend {}: {slot}", self.name), status, before)
    }

    /// Checks and converts a boolean output.
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
        let text = format!(
            "backend {}: {slot} wrote {value} into its boolean output: use 0 or 1",
            self.name
        );
        Error::new(DTL_ERROR_NATIVE_BACKEND, text)
    }

    /// The error for an output of a slot that is not what the slot has to write.
    #[cold]
    fn invalid(&self, slot: &str, what: &str) -> Error {
        Error::new(DTL_ERROR_NATIVE_BACKEND, format!("backend {}: {slot} {what}", self.name))
    }

    /// What a creating slot answered; null would be taken for the null object.
    fn not_null(&self, slot: &str, object: *mut std::ffi::c_void) -> Result<Addr> {
        if object.is_null() {
            let text = format!("backend {}: {slot} succeeded and answered NULL", self.name);
            return Err(Error::new(DTL_ERROR_NATIVE_BACKEND, text));
        }
        Ok(Addr::new(object))
    }

    /// The error for a slot of a group that is not there; not reached through `runtime`.
    #[cold]
    fn absent(&self, slot: &str) -> Error {
        Error::new(DTL_ERROR_NOT_SUPPORTED, format!("backend {} has no {slot}", self.name))
    }
}

impl Drop for BackendObject {
    fn drop(&mut self) {
        if let Some(destroy) = self.destroy.filter(|_| self.armed.load(Ordering::Acquire)) {
            // SAFETY: the table's contract: called once, after the last use, with its own `self`.
            unsafe { destroy(self.self_.ptr()) }
        }
    }
}

thread_local! {
    static ERROR_TEXT: Cell<String> = const { Cell::new(String::new()) };
}

/// Sets the error text of a slot that is about to fail (`dtl_backend_set_error`).
pub fn set_error_text(text: &str) -> Result<()> {
    leave_error_text(text.to_owned());
    Ok(())
}

/// Sets the text for a fault that the adapter finds, in place of the slot's own text.
fn leave_error_text(text: String) {
    let _ = ERROR_TEXT.try_with(|left| left.set(text));
}

/// Before foreign code is called that is called rarely: what a call before has left is dropped.
pub(super) fn begin() -> Mark {
    drop(take_error_text());
    Mark::now()
}

/// The text that foreign code has left in this thread; empty if none.
pub(super) fn take_error_text() -> String {
    ERROR_TEXT.try_with(Cell::take).unwrap_or_default()
}

/// Keeps the error text for a status that foreign code reports otherwise than by returning it. If
/// it left no text, that of a call of ours that failed with this status after the mark is kept.
#[cold]
fn keep_said(before: Mark, status: dtl_status_t) {
    let _ = ERROR_TEXT.try_with(|left| {
        let text = left.take();
        left.set(if text.is_empty() { before.said(status).unwrap_or_default() } else { text });
    });
}

/// The error for a failing status of foreign code that was called after the mark, in this thread:
/// with the text that it has left, else with that of a call of ours whose status it passes on.
#[cold]
pub(super) fn foreign_error(who: &str, status: dtl_status_t, before: Mark) -> Error {
    let left = take_error_text();
    let said = if left.is_empty() { String::new() } else { format!(": {left}") };
    if !error::is_status(status) {
        let text = format!("{who} answered {status}, which is no status{said}");
        return Error::new(DTL_ERROR_NATIVE_BACKEND, text);
    }
    let meaning = match status {
        DTL_ERROR_INTERNAL => "it reports an error of its own (DTL_ERROR_INTERNAL)".into(),
        status => error::status_message(status).to_string_lossy(),
    };
    let error = Error::new(status, format!("{who}: {meaning}{said}"));
    if left.is_empty() { before.explain(error) } else { error }
}

/// Calls a slot with the backend's `self`: its status.
macro_rules! status_of {
    ($owner:expr, $name:literal, $slot:expr $(, $arg:expr)* $(,)?) => {{
        let slot = $crate::backend::vtable_backend::slot_call::Slot::unwinding($slot);
        let inside = $crate::backend::vtable_backend::slot_call::SlotGuard::enter(&$owner, $name);
        // SAFETY: the slot came in a table whose author promised the header's contract for it; the
        // arguments are those of the contract, checked by `ffi` and `runtime`.
        let status = unsafe { slot($owner.self_.ptr() $(, $arg)*) };
        inside.left();
        status
    }};
}
use status_of;

/// Calls a slot with the backend's `self` and turns its status into a result.
macro_rules! call {
    ($owner:expr, $name:literal, $slot:expr $(, $arg:expr)* $(,)?) => {{
        let before = $crate::last_error::Mark::now();
        let status = $crate::backend::vtable_backend::status_of!($owner, $name, $slot $(, $arg)*);
        $owner.check($name, status, before)
    }};
}
use call;

/// A slot of a group of the exec table, or NOT_SUPPORTED.
macro_rules! slot {
    ($self:expr, $slot:ident) => {
        $self.table.$slot.ok_or_else(|| $self.owner.absent(concat!("exec.", stringify!($slot))))?
    };
}
use slot;

/// A slot that must be there.
macro_rules! required {
    ($table:expr, $component:literal, $slot:ident) => {
        match $table.$slot {
            Some(slot) => slot,
            None => {
                return $crate::error::fail!(
                    DTL_ERROR_INVALID_ARGUMENT,
                    concat!(
                        $component,
                        ".",
                        stringify!($slot),
                        " is NULL: a ",
                        $component,
                        " table needs it"
                    )
                );
            }
        }
    };
}
use required;

/// A group is whole or absent; half of one names its first missing slot.
fn whole(component: &str, group: &str, slots: &[(&str, bool)]) -> Result<bool> {
    let missing = slots.iter().find(|(_, present)| !present);
    match missing {
        None => Ok(true),
        Some(_) if slots.iter().all(|(_, present)| !present) => Ok(false),
        Some((name, _)) => Err(Error::new(
            DTL_ERROR_INVALID_ARGUMENT,
            format!(
                "{component}.{name} is NULL: the {group} slots come all together or not at all"
            ),
        )),
    }
}

/// Makes a backend of tables. Fails with the first fault; `destroy` is not called then.
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
    if let Some(table) = &tables.device {
        backend.device = Some(Box::new(device::NativeDevice::new(share(), table)?));
    }
    if let Some(table) = &tables.memory {
        backend.memory = Some(Box::new(memory::NativeMemory::new(share(), table)?));
    }
    if let Some(table) = &tables.transfer {
        backend.transfer = Some(Box::new(memory::NativeTransfer::new(share(), table)?));
    }
    if let Some(table) = &tables.exec {
        backend.exec = Some(Box::new(exec::NativeExec::new(share(), table)?));
        backend.modules = module::NativeModules::of(share(), table)?;
    }
    if let Some(table) = &tables.comm {
        backend.comm = Some(Box::new(comm::NativeComm::new(share(), table)?));
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

/// What must be 0 in the component tables; the comm table has nothing of the kind.
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

struct NativePresence {
    owner: Arc<BackendObject>,
    table: dtl_backend_vtable_t,
}

// SAFETY: the table holds function pointers and pointers to component tables that are not read
// here; slots may be called from any thread by contract.
unsafe impl Send for NativePresence {}
// SAFETY: the table holds function pointers and pointers to component tables that are not read
// here; slots may be called from any thread by contract; nothing in it changes.
unsafe impl Sync for NativePresence {}

impl BackendProbe for NativePresence {
    fn query_available(&self) -> Result<Availability> {
        let Some(slot) = self.table.is_available else { return Ok(Ok(())) };
        let mut yes = 0;
        let mut why: [c_char; 512] = [0; 512];
        let room = (why.len() - 1) as u64; // the last byte stays NUL whatever the slot does
        let before = Mark::now();
        let status =
            status_of!(self.owner, "is_available", slot, &raw mut yes, why.as_mut_ptr(), room);
        if let Err(error) = self.owner.check("is_available", status, before) {
            // A failing status is a reason why it cannot run here; any other number is an error.
            return if error::is_status(status) {
                Ok(Err(error.text().to_owned()))
            } else {
                Err(error)
            };
        }
        if self.owner.boolean("is_available", yes)? {
            return Ok(Ok(()));
        }
        // SAFETY: the array ends in a NUL beyond the size that was passed to the slot.
        let why = unsafe { CStr::from_ptr(why.as_ptr()) };
        let why = why.to_string_lossy();
        Ok(Err(if why.is_empty() { "it gives no reason".to_owned() } else { why.into_owned() }))
    }

    fn supports(&self, feature: &str) -> Option<Result<bool>> {
        let slot = self.table.supports?;
        let Ok(feature) = CString::new(feature) else { return Some(Ok(false)) };
        let mut yes = 0;
        let answer = call!(self.owner, "supports", slot, feature.as_ptr(), &raw mut yes);
        Some(answer.and_then(|()| self.owner.boolean("supports", yes)))
    }
}
