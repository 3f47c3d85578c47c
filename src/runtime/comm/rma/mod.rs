//! Windows: memory that each rank exposes to the other ranks, which access it without the target's
//! participation.
//!
//! This file creates and destroys windows, and records the memory that each rank contributes (its
//! part of the window). A window has a private communicator (`group::private`). Therefore its
//! messages match no other messages, and the window remains valid when the communicator from which
//! it was created is destroyed.
//!
//! In reading order:
//! - `select`: selection of the window's memory and path
//! - `epoch`: access epochs, and which calls they allow
//! - `sync`: fences, locks, flushes
//! - `rma_ops`: checked operations
//! - `fast`: fast path of small operations
//! - `robust_rwlock`: locks in shared memory that record their holders
//! - `load_store`: RMA path over shared memory
//! - `backend_rma`: RMA path over windows of the transport
//! - `active_messages`: RMA path by messages
//! - `rma_progress`: execution of requests from other ranks

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
use super::comm_state::CommState;
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
use crate::sys::handles::epoch::{self as inside_out, Guard};
use crate::sys::handles::handle_table::{HandleTable, HazardRef};
use crate::sys::memory::buf::{Addr, Region};
use crate::sys::sync::wait::Backoff;
use epoch::Epochs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::fence;
use std::sync::{Arc, OnceLock};

/// Value of the type byte in window handles.
const TAG: u8 = 10;

static TABLE: HandleTable<Window> = HandleTable::new();

/// Memory and displacement unit that one rank contributes to a window.
#[derive(Clone, Copy)]
struct RankWindow {
    size: u64,
    disp_unit: u64,
    /// Window memory of the rank, as mapped in this process; empty if this process cannot access it
    /// with loads and stores.
    memory: Region,
}

/// One-sided communication window.
pub struct Window {
    /// Private communicator of the window.
    comm: Arc<Comm>,
    path: Arc<dyn RmaPath>,
    /// `path` as a `Direct`, if every rank can access the window memory of all ranks with loads and
    /// stores; otherwise `None`. The concrete type saves a virtual call in operations that take
    /// about ten nanoseconds.
    direct: Option<Arc<Direct>>,
    /// Window memory that each rank contributes, with its size and displacement unit, indexed by
    /// rank.
    parts: Vec<RankWindow>,
    /// Window memory of this rank, which `_kept`, `path` or the program owns.
    memory: Region,
    _kept: Option<Source>,
    epochs: Epochs,
}

/// Memory and displacement unit that this rank contributes to a window to be created.
pub struct WindowOffer {
    memory: component::SharedOffer,
    disp_unit: u64,
}

impl WindowOffer {
    /// Offers existing memory of the caller for a new window. The memory must stay valid until the
    /// window is destroyed.
    pub fn of(memory: Region, disp_unit: u64) -> Result<WindowOffer> {
        check_unit(disp_unit)?;
        device_only::refuse("base", memory)?;
        Ok(WindowOffer { memory: component::SharedOffer::Own(memory), disp_unit })
    }

