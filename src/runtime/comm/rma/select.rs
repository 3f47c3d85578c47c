//! Selects a window's memory and its path when the window is created, from values that are equal on
//! all ranks: shared memory first, then windows of the transport, then messages.

use super::active_messages::Active;
use super::backend_rma::BackendRma;
use super::load_store::{self, Direct};
use super::{RankWindow, WindowOffer, no_memory};
use crate::abi::status::DTL_SUCCESS;
use crate::error::{self, Error, Result, fail};
use crate::runtime::comm::op_desc::Kind;
use crate::runtime::comm::rma_path::RmaPath;
use crate::runtime::comm::{Comm, coll};
use crate::runtime::component::{self, WindowPart};
use crate::runtime::explain;
use crate::sys::memory::buf::{Region, Scratch};
use std::sync::Arc;

/// Source of this rank's memory: a region, or the bytes that the transport allocates.
pub(super) enum Source {
    Given(Region),
    Scratch(Scratch),
    /// Memory that the ranks of this node reach by loads and stores.
    Shared(Box<dyn component::SharedRegion>),
    Later(usize),
}

/// Offer of this rank, with its memory, unless the transport allocates the memory.
pub(super) struct OfferMemory {
    source: Source,
    pub(super) disp_unit: u64,
    /// True if the transport's windows also allocate memory; the reason if there are no windows.
    windows: std::result::Result<bool, &'static str>,
}

/// Encoding of a rank's offer, which all ranks exchange.
pub(super) type Words = [u64; 6];

// Bits in these words: the transport's windows accept memory, they also allocate it, and this rank
// leaves the allocation to the transport.
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

    /// Encodes the offer: size, displacement unit, key of the shared memory (2 words; zeros if it
    /// is not shared), flags, and address in this process.
    pub(super) fn words(&self) -> Words {
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

/// Selected path of a window, and this rank's memory.
pub(super) struct PathChoice {
    pub(super) path: Arc<dyn RmaPath>,
    /// `path` as a `Direct`, if every rank reaches all memory by loads and stores.
    pub(super) direct: Option<Arc<Direct>>,
    pub(super) memory: Region,
    /// Owner of the memory; `None` if the path owns it.
    pub(super) kept: Option<Source>,
}

/// Selects the path and the memory of a window. `offers` has the encoded offer of each rank.
pub(super) fn choose(
    own: &Arc<Comm>,
    mut had: OfferMemory,
    parts: &[RankWindow],
    offers: &[Words],
) -> Result<PathChoice> {
    let keys: Vec<_> = offers.iter().map(|&[_, _, place, check, ..]| [place, check]).collect();
    if let Source::Shared(_) = &had.source {
        if keys.iter().all(|key| *key != [0; 2]) {
            return by_shared_memory(own, had, &keys);
        }
    }
    let is_one_process =
        parts.iter().all(|part| parts.first().is_some_and(|first| part.process == first.process));
    let all = offers.iter().fold(OF_ITS_OWN | LATER, |all, [.., word, _]| all & word);
    let why = if own.members.is_some() {
        have_memory(own, &mut had, offers)?;
        "windows of the transport's own are for all ranks in their order".to_owned()
    } else if all & OF_GIVEN == 0 {
        have_memory(own, &mut had, offers)?;
        why_none(own, &had, offers)
    } else {
        if all != OF_ITS_OWN | LATER {
            have_memory(own, &mut had, offers)?;
        }
        loop {
            let why = match by_transport(own, had, parts, is_one_process)? {
                Ok(chosen) => return Ok(chosen),
                Err((rest, text)) => {
                    had = rest;
                    text
                }
            };
            // The transport may fail with memory of its own, but succeed with the library's.
            if !matches!(had.source, Source::Later(_)) {
                break why;
            }
            have_memory(own, &mut had, offers)?;
        }
    };
    let memory = had.region();
    let mut path = Active::new(Arc::clone(own), memory, is_one_process)?;
    let bases: Vec<u64> = offers.iter().map(|&[.., base]| base).collect();
    let copies = path.use_copies(&bases);
    let path = Arc::new(path);
    record_choice(&*path, &format!("{why}{copies}"));
    Ok(PathChoice { path, direct: None, memory, kept: Some(had.source) })
}

/// Records the selected path and the reason for `dtl_explain`.
fn record_choice(path: &dyn RmaPath, why: &str) {
    explain::chose("window", &format!("{} ({why})", path.describe()));
}

/// Returns the reason why the transport of some rank cannot create this window.
fn why_none(own: &Comm, had: &OfferMemory, offers: &[Words]) -> String {
    match had.windows {
        _ if !load_store::has_room(offers.len()) => {
            format!("{} ranks are too many to reach each other's memory", offers.len())
        }
        Err(why) => why.to_owned(),
        _ => {
            let first = offers.iter().position(|[.., word, _]| word & OF_GIVEN == 0).unwrap_or(0);
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

/// Allocates the memory that was left to the transport on any rank. Collective.
fn have_memory(own: &Comm, had: &mut OfferMemory, offers: &[Words]) -> Result<()> {
    if offers.iter().all(|[.., word, _]| word & LATER == 0) {
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

/// Creates a window of the transport. If this fails on any rank, returns the offer and the reason
/// on all ranks.
fn by_transport(
    own: &Arc<Comm>,
    had: OfferMemory,
    parts: &[RankWindow],
    is_one_process: bool,
) -> Result<std::result::Result<PathChoice, (OfferMemory, String)>> {
    let sizes: Vec<u64> = parts.iter().map(|part| part.size).collect();
    let memory = (!matches!(had.source, Source::Later(_))).then(|| had.region());
    let part = WindowPart { memory, sizes: &sizes, number: own.context };
    let window = match own.link.transport.groups().rma {
        Ok(rma) => rma.window(part),
        Err(why) => fail!(DTL_ERROR_NOT_SUPPORTED, "{why}"),
    };
    if let Some(why) = introduce(own, &window)? {
        window.iter().for_each(|window| window.close(false));
        return Ok(Err((had, why)));
    }
    let path = window
        .and_then(|window| BackendRma::new(Arc::clone(own), window, is_one_process).map(Arc::new));
    let why = failure(own, &path)?;
    let path = match (path, why) {
        (Ok(path), None) => path,
        (path, why) => {
            path.iter().for_each(|path| path.close(false));
            return Ok(Err((had, why.unwrap_or_default())));
        }
    };
    record_choice(&*path, "the transport has windows of its own");
    let memory = path.memory();
    if let Source::Scratch(scratch) = had.source {
        path.keep(scratch);
    }
    Ok(Ok(PathChoice { path, direct: None, memory, kept: None }))
}

/// Exchanges the local records of the transport's windows among all ranks, if the windows have
/// records. Returns the reason if this fails on any rank.
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

/// Returns the reason if `outcome` is an error on any rank. Collective.
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

/// Returns the first failure of the statuses of all ranks, given in rank order.
pub(super) fn check_all(what: &str, offers: impl Iterator<Item = u64>) -> Result<()> {
    let mut statuses = offers.map(|status| status as u32 as i32).enumerate();
    statuses.find(|(_, status)| *status != DTL_SUCCESS).map_or(Ok(()), |(rank, status)| {
        let name = error::status_name(status).to_string_lossy();
        let text = format!("rank {rank} could not {what} ({name}), so no rank has one");
        Err(Error::new(status, text))
    })
}
