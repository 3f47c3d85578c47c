//! Size classes, which determine the size of the block that is allocated for a request.
//!
//! Block sizes are multiples of 64 bytes: 64, 128 ... 512, then four sizes for each doubling (640,
//! 768, 896, 1024, 1280 ...) up to 1 GiB. So the block for a request of up to 256 bytes is less
//! than 64 bytes larger than the request. The block for a larger request is at most a quarter
//! larger.

/// Granularity of blocks in bytes: their addresses and sizes are multiples of it.
pub(super) const QUANTUM: usize = 64;
/// Number of classes.
pub(super) const CLASSES: usize = 92;
/// Block size of the largest size class, in bytes. Larger blocks get mappings of their own.
pub(super) const LARGEST: usize = 1 << 30;
/// Class number of blocks that are larger than `LARGEST` or aligned to more than `SEGMENT` bytes.
/// Each of them has a mapping of its own.
pub(super) const OWN: usize = CLASSES;
/// First size class in which each block has a mapping of its own. Blocks of lower classes share
/// slabs.
pub(super) const FIRST_SPAN: usize = 48;
/// Size and alignment in bytes of the segments that are divided into slabs. Mappings for one large
/// block have at least this alignment too.
pub(super) const SEGMENT: usize = 1 << 21;

/// Returns the size class of a request of 1 to `LARGEST` bytes, from `last` = size - 1. Up to 512
/// bytes, the class is `last` / 64. Above 512 bytes, it is 4 * (log2(`last`) - 8), with the
/// logarithm rounded down, plus the value of the three leading bits of `last` (4 to 7).
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

/// Slab layouts, one for each group of 12 size classes. Small blocks have small slabs, because each
/// thread needs at least one slab for each class that it uses. Larger blocks have larger slabs, so
/// that a slab holds several blocks.
pub(super) const CUTS: [SlabLayout; 4] = [
    SlabLayout { shift: 16, most: (1 << 16) / block(0) },
    SlabLayout { shift: 16, most: (1 << 16) / block(12) },
    SlabLayout { shift: 19, most: (1 << 19) / block(24) },
    SlabLayout { shift: 21, most: (1 << 21) / block(36) },
];
/// Layout index of size classes whose blocks have mappings of their own; it is not an index into
/// `CUTS`.
pub(super) const SPANS: usize = CUTS.len();

/// Returns the index into `CUTS` of the slab layout of a size class, or `SPANS` if the blocks of
/// the size class have mappings of their own.
pub(super) const fn cut(class: usize) -> usize {
    let cut = class / 12;
    if cut < SPANS { cut } else { SPANS }
}

#[cfg(test)]
#[path = "tests/size_class.rs"]
mod tests;
