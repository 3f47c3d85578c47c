//! Backend "rdma": checks whether rdma can run on this machine, and opens rdma communicators.

use super::config::Config;
use super::engine::RdmaEngine;
use super::events;
use super::verbs::discovery;
use super::verbs::functions::Functions;
use super::verbs::port_select::{self, Choice};
use super::verbs::rail::Rail;
use crate::abi::comm::communicator::{DTL_COMM_DETERMINISTIC, DTL_COMM_STAGE};
use crate::abi::status::DTL_ERROR_UNAVAILABLE;
use crate::backend::bootstrap::liveness::{self, Oob};
use crate::backend::bootstrap::oob_exchange::{self, BootstrapMethod};
use crate::backend::bootstrap::records::Records;
use crate::backend::p2p_protocol;
use crate::backend::vendor_lib::OnDemand;
use crate::error::{Error, Result, fail};
use crate::runtime::component::{
    Availability, BackendProbe, Comm, OpenArgs, Properties, Transport,
};
use crate::runtime::registry::Backend;
use crate::runtime::{explain, launch};
use crate::sys::memory::buf::Addr;
use crate::sys::os::{hwinfo, process};
use std::sync::Arc;

/// Opens rdma communicators; loads libibverbs at first use.
struct RdmaOpener {
    verbs: OnDemand<&'static Functions>,
}

/// Creates the backend "rdma". "auto" never selects this backend.
pub fn backend() -> Backend {
    let opener = Arc::new(RdmaOpener { verbs: OnDemand::new(discovery::find) });
    let mut backend = Backend::new(c"rdma", i32::MIN, true, Box::new(Arc::clone(&opener)));
    backend.comm = Some(Box::new(opener));
    backend
}

impl BackendProbe for Arc<RdmaOpener> {
    fn available(&self) -> Availability {
        let verbs = self.verbs.look()?;
        port_select::choose_ports(&port_select::look(*verbs, None)?, &[], 1, 0).map(drop)
    }
}

impl Comm for Arc<RdmaOpener> {
    fn opens_by_job(&self) -> bool {
        true
    }

    fn flags(&self) -> u64 {
        DTL_COMM_DETERMINISTIC | DTL_COMM_STAGE
    }

    fn settings_field(&self) -> Option<&'static str> {
        Some("desc.rdma")
    }

    fn bootstraps_over(&self) -> bool {
        true
    }

    fn open_notifies_peers(&self) -> bool {
        true
    }

    fn check_environment(&self) -> Result<()> {
        let config = Config::resolve(Addr::NULL)?;
        oob_exchange::check(&BootstrapMethod::parse(&config.meeting)?, None)?;
        choose(*self.verbs.get()?, &config, 0, None).map(drop)
    }

    fn open(&self, args: &OpenArgs) -> Result<Box<dyn Transport>> {
        let prepared = Config::resolve(args.settings).and_then(|config| {
            let how = BootstrapMethod::parse(&config.meeting)?;
            Ok((how, self.prepare(args, config)))
        });
        // The other ranks use the default method, which reports this failure to them.
        let (how, prepared) = prepared.unwrap_or_else(|error| (BootstrapMethod::Auto, Err(error)));
        let record = prepared.as_ref().map(|prepared| prepared.record.clone());
        let record = record.map_err(Clone::clone);
        let met = oob_exchange::allgather(&how, args, RECORD, record)?;
        join(prepared?, met)
    }
}

/// Objects that a rank creates before the ranks exchange their connection records (bootstrap).
struct Prepared {
    config: Config,
    rails: Vec<Arc<Rail>>,
    oob: Oob,
    record: Vec<u64>,
    passed_over: Vec<String>,
}

