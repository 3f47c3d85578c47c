//! Tests of `comm_import`.

use super::*;

#[test]
fn only_communicators_of_mpich_pass() {
    for (fint, passes) in [
        (0x4400_0000_u32, true), // MPI_COMM_WORLD
        (0x8400_0002, true),     // a created communicator
        (0xC400_0002, true),
        (0x0400_0000, false), // MPI_COMM_NULL
        (0x4C00_010D, false), // MPI_BYTE
        (0, false),
    ] {
        assert_eq!(of_mpich(fint as i32) != 0, passes, "{fint:#x}");
    }
    assert_eq!(of_mpich(0x8400_0002_u32 as i32), 0x8400_0002);
}
