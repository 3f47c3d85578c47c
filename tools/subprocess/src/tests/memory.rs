//! Tests of `memory`.

use super::*;

#[test]
fn memory_is_read_and_own_memory_is_not_written() {
    let (own, data, mut into) = (std::process::id(), [1_u8, 2, 3], [0_u8; 3]);
    let address = |bytes: &[u8]| bytes.as_ptr().addr() as u64;
    assert!(read_memory(own, address(&data), &mut into).is_ok());
    assert_eq!(into, data);
    assert!(read_memory(own, 0, &mut into).is_err(), "no page is there");
    assert!(write_memory(own, &data, address(&into)).is_err(), "this process");
}
