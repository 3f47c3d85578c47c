//! Memory that the host can neither read nor write: the number of live allocations, and a check of
//! whether a range lies in such memory.
//!
//! While there is no such memory, a check costs one load. For a range that lies entirely below or
//! above all such memory that has existed so far, a check costs two more loads. This is the common
//! case, because even a program with device memory sends most of its messages from host memory.
//! While drivers can be queried (`drivers`), any range that is not known to be host memory also
//! counts as possible device memory. Each allocation has a unique serial number, and code that
//! stores data about an allocation is notified when the allocation is freed. `transfer` copies such
//! memory; `p2p::p2p_staging` stages it on its way to other ranks.

use super::{Allocation, drivers, find_any, kind_info};
use crate::abi::devices::device::DTL_MEMORY_HOST_ACCESSIBLE;
use crate::abi::word::dtl_enum_word_t;
use crate::error::{Result, fail};
use crate::runtime::hot_globals::HOT;
use crate::runtime::registry::Backend;
use crate::sys::memory::buf::{Addr, Region};
use crate::sys::sync::lock::Mutex;
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Number of live allocations that the host cannot access, plus one for each driver that can be
/// queried. COUNT, LOW and HIGH are updated before the pointer of an allocation is returned. These
/// updates happen before every load by a thread that received the pointer, so relaxed loads
/// suffice.
static COUNT: &AtomicUsize = &HOT.hidden;
/// Lowest start address of all allocations so far that the host cannot access, including freed
/// ones. HIGH is the highest end address of these allocations. The interval between LOW and HIGH
/// only grows.
static LOW: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGH: AtomicUsize = AtomicUsize::new(0);

/// Serial number of the newest allocation that the host cannot access.
static SERIAL: AtomicU64 = AtomicU64::new(0);
/// Watchers to notify when an allocation that the host cannot access is freed. WATCHING is the
/// number of watchers; while it is 0, a free costs one load. If a watcher stores data about an
/// allocation, the thread that frees the allocation has observed the completion of the message that
/// used it. The registration of that watcher therefore happens before the free, so relaxed loads
/// suffice.
static WATCHERS: Mutex<Vec<Weak<dyn Watcher>>> = Mutex::new(Vec::new());
static WATCHING: AtomicUsize = AtomicUsize::new(0);

/// Observer that stores data about allocations that the host cannot access.
pub trait Watcher: Send + Sync {
    /// Discards the watcher's data about the allocation with this serial number, which is about to
    /// be freed. The memory is freed after this function returns. Called by the thread that frees
    /// the allocation, with no lock of the library held.
    fn freed(&self, serial: u64);
}

/// Registers a watcher, which is notified of each freed allocation until the watcher is dropped.
pub fn watch(watcher: Weak<dyn Watcher>) {
    let mut watchers = WATCHERS.lock();
    watchers.retain(|other| other.strong_count() > 0);
    watchers.push(watcher);
    WATCHING.store(watchers.len(), Ordering::Relaxed);
}

/// Notifies all watchers that the allocation with this serial number is about to be freed.
#[cold]
pub fn notify_freed(serial: u64) {
    let watchers: Vec<_> = WATCHERS.lock().iter().filter_map(Weak::upgrade).collect();
    watchers.iter().for_each(|watcher| watcher.freed(serial));
}

/// Returns true if the process may contain memory that the host cannot access.
pub fn is_any() -> bool {
    COUNT.load(Ordering::Relaxed) != 0
}

/// Returns true if the host may be unable to access a range. `allocation_of` gives the exact
/// result.
pub fn may_be(region: Region) -> bool {
    is_any() && is_near(region)
}

#[cold]
fn is_near(region: Region) -> bool {
    let from = region.addr().get();
    let is_within = from < HIGH.load(Ordering::Relaxed)
        && from.saturating_add(region.len()) > LOW.load(Ordering::Relaxed);
    is_within || drivers::may_know(region)
}

/// Increments COUNT for a driver that may own memory that the host cannot access.
pub(super) fn add_source() {
    COUNT.fetch_add(1, Ordering::Relaxed);
}

