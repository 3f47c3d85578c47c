//! Transport "hier": one communicator over several nodes, composed of two transports: shared memory
//! within each node, and another transport between nodes. This module does not transfer any data
//! itself; this file opens the communicator.
//!
//! In reading order:
//! - `nodes`: ranks of each node
//! - `router`: selection of the transport for each message
//! - `transport`: interface to `runtime`

mod nodes;
mod router;
#[cfg(test)]
mod tests;
mod transport;

use super::bootstrap::absence::limit_ns;
use super::bootstrap::over_comm::OverTransport;
use crate::abi::status::DTL_ERROR_UNAVAILABLE;
use crate::error::{Error, Result, fail, failure};
use crate::runtime::component::{
    Availability, BackendProbe, Comm, Exchange, OpenArgs, Transport, all_or_none, failed_elsewhere,
};
use crate::runtime::registry::{self, Backend};
use crate::runtime::settings;
use crate::sys::memory::buf::Addr;
use crate::sys::os::process;
use nodes::Nodes;
use std::ffi::CString;
use std::sync::Arc;

/// Backends of which "hier" is composed.
#[derive(Clone)]
struct Hier {
    /// Backend for the ranks of one node.
    node: Arc<Backend>,
    /// Candidates for the backend between nodes.
    across: Arc<[Arc<Backend>]>,
}

/// Creates the backend named "hier". It uses `node` within nodes. Between nodes it uses the backend
/// that `DTL_HIER_ACROSS` names, from `across` or from the registered backends.
pub fn backend(node: Arc<Backend>, across: Vec<Arc<Backend>>) -> Backend {
    let hier = Hier { node, across: across.into() };
    let mut backend = Backend::new(c"hier", i32::MIN, true, Box::new(hier.clone()));
    backend.comm = Some(Box::new(hier));
    backend
}

/// Size of the rank-to-node mapping, in bytes per rank.
pub const RANK_BYTES: usize = nodes::RANK_BYTES;

/// Name of the default backend between nodes; `DTL_HIER_ACROSS` overrides it.
const ACROSS: &str = "mpi";
/// Time in nanoseconds by which the time limit is extended while the ranks exchange the results of
/// opening the node's transport. Ranks may finish opening that transport at different times.
const GRACE_NS: u64 = 5_000_000_000;
/// First of the two 64-bit words that identify a node, for nodes that `DTL_FAKE_NODES` simulates.
const PRETENDED: u64 = 0x7072_6574_656E_6400;

impl Hier {
    fn across(&self) -> Result<Arc<Backend>> {
        let named = settings::current().hier_across;
        let name = named.as_deref().unwrap_or(ACROSS);
        if let Some(backend) = self.across.iter().find(|backend| backend.name() == name) {
            return Ok(Arc::clone(backend));
        }
        let registered =
            registry::lookup(name).filter(|backend| !backend.builtin && backend.comm.is_some());
        registered.ok_or_else(|| {
            let known: Vec<_> = self.across.iter().map(|backend| backend.name()).collect();
            failure!(
                DTL_ERROR_UNAVAILABLE,
                "no kind \"{name}\" is there to stand between the nodes (DTL_HIER_ACROSS: {} or a \
                 registered one)",
                known.join(", ")
            )
        })
    }
}

impl BackendProbe for Hier {
    fn available(&self) -> Availability {
        let of = |backend: &Backend| {
            backend.availability().map_err(|why| format!("kind \"{}\": {why}", backend.name()))
        };
        of(&self.node)?;
        let between = self.across().map_err(|error| error.text().to_owned())?;
        of(&between)
    }
}

fn opened(backend: &Backend, args: &OpenArgs) -> Result<Box<dyn Transport>> {
    match backend.comm.as_deref() {
        Some(comm) if comm.open_notifies_peers() => comm.open(args),
        Some(comm) => backend.ready().and_then(|()| comm.open(args)),
        None => fail!(DTL_ERROR_INTERNAL, "kind \"{}\" opens no communicator", backend.name()),
    }
}

impl Comm for Hier {
    fn open_notifies_peers(&self) -> bool {
        let tells = |between: Arc<Backend>| {
            between.comm.as_deref().is_some_and(|comm| comm.open_notifies_peers())
        };
        self.across().is_ok_and(tells)
    }

    fn check_environment(&self) -> Result<()> {
        let between = self.across().map_err(|error| error.within("kind \"hier\""))?;
        between.comm.as_deref().map_or(Ok(()), Comm::check_environment)
    }

