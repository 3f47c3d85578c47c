//! Tests of `bare`.

use super::*;

#[test]
fn sums_and_sizes() {
    let bytes = |values: [f32; 2]| values.map(f32::to_ne_bytes).concat();
    let mut sums = bytes([0.0, 0.0]);
    add(&mut sums, &bytes([1.0, 2.0]), &bytes([0.5, -2.0]));
    assert_eq!(sums, bytes([1.5, 0.0]));
    assert_eq!((bytes_of(None, Some(&[1, 2])), bytes_of(None, None)), (2, 0));
}

/// Sends more chunks than a ring has slots.
#[test]
fn a_ring_carries_data_in_order() {
    let memory = probe::memory_of(2 * HALF).expect("memory");
    let [sender, receiver] = [(); 2].map(|()| Half::new(&memory, 1).expect("inside").rings);
    for (mut sender, mut receiver) in sender.into_iter().zip(receiver) {
        for value in 0..=255_u8 {
            sender.put(&vec![value; sender.bytes], value % 2 == 0);
            if let Some(earlier) = value.checked_sub(10) {
                let mut into = vec![0; receiver.bytes];
                receiver.take(&mut into, None);
                assert!(into.iter().all(|byte| *byte == earlier), "{earlier}: {into:?}");
            }
        }
    }
    assert!(Half::new(&memory, 2).is_none(), "behind the memory");
}