/// Reverts [`add_source`].
pub(super) fn remove_source() {
    COUNT.fetch_sub(1, Ordering::Relaxed);
}

/// Returns true if the host cannot access memory of this kind. A kind without a description counts
/// as inaccessible, the safe assumption.
pub fn is_hidden(backend: &Backend, kind: dtl_enum_word_t) -> bool {
    kind_info(backend, kind).map_or(true, |info| info.properties & DTL_MEMORY_HOST_ACCESSIBLE == 0)
}

/// Counts a new allocation if the host cannot access it, and assigns its serial number. Called
/// before the pointer of the allocation is returned.
pub(super) fn comes(base: usize, allocation: &mut Allocation) {
    if allocation.hidden {
        allocation.serial = SERIAL.fetch_add(1, Ordering::Relaxed) + 1;
        let end = base.saturating_add(usize::try_from(allocation.size).unwrap_or(usize::MAX));
        LOW.fetch_min(base, Ordering::Relaxed);
        HIGH.fetch_max(end, Ordering::Relaxed);
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
}

/// Stops counting an allocation that has been removed from all of the library's lists of
/// allocations, and notifies the watchers. Must be called while no lock is held, because it calls
/// the watchers.
pub(super) fn goes(allocation: &Allocation) {
    if allocation.hidden {
        COUNT.fetch_sub(1, Ordering::Relaxed);
        if WATCHING.load(Ordering::Relaxed) != 0 {
            notify_freed(allocation.serial);
        }
    }
}

/// Resets COUNT in a forked child and discards the watchers, whose data belongs to the parent.
pub(super) fn forget() {
    COUNT.store(0, Ordering::Relaxed);
    WATCHING.store(0, Ordering::Relaxed);
    WATCHERS.lock().clear();
}

/// Returns the allocation in which a range begins; `None` if the range begins in no allocation.
/// Fails with OUT_OF_BOUNDS if the host cannot access the allocation and the range exceeds its end.
pub fn allocation_of(region: Region) -> Result<Option<Allocation>> {
    Ok(allocation_at(region)?.map(|(_, allocation)| allocation))
}

/// Returns the allocation in which a range begins, and the region of the whole allocation; `None`
/// if the range begins in no allocation. Fails with OUT_OF_BOUNDS if the host cannot access the
/// allocation and the range exceeds its end.
pub fn allocation_at(region: Region) -> Result<Option<(Region, Allocation)>> {
    if region.is_empty() {
        return Ok(None);
    }
    let Some((base, allocation)) = find_any(region)? else { return Ok(None) };
    let first = Addr::new(std::ptr::with_exposed_provenance_mut(base));
    let all = Region::allocated(first, usize::try_from(allocation.size).unwrap_or(usize::MAX));
    let offset = (region.addr().get() - base) as u64;
    if !allocation.hidden || region.len() as u64 <= allocation.size - offset {
        return Ok(Some((all, allocation)));
    }
    fail!(
        DTL_ERROR_OUT_OF_BOUNDS,
        "{} bytes at offset {offset} of an allocation of {} bytes that the host cannot reach",
        region.len(),
        allocation.size
    )
}

/// Fails with OUT_OF_BOUNDS if a buffer begins in an allocation that the host cannot access and
/// exceeds the end of that allocation.
pub fn check(region: Region) -> Result<()> {
    if may_be(region) { allocation_of(region).map(drop) } else { Ok(()) }
}

/// Fails with NOT_SUPPORTED if the host cannot access a buffer. Called by operations that do not
/// support staging.
#[inline]
pub fn refuse(name: &str, region: Region) -> Result<()> {
    if may_be(region) { refuse_hidden(name, region) } else { Ok(()) }
}

#[cold]
fn refuse_hidden(name: &str, region: Region) -> Result<()> {
    match allocation_of(region)? {
        Some(allocation) if allocation.hidden => fail!(
            DTL_ERROR_NOT_SUPPORTED,
            "{name}: {:?} is device memory that the host cannot reach, and windows are made of \
             host memory: copy through a host buffer (dtl_mem_copy), or send messages",
            region.addr()
        ),
        _ => Ok(()),
    }
}
