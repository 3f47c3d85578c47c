//! Opening of communicators: selection of the communicator kind (such as "shm" or "mpi") and of the
//! ranks, and the predefined communicators DTL_COMM_WORLD and DTL_COMM_SELF.

use super::{group, open_over};
use crate::abi::comm::communicator::{
    DTL_COMM_DETERMINISTIC, DTL_COMM_NO_DUP, DTL_COMM_STAGE, dtl_comm_desc_t,
};
use crate::abi::handle::dtl_comm_t;
use crate::error::{Result, fail, failure};
use crate::from_c::blank;
use crate::runtime::comm::coll::coll_device;
use crate::runtime::comm::coll::device_part::DeviceCommSpec;
use crate::runtime::comm::comm_table::{OPEN, TABLE, TAG, insert, put};
use crate::runtime::comm::op_desc::Kind;
use crate::runtime::comm::shared_transport::SharedTransport;
use crate::runtime::comm::{Comm, progress};
use crate::runtime::component::{BOOTSTRAP_NS, OpenArgs, Transport, Watch};
use crate::runtime::launch::{self, Launch};
use crate::runtime::registry::{self, Backend};
use crate::runtime::{device, explain, plugins, settings};
use crate::sys::handles::epoch::{self, Guard};
use crate::sys::memory::buf::Addr;
use crate::sys::sync::lock::Mutex;
use std::ffi::CString;
use std::sync::Arc;

