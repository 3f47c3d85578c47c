//! List of memory from other allocators: memory of imported arrays, and memory that the program
//! passed to `dtl_mem_register_host` or `dtl_mem_adopt` (see `registered`). Lookups by address also
//! search this list, so that copies find the backend of the memory. Entries may overlap, because
//! several arrays may refer to the same memory.

use super::{Allocation, device_only};
use crate::sys::memory::buf::Addr;
use crate::sys::sync::lock::RwLock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Memory from other allocators, keyed by the address of the first byte and a number that
/// distinguishes entries with the same address.
static KNOWN: RwLock<BTreeMap<(usize, u64), Allocation>> = RwLock::new(BTreeMap::new());
/// Number of entries in KNOWN. While it is 0, the usual case, a lookup takes no lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Key of an entry in the list of external memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExternalEntry(usize, u64);

/// Adds memory to the list of external memory, where it remains until [`leave`] is called.
#[must_use]
pub fn enter(addr: Addr, mut allocation: Allocation) -> ExternalEntry {
    let mut known = KNOWN.write();
    let last = known.range((addr.get(), 0)..=(addr.get(), u64::MAX)).next_back();
    let entry = ExternalEntry(addr.get(), last.map_or(0, |((_, number), _)| number + 1));
    device_only::comes(addr.get(), &mut allocation);
    known.insert((entry.0, entry.1), allocation);
    COUNT.store(known.len(), Ordering::Release);
    entry
}

/// Removes an entry from the list of external memory.
pub fn leave(entry: ExternalEntry) {
    let mut known = KNOWN.write();
    let gone = known.remove(&(entry.0, entry.1));
    COUNT.store(known.len(), Ordering::Release);
    drop(known);
    if let Some(allocation) = gone {
        device_only::goes(&allocation);
    }
}

/// Finds the external memory (memory from another allocator) that contains the address `addr`.
/// Returns the address of the first byte of that memory, and its list entry.
#[inline]
pub fn find(addr: Addr) -> Option<(usize, Allocation)> {
    if COUNT.load(Ordering::Acquire) == 0 { None } else { find_listed(addr) }
}

#[cold]
fn find_listed(addr: Addr) -> Option<(usize, Allocation)> {
    let known = KNOWN.read();
    let mut before = known.range(..=(addr.get(), u64::MAX)).rev();
    let (&(base, _), allocation) =
        before.find(|((base, _), found)| ((addr.get() - base) as u64) < found.size)?;
    Some((base, *allocation))
}

/// Returns the first entry, by address, whose memory begins in the range from `first` to `last`
/// (inclusive).
pub fn first_within(first: Addr, last: Addr) -> Option<(usize, Allocation)> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    let known = KNOWN.read();
    let (&(base, _), allocation) = known.range((first.get(), 0)..=(last.get(), u64::MAX)).next()?;
    Some((base, *allocation))
}

/// Clears the list of external memory in a forked child.
pub fn forget_all() {
    KNOWN.write().clear();
    COUNT.store(0, Ordering::Release);
}
