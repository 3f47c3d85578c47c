//! Size classes: the block size that serves a requested size.
//!
//! Block sizes are multiples of 64 bytes: 64, 128 ... 512, then four to each doubling (640, 768,
//! 896, 1024, 1280 ...) up to 1 GiB. So a block is less than 64 bytes larger than the request up to
//! 256 bytes, and at most a quarter larger above.

/// Granularity in bytes: block addresses and sizes are multiples of it.
pub(super) const QUANTUM: usize = 64;
/// Number of classes.
pub(super) const CLASSES: usize = 92;
/// Largest block size of a class, in bytes. Larger blocks get mappings of their own.
pub(super) const LARGEST: usize = 1 << 30;
/// Class of blocks above `LARGEST`, which get mappings of their own.
pub(super) const OWN: usize = CLASSES;
/// First class whose blocks have a mapping each. Blocks of lower classes share slabs.
pub(super) const FIRST_SPAN: usize = 48;
/// Size and alignment of segments, in bytes. Larger mappings have this alignment too.
pub(super) const SEGMENT: usize = 1 << 21;

/// Returns the class of a size from 1 to `LARGEST`. It is four times the number of doublings beyond
/// 512, plus the leading three bits of the rest of size - 1 (up to 512: its multiple of 64).
pub(super) const fn of(size: usize) -> usize {
    let last = size - 1;
    let top = (last | 511).ilog2() as usize;
    4 * top + ((4 * last) >> top) - 32
}

/// Returns the block size of a class, in bytes.
pub(super) const fn block(class: usize) -> usize {
    if class < 8 {
        return (class + 1) * QUANTUM;
    }
    (class % 4 + 5) << (class / 4 - 1) << 6
}

/// Division of a 2 MiB segment into slabs.
pub(super) struct SlabLayout {
    /// log2 of the slab size in bytes.
    pub(super) shift: usize,
    /// Maximum number of blocks in one slab.
    pub(super) most: usize,
}

/// Layouts of cut segments. Small blocks use small slabs (a thread uses at least one of each
/// class), large blocks use slabs that hold several.
pub(super) const CUTS: [SlabLayout; 4] = [
    SlabLayout { shift: 16, most: (1 << 16) / block(0) },
    SlabLayout { shift: 16, most: (1 << 16) / block(12) },
    SlabLayout { shift: 19, most: (1 << 19) / block(24) },
    SlabLayout { shift: 21, most: (1 << 21) / block(36) },
];
/// Index of the cut of classes whose blocks have mappings of their own.
pub(super) const SPANS: usize = CUTS.len();

/// Returns the index of the cut that serves a class.
pub(super) const fn cut(class: usize) -> usize {
    let cut = class / 12;
    if cut < SPANS { cut } else { SPANS }
}

#[cfg(test)]
#[path = "tests/size_class.rs"]
mod tests;
