//! Selects the memory and the RMA path of a window when the window is created. In order of
//! preference, the path is shared memory, windows of the transport, or messages. The selection
//! depends on values that are equal on all ranks.

use super::active_messages::Active;
use super::backend_rma::BackendRma;
use super::load_store::{self, Direct};
use super::{PartRecord, WindowOffer, no_memory};
use crate::abi::status::DTL_SUCCESS;
use crate::error::{self, Error, Result, fail};
use crate::runtime::comm::op_desc::Kind;
use crate::runtime::comm::rma_path::RmaPath;
use crate::runtime::comm::{Comm, coll};
use crate::runtime::component::{self, WindowPart};
use crate::runtime::explain;
use crate::sys::memory::buf::{Region, Scratch};
use std::mem;
use std::sync::Arc;

/// Source of the window memory of this rank: existing memory, or the number of bytes that the
/// transport allocates later.
pub(super) enum Source {
    Given(Region),
    Scratch(Scratch),
    /// Memory that the ranks of this node can access with loads and stores.
    Shared(Box<dyn component::SharedRegion>),
    Later(usize),
}

/// Contribution of this rank to a new window: the displacement unit, and the window memory unless
/// the transport allocates that memory.
pub(super) struct OfferMemory {
    source: Source,
    pub(super) disp_unit: u64,
    /// `Ok(true)` if the transport can allocate the memory of windows, `Ok(false)` if it needs
    /// existing memory, `Err` with the reason if it does not support windows.
    windows: Result<bool, &'static str>,
}

// Flags of an encoded offer: the transport's windows accept memory, they also allocate it, and this
// rank leaves the allocation to the transport.
const OF_GIVEN: u64 = 1;
const OF_ITS_OWN: u64 = 3;
const LATER: u64 = 4;

impl OfferMemory {
    pub(super) fn of(
        comm: &Comm,
        WindowOffer { memory, disp_unit }: WindowOffer,
    ) -> Result<OfferMemory> {
        let can_share = load_store::has_room(comm.size.unsigned_abs() as usize);
        let windows = comm.link.transport.groups().rma.map(|rma| rma.allocates());
        let shared = comm.link.shared_memory.as_ref().filter(|_| can_share);
        let part = shared.and_then(|shared| shared.part().offer_part(memory)).transpose()?;
        let source = match (part, memory) {
            (Some(part), _) => Source::Shared(part),
            (None, component::SharedOffer::Own(memory)) => Source::Given(memory),
            (None, component::SharedOffer::Fresh(size)) if windows == Ok(true) => {
                Source::Later(size)
            }
            (None, component::SharedOffer::Fresh(size)) => Source::allocate(size)?,
        };
        Ok(OfferMemory { source, disp_unit, windows })
    }

    fn region(&self) -> Region {
        match &self.source {
            Source::Given(region) => *region,
            Source::Scratch(scratch) => scratch.region(),
            Source::Shared(part) if !part.region().is_empty() => part.region(),
            Source::Shared(_) | Source::Later(_) => Region::EMPTY,
        }
    }

    /// Encodes the offer as words: size, displacement unit, key of the shared memory (2 words; 0 if
    /// the memory is not shared), flags, and address in this process.
    pub(super) fn words(&self) -> [u64; 6] {
        let (size, later) = match self.source {
            Source::Later(size) => (size, LATER),
            _ => (self.region().len(), 0),
        };
        let [place, check] =
            if let Source::Shared(part) = &self.source { part.key() } else { [0; 2] };
        let windows = match self.windows {
            Err(_) => 0,
            Ok(false) => OF_GIVEN,
            Ok(true) => OF_ITS_OWN,
        };
        let base = self.region().addr().get() as u64;
        [size as u64, self.disp_unit, place, check, windows | later, base]
    }
}

impl Source {
    fn allocate(size: usize) -> Result<Source> {
        match size {
            0 => Ok(Source::Given(Region::EMPTY)),
            _ => Scratch::new(size).map(Source::Scratch).ok_or_else(|| no_memory(size)),
        }
    }
}

