//! Function tables of the backend under test as the backend passed them to dtl_backend_register,
//! for the tests that call these functions directly.
//!
//! A plugin is loaded with a host table (the library functions that it can call) whose
//! `backend_register` passes the registered tables on to the library and keeps a copy of the tables
//! that the library accepts.

use crate::kit::calls::Backend;
use crate::kit::current_slot;
use crate::kit::outcome::{Called, Error, Outcome, name_of, wrong};
use dtl::tooling::plugins::{Observer, load_observed};
use dtl_sys::*;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::OnceLock;

/// Copies of the function tables of a backend.
pub(crate) struct Tables {
    pub(crate) device: Option<dtl_device_vtable_t>,
    pub(crate) memory: Option<dtl_memory_vtable_t>,
    pub(crate) transfer: Option<dtl_transfer_vtable_t>,
    pub(crate) exec: Option<dtl_exec_vtable_t>,
    pub(crate) comm: Option<dtl_comm_vtable_t>,
}

/// Registered function tables and the pointer that their functions take as `self`.
pub(crate) struct Vtables {
    pub(crate) tables: Tables,
    pub(crate) own: *mut c_void,
}

// SAFETY: function pointers, and a pointer that is only passed to them; slots take calls of any
// thread.
unsafe impl Send for Vtables {}
// SAFETY: as above; nothing in it changes.
unsafe impl Sync for Vtables {}

static BARE: OnceLock<Vtables> = OnceLock::new();

/// Returns the function tables of the first registered backend; `None` if the backend under test is
/// built into the library.
pub(crate) fn tables() -> Option<&'static Vtables> {
    BARE.get()
}

/// Stores copies of the tables of the first registered backend. Ignores later backends.
///
/// # Safety
/// The arguments must satisfy the requirements of dtl_backend_register.
pub(crate) unsafe fn keep(vtable: *const dtl_backend_vtable_t, own: *mut c_void) {
    // SAFETY: the caller's contract.
    let Some(main) = (unsafe { take(vtable) }) else { return };
    let tables = Tables {
        // SAFETY: the caller's contract, for this table and the four below.
        device: unsafe { take(main.device) },
        // SAFETY: as above.
        memory: unsafe { take(main.memory) },
        // SAFETY: as above.
        transfer: unsafe { take(main.transfer) },
        // SAFETY: as above.
        exec: unsafe { take(main.exec) },
        // SAFETY: as above.
        comm: unsafe { take(main.comm) },
    };
    BARE.get_or_init(|| Vtables { tables, own });
}

/// Copies a table: its fields up to its struct_size, and zeros for the rest. Returns `None` for
/// NULL.
///
/// # Safety
/// `table` is NULL or a function table that begins with its size in bytes.
unsafe fn take<T>(table: *const T) -> Option<T> {
    if table.is_null() {
        return None;
    }
    let mut copy = MaybeUninit::<T>::zeroed();
    // SAFETY: the caller's contract: the table begins with its size.
    let bytes = unsafe { table.cast::<u32>().read() } as usize;
    let bytes = bytes.min(size_of::<T>());
    // SAFETY: so many bytes are in the table, and no more than in the copy.
    unsafe { copy.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(table.cast(), bytes) };
    // SAFETY: integers, pointers and optional functions: zeros are valid for each.
    Some(unsafe { copy.assume_init() })
}

impl Vtables {
    /// Fails the test unless `status`, which the function `slot` of a table has returned, is
    /// DTL_SUCCESS.
    pub(crate) fn check(slot: &str, status: dtl_status_t) -> Outcome {
        if status == DTL_SUCCESS {
            return Ok(());
        }
        wrong!("{slot} returned {} ({status})", name_of(status));
    }
}

/// Calls a function of a backend's table with the backend's `self` pointer: `slot!(vtables,
/// "memory.alloc", function(arguments...))`.
macro_rules! slot {
    ($vtables:expr, $name:expr, $function:ident($($argument:expr),* $(,)?)) => {
        $crate::kit::current_slot::within($name, || {
            // SAFETY: a slot of the table that was registered, with the arguments that its contract
            // names.
            unsafe { $function($vtables.own $(, $argument)*) }
        })
    };
}
pub(crate) use slot;

/// Loads a plugin file and keeps the function tables of its first backend. `current_slot` records
/// the name of each loading step while the step is executed.
pub(crate) fn load(path: &Path) -> Called<Backend> {
    let loaded = load_observed::<Keeper>(path, "dtl-ctk", &current_slot::enter);
    current_slot::enter("");
    match loaded {
        Ok(id) => Ok(Backend { handle: dtl_backend_t { id } }),
        Err(error) => Err(Error {
            call: "dtl_backend_load",
            status: dtl_binding::Status(error.status()),
            text: error.text().to_owned(),
        }),
    }
}

struct Keeper;

impl Observer for Keeper {
    unsafe fn registered(vtable: *const c_void, own: *mut c_void) {
        // SAFETY: tables that were registered.
        unsafe { keep(vtable.cast(), own) };
    }
}