    fn open(&self, args: &OpenArgs) -> Result<Box<dyn Transport>> {
        let between = self.across().map_err(|error| error.within("kind \"hier\""))?;
        // Derived communicators share both transports and are distinguished by their match bits, so
        // these must be transferred in full: MPI's own messages carry only a tag.
        let whole_words = OpenArgs { own_algorithms: true, over: None, ..args.clone() };
        let across =
            opened(&between, &whole_words).map_err(|error| error.within("between the nodes"))?;
        match self.join(across.as_ref(), args) {
            Ok((nodes, node)) => Ok(Box::new(transport::HierTransport::new(
                node,
                across,
                nodes,
                [Arc::clone(&self.node), between],
            ))),
            Err(error) => {
                drop(across.close());
                Err(error)
            }
        }
    }
}

impl Hier {
    /// Opens the transport within the node; succeeds on all ranks or fails on all.
    fn join(&self, across: &dyn Transport, args: &OpenArgs) -> Result<(Nodes, Box<dyn Transport>)> {
        let mut over = OverTransport::new(across, limit_ns(args.timeout_ns));
        let node = self.open_node(&over, args);
        // The exchange follows also after a failure, because the failure must be reported to the
        // other ranks.
        over.limit_ns = over.limit_ns.saturating_add(GRACE_NS);
        let own = node.as_ref().map(drop).map_err(Clone::clone);
        let failure = all_or_none(&over, own, &[], |rank, status| {
            failed_elsewhere(rank, status, "could not open its node's part")
        });
        let (nodes, node) = node?;
        match failure {
            Ok(_) => Ok((nodes, node)),
            Err(error) => {
                drop(node.close());
                Err(error.within("between the nodes"))
            }
        }
    }

    /// Determines which ranks share this node, and opens the transport among them.
    fn open_node(
        &self,
        over: &dyn Exchange,
        args: &OpenArgs,
    ) -> Result<(Nodes, Box<dyn Transport>)> {
        let (rank, size) = (over.rank(), over.size());
        let mine = own_node(rank, size);
        // A random name, of which each node uses that of its lowest rank: launchers do not
        // guarantee the same job name on all ranks.
        let name = process::random_u64().unwrap_or(0);
        let (word, of) = *mine.as_ref().unwrap_or(&(0, 0));
        let (_, words) = all_or_none(over, mine, &[word, of, name], |rank, _| {
            let text = format!("rank {rank} cannot tell its node; see its own output");
            Error::new(DTL_ERROR_UNAVAILABLE, text)
        })?;
        let words: Vec<&[u64]> = words.chunks_exact(3).collect();
        let places: Vec<_> = words.iter().map(|words| words.get(..2)).collect();
        let nodes = Nodes::new(rank, &places);
        let (leader, local) =
            (nodes.mine.first(), nodes.mine.iter().position(|member| *member == rank));
        let name = leader.and_then(|leader| words.get(leader.unsigned_abs() as usize)?.get(2));
        let (Some(name), Some(local)) = (name, local.and_then(|local| i32::try_from(local).ok()))
        else {
            return fail!(DTL_ERROR_INTERNAL, "rank {rank} is on no node");
        };
        let job = format!("{}-hier-{name:016x}", args.job.to_string_lossy());
        let node = OpenArgs {
            named: Some((local, i32::try_from(nodes.mine.len()).unwrap_or(i32::MAX))),
            launched: None,
            job: CString::new(job).unwrap_or_default(),
            is_only_open: *name != 0,
            settings: Addr::NULL,
            grown: None,
            own_algorithms: true,
            device_pci: None,
            over: None,
            ..args.clone()
        };
        let node = opened(&self.node, &node).map_err(|error| error.within("inside the node"))?;
        Ok((nodes, node))
    }
}

/// Returns the identity of this rank's node: two words that are equal on two ranks if and only if
/// both are on one node. Containers on one machine cannot share memory, so each container counts as
/// a node of its own.
fn own_node(rank: i32, size: i32) -> Result<(u64, u64)> {
    if let Some(text) = settings::current().fake_nodes {
        let pretended = nodes::pretended(&text, size)?;
        let own = usize::try_from(rank).ok().and_then(|rank| pretended.get(rank).copied());
        return Ok((PRETENDED, own.unwrap_or(0)));
    }
    match (process::node_id(), process::pid_namespace()) {
        (Ok(machine), Ok(container)) => Ok((machine, container)),
        (Err(error), _) | (_, Err(error)) => fail!(
            DTL_ERROR_UNAVAILABLE,
            "the nodes cannot be told apart without the kernel's boot id and the process' \
             namespace: {error}"
        ),
    }
}