/// Description of a communicator to open. It contains the C struct (`raw`), copies of the strings
/// in this struct, and a reference to the communicator whose handle is in this struct.
pub struct Description {
    /// Description in the form of the C struct. The pointers to strings in it are not read; `kind`
    /// and `job` are copies of these strings.
    pub raw: dtl_comm_desc_t,
    /// Name of the communicator kind, such as "shm" or "mpi"; `None` means "auto".
    pub kind: Option<String>,
    /// Name of the job.
    pub job: Option<String>,
    /// Existing communicator over which the ranks bootstrap the new communicator, or which executes
    /// the operations that its backend does not support; `None` if there is none.
    pub over: Option<Arc<Comm>>,
    /// Name and value of the field for one kind alone, if the caller sets one.
    pub settings: Option<(&'static str, Addr)>,
    /// The field `grown` of [`OpenArgs`].
    pub grown: Option<u64>,
    /// The field `watch` of [`OpenArgs`]. If it is set, opening takes at most half the time limit,
    /// so that the ranks can exchange the result within the limit.
    pub watch: Option<Watch>,
}

impl Default for Description {
    /// Returns a description that sets no value, so that the settings and the environment of the
    /// launcher apply.
    fn default() -> Self {
        Description {
            raw: blank(),
            kind: None,
            job: None,
            over: None,
            settings: None,
            grown: None,
            watch: None,
        }
    }
}

/// Opens the communicator that `description` specifies. Returns its handle.
pub fn open(description: &Description) -> Result<dtl_comm_t> {
    insert(make(description)?)
}

/// Returns DTL_COMM_WORLD (index 0) or DTL_COMM_SELF (index 1), after opening it if necessary.
pub fn predefined(inside: &Guard, index: usize, handle: dtl_comm_t) -> Result<Arc<Comm>> {
    static OPENING: Mutex<()> = Mutex::new(());
    let _one_opens = OPENING.lock();
    if let Some(comm) = TABLE.pin(inside, handle.id) {
        return Ok(comm);
    }
    let kind = if index == 0 { settings::current().comm } else { Some("self".to_owned()) };
    let comm = Arc::new(make(&Description { kind, ..Description::default() })?);
    comm.slot.set(TABLE.slot_ref(handle.id), handle.id);
    comm.recorder.belongs_to(handle.id);
    if !TABLE.put_fixed(TAG, index, Arc::clone(&comm)) {
        return fail!(DTL_ERROR_INTERNAL, "the slot of a predefined communicator is taken");
    }
    OPEN.add(&comm);
    Ok(comm)
}

/// Maximum number of ranks in one process. The number is limited because each rank has a table of
/// all other ranks.
const MOST_RANKS: i32 = 4096;

/// Opens all `size` ranks of a communicator in this process. If opening any of them fails, none
/// remains open.
pub fn threads(inside: &Guard, size: i32, timeout_ns: u64) -> Result<Vec<dtl_comm_t>> {
    if size < 1 {
        return fail!(DTL_ERROR_INVALID_ARGUMENT, "size {size}: use 1 to {MOST_RANKS} ranks");
    }
    if size > MOST_RANKS {
        return fail!(
            DTL_ERROR_LIMIT,
            "size {size}: kind \"threads\" has at most {MOST_RANKS} ranks"
        );
    }
    registry::detect_driver_use();
    let backend = choose(Some("threads"), None, None)?;
    let ranks = backend.comm.as_deref().and_then(|comm| comm.open_ranks(size));
    let transports = ranks.unwrap_or_else(|| Err(backend.lacks("ranks of one process")))?;
    let timeout_ns = time_limit(timeout_ns);
    let mut handles = Vec::with_capacity(transports.len());
    for transport in transports {
        let comm = assemble(Arc::clone(&backend), transport, 0, timeout_ns);
        // Not registered for progress, because transports of kind "threads" need none.
        let handle = comm.and_then(|comm| put(&Arc::new(comm))).inspect_err(|_| {
            handles.iter().for_each(|handle: &dtl_comm_t| drop(TABLE.remove(inside, handle.id)));
        })?;
        handles.push(handle);
    }
    Ok(handles)
}

/// Returns the time limit in nanoseconds: `given` if it is not 0, otherwise the time limit in the
/// settings, or `u64::MAX` if the settings have none.
fn time_limit(given: u64) -> u64 {
    if given == 0 { settings::current().timeout_ns.unwrap_or(u64::MAX) } else { given }
}

/// Returns the backend of the communicator kind `kind` if it is a device backend, whose
/// communicators use a second communicator for the operations that the backend does not support.
fn beside(kind: Option<&str>) -> Option<Arc<Backend>> {
    registry::lookup(kind?)
        .filter(|backend| backend.comm.as_deref().is_some_and(|comm| comm.device_comms().is_some()))
}

/// Opens a communicator that uses a second communicator for all operations that its backend does
/// not support: a duplicate of the communicator `over` in the description or, without `over`, a new
/// communicator of kind "auto". If this rank cannot use the backend, notifies the other ranks.
fn make_beside(backend: Arc<Backend>, description: &Description) -> Result<Comm> {
    let raw = &description.raw;
    check_flags(&backend, raw.flags)?;
    settings_of(backend.name(), Some(&backend), description)?;
    let mut below = match &description.over {
        None => {
            let raw = dtl_comm_desc_t { flags: raw.flags & !DTL_COMM_STAGE, ..*raw };
            let job = description.job.clone();
            make(&Description { raw, job, ..Description::default() })?
        }
        Some(over) => {
            check_place(description)?;
            group::internal_dup(over, Kind::Open)?
        }
    };
    if raw.timeout_ns != 0 {
        below.timeout_ns = raw.timeout_ns;
    }
    let devices = backend.comm.as_deref().and_then(|comm| comm.device_comms());
    let prepared = match devices {
        Some(devices) => backend.ready().and_then(|()| devices.prepare()),
        None => Err(backend.lacks("comm")),
    };
    let is_deterministic = raw.flags & DTL_COMM_DETERMINISTIC != 0 || below.link.is_deterministic;
    let wanted =
        DeviceCommSpec { backend, stages: raw.flags & DTL_COMM_STAGE != 0, is_deterministic };
    coll_device::attach(below, wanted, prepared)
}

/// Checks that the description sets neither ranks nor a job: the communicator `over` defines both.
fn check_place(description: &Description) -> Result<()> {
    if description.raw.size == 0 && description.job.is_none() {
        return Ok(());
    }
    fail!(
        DTL_ERROR_INVALID_ARGUMENT,
        "rank, size and job are those of the communicator that \"over\" names: leave them 0 and \
         NULL"
    )
}

/// Opens a communicator of a kind whose ranks use the existing communicator `below` only to
/// bootstrap. Fails for other kinds.
fn make_over(below: &Arc<Comm>, description: &Description) -> Result<Comm> {
    let kind = description.kind.as_deref().unwrap_or("auto");
    let meets =
        |backend: &Arc<Backend>| backend.comm.as_deref().is_some_and(|comm| comm.bootstraps_over());
    let named = if kind == "auto" { None } else { Some(find(kind)?) };
    let backend = named.filter(meets).ok_or_else(|| {
        failure!(
            DTL_ERROR_INVALID_ARGUMENT,
            "desc.over: kind \"{kind}\" is not opened over another communicator: leave it null"
        )
    })?;
    let raw = &description.raw;
    check_flags(&backend, raw.flags)?;
    let own_settings = settings_of(kind, Some(&backend), description)?;
    check_place(description)?;
    open_over::make(backend, below, raw, own_settings)
}

fn make(description: &Description) -> Result<Comm> {
    registry::detect_driver_use();
    if let Some(backend) = beside(description.kind.as_deref()) {
        return make_beside(backend, description);
    }
    if let Some(below) = &description.over {
        return make_over(below, description);
    }
    let raw = &description.raw;
    let named = match raw.size {
        0 => None,
        size if size > 0 && (0..size).contains(&raw.rank) => Some((raw.rank, size)),
        size => {
            return fail!(
                DTL_ERROR_INVALID_RANK,
                "rank {} of {size}: use 0 to size-1, or size 0 for the launcher's",
                raw.rank
            );
        }
    };
    let launch = if named.is_some() { None } else { launch::from_environment()? };
    let kind = description.kind.as_deref().unwrap_or("auto");
    if kind == "auto" {
        settings_of(kind, None, description)?;
    }
    let backend = choose_to_open(kind, named, launch.as_ref())?;
    check_flags(&backend, raw.flags)?;
    let own_settings = settings_of(kind, Some(&backend), description)?;
    let timeout_ns = time_limit(raw.timeout_ns);
    let by_job = backend.comm.as_deref().is_some_and(|comm| comm.opens_by_job());
    if let Some(launch) = launch.as_ref().filter(|_| by_job && description.job.is_none()) {
        progress::before_open();
        progress::while_opening(|| launch::join(launch, timeout_ns.min(BOOTSTRAP_NS)))?;
    }
    let launched_job = || launch.as_ref().map(|launch| launch.job.clone());
    let job = description.job.clone().or_else(launched_job).unwrap_or_default();
    let job = CString::new(job)
        .map_err(|_| failure!(DTL_ERROR_INVALID_ARGUMENT, "the job's name has a NUL in it"))?;
    let args = OpenArgs {
        flags: raw.flags,
        named,
        launched: launch.as_ref().map(|launch| (launch.rank, launch.size)),
        job,
        is_only_open: false,
        timeout_ns: BOOTSTRAP_NS.min(timeout_ns >> u32::from(description.watch.is_some())),
        settings: own_settings,
        grown: description.grown,
        watch: description.watch.clone(),
        own_algorithms: timeout_ns != u64::MAX
            || raw.flags & DTL_COMM_DETERMINISTIC != 0
            || settings::current().deterministic,
        device_pci: device::selected_pci(),
        over: None,
    };
    connect(backend, &args, timeout_ns)
}

/// Returns the backend that a communicator of the kind `kind` (`None`: "auto") would use, without
/// opening a communicator.
pub fn choose(
    kind: Option<&str>,
    named: Option<(i32, i32)>,
    launch: Option<&Launch>,
) -> Result<Arc<Backend>> {
    let backend = match kind {
        None | Some("auto") => find(&automatic(named, launch)?),
        Some(kind) => find(kind),
    }?;
    backend.ready().map(|()| backend)
}

/// Returns the backend that opens a communicator of the kind `kind`. If the backend cannot run on
/// this rank, it is returned only if its `open` function notifies the other ranks of this failure
/// (`open_notifies_peers`).
fn choose_to_open(
    kind: &str,
    named: Option<(i32, i32)>,
    launch: Option<&Launch>,
) -> Result<Arc<Backend>> {
    choose(Some(kind), named, launch).or_else(|error| {
        let backend = find(kind).ok().filter(|backend| {
            backend.comm.as_deref().is_some_and(|comm| comm.open_notifies_peers())
        });
        backend.ok_or(error)
    })
}

/// Returns the backend of the communicator kind `kind`, even if the backend cannot run on this
/// machine.
fn find(kind: &str) -> Result<Arc<Backend>> {
    if let Some(backend) = registry::lookup(kind).filter(|backend| backend.comm.is_some()) {
        return Ok(backend);
    }
    let inside = epoch::enter();
    let comms = registry::all(&inside).into_iter().filter(|backend| backend.comm.is_some());
    let known: Vec<_> = comms.map(Backend::name).collect();
    fail!(
        DTL_ERROR_NOT_FOUND,
        "no communicator kind is named \"{kind}\"; known: auto, {}{}",
        known.join(", "),
        plugins::advice(kind)
    )
}

/// Returns the communicator kind (such as "shm" or "mpi") that "auto" selects. The decision depends
/// only on data that is the same on all ranks, so all ranks select the same kind.
pub fn automatic(named: Option<(i32, i32)>, launch: Option<&Launch>) -> Result<String> {
    let pretended = settings::current().fake_nodes;
    let (kind, why) = match (named, launch) {
        (Some((_, 1)), _) => ("self", "the description says one rank".to_owned()),
        (Some((_, size)), _) => (
            "shm",
            format!("the description says {size} ranks and names no kind for several nodes"),
        ),
        (None, None) => ("self", "no launcher's environment was found: one rank".to_owned()),
        (None, Some(launch)) if launch.size == 1 => {
            ("self", format!("{} started one rank", launch.launcher))
        }
        (None, Some(_)) if pretended.is_some() => {
            let nodes = pretended.unwrap_or_default();
            return several_nodes(&format!("DTL_FAKE_NODES={nodes} pretends nodes"), ready);
        }
        (None, Some(launch)) if launch.is_one_node() => {
            ("shm", format!("{} started all {} ranks on this node", launch.launcher, launch.size))
        }
        (None, Some(Launch { launcher, size, local_size, .. })) => {
            return several_nodes(
                &format!("{launcher} started {size} ranks, {local_size} of them on this node"),
                ready,
            );
        }
    };
    Ok(chosen(kind, &why))
}

fn chosen(kind: &str, why: &str) -> String {
    explain::chose("communicator", &format!("{kind}, because {why}"));
    kind.to_owned()
}

/// Communicator kinds whose ranks may run on several nodes, in order of preference.
const ACROSS_NODES: [&str; 2] = ["hier", "mpi"];

/// Fails unless the communicator kind `kind` exists and its backend can run on this machine.
fn ready(kind: &str) -> Result<()> {
    let backend = registry::lookup(kind).filter(|backend| backend.comm.is_some());
    backend.ok_or_else(|| failure!(DTL_ERROR_NOT_FOUND, "there is no kind \"{kind}\""))?.ready()
}

/// Returns the first communicator kind of `ACROSS_NODES` for which `ready` succeeds. `why` is the
/// reason why the communicator needs such a kind, for `dtl_explain` and error messages.
fn several_nodes(why: &str, ready: impl Fn(&str) -> Result<()>) -> Result<String> {
    let mut reasons = Vec::new();
    for kind in ACROSS_NODES {
        match ready(kind) {
            Ok(()) if reasons.is_empty() => return Ok(chosen(kind, why)),
            Ok(()) => return Ok(chosen(kind, &format!("{why} ({})", reasons.join("; ")))),
            Err(error) => reasons.push(error.text().to_owned()),
        }
    }
    fail!(
        DTL_ERROR_UNAVAILABLE,
        "{why}, and no kind that crosses nodes can be used: {}; see to one of them, or use dtl_mpi \
         (find_package(dtl COMPONENTS MPI)) or register a communicator",
        reasons.join("; ")
    )
}

fn check_flags(backend: &Backend, flags: u64) -> Result<()> {
    let known = backend.comm.as_deref().map_or(0, |comm| comm.flags());
    match flags & !known {
        0 => Ok(()),
        DTL_COMM_NO_DUP => fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "flags: DTL_COMM_NO_DUP is for kind \"mpi\", not for \"{}\"",
            backend.name()
        ),
        DTL_COMM_STAGE => fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "flags: DTL_COMM_STAGE is for kinds \"mpi\", \"nccl\" and \"rdma\", and for registered \
             kinds with the slot mem_register; kind \"{}\" stages all device memory as it is",
            backend.name()
        ),
        _ => fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "flags {flags:#x}: only DTL_COMM_DETERMINISTIC, DTL_COMM_NO_DUP and DTL_COMM_STAGE are \
             known"
        ),
    }
}

