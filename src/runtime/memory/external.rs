//! List of memory that others allocated: memory of imported arrays, and memory that the program
//! registered or adopted (`registered`). It is looked up by address as allocations are, so that
//! copies find its backend. Entries may overlap, as several arrays may refer to the same memory.

use super::{Allocation, device_only};
use crate::sys::memory::buf::Addr;
use crate::sys::sync::lock::RwLock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// By first byte and a number that is used once.
static KNOWN: RwLock<BTreeMap<(usize, u64), Allocation>> = RwLock::new(BTreeMap::new());
/// Number of entries. Usually 0, and then a lookup takes no lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExternalEntry(usize, u64);

/// Enters memory; it is in the list until [`leave`].
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

/// Takes an entry out.
pub fn leave(entry: ExternalEntry) {
    let mut known = KNOWN.write();
    let gone = known.remove(&(entry.0, entry.1));
    COUNT.store(known.len(), Ordering::Release);
    drop(known);
    if let Some(allocation) = gone {
        device_only::goes(&allocation);
    }
}

/// Finds the entry that contains an address, and its first byte.
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

/// Finds the first entry that begins between two addresses (inclusive).
pub fn first_within(first: Addr, last: Addr) -> Option<(usize, Allocation)> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    let known = KNOWN.read();
    let (&(base, _), allocation) = known.range((first.get(), 0)..=(last.get(), u64::MAX)).next()?;
    Some((base, *allocation))
}

/// In a forked child: there is none.
pub fn forget_all() {
    KNOWN.write().clear();
    COUNT.store(0, Ordering::Release);
}