    /// Offers `size` bytes of zeroed memory for a new window. The library allocates this memory,
    /// and frees it when the window is destroyed.
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

/// Returns a number that identifies this process. Forked children have different numbers.
fn process_mark() -> u64 {
    static RANDOM: OnceLock<RandomState> = OnceLock::new();
    let mut hasher = RANDOM.get_or_init(RandomState::new).build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish()
}

/// Creates a window from the memory that all ranks offer. Collective. If one rank passes an error
/// instead of an offer, creation fails on all ranks.
pub fn create(comm: &Comm, offer: Result<WindowOffer>) -> Result<(dtl_win_t, Addr)> {
    let had = offer.and_then(|offer| OfferMemory::of(comm, offer));
    let status = had.as_ref().map_or_else(Error::status, |_| DTL_SUCCESS);
    let [size, unit, place, check, windows, base] = had.as_ref().map_or([0; 6], OfferMemory::words);
    let own_record =
        [status as u32 as u64, process_mark(), size, unit, place, check, windows, base];
    let (own, records) = group::private(comm, Kind::WinCreate, own_record, None)?;
    build(&own, had, &records).inspect_err(|_| drop(super::destroy(&own)))
}

/// Record that a rank sends to the other ranks to describe its part of a window: the rank's status,
/// a number that identifies its process, and its encoded [`OfferMemory`].
type PartRecord = [u64; 8];

fn build(
    own: &Arc<Comm>,
    had: Result<OfferMemory>,
    records: &[PartRecord],
) -> Result<(dtl_win_t, Addr)> {
    let had = had?;
    select::check_all("make its part of the window", records.iter().map(|[status, ..]| *status))?;
    let PathChoice { path, direct, memory, kept } = select::choose(own, had, records)?;
    let mut memories = direct.iter().flat_map(|direct| direct.memories());
    let part = move |&[_, _, size, disp_unit, ..]: &PartRecord| {
        let memory = memories.next().unwrap_or(Region::EMPTY);
        RankWindow { size, disp_unit, memory }
    };
    let parts: Vec<RankWindow> = records.iter().map(part).collect();
    let epochs = Epochs::new(parts.len());
    let needs_thread = path.needs_thread();
    let served = Arc::clone(&path);
    let window = Window { comm: Arc::clone(own), path, direct, parts, memory, _kept: kept, epochs };
    let Some(id) = TABLE.insert(TAG, Arc::new(window)) else {
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

/// Returns a reference to the window with the given handle. The reference remains valid while the
/// caller blocks.
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

/// Destroys a window. Collective, but does not wait for the other ranks if a rank has died, a fence
/// has failed, an unlock has timed out, or the communicator is revoked.
pub fn destroy(window: &Arc<Window>, handle: dtl_win_t) -> Result<()> {
    let is_revoked = window.comm.standing.state() == CommState::Revoked;
    if !is_revoked {
        window.comm.check_open()?;
    }
    if is_revoked || window.epochs.is_stuck() {
        // Errors are dropped: an unreachable target detects that this rank left.
        window.epochs.take_all(|targets| drop(window.path.leave(targets)));
        window.epochs.set_broken();
    }
    let mut is_whole = !window.epochs.is_broken() && !window.comm.has_died();
    window.epochs.check_unlocked("dtl_win_destroy")?;
    if is_whole {
        window.epochs.check_fence("dtl_win_destroy")?;
        is_whole = wait_for_last(window)?;
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

/// Waits until no other call uses a window that has been removed from the handle table. The table's
/// reference is released once the calls that found the window in the table have returned; nested
/// calls hold references of their own. None of these calls is in an access epoch of the window, so
/// they return soon.
fn wait_for_others(window: &Arc<Window>) {
    let mut backoff = Backoff::new();
    while Arc::strong_count(window) > 1 {
        inside_out::collect();
        backoff.pause();
    }
    // The effects of those calls happen before the code that follows.
    fence(Acquire);
}

/// Waits for the other ranks before a window is destroyed. Returns false immediately if a rank has
/// died or if a fence that succeeded on this rank has failed on other ranks.
fn wait_for_last(window: &Window) -> Result<bool> {
    let last = window.comm.sequence.load(Relaxed).checked_sub(1).map(u64::from);
    let is_given_up = || last.and_then(|last| window.comm.reports.given_up(last)).is_some();
    hang_report::serve(&window.comm);
    if is_given_up() {
        return Ok(false);
    }
    match coll::wait(&window.comm, coll::start_barrier(&window.comm, Kind::WinDestroy)) {
        Ok(()) => Ok(true),
        Err(error) if error.status() == DTL_ERROR_RANK_FAILURE => Ok(false),
        Err(_) if is_given_up() || !window.comm.is_open() => Ok(false),
        Err(error) => {
            window.epochs.set_broken();
            Err(error.within("dtl_win_destroy (a second call does not wait for the other ranks)"))
        }
    }
}

impl Window {
    /// Returns `error` with the name of the failed call. If a rank revoked the communicator before
    /// it died or left, returns the error of the revocation instead of that rank's failure.
    fn failed(&self, name: &str, error: Error) -> Error {
        self.comm.revoked_or(error).within(name)
    }

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

/// Returns a description of the window memory of `rank`.
pub fn info(window: &Window, rank: i32) -> Result<dtl_win_info_t> {
    let last = window.comm.size - 1;
    let part = window.part(rank).ok_or_else(|| {
        failure!(DTL_ERROR_INVALID_RANK, "rank {rank}: the window has ranks 0 to {last}")
    })?;
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
        // The other ranks must not wait for locks of a rank that has left. Errors are dropped: an
        // unreachable target detects by itself that this rank left.
        window.epochs.take_all(|targets| drop(window.path.leave(targets)));
        window.path.close(false);
    }
}

/// Discards all window handles in a forked child. Also discards the state of the thread that
/// executes requests from other ranks, because this thread does not exist in the child.
pub fn forget_all() {
    rma_progress::forget();
    TABLE.drain(&inside_out::enter()).for_each(std::mem::forget);
}