/// Number of words at the start of a rank's bootstrap record that must be equal on all ranks.
const ALIKE: usize = 2;
/// Size, in 64-bit words, of the record that each rank sends to the others at bootstrap: the words
/// that must be equal on all ranks, the words about the rank's node, and the words for the control
/// sockets.
const RECORD: usize = ALIKE + NODE + liveness::WORDS;
/// Number of words about the node in a rank's bootstrap record: the node's identifier, and a mask
/// of the processors that the rank may use.
const NODE: usize = 5;
/// Version of the protocol between ranks.
const PROTOCOL: u64 = 2;

/// Encodes the values that must be equal on all ranks: protocol version and byte order; then the
/// numbers of rails, queue pairs and receives, and whether the receiver reads large payloads or the
/// sender writes them.
fn alike(config: &Config, rails: usize) -> [u64; ALIKE] {
    let reads = u64::from(config.reads);
    let shape =
        rails as u64 | u64::from(config.queues) << 8 | reads << 16 | u64::from(config.depth) << 32;
    [u64::from_ne_bytes(*b"dtl-rdma") ^ PROTOCOL, shape]
}

/// Compares the bootstrap words that must be equal on all ranks: `its`, from rank `rank`, and
/// `own`, from this rank. Returns an error that describes the first difference.
fn compare(rank: usize, its: &[u64], own: &[u64]) -> Result<()> {
    let word = |of: &[u64], at: usize| of.get(at).copied().unwrap_or(0);
    if word(its, 0) != word(own, 0) {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "rank {rank} has another version of the library, or the other byte order: all ranks of \
             kind \"rdma\" need the same"
        );
    }
    let value = |of: &[u64], shift: u32, bits: u64| word(of, 1) >> shift & bits;
    for (name, shift, bits) in
        [("rails", 0, 0xFF), ("queues", 8, 0xFF), ("rendezvous", 16, 1), ("depth", 32, u64::MAX)]
    {
        let (its, own) = (value(its, shift, bits), value(own, shift, bits));
        if its == own {
            continue;
        }
        let text = |value: u64| match (name, value) {
            ("rendezvous", 0) => "write".to_owned(),
            ("rendezvous", _) => "read".to_owned(),
            _ => value.to_string(),
        };
        let more =
            if name == "rails" { " (as many as there are active ports, at most)" } else { "" };
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "rank {rank} has {name} {}, this rank {}{more}: all ranks of kind \"rdma\" need the \
             same (DTL_RDMA_{}, dtl_rdma_config_t.{name})",
            text(its),
            text(own),
            name.to_uppercase()
        );
    }
    Ok(())
}

/// Chooses the network ports of this rank, whose node-local rank is `local`, and which uses the
/// accelerator at the PCI address `accelerator`, if it is known.
fn choose(
    calls: &'static Functions,
    config: &Config,
    local: u32,
    accelerator: Option<&str>,
) -> Result<Choice> {
    let chosen = port_select::look(calls, accelerator)
        .and_then(|seen| port_select::choose_ports(&seen, &config.devices, config.rails, local));
    let choice = chosen.map_err(|why| Error::new(DTL_ERROR_UNAVAILABLE, why))?;
    if choice.ports.len() < config.rails as usize {
        let names: Vec<_> =
            choice.ports.iter().map(|(name, port)| format!("{name}:{port}")).collect();
        explain::degraded(
            "rdma",
            &format!(
                "rails (DTL_RDMA_RAILS) is {}, and the active ports are no more than {}",
                config.rails,
                names.join(", ")
            ),
        )?;
    }
    Ok(choice)
}

impl RdmaOpener {
    fn prepare(&self, args: &OpenArgs, config: Config) -> Result<Prepared> {
        let calls =
            *self.verbs.get().map_err(|error| error.within("backend rdma cannot run here"))?;
        // Occupies descriptors 0 to 2 so that libibverbs opens no file as a standard stream.
        let _places = process::occupy_standard();
        let local = u32::try_from(local_rank(args)?).unwrap_or(0);
        let choice = choose(calls, &config, local, args.device_pci.as_deref())?;
        Rail::check_devices(calls, &config)?;
        let open = |(device, port): &(String, u8)| Rail::open(calls, device, *port, &config);
        let rails = choice.ports.iter().map(open).collect::<Result<Vec<_>>>()?;
        let listen = Some(config.address.as_str()).filter(|address| !address.is_empty());
        let silent_ns = u64::from(config.silence_ms) * 1_000_000;
        let (oob, words) = Oob::listen(listen, silent_ns)?;
        let record =
            alike(&config, rails.len()).into_iter().chain(own_node()).chain(words).collect();
        Ok(Prepared { config, rails, oob, record, passed_over: choice.passed_over })
    }
}

