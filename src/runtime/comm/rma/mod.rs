//! Windows: memory of each rank that other ranks access without the target's participation.
//!
//! This file creates and destroys windows, and records the part of each rank. A window has a
//! communicator of its own (`group::private`), so its messages match no others, and it outlives the
//! communicator from which it was created.
//!
//! In reading order:
//! - `select`: selection of the window's memory and path
//! - `epoch`: access epochs, and which calls they allow
//! - `sync`: fences, locks, flushes
//! - `rma_ops`: checked operations
//! - `fast`: fast path of operations of few bytes
//! - `robust_rwlock`: locks in shared memory that record their holders
//! - `load_store`: path: shared memory
//! - `backend_rma`: path: windows of the transport
//! - `active_messages`: path: messages
//! - `rma_progress`: execution of requests of other ranks

mod active_messages;
mod backend_rma;
mod epoch;
pub mod fast;
mod load_store;
pub mod rma_ops;
pub(super) mod rma_progress;
pub mod robust_rwlock;
mod select;
pub mod sync;

use self::load_store::Direct;
use self::select::{OfferMemory, PathChoice, Source};
use super::diagnostics::hang_report;
use super::failure::missing_ranks::HERE;
use super::op_desc::Kind;
use super::open::group;
use super::rma_path::RmaPath;
use super::{Comm, coll};
use crate::abi::comm::window::dtl_win_info_t;
use crate::abi::handle::dtl_win_t;
use crate::abi::status::*;
use crate::error::{Error, Result, fail, failure};
use crate::from_c::blank;
use crate::runtime::memory::device_only;
use crate::runtime::{component, copy_text, invalid_handle};
use crate::sys::{
    handles::{
        epoch::{self as inside_out, Guard},
        handle_table::{HandleTable, HazardRef},
    },
    memory::buf::{Addr, Region},
    sync::wait::Backoff,
};
use epoch::Epochs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::fence;
use std::sync::{Arc, OnceLock};

/// Type byte of window handles.
const TAG: u8 = 10;

static TABLE: HandleTable<Window> = HandleTable::new(TAG, 0);

/// Part of a window that belongs to one rank.
#[derive(Clone, Copy)]
struct RankWindow {
    size: u64,
    disp_unit: u64,
    /// Number that identifies the process of the rank.
    process: u64,
    /// Memory of the part if this process reaches it by loads and stores; otherwise empty.
    memory: Region,
}

/// Window of a communicator.
pub struct Window {
    /// Private communicator of the window.
    comm: Arc<Comm>,
    path: Arc<dyn RmaPath>,
    /// `path` as a `Direct`, if every rank reaches all memory by loads and stores. The concrete
    /// type saves a virtual call in operations of about ten nanoseconds.
    direct: Option<Arc<Direct>>,
    /// Parts of all ranks, by rank.
    parts: Vec<RankWindow>,
    /// Memory of this rank's part; `_kept` owns it.
    memory: Region,
    _kept: Option<Source>,
    epochs: Epochs,
}

/// This rank's part of a window to be created.
pub struct WindowOffer {
    memory: component::SharedOffer,
    disp_unit: u64,
}

impl WindowOffer {
    /// Offers the caller's memory, which must stay valid until the window is destroyed.
    pub fn of(memory: Region, disp_unit: u64) -> Result<WindowOffer> {
        check_unit(disp_unit)?;
        device_only::refuse("base", memory)?;
        Ok(WindowOffer { memory: component::SharedOffer::Own(memory), disp_unit })
    }

    /// Offers `size` bytes of zeroed memory, which is freed with the window.
    pub fn allocate(size: u64, disp_unit: u64) -> Result<WindowOffer> {
        check_unit(disp_unit)?;
        let size = isize::try_from(size).map_err(|_| no_memory(size))?.unsigned_abs();
        Ok(WindowOffer { memory: component::SharedOffer::Fresh(size), disp_unit })
    }
}

fn no_memory(size: impl std::fmt::Display) -> Error {
    failure!(
        DTL_ERROR_OUT_OF_MEMORY,
        "no {size} bytes for this rank's part of the window; free memory or raise the limit \
         (ulimit, cgroup)"
    )
}

