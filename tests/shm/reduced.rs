//! Code of the ranks in tests of messages that are reduced as they arrive.

use crate::cases::barrier;
use crate::forbid::forbid;
use crate::rank::*;
use dtl::abi::status::*;
use dtl::abi::word::*;
use dtl::runtime::component::{RecvReduction, SendMode};
use dtl::runtime::types;
use dtl::sys::compute::elements::Kernel;
use dtl::sys::memory::buf::Region;

/// Length of the messages with which every pair of dtype and operation is tested: two fragments and
/// a part of one, so that the last part has an odd number of elements.
const SOME: usize = 2 * (16 << 10) + 4720;

/// Tests the bits of messages that are reduced as they arrive, for every pair of dtype and
/// operation.
pub(crate) fn reduced_pairs() {
    let comm = &open();
    for dtype in 0..64 {
        for op in 0..64 {
            let Some(reduction) = types::builtin(dtype, op) else { continue };
            let kernel = reduction.kernel().expect("built in");
            for is_left in [true, false] {
                let places = Places { is_left, replaces_own: (dtype + op) % 2 == 0 };
                reduce_around(comm, kernel, SOME, places, SendMode::Standard);
            }
        }
    }
    barrier(comm);
}

/// Tests that a message that is reduced as it arrives gives the bits of a reduction after its
/// arrival, for messages of many sizes.
pub(crate) fn reduced(comm: &Rank) {
    // The bits of a minimum depend on the order of the operands, and a sum on their number.
    let long = [(DTL_DTYPE_FLOAT64, DTL_OP_MIN), (DTL_DTYPE_UINT64, DTL_OP_SUM)];
    let long = long.map(|(dtype, op)| types::builtin(dtype, op).expect("built in"));
    for len in [0, 8, 2048, 16384, 16392, 65536, 65544, 300_000, (1 << 20) + 8] {
        for (reduction, is_left) in long.iter().zip([true, false]) {
            let kernel = reduction.kernel().expect("built in");
            for mode in [SendMode::Standard, SendMode::Synchronous] {
                for replaces_own in [false, true] {
                    reduce_around(comm, kernel, len, Places { is_left, replaces_own }, mode);
                }
            }
        }
    }
    barrier(comm);
}

/// Tests that fragments that a rank cannot read are reduced once, when the sender has sent them.
pub(crate) fn reduced_without_reads() {
    let comm = &open();
    barrier(comm);
    forbid(libc::SYS_process_vm_readv, libc::EPERM);
    let sum = types::builtin(DTL_DTYPE_UINT64, DTL_OP_SUM).expect("built in");
    let kernel = sum.kernel().expect("built in");
    for len in [20_000, 65_536, 1_000_000] {
        for replaces_own in [false, true] {
            let places = Places { is_left: false, replaces_own };
            reduce_around(comm, kernel, len, places, SendMode::Standard);
        }
    }
    barrier(comm);
}

/// Places of the operands and of the result of a reduction.
#[derive(Clone, Copy, Debug)]
struct Places {
    /// True if the message is the left operand.
    is_left: bool,
    /// True if the result replaces the rank's own operand, false if it replaces the message.
    replaces_own: bool,
}

/// Sends a message to the next rank and reduces that of the previous one, at odd addresses.
fn reduce_around(comm: &Rank, kernel: Kernel, len: usize, places: Places, mode: SendMode) {
    let (me, size) = (comm.rank(), comm.size());
    let (dest, source) = ((me + 1) % size, (me + size - 1) % size);
    let operand = |rank: i32| Buffer::filled(len + 1, 3 + 2 * rank as u64);
    let part = |buffer: &Buffer| buffer.region().part(1, len);
    let Places { is_left, replaces_own } = places;
    let (data, own, into) = (operand(me), operand(me + 8), Buffer::new(len + 1));
    let by = RecvReduction { kernel, other: part(&own), is_left, replaces_other: replaces_own };
    let reducing = comm.groups().reducing.expect("provided");
    let receive = reducing.irecv_reduce(part(&into), from(source, 4), by).expect("irecv");
    let send = comm.isend(part(&data), dest, 4, mode).expect("isend");
    let done = wait(comm, receive);
    assert_eq!((done.status, done.size), (DTL_SUCCESS, len as u64));
    assert_eq!(wait(comm, send).status, DTL_SUCCESS);
    let (expected, arrived) = (operand(me + 8), operand(source));
    let (left, right) = if is_left { (&arrived, &expected) } else { (&expected, &arrived) };
    kernel(part(&expected), part(left), part(right));
    let result = if replaces_own { &own } else { &into };
    assert!(bytes(part(result)) == bytes(part(&expected)), "{len} bytes, {places:?}");
    let untouched = operand(me + 8);
    assert!(replaces_own || bytes(part(&own)) == bytes(part(&untouched)), "{len}: {places:?}");
}

fn bytes(region: Region) -> &'static [u8] {
    // SAFETY: no operation on the buffers is in progress, and they live through the comparison.
    unsafe { region.as_slice() }
}