/// Returns the description's settings of the backend alone; null if it sets none. Fails if the
/// description sets a field that the backend does not read.
fn settings_of(kind: &str, backend: Option<&Backend>, description: &Description) -> Result<Addr> {
    let read = backend.and_then(|backend| backend.comm.as_deref()?.settings_field());
    match description.settings {
        None => Ok(Addr::NULL),
        Some((name, address)) if read == Some(name) => Ok(address),
        Some((name, _)) => fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{name} is set, and kind \"{kind}\" does not read it: name the kind that it is for, \
             or leave it NULL"
        ),
    }
}

pub(crate) fn connect(backend: Arc<Backend>, args: &OpenArgs, timeout_ns: u64) -> Result<Comm> {
    let Some(provider) = backend.comm.as_deref() else { return Err(backend.lacks("comm")) };
    progress::before_open();
    let transport = progress::while_opening(|| provider.open(args))?;
    assemble(backend, transport, args.flags, timeout_ns)
}

/// Creates a communicator of all ranks of an open transport.
pub(crate) fn assemble(
    backend: Arc<Backend>,
    transport: Box<dyn Transport>,
    flags: u64,
    timeout_ns: u64,
) -> Result<Comm> {
    let is_deterministic = flags & DTL_COMM_DETERMINISTIC != 0 || settings::current().deterministic;
    let place = (transport.rank(), transport.size());
    let mut link = SharedTransport::new(transport, backend, is_deterministic);
    link.flags = flags;
    let link = if flags & DTL_COMM_STAGE == 0 { link.with_direct() } else { link };
    Comm::new(Arc::new(link), 0, None, place, timeout_ns).with_mailboxes(std::iter::repeat(0))
}

#[cfg(test)]
#[path = "tests/open_kind.rs"]
mod tests;
