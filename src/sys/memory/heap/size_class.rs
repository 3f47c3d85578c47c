//! Size classes: which block serves which size.
//!
//! Blocks are multiples of 64 bytes: 64, 128 ... 512, then four to each doubling (640, 768, 896,
//! 1024, 1280 ...) up to 1 GiB. So a block is less than 64 bytes larger than the request up to 256
//! bytes, and at most a quarter larger above.

/// Blocks start on, and are multiples of, this.
pub(super) const QUANTUM: usize = 64;
/// Number of classes.
pub(super) const CLASSES: usize = 92;
/// The largest block of a class; what is larger is mapped for itself.
pub(super) const LARGEST: usize = 1 << 30;
/// The class of blocks that are mapped for themselves.
pub(super) const OWN: usize = CLASSES;
/// Blocks of classes below this one share slabs; from here on each is a mapping of its own.
pub(super) const FIRST_SPAN: usize = 48;
/// Segments are of this size and aligned to it; so are the first bytes of larger mappings.
pub(super) const SEGMENT: usize = 1 << 21;

/// The class of a size from 1 to `LARGEST`: four times the number of doublings beyond 512, plus the
/// leading three bits of what is left of size - 1 (or its multiple of 64, up to 512).
#[inline]
pub(super) const fn of(size: usize) -> usize {
    let last = size - 1;
    let top = (last | 511).ilog2() as usize;
    4 * top + ((4 * last) >> top) - 32
}

/// The size of a class' blocks.
pub(super) const fn block(class: usize) -> usize {
    if class < 8 {
        return (class + 1) * QUANTUM;
    }
    (class % 4 + 5) << (class / 4 - 1) << 6
}

/// How a 2 MiB segment is cut into slabs.
pub(super) struct SlabLayout {
    /// Slabs are 2^shift bytes.
    pub(super) shift: usize,
    /// Most blocks in one slab.
    pub(super) most: usize,
}

/// Small blocks want small slabs (a thread uses at least one of each class), large ones want slabs
/// that hold several.
pub(super) const CUTS: [SlabLayout; 4] = [
    SlabLayout { shift: 16, most: (1 << 16) / block(0) },
    SlabLayout { shift: 16, most: (1 << 16) / block(12) },
    SlabLayout { shift: 19, most: (1 << 19) / block(24) },
    SlabLayout { shift: 21, most: (1 << 21) / block(36) },
];
/// The cut of classes whose blocks are mappings of their own.
pub(super) const SPANS: usize = CUTS.len();

/// Which cut serves a class.
pub(super) const fn cut(class: usize) -> usize {
    let cut = class / 12;
    if cut < SPANS { cut } else { SPANS }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_gets_the_smallest_block_that_holds_it() {
        let mut last = 0;
        for class in 0..CLASSES {
            let size = block(class);
            assert!(size > last && size % QUANTUM == 0);
            assert_eq!((of(last + 1), of(size)), (class, class));
            last = size;
        }
        assert_eq!(last, LARGEST);
    }

    #[test]
    fn waste_inside_a_block_is_bounded() {
        let step = if cfg!(miri) { 999 } else { 1 };
        let sizes =
            (1..100_000).step_by(step).chain((100_000..LARGEST - 1000).step_by(9973 * step));
        for size in sizes {
            let block = block(of(size));
            assert!(block >= size);
            assert!(
                if size <= 256 { block - size < 64 } else { block - size <= size / 4 },
                "{size}: {block}"
            );
        }
    }

    #[test]
    fn blocks_of_an_aligned_size_are_aligned() {
        for align in (6..=21).map(|bits| 1_usize << bits) {
            for times in 1..200 {
                if align * times <= LARGEST {
                    assert_eq!(block(of(align * times)) % align, 0, "{align} {times}");
                }
            }
        }
    }

    #[test]
    fn slabs_hold_their_classes() {
        for class in 0..FIRST_SPAN {
            let SlabLayout { shift, most } = CUTS[cut(class)];
            let count = (1 << shift) / block(class);
            assert!((4..=most).contains(&count));
            // At most an eighth of a slab is left over at its end.
            assert!((1 << shift) % block(class) <= (1 << shift) / 8);
        }
        assert_eq!((cut(FIRST_SPAN), cut(CLASSES)), (SPANS, SPANS));
    }
}