/// Returns the number that is used as this rank's node-local rank in the choice of ports: the rank
/// in the existing communicator over which the ranks bootstrap (`args.over`), if there is one, else
/// the node-local rank that the launcher has set, else the rank in the job if it is known, else 0.
fn local_rank(args: &OpenArgs) -> Result<i32> {
    if let Some(over) = &args.over {
        return Ok(over.rank());
    }
    let launch = launch::from_environment()?.filter(|_| args.named.is_none());
    Ok(launch
        .map(|launch| launch.local_rank)
        .or(args.rank_size().map(|(rank, _)| rank))
        .unwrap_or(0))
}

fn join(prepared: Prepared, met: Records) -> Result<Box<dyn Transport>> {
    let Prepared { config, rails, mut oob, record, passed_over } = prepared;
    let own = record.get(..ALIKE).unwrap_or_default();
    let others = met.records.chunks_exact(RECORD);
    for (rank, record) in others.clone().enumerate() {
        compare(rank, record, own)?;
    }
    let nodes = others.clone().filter_map(|record| record.get(ALIKE..)?.first_chunk::<NODE>());
    // A thread that sleeps until a wakeup does not spin for long before that.
    let is_oversubscribed = (!config.sleeps).then(|| is_oversubscribed(&own_node(), nodes));
    let sockets = others.flat_map(|record| record.iter().skip(ALIKE + NODE)).copied().collect();
    oob.set_members(met.rank, sockets, met.job_cookie);
    if !passed_over.is_empty() {
        crate::runtime::log::debug!("rdma: passed over {}", passed_over.join("; "));
    }
    let bell = if config.sleeps { Some(events::bell(&rails, &oob)?) } else { None };
    let properties = Properties {
        answers_late: true, // Both ranks re-establish a broken connection.
        is_oversubscribed,
        ..Properties::new(met.rank, met.size, describe(&rails, &config))
    };
    p2p_protocol::open(Box::new(RdmaEngine::new(properties, rails, (oob, bell), config)))
}

/// Returns the node's identifier and the mask of the processors that this rank may use, as words of
/// the bootstrap record.
fn own_node() -> [u64; NODE] {
    let [a, b, c, d] = hwinfo::affinity_mask();
    [process::node_id().unwrap_or(0), a, b, c, d]
}

/// Returns true if the ranks on this node outnumber the processors that at least one of these ranks
/// may use.
fn is_oversubscribed<'a>(own: &[u64; NODE], ranks: impl Iterator<Item = &'a [u64; NODE]>) -> bool {
    let (mut here, mut processors) = (0, [0; NODE]);
    for rank in ranks.filter(|rank| rank.first() == own.first()) {
        here += 1;
        processors.iter_mut().zip(rank).for_each(|(all, its)| *all |= its);
    }
    let count: u32 = processors.iter().skip(1).map(|bits| bits.count_ones()).sum();
    here > count
}

fn describe(rails: &[Arc<Rail>], config: &Config) -> String {
    let ports: Vec<_> = rails.iter().map(|rail| format!("{}:{}", rail.name, rail.port)).collect();
    let way = if config.reads { "read" } else { "write" };
    format!(
        "verbs over {} ({} queue pairs a peer), large messages by {way}",
        ports.join(", "),
        rails.len() as u32 * config.queues
    )
}

#[cfg(test)]
#[path = "tests/backend.rs"]
mod tests;
