//! Parts of the library that its programs (`tools/`) need and that the C interface lacks.
//!
//! For everything else the programs use the C interface (package `dtl-sys`). They do not use any
//! other items of the library. They are linked with this crate instead of libdtl.so, for two
//! reasons. A process must not have two copies of the library's state. And two functions of this
//! module need that state: the one that loads a plugin step by step, and the one that selects a
//! kind of communicator without opening a communicator. Not for user programs: this interface may
//! change with every version.
//!
//! | item | used by | not in the C interface because |
//! |---|---|---|
//! | [`settings`] | dtl-info, dtl-ctk | variables are listed and checked before initialization |
//! | [`launch`] | dtl-info, dtl-ctk | in C, rank and size exist only with a communicator |
//! | [`choose_world`] | dtl-info | in C, only opening a communicator selects its kind |
//! | [`needs_of`] | dtl-info | `dtl_backend_info` does not list the environments of a backend |
//! | [`plugins`] | dtl-info, dtl-ctk | examines plugin files, and reports each step of a load |
//! | [`schedules`] | dtl-bench | steps of collectives without running them, and sizes of tables |
//! | [`mpi`] | dtl-bench | programs that compare with MPI call MPI directly |
//! | [`os`] | dtl-bench | hardware, shared objects and memory of processes |

use crate::ffi::host;
use crate::runtime::comm::open::open_kind;
use crate::runtime::component::Comm;
use crate::runtime::{environment, lifecycle, registry};

pub use crate::error::{Error, Result, is_status};

/// Environment variables of the library: table of the variables, diagnostics, and parsing of
/// values.
pub mod settings {
    pub use crate::runtime::settings::{
        VARIABLES, complaints, distance, duration, from_environment, withhold,
    };
    pub use crate::sys::os::dl::is_privileged;
}

/// Rank, size and job from the launcher's environment variables.
pub mod launch {
    pub use crate::runtime::launch::{Launch, from_environment};
}

/// Plugin files: search path, checks of a file, and loading step by step.
pub mod plugins {
    use super::open_library;
    use crate::abi::backend::plugin::dtl_host_api_t;
    use crate::abi::backend::vtable::dtl_backend_vtable_t;
    use crate::abi::handle::dtl_backend_t;
    use crate::abi::status::{DTL_ERROR_INVALID_STATE, DTL_SUCCESS, dtl_status_t};
    use crate::error::Result;
    use crate::ffi::host;
    use crate::runtime::plugins;
    use std::ffi::{c_char, c_void};
    use std::path::Path;
    use std::sync::Arc;

    pub use crate::backend::plugin::examine;
    pub use crate::backend::vtable_backend::OLDEST_ABI;
    pub use crate::runtime::plugins::{Step, files_of, places};
    pub use crate::sys::os::dl::{Refusal, check_file, check_folder};

    /// Loads a plugin file as `dtl_backend_load` does, and calls `step` before each step. Returns
    /// the handle of the plugin's first backend.
    pub fn load(path: &Path, origin: &'static str, step: Step) -> Result<u64> {
        open_library()?;
        plugins::load(path, origin, step).map(|backend| backend.id)
    }

    /// Observer of the vtables that a plugin registers. It receives each vtable unchanged, as the
    /// plugin's author filled it in.
    pub trait Observer {
        /// Receives the vtable of a backend that the plugin has registered. The library calls this
        /// function once per backend.
        ///
        /// # Safety
        /// `vtable` must point to a dtl_backend_vtable_t that was registered with the self pointer
        /// `own`.
        unsafe fn registered(vtable: *const c_void, own: *mut c_void);
    }

    /// Loads a plugin file. The function table that the plugin receives (`dtl_host_api_t`) forwards
    /// each registration to the library and then to the observer. Returns the handle of the
    /// plugin's first backend.
    pub fn load_observed<O: Observer>(
        path: &Path,
        origin: &'static str,
        step: Step,
    ) -> Result<u64> {
        open_library()?;
        plugins::open_files_with(open::<O>);
        plugins::load(path, origin, step).map(|backend| backend.id)
    }

