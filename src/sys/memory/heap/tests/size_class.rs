//! Tests of `size_class`.

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
    let sizes = (1..100_000).step_by(step).chain((100_000..LARGEST - 1000).step_by(9973 * step));
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
        // At most an eighth of a slab is unused at its end.
        assert!((1 << shift) % block(class) <= (1 << shift) / 8);
    }
    assert_eq!((cut(FIRST_SPAN), cut(CLASSES)), (SPANS, SPANS));
}