/// Selected RMA path of a window, and the window memory of this rank.
pub(super) struct PathChoice {
    pub(super) path: Arc<dyn RmaPath>,
    /// `path` as a `Direct`, if every rank can access the window memory of all ranks with loads and
    /// stores; otherwise `None`.
    pub(super) direct: Option<Arc<Direct>>,
    pub(super) memory: Region,
    /// Source of the memory, stored in the window to keep the memory alive; `None` if `path` or the
    /// program does that.
    pub(super) kept: Option<Source>,
}

/// Selects the RMA path and the memory of a window. `records` contains the record of each rank.
pub(super) fn choose(
    own: &Arc<Comm>,
    mut had: OfferMemory,
    records: &[PartRecord],
) -> Result<PathChoice> {
    let keys: Vec<_> = records.iter().map(|&[.., place, check, _, _]| [place, check]).collect();
    if let Source::Shared(_) = &had.source {
        if keys.iter().all(|key| *key != [0; 2]) {
            return by_shared_memory(own, had, &keys);
        }
    }
    let mut processes = records.iter().map(|[_, process, ..]| process);
    let first = processes.next();
    let is_one_process = processes.all(|process| Some(process) == first);
    let all = records.iter().fold(OF_ITS_OWN | LATER, |all, [.., word, _]| all & word);
    let why = if own.members.is_some() {
        have_memory(own, &mut had, records)?;
        "windows of the transport's own are for all ranks in their order".to_owned()
    } else if all & OF_GIVEN == 0 {
        have_memory(own, &mut had, records)?;
        why_none(own, &had, records)
    } else {
        if all != OF_ITS_OWN | LATER {
            have_memory(own, &mut had, records)?;
        }
        loop {
            let why = match by_transport(own, &mut had, records, is_one_process)? {
                Ok(chosen) => return Ok(chosen),
                Err(why) => why,
            };
            // The transport may fail with memory of its own, but succeed with the library's.
            if !matches!(had.source, Source::Later(_)) {
                break why;
            }
            have_memory(own, &mut had, records)?;
        }
    };
    let memory = had.region();
    let mut path = Active::new(Arc::clone(own), memory, is_one_process)?;
    let bases: Vec<u64> = records.iter().map(|&[.., base]| base).collect();
    let copies = path.use_copies(&bases);
    let path = Arc::new(path);
    record_choice(&*path, &format!("{why}{copies}"));
    Ok(PathChoice { path, direct: None, memory, kept: Some(had.source) })
}

/// Records for `dtl_explain` the selected RMA path and the reason for its selection.
fn record_choice(path: &dyn RmaPath, why: &str) {
    explain::chose("window", &format!("{} ({why})", path.describe()));
}

/// Returns the reason why the transports of the ranks cannot create this window, for `dtl_explain`.
fn why_none(own: &Comm, had: &OfferMemory, records: &[PartRecord]) -> String {
    match had.windows {
        _ if !load_store::has_room(records.len()) => {
            format!("{} ranks are too many to reach each other's memory", records.len())
        }
        Err(why) => why.to_owned(),
        _ => {
            let first = records.iter().position(|[.., word, _]| word & OF_GIVEN == 0).unwrap_or(0);
            format!(
                "the transport of rank {first} makes no windows; rank {} has one that does",
                own.rank
            )
        }
    }
}

fn by_shared_memory(
    own: &Arc<Comm>,
    had: OfferMemory,
    keys: &[component::PartKey],
) -> Result<PathChoice> {
    let memory = had.region();
    let Source::Shared(part) = had.source else { return Err(no_memory(memory.len())) };
    let direct = Direct::new(Arc::clone(own), part, keys);
    // A rank may lack address space for the memory of other ranks. Then all ranks fail.
    let statuses = gather_status(own, &direct)?;
    let direct = direct?;
    check_all("reach all parts of the window", statuses.into_iter())?;
    record_choice(&direct, "every rank reaches the memory of all parts by itself");
    let direct = Arc::new(direct);
    Ok(PathChoice { path: Arc::clone(&direct) as _, direct: Some(direct), memory, kept: None })
}

