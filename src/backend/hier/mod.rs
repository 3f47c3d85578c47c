//! Kind "hier": one communicator over several nodes, of two others: shared memory inside each
//! node, and a kind that crosses nodes between them. Not a way to move bytes itself. Opening is
//! here.
//!
//! In reading order:
//! - `nodes`: which ranks share a node
//! - `router`: which transport carries a message
//! - `transport`: the interface to `runtime`

mod nodes;
mod router;
#[cfg(test)]
mod tests;
mod transport;

use super::bootstrap::absence::limit_ns;
use super::bootstrap::over_comm::OverTransport;
use crate::abi::status::DTL_ERROR_UNAVAILABLE;
use crate::error::{Error, Result, fail};
use crate::runtime::component::{
    Availability, BackendProbe, Comm, Exchange, OpenArgs, Transport, all_or_none, failed_elsewhere,
};
use crate::runtime::registry::{self, Backend};
use crate::runtime::settings;
use crate::sys::memory::buf::Addr;
use crate::sys::os::{hwinfo, process};
use nodes::Nodes;
use std::ffi::CString;
use std::sync::Arc;

/// What it is made of.
#[derive(Clone)]
struct Hier {
    /// For the ranks of one node.
    node: Arc<Backend>,
    /// Kinds that can stand between the nodes.
    across: Arc<[Arc<Backend>]>,
}

/// The backend named "hier": `node` inside the nodes, and one of `across`, that which
/// `DTL_HIER_ACROSS` names, between them.
#[must_use]
pub fn backend(node: Arc<Backend>, across: Vec<Arc<Backend>>) -> Backend {
    let hier = Hier { node, across: across.into() };
    let mut backend = Backend::new(c"hier", i32::MIN, true, Box::new(hier.clone()));
    backend.comm = Some(Box::new(hier));
    backend
}

/// Memory of the table of who is where, for each rank.
pub const RANK_BYTES: usize = nodes::RANK_BYTES;

/// The kind between the nodes unless `DTL_HIER_ACROSS` names another.
const ACROSS: &str = "mpi";
/// How long a rank may take longer than another to open its node's transport.
const GRACE_NS: u64 = 5_000_000_000;
/// What stands for a node in the ranks' words if it is pretended.
const PRETENDED: u64 = 0x7072_6574_656E_6400;

impl Hier {
    fn across(&self) -> std::result::Result<Arc<Backend>, String> {
        let named = settings::current().hier_across;
        let name = named.as_deref().unwrap_or(ACROSS);
        if let Some(backend) = self.across.iter().find(|backend| backend.name() == name) {
            return Ok(Arc::clone(backend));
        }
        let registered =
            registry::lookup(name).filter(|backend| !backend.builtin && backend.comm.is_some());
        registered.ok_or_else(|| {
            let known: Vec<_> = self.across.iter().map(|backend| backend.name()).collect();
            format!(
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
        self.across().and_then(|between| of(&between))
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
        match self.across() {
            Ok(between) => between.comm.as_deref().map_or(Ok(()), Comm::check_environment),
            Err(why) => fail!(DTL_ERROR_UNAVAILABLE, "kind \"hier\": {why}"),
        }
    }

    fn open(&self, args: &OpenArgs) -> Result<Box<dyn Transport>> {
        let between = match self.across() {
            Ok(between) => between,
            Err(why) => return fail!(DTL_ERROR_UNAVAILABLE, "kind \"hier\": {why}"),
        };
        // Communicators made from this one share both links, and their match words tell them apart:
        // MPI's own messages carry a tag only.
        let whole_words =
            OpenArgs { own_algorithms: true, job: args.job.clone(), over: None, ..*args };
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
    /// The node's part, opened on all ranks or on none.
    fn join(&self, across: &dyn Transport, args: &OpenArgs) -> Result<(Nodes, Box<dyn Transport>)> {
        let mut over = OverTransport::new(across, limit_ns(args.timeout_ns));
        let node = self.open_node(&over, args);
        // Also after a failure: it must be reported to the others.
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

    /// Finds out who shares this node and opens the transport among those.
    fn open_node(
        &self,
        over: &dyn Exchange,
        args: &OpenArgs,
    ) -> Result<(Nodes, Box<dyn Transport>)> {
        let (rank, size) = (over.rank(), over.size());
        let mine = own_node(rank, size);
        // Drawn by the lowest rank of each node: launchers' job names need not be the same on its
        // ranks.
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
            flags: args.flags,
            named: Some((local, i32::try_from(nodes.mine.len()).unwrap_or(i32::MAX))),
            launched: None,
            job: CString::new(job).unwrap_or_default(),
            is_only_open: *name != 0,
            timeout_ns: args.timeout_ns,
            native: Addr::NULL,
            own_algorithms: true,
            over: None,
        };
        let node = opened(&self.node, &node).map_err(|error| error.within("inside the node"))?;
        Ok((nodes, node))
    }
}

/// Two words that only the ranks of this rank's node have. Containers on one machine cannot share
/// memory: they count as nodes.
fn own_node(rank: i32, size: i32) -> Result<(u64, u64)> {
    if let Some(text) = settings::current().fake_nodes {
        let pretended = nodes::pretended(&text, size)?;
        let own = usize::try_from(rank).ok().and_then(|rank| pretended.get(rank).copied());
        return Ok((PRETENDED, own.unwrap_or(0)));
    }
    match (hwinfo::node_id(), process::pid_namespace()) {
        (Ok(machine), Ok(container)) => Ok((machine, container)),
        (Err(error), _) | (_, Err(error)) => fail!(
            DTL_ERROR_UNAVAILABLE,
            "the nodes cannot be told apart without the kernel's boot id and the process' \
             namespace: {error}"
        ),
    }
}
