//! Tests of the copies of `buf`.

use super::*;

/// Bytes at `offset` of `memory`, from its first multiple of 4096 on.
fn part(memory: &mut [u8], offset: usize, len: usize) -> &mut [u8] {
    let first = memory.as_ptr().align_offset(4096) + offset;
    &mut memory[first..first + len]
}

/// The instruction depends on the distance of the regions within a page and on their size.
#[test]
fn copies_of_all_distances_and_sizes_are_right() {
    let (mut from, mut into) = (vec![0_u8; 4 << 12], vec![0_u8; 4 << 12]);
    for (at, byte) in from.iter_mut().enumerate() {
        *byte = ((at * 7) >> 3) as u8 ^ at as u8;
    }
    for (to, start) in [(0, 0), (1, 0), (16, 0), (63, 0), (64, 1), (127, 0), (128, 0), (0, 4080)] {
        for len in [0, 1, 63, 64, 4095, 4096, 4097, 4160, 7000, 8192] {
            for is_nt in [false, true] {
                into.fill(0xee);
                let source = part(&mut from, start, len).to_vec();
                let (source_part, around) =
                    (part(&mut from, start, len), part(&mut into, to, len + 1));
                // SAFETY: the slice outlives the copy and is not used in the meantime.
                let read = unsafe { Region::new(source_part.as_mut_ptr().cast(), len) };
                // SAFETY: the slice outlives the copy and is not used in the meantime.
                let write = unsafe { Region::new(around.as_mut_ptr().cast(), len) };
                if is_nt {
                    write.copy_nt(read)
                } else {
                    write.copy_across(read)
                }
                let what = format!("{len} bytes from {start} to {to}, non-temporal: {is_nt}");
                assert!(around[..len] == source, "{what}");
                assert_eq!(around[len], 0xee, "{what}");
            }
        }
    }
}
