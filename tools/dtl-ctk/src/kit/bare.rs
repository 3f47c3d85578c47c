//! Tables of the backend under test as its author filled them in, for the tests that call slots
//! directly.
//!
//! A plugin is loaded with a host table that keeps a copy of the registered tables and passes them
//! on to the library.

use crate::api::name_of;
use crate::kit::calls::Backend;
use crate::kit::outcome::{Called, Outcome, Refused, wrong};
use crate::kit::step;
use dtl::abi::handle::dtl_backend_t;
use dtl::abi::plugin::dtl_host_api_t;
use dtl::abi::status::{DTL_ERROR_INVALID_STATE, DTL_SUCCESS, dtl_status_t};
use dtl::abi::vtable::dtl_backend_vtable_t;
use dtl::tooling::plugins::{self, Tables, host_table, take_tables};
use dtl::tooling::{Error, Result, open_library};
use std::ffi::{c_char, c_void};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Registered tables and their `self`.
pub(crate) struct Bare {
    pub(crate) tables: Tables,
    pub(crate) own: *mut c_void,
}

// SAFETY: function pointers, and a pointer that is only passed to them; slots take calls of any
// thread.
unsafe impl Send for Bare {}
// SAFETY: as above; nothing in it changes.
unsafe impl Sync for Bare {}

static BARE: OnceLock<Bare> = OnceLock::new();

/// Returns the tables of the first registered backend; `None` for a backend of the library's own.
pub(crate) fn tables() -> Option<&'static Bare> {
    BARE.get()
}

/// Keeps the tables of the first backend.
///
/// # Safety
/// As for dtl_backend_register.
pub(crate) unsafe fn keep(vtable: *const dtl_backend_vtable_t, own: *mut c_void) {
    // SAFETY: the caller's contract.
    if let Ok(tables) = unsafe { take_tables(vtable) } {
        BARE.get_or_init(|| Bare { tables, own });
    }
}

impl Bare {
    /// Fails the test unless a slot succeeded.
    pub(crate) fn check(slot: &str, status: dtl_status_t) -> Outcome {
        if status == DTL_SUCCESS {
            return Ok(());
        }
        wrong!("{slot} returned {} ({status})", name_of(status));
    }
}

/// Calls a slot of a table with the backend's `self`: `slot!(bare, "memory.alloc", function,
/// arguments...)`.
macro_rules! slot {
    ($bare:expr, $name:expr, $function:expr $(, $argument:expr)* $(,)?) => {
        $crate::kit::step::within($name, || {
            // SAFETY: a slot of the table that was registered, with the arguments that its contract
            // names.
            unsafe { $function($bare.own $(, $argument)*) }
        })
    };
}
pub(crate) use slot;

/// Loads a plugin file and keeps its first backend's tables. The steps of loading are recorded.
pub(crate) fn load(path: &Path) -> Called<Backend> {
    let refused = |error: Error| Refused {
        call: "dtl_backend_load",
        status: error.status(),
        text: error.text().to_owned(),
    };
    let loaded = open_library().and_then(|()| {
        plugins::open_files_with(open);
        plugins::load(path, "dtl-ctk", &step::enter)
    });
    step::enter("");
    Ok(Backend { handle: loaded.map_err(refused)? })
}

fn open(path: &Path, step: plugins::Step) -> Result<Arc<dyn plugins::Plugin>> {
    static HOST: OnceLock<dtl_host_api_t> = OnceLock::new();
    let host =
        HOST.get_or_init(|| dtl_host_api_t { backend_register: Some(register), ..*host_table() });
    plugins::open(path, host, step)
}

unsafe extern "C" fn register(
    name: *const c_char,
    vtable: *const dtl_backend_vtable_t,
    own: *mut c_void,
    flags: u64,
    out: *mut dtl_backend_t,
) -> dtl_status_t {
    let Some(real) = host_table().backend_register else { return DTL_ERROR_INVALID_STATE };
    // SAFETY: the plugin's call, passed on.
    let status = unsafe { real(name, vtable, own, flags, out) };
    if status == DTL_SUCCESS {
        // SAFETY: tables that were registered.
        unsafe { keep(vtable, own) };
    }
    status
}