/// Allocates the window memory of this rank if this rank had left the allocation to the transport.
/// Collective: fails on all ranks if it fails on one of them.
fn have_memory(own: &Comm, had: &mut OfferMemory, records: &[PartRecord]) -> Result<()> {
    if records.iter().all(|[.., word, _]| word & LATER == 0) {
        return Ok(());
    }
    let outcome = match had.source {
        Source::Later(size) => Source::allocate(size).map(|source| had.source = source),
        _ => Ok(()),
    };
    let statuses = gather_status(own, &outcome)?;
    outcome?;
    check_all("make its part of the window", statuses.into_iter())
}

/// Creates a window through the transport. If this fails on any rank, returns the reason for the
/// failure on all ranks; the offer of this rank is then unchanged.
fn by_transport(
    own: &Arc<Comm>,
    had: &mut OfferMemory,
    records: &[PartRecord],
    is_one_process: bool,
) -> Result<Result<PathChoice, String>> {
    let sizes: Vec<u64> = records.iter().map(|&[_, _, size, ..]| size).collect();
    let memory = (!matches!(had.source, Source::Later(_))).then(|| had.region());
    let part = WindowPart { memory, sizes: &sizes, number: own.context };
    let window = match own.link.transport.groups().rma {
        Ok(rma) => rma.window(part),
        Err(why) => fail!(DTL_ERROR_NOT_SUPPORTED, "{why}"),
    };
    if let Some(why) = introduce(own, &window)? {
        window.iter().for_each(|window| window.close(false));
        return Ok(Err(why));
    }
    let path = window
        .and_then(|window| BackendRma::new(Arc::clone(own), window, is_one_process).map(Arc::new));
    let why = failure(own, &path)?;
    let path = match (path, why) {
        (Ok(path), None) => path,
        (path, why) => {
            path.iter().for_each(|path| path.close(false));
            return Ok(Err(why.unwrap_or_default()));
        }
    };
    record_choice(&*path, "the transport has windows of its own");
    let memory = path.memory();
    if let Source::Scratch(scratch) = mem::replace(&mut had.source, Source::Given(memory)) {
        path.keep(scratch);
    }
    Ok(Ok(PathChoice { path, direct: None, memory, kept: None }))
}

/// Exchanges among all ranks the words (for example addresses and keys) that the transport's
/// windows need to access the memory of other ranks, if they need any. If the creation of a window
/// or the exchange fails on any rank, returns the reason.
fn introduce(own: &Comm, window: &Result<Box<dyn component::Window>>) -> Result<Option<String>> {
    let record = window.as_ref().map_err(Error::clone).and_then(|window| window.local_record());
    let why = failure(own, &record)?;
    match (window, record) {
        (Ok(window), Ok(record)) if why.is_none() && !record.is_empty() => {
            let offers = coll::allgather_words(own, Kind::WinCreate, &record)?;
            failure(own, &window.set_records(&offers))
        }
        _ => Ok(why),
    }
}

/// If `outcome` is an error on any rank, returns the reason for the failure. Collective.
fn failure<T>(own: &Comm, outcome: &Result<T>) -> Result<Option<String>> {
    let statuses = gather_status(own, outcome)?;
    let failed = statuses.iter().position(|status| *status as u32 as i32 != DTL_SUCCESS);
    Ok(match (outcome, failed) {
        (Err(error), _) => Some(error.text().to_owned()),
        (Ok(_), Some(rank)) => Some(format!("the transport's own windows failed on rank {rank}")),
        (Ok(_), None) => None,
    })
}

fn gather_status<T>(own: &Comm, outcome: &Result<T>) -> Result<Vec<u64>> {
    let status = outcome.as_ref().map_or_else(Error::status, |_| DTL_SUCCESS);
    coll::allgather_words(own, Kind::WinCreate, &[status as u32 as u64])
}

/// Fails with the status of the lowest rank that has failed. `offers` contains the statuses of all
/// ranks in rank order, and `what` describes the failed action.
pub(super) fn check_all(what: &str, offers: impl Iterator<Item = u64>) -> Result<()> {
    let mut statuses = offers.map(|status| status as u32 as i32).enumerate();
    statuses.find(|(_, status)| *status != DTL_SUCCESS).map_or(Ok(()), |(rank, status)| {
        let name = error::status_name(status).to_string_lossy();
        let text = format!("rank {rank} could not {what} ({name}), so no rank has one");
        Err(Error::new(status, text))
    })
}
