//! Parts of the library that its own programs (`tools/`) need and that the C interface does not offer.
//!
//! The programs use the C interface (`abi`, `ffi`) for everything else, and nothing of the library
//! beside these. They are linked with this crate instead of libdtl.so: a process must not have two
//! copies of the library's state, and loading a plugin step by step or choosing a kind without opening
//! it needs that state. Not for programs of users: it may change with every version.
//!
//! | item | used by | not in the C interface because |
//! |---|---|---|
//! | [`settings`] | dtl-info, dtl-ctk | variables are listed and checked before the library opens |
//! | [`launch`] | dtl-info, dtl-ctk | rank and launcher before there is a communicator |
//! | [`choose_world`] | dtl-info | a communicator's kind is chosen by opening it |
//! | [`needs_of`] | dtl-info | environments of a backend are the business of its plugin |
//! | [`plugins`] | dtl-info, dtl-ctk | files are examined unloaded, and loaded with a report of steps |
//! | [`schedules`] | dtl-bench | steps of collectives that are not run, and sizes of tables |
//! | [`mpi`] | dtl-bench | MPI's own functions, as the peer that is measured |
//! | [`os`] | dtl-bench | hardware, shared objects and memory of processes |

use crate::ffi::host;
use crate::runtime::backend::Comm;
use crate::runtime::comm::open;
use crate::runtime::{environment, lifecycle, registry};

pub use crate::error::{Error, Result, is_status};

/// Environment variables: their table, what is wrong with the present ones, values as they have them.
pub mod settings {
    pub use crate::runtime::settings::{
        VARIABLES, complaints, distance, duration, from_environment, withhold,
    };
    pub use crate::sys::trust::is_privileged;
}

/// The launcher's variables.
pub mod launch {
    pub use crate::runtime::launch::{Launch, from_environment};
}

/// Plugin files: where they are, what is wrong with one, and loading it step by step.
pub mod plugins {
    pub use crate::backend::native::{OLDEST_ABI, Tables};
    pub use crate::backend::plugin::{examine, open};
    pub use crate::ffi::backend::take_tables;
    pub use crate::ffi::host::table as host_table;
    pub use crate::runtime::plugins::{Plugin, Step, files_of, load, open_files_with, places};
    pub use crate::sys::trust::{Refusal, check_file, check_folder};
}

/// Steps of collectives, and the sizes of the tables that kinds of communicators keep.
pub mod schedules {
    pub use crate::backend::{frames, hier, rdma, shm};
    pub use crate::runtime::comm::plan::{Job, Plan, STEP_BYTES, Step, collectives, comm_bytes};
}

/// The MPI library that kind "mpi" would use, and its functions.
pub mod mpi {
    pub use crate::backend::mpi::abi::Family;
    pub use crate::backend::mpi::functions::{Handle, RequestOut, Status, StatusOut};
    pub use crate::backend::mpi::launcher::check_launcher;
    pub use crate::backend::mpi::session::{Mpi, loaded};
}

/// The operating system.
pub mod os {
    pub use crate::sys::dl::{Module, file_of, process_symbol};
    pub use crate::sys::machine;
    pub use crate::sys::shared::{Memory, Word};
}

/// Opens the library, as the first call of the C interface does.
pub fn open_library() -> Result<()> {
    lifecycle::admit(host::builtin)
}

/// Kind of communicator that [`choose_world`] chose.
pub struct Kind {
    /// Its name.
    pub name: String,
    /// Whether DTL_COMM names it. Otherwise `dtl_explain` has the reason.
    pub is_named: bool,
}

/// Returns the kind that the world communicator would have. Opens nothing, so no other rank is
/// needed.
pub fn choose_world(launch: Option<&launch::Launch>) -> Result<Kind> {
    let named = crate::runtime::settings::current().comm.filter(|kind| kind != "auto");
    let chosen = open::choose(named.as_deref(), None, launch)?;
    chosen.comm.as_deref().map_or(Ok(()), Comm::check_environment)?;
    Ok(Kind { name: chosen.name().to_owned(), is_named: named.is_some() })
}

/// An environment that a backend needs.
pub struct Need {
    /// Its name.
    pub name: String,
    /// Why it cannot be used here; `None` = it can.
    pub unavailable: Option<String>,
}

/// Returns the environments that a backend needs; none of a backend that is not registered.
#[must_use]
pub fn needs_of(backend: &str) -> Vec<Need> {
    let backend = registry::lookup(backend);
    let needs = backend.iter().flat_map(|backend| &backend.needs);
    let of = |need: &environment::Need| Need {
        name: need.name.clone(),
        unavailable: environment::availability(need).err().map(|error| error.text().to_owned()),
    };
    needs.map(of).collect()
}