fn check_unit(disp_unit: u64) -> Result<()> {
    if disp_unit == 0 {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "disp_unit is 0: use the size of an element, or 1 for bytes"
        );
    }
    Ok(())
}

/// Returns a number that identifies this process and differs from that of its forks.
fn process_mark() -> u64 {
    static RANDOM: OnceLock<RandomState> = OnceLock::new();
    let mut hasher = RANDOM.get_or_init(RandomState::new).build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish()
}

/// Creates a window from the offers of all ranks. Collective: all ranks call it. If one rank passes
/// an error instead of an offer, creation fails on all ranks.
pub fn create(comm: &Comm, offer: Result<WindowOffer>) -> Result<(dtl_win_t, Addr)> {
    let had = offer.and_then(|offer| OfferMemory::of(comm, offer));
    let status = had.as_ref().map_or_else(Error::status, |_| DTL_SUCCESS);
    let [size, unit, place, check, windows, base] = had.as_ref().map_or([0; 6], OfferMemory::words);
    let own_record =
        [status as u32 as u64, process_mark(), size, unit, place, check, windows, base];
    let (own, records) = group::private(comm, Kind::WinCreate, own_record)?;
    build(&own, had, &records).inspect_err(|_| drop(super::destroy(&own)))
}

type PartRecord = [u64; 8];

fn build(
    own: &Arc<Comm>,
    had: Result<OfferMemory>,
    records: &[PartRecord],
) -> Result<(dtl_win_t, Addr)> {
    let had = had?;
    select::check_all("make its part of the window", records.iter().map(|[status, ..]| *status))?;
    let mut parts: Vec<RankWindow> = records
        .iter()
        .map(|&[_, process, size, disp_unit, ..]| RankWindow {
            size,
            disp_unit,
            process,
            memory: Region::EMPTY,
        })
        .collect();
    let words: Vec<select::Words> =
        records.iter().map(|&[_, _, a, b, c, d, e, f]| [a, b, c, d, e, f]).collect();
    let PathChoice { path, direct, memory, kept } = select::choose(own, had, &parts, &words)?;
    for (part, memory) in parts.iter_mut().zip(direct.iter().flat_map(|direct| direct.memories())) {
        part.memory = memory;
    }
    let epochs = Epochs::new(parts.len());
    let needs_thread = path.needs_thread();
    let served = Arc::clone(&path);
    let window = Window { comm: Arc::clone(own), path, direct, parts, memory, _kept: kept, epochs };
    let Some(id) = TABLE.insert(Arc::new(window)) else {
        hang_report::absent(own, HERE);
        return fail!(DTL_ERROR_LIMIT, "no handle left for another window: destroy some");
    };
    if let Err(error) = rma_progress::add(&served, needs_thread) {
        drop(TABLE.remove(&inside_out::enter(), id));
        hang_report::absent(own, HERE);
        return Err(error);
    }
    Ok((dtl_win_t { id }, memory.addr()))
}

/// Returns true if `id` is the handle of a live window.
pub fn is_live(id: u64) -> bool {
    TABLE.is_live(id)
}

/// Returns a reference to a handle's window that remains valid while the call waits.
#[inline]
pub fn hold(inside: Guard, handle: dtl_win_t) -> Result<HazardRef<Window>> {
    TABLE.hold(inside, handle.id).map_err(|_| invalid_handle("window", TAG, handle.id))
}

/// Returns a shared reference to the window to destroy; `None` if the handle is null.
pub fn pin_to_destroy(inside: &Guard, handle: dtl_win_t) -> Result<Option<Arc<Window>>> {
    if handle.id == 0 {
        return Ok(None);
    }
    TABLE.pin(inside, handle.id).map(Some).ok_or_else(|| invalid_handle("window", TAG, handle.id))
}

