//! Code of the ranks in tests of messages that are reduced as they arrive.

use crate::cases::barrier;
use crate::forbid::forbid;
use crate::rank::*;
use dtl::abi::status::*;
use dtl::abi::word::*;
use dtl::runtime::component::{RecvReduction, SendMode};
use dtl::runtime::types;
use dtl::sys::compute::elements::{Kernel, OperandSide};
use dtl::sys::memory::buf::Region;

/// Length of the messages with which every pair of dtype and operation is tested: two fragments and
/// a part of one, so that the last part has an odd number of elements.
const SOME: usize = 2 * (16 << 10) + 4720;

/// Tests that a message that is reduced as it arrives gives the bits of a reduction after its
/// arrival.
pub(crate) fn reduced(comm: &Rank) {
    for dtype in 0..64 {
        for op in 0..64 {
            let Some(reduction) = types::builtin(dtype, op) else { continue };
            for side in [OperandSide::Left, OperandSide::Right] {
                let kernel = reduction.kernel(side).expect("built in");
                let replaces_own = (dtype + op) % 2 == 0;
                reduce_around(comm, kernel, SOME, replaces_own, SendMode::Standard);
            }
        }
    }
    // The bits of a minimum depend on the order of the operands, and a sum on their number.
    let long = [(DTL_DTYPE_FLOAT64, DTL_OP_MIN), (DTL_DTYPE_UINT64, DTL_OP_SUM)];
    let long = long.map(|(dtype, op)| types::builtin(dtype, op).expect("built in"));
    for len in [0, 8, 2048, 16384, 16392, 65536, 65544, 300_000, 1 << 20, (3 << 20) + 8] {
        for (reduction, side) in long.iter().zip([OperandSide::Left, OperandSide::Right]) {
            let kernel = reduction.kernel(side).expect("built in");
            for mode in [SendMode::Standard, SendMode::Synchronous] {
                reduce_around(comm, kernel, len, false, mode);
                reduce_around(comm, kernel, len, true, mode);
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
    let kernel = sum.kernel(OperandSide::Left).expect("built in");
    for len in [20_000, 65_536, 1_000_000] {
        reduce_around(comm, kernel, len, false, SendMode::Standard);
        reduce_around(comm, kernel, len, true, SendMode::Standard);
    }
    barrier(comm);
}

/// Sends a message to the next rank and reduces that of the previous one, at odd addresses. The
/// result replaces the own operand or is in the receive buffer.
fn reduce_around(comm: &Rank, kernel: Kernel, len: usize, replaces_own: bool, mode: SendMode) {
    let (me, size) = (comm.rank(), comm.size());
    let (dest, source) = ((me + 1) % size, (me + size - 1) % size);
    let operand = |rank: i32| Buffer::filled(len + 1, 3 + 2 * rank as u64);
    let part = |buffer: &Buffer| buffer.region().part(1, len);
    let pair = |own: &Buffer, arrived: &Buffer| match replaces_own {
        true => (part(own), part(arrived)),
        false => (part(arrived), part(own)),
    };
    let (data, own, into) = (operand(me), operand(me + 8), Buffer::new(len + 1));
    let (result, other) = pair(&own, &into);
    let by = RecvReduction { kernel, into: result, from: other };
    let reducing = comm.groups().reducing.expect("provided");
    let receive = reducing.irecv_reduce(part(&into), from(source, 4), by).expect("irecv");
    let send = comm.isend(part(&data), dest, 4, mode).expect("isend");
    let done = wait(comm, receive);
    assert_eq!((done.status, done.size), (DTL_SUCCESS, len as u64));
    assert_eq!(wait(comm, send).status, DTL_SUCCESS);
    let (expected_own, arrived) = (operand(me + 8), operand(source));
    let (expected, from) = pair(&expected_own, &arrived);
    kernel(expected, from);
    assert!(bytes(result) == bytes(expected), "{len} bytes, replaces own: {replaces_own}");
}

fn bytes(region: Region) -> &'static [u8] {
    // SAFETY: no operation on the buffers is in progress, and they live through the comparison.
    unsafe { region.as_slice() }
}
