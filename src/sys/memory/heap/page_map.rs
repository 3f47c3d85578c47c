//! Map from an address to the segment that contains it: a table of two levels with one entry for
//! each 2 MiB of addresses. A lookup does not access the memory at the address.

use super::os;
use super::relaxed_cell::RelaxedPtr;
use super::segment::Segment;
use super::size_class::SEGMENT;

/// Number of address bits that the map covers. Reduced under Miri, which uses small addresses and
/// checks all entries of a table wherever a reference to the table is passed.
const ADDRESS_BITS: u32 = if cfg!(miri) { 36 } else { 48 };
const LEAF_BITS: u32 = if cfg!(miri) { 7 } else { 13 };
const UNIT_BITS: u32 = SEGMENT.trailing_zeros();
const ROOTS: usize = 1 << (ADDRESS_BITS - UNIT_BITS - LEAF_BITS);

/// Second-level table of the map, with an entry for each 2 MiB of a range of 16 GiB (256 MiB under
/// Miri).
pub(super) struct Leaf([RelaxedPtr<Segment>; 1 << LEAF_BITS]);

static ROOT: [RelaxedPtr<Leaf>; ROOTS] = [const { RelaxedPtr::none() }; ROOTS];

fn entry(unit: usize) -> Option<&'static RelaxedPtr<Segment>> {
    ROOT.get(unit >> LEAF_BITS)?.get()?.0.get(unit % (1 << LEAF_BITS))
}

/// Returns the segment that contains `addr`, which may be any number. A large segment may end in
/// the middle of the 2 MiB that its last map entry covers; the memory after the end of the segment
/// does not belong to the allocator.
#[inline]
pub(super) fn find(addr: usize) -> Option<&'static Segment> {
    let segment = entry(addr >> UNIT_BITS)?.get()?;
    (addr.wrapping_sub(segment.base.get()) < segment.bytes.get()).then_some(segment)
}

/// Returns the first segment, in address order, that contains a byte of the address range from
/// `first` to `last` (inclusive).
pub(super) fn find_within(first: usize, last: usize) -> Option<&'static Segment> {
    let mut unit = first >> UNIT_BITS;
    while unit <= last >> UNIT_BITS {
        if ROOT.get(unit >> LEAF_BITS)?.get().is_none() {
            unit = ((unit >> LEAF_BITS) + 1) << LEAF_BITS;
            continue;
        }
        let is_there = |segment: &&Segment| {
            first < segment.base.get() + segment.bytes.get() && last >= segment.base.get()
        };
        if let Some(segment) = entry(unit).and_then(RelaxedPtr::get).filter(is_there) {
            return Some(segment);
        }
        unit += 1;
    }
    None
}

fn units(segment: &Segment) -> std::ops::Range<usize> {
    let (base, bytes) = (segment.base.get(), segment.bytes.get());
    base >> UNIT_BITS..(base + bytes).div_ceil(SEGMENT)
}

/// Enters a segment into the map. Returns false without entering the segment if there is no memory
/// for a second-level table, or if the map does not cover the addresses of the segment. The caller
/// must hold the lock of the page heap.
pub(super) fn enter(segment: &'static Segment) -> bool {
    for unit in units(segment) {
        let Some(root) = ROOT.get(unit >> LEAF_BITS) else { return false };
        if root.get().is_none() {
            let Some(at) = os::map(size_of::<Leaf>(), os::PAGE) else { return false };
            // SAFETY: new zeroed pages of that size that are never unmapped; null links are zero.
            root.set(unsafe { std::ptr::with_exposed_provenance::<Leaf>(at).as_ref() });
        }
    }
    units(segment).filter_map(entry).for_each(|entry| entry.set(Some(segment)));
    true
}

/// Removes a segment from the map.
pub(super) fn leave(segment: &Segment) {
    units(segment).filter_map(entry).for_each(|entry| entry.set(None));
}

/// Calls `f` with the segment of every entry that is set. `f` may remove this segment from the map.
pub(super) fn for_each(mut f: impl FnMut(&'static Segment)) {
    for leaf in ROOT.iter().filter_map(RelaxedPtr::get) {
        for entry in &leaf.0 {
            if let Some(segment) = entry.get() {
                f(segment);
            }
        }
    }
}