/// Destroys a window. Collective: all ranks call it. Does not wait for the other ranks if a rank
/// has died, a fence has failed, or an unlock has timed out.
pub fn destroy(window: &Arc<Window>, handle: dtl_win_t) -> Result<()> {
    window.comm.check_open()?;
    if window.epochs.is_stuck() {
        window.epochs.take_all(|targets| window.path.leave(targets));
        window.epochs.set_broken();
    }
    let mut is_whole = !window.epochs.is_broken() && !window.comm.has_died();
    if !is_whole {
        window.epochs.check_unlocked("dtl_win_destroy")?;
    } else {
        window.epochs.check_ended("dtl_win_destroy")?;
        is_whole = meet_last(window)?;
    }
    if TABLE.remove(&inside_out::enter(), handle.id).is_none() {
        return Err(invalid_handle("window", TAG, handle.id));
    }
    rma_progress::remove(&window.path);
    if window.path.closes_alone() {
        wait_for_others(window);
    }
    window.path.close(is_whole);
    super::destroy(&window.comm)
}

/// Waits until no other call uses a window whose handle is stale. The table's reference is released
/// when the calls that found the window in the table have ended; nested calls have references of
/// their own. These calls are in no epoch of the window, so they end soon.
fn wait_for_others(window: &Arc<Window>) {
    let mut backoff = Backoff::new();
    while Arc::strong_count(window) > 1 {
        inside_out::collect();
        backoff.pause();
    }
    // The effects of those calls happen before the code that follows.
    fence(Acquire);
}

/// Waits for the other ranks before a window is destroyed. Returns false if there is no rank to
/// wait for: a rank has died meanwhile, or a fence that succeeded here has failed on other ranks.
fn meet_last(window: &Window) -> Result<bool> {
    let last = window.comm.sequence.load(Relaxed).checked_sub(1).map(u64::from);
    let is_given_up = || last.and_then(|last| window.comm.reports.given_up(last)).is_some();
    hang_report::serve(&window.comm);
    if is_given_up() {
        return Ok(false);
    }
    match coll::wait(&window.comm, coll::meet(&window.comm, Kind::WinDestroy)) {
        Ok(()) => Ok(true),
        Err(error) if error.status() == DTL_ERROR_RANK_FAILURE => Ok(false),
        Err(_) if is_given_up() => Ok(false),
        Err(error) => {
            window.epochs.set_broken();
            Err(error.within("dtl_win_destroy (a second call does not wait for the other ranks)"))
        }
    }
}

impl Window {
    fn part(&self, rank: i32) -> Option<RankWindow> {
        usize::try_from(rank).ok().and_then(|rank| self.parts.get(rank)).copied()
    }

    fn check_target(&self, name: &str, target: i32) -> Result<RankWindow> {
        self.part(target).ok_or_else(|| {
            failure!(
                DTL_ERROR_INVALID_RANK,
                "{name}: target {target}: the window has ranks 0 to {}",
                self.comm.size - 1
            )
        })
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // Owners of the remaining references must not access the memory any more.
        self.path.close(false);
    }
}

/// Returns a description of the part of `rank`.
pub fn info(window: &Window, rank: i32) -> Result<dtl_win_info_t> {
    let part = window.check_target("dtl_win_info", rank)?;
    let mut out: dtl_win_info_t = blank();
    (out.rank, out.ranks) = (window.comm.rank, window.comm.size);
    (out.size_bytes, out.disp_unit) = (part.size, part.disp_unit);
    if rank == window.comm.rank {
        out.base = window.memory.addr().ptr();
    }
    copy_text(&mut out.way, window.path.describe());
    Ok(out)
}

/// Destroys all windows at finalize, without waiting for other ranks.
pub fn destroy_all() {
    rma_progress::stop();
    for window in TABLE.drain(&inside_out::enter()) {
        // The other ranks must not wait for locks of a rank that has left.
        window.epochs.take_all(|targets| window.path.leave(targets));
        window.path.close(false);
    }
}

/// Discards all handles in a forked child, which does not have the parent's thread.
pub fn forget_all() {
    rma_progress::forget();
    TABLE.drain(&inside_out::enter()).for_each(std::mem::forget);
}