    fn open<O: Observer>(path: &Path, step: Step) -> Result<Arc<dyn plugins::Plugin>> {
        let host = dtl_host_api_t { backend_register: Some(register::<O>), ..host::HOST };
        // A plugin stays loaded until the process ends, and may use its host table until then.
        crate::backend::plugin::open(path, Box::leak(Box::new(host)), step)
    }

    unsafe extern "C" fn register<O: Observer>(
        name: *const c_char,
        vtable: *const dtl_backend_vtable_t,
        own: *mut c_void,
        flags: u64,
        out: *mut dtl_backend_t,
    ) -> dtl_status_t {
        let Some(real) = host::HOST.backend_register else { return DTL_ERROR_INVALID_STATE };
        // SAFETY: the plugin calls this function as `backend_register` of the host table, so its
        // arguments fulfil the contract of `real`, to which they are passed unchanged.
        let status = unsafe { real(name, vtable, own, flags, out) };
        if status == DTL_SUCCESS {
            // SAFETY: the library has accepted this vtable with this `own` (status DTL_SUCCESS).
            unsafe { O::registered(vtable.cast(), own) };
        }
        status
    }
}

/// Communication steps of collectives, computed without running the collectives, and sizes of the
/// tables that communicators of each kind allocate.
pub mod schedules {
    pub use crate::backend::{hier, p2p_protocol, rdma, shm};
    pub use crate::runtime::comm::diagnostics::dry_run::{
        CollectivePlan, DryRunJob, PlanStep, STEP_BYTES, collectives, comm_bytes,
    };
}

/// MPI library that a communicator of kind "mpi" would use, and the functions of that library.
pub mod mpi {
    pub use crate::backend::mpi::library::abi::{Family, Int};
    pub use crate::backend::mpi::library::functions::{Handle, RequestOut, Status, StatusOut};
    pub use crate::backend::mpi::library::launcher::check_launcher;
    pub use crate::backend::mpi::library::mpi_library::{Mpi, loaded};
}

/// Interface to the operating system.
pub mod os {
    pub use crate::runtime::topology::node::topology;
    pub use crate::sys::os::dl::{SharedObject, file_of, process_symbol};
    pub use crate::sys::os::hwinfo::cpu_name;
    pub use crate::sys::os::process::{affinity, node_id, usable_cores};
    pub use crate::sys::os::shm_segment::{SharedMapping, SharedWord};
}

/// Initializes the library, as the first call of the C interface does.
fn open_library() -> Result<()> {
    lifecycle::admit(host::builtin)
}

/// Communicator kind (such as "shm" or "mpi") that [`choose_world`] returned.
pub struct CommKind {
    /// Name of the kind.
    pub name: String,
    /// True if the environment variable DTL_COMM specifies the kind. If false, the library has
    /// chosen the kind, and `dtl_explain` reports the reason.
    pub is_named: bool,
}

/// Returns the communicator kind (such as "shm" or "mpi") that a world communicator would have if
/// it were opened now. Does not communicate with other ranks.
pub fn choose_world(launch: Option<&launch::Launch>) -> Result<CommKind> {
    let named = crate::runtime::settings::current().comm.filter(|kind| kind != "auto");
    let chosen = open_kind::choose(named.as_deref(), None, launch)?;
    chosen.comm.as_deref().map_or(Ok(()), Comm::check_environment)?;
    Ok(CommKind { name: chosen.name().to_owned(), is_named: named.is_some() })
}

/// Named software environment that a backend requires, and its availability.
pub struct Requirement {
    /// Name of the environment.
    pub name: String,
    /// Reason why the software environment cannot be used on this machine; `None` if it can be
    /// used.
    pub unavailable: Option<String>,
}

/// Returns the software environments that a backend requires; empty for a backend that is not
/// registered.
pub fn needs_of(backend: &str) -> Vec<Requirement> {
    let backend = registry::lookup(backend);
    let needs = backend.iter().flat_map(|backend| &backend.needs);
    let of = |need: &environment::Requirement| Requirement {
        name: need.name.clone(),
        unavailable: environment::availability(need).err().map(|error| error.text().to_owned()),
    };
    needs.map(of).collect()
}
