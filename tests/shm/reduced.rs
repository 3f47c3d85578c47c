//! Code of the ranks in tests of messages that are reduced as they arrive.

use crate::cases::barrier;
use crate::forbid::forbid;
use crate::large::{mark, wait_for_mark};
use crate::rank::*;
use dtl::abi::status::*;
use dtl::abi::word::*;
use dtl::runtime::component::{RecvReduction, SendMode};
use dtl::runtime::types;
use dtl::sys::compute::elements::Kernel;
use dtl::sys::memory::buf::Region;
use std::time::Duration;

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

/// Tests messages that are longer or shorter than the operand with which they are reduced. Their
/// common part is reduced, the receive reports the length of the message, and no other byte
/// changes.
pub(crate) fn reduced_and_truncated() {
    const BEYOND: usize = 64;
    let comm = &open();
    let sum = types::builtin(DTL_DTYPE_UINT64, DTL_OP_SUM).expect("built in");
    let kernel = sum.kernel().expect("built in");
    for (sent, room) in [
        (16, 8),
        (16, 0),
        (40_000, 20_000),
        (40_000, 0),
        (100_000, 50_000),
        (100_000, 16),
        (100_000, 0),
        (2 << 20, 1 << 20),
        (8, 16),
        (40_000, 60_000),
        (100_000, 200_000),
        (1 << 20, 2 << 20),
    ] {
        for (is_posted_first, replaces_own) in
            [(true, true), (true, false), (false, true), (false, false)]
        {
            // The receive is posted before rank 0 sends, or once the message may have arrived.
            let meet_if = |is_now: bool| is_now.then(|| barrier(comm));
            if comm.rank() == 0 {
                meet_if(is_posted_first);
                let data = Buffer::filled(sent, 3);
                let op = send(comm, &data, 1, 1);
                meet_if(!is_posted_first);
                assert_eq!(wait(comm, op).status, DTL_SUCCESS);
                continue;
            }
            let [own, into, expected] = [5, 7, 5].map(|seed| Buffer::filled(room + BEYOND, seed));
            let other = own.region().part(0, room);
            let by = RecvReduction { kernel, other, is_left: false, replaces_other: replaces_own };
            meet_if(!is_posted_first);
            let reducing = comm.groups().reducing.expect("provided");
            let part = into.region().part(0, room);
            let op = reducing.irecv_reduce(part, from(0, 1), by).expect("irecv");
            meet_if(is_posted_first);
            let done = wait(comm, op);
            let status = if sent > room { DTL_ERROR_TRUNCATED } else { DTL_SUCCESS };
            assert_eq!((done.status, done.size), (status, sent as u64));
            let (common, result) = (sent.min(room), if replaces_own { &own } else { &into });
            let reduced = expected.region().part(0, common);
            kernel(reduced, reduced, Buffer::filled(sent, 3).region());
            let what = format!("{sent} bytes to {room}, {is_posted_first}, {replaces_own}");
            assert!(result.bytes()[..common] == bytes(reduced)[..], "{what}");
            let is_kept = |buffer: &Buffer, seed: u64, at: usize| {
                buffer.bytes()[at..] == Buffer::filled(room + BEYOND, seed).bytes()[at..]
            };
            assert!(is_kept(&own, 5, if replaces_own { common } else { 0 }), "{what}");
            assert!(is_kept(&into, 7, if replaces_own { room } else { common }), "{what}");
        }
    }
    barrier(comm);
}

/// Tests that a receive that reduces its message can be canceled until the message is matched: then
/// the next receive gets the message. Later the cancellation has no effect.
pub(crate) fn reduced_and_canceled() {
    const LEN: usize = 16 << 20;
    let comm = &open();
    let sum = types::builtin(DTL_DTYPE_UINT64, DTL_OP_SUM).expect("built in");
    let kernel = sum.kernel().expect("built in");
    let data = Buffer::filled(LEN, 3);
    for replaces_own in [true, false] {
        if comm.rank() == 0 {
            barrier(comm);
            for len in [8, 40_000, 100_000] {
                let op = comm.isend(data.region().part(0, len), 1, 1, SendMode::Standard);
                assert_eq!(wait(comm, op.expect("isend")).status, DTL_SUCCESS);
            }
            // All cells are free, so the first fragments of the next message are sent at once.
            barrier(comm);
            let op = send(comm, &data, 1, 1);
            // Makes no calls, so that the message is not over before rank 1 has canceled.
            assert!(wait_for_mark("canceled", Duration::from_secs(60)), "rank 1 has not begun");
            assert_eq!(wait(comm, op).status, DTL_SUCCESS);
            barrier(comm);
            continue;
        }
        let [own, into] = [5, 7].map(|seed| Buffer::filled(LEN, seed));
        let other = own.region();
        let by = RecvReduction { kernel, other, is_left: false, replaces_other: replaces_own };
        let reducing = comm.groups().reducing.expect("provided");
        let start = || reducing.irecv_reduce(into.region(), from(0, 1), by).expect("irecv");
        let unmatched = start();
        assert_eq!(comm.outcome(unmatched).expect("test"), None);
        comm.cancel(unmatched).expect("cancel");
        assert_eq!(wait(comm, unmatched).status, DTL_ERROR_CANCELED);
        barrier(comm);
        for len in [8, 40_000, 100_000] {
            let plain = Buffer::new(len);
            let done = wait(comm, receive(comm, &plain, from(0, 1)));
            assert_eq!((done.status, done.size), (DTL_SUCCESS, len as u64));
            assert!(plain.bytes() == &data.bytes()[..len]);
        }
        barrier(comm);
        assert!(own.holds(LEN, 5) && into.holds(LEN, 7), "a canceled receive got a message");
        let result = if replaces_own { &own } else { &into };
        let (first, last) = (result.bytes()[8], result.bytes()[LEN - 8]);
        let op = start();
        until(|| {
            assert_eq!(comm.outcome(op).expect("test"), None, "the sender is away");
            (result.bytes()[8] != first || result.bytes()[LEN - 8] != last).then_some(())
        });
        comm.cancel(op).expect("too late is no error");
        std::fs::write(mark("canceled"), "").expect("mark");
        assert_eq!(wait(comm, op).status, DTL_SUCCESS);
        let expected = Buffer::filled(LEN, 5);
        kernel(expected.region(), expected.region(), data.region());
        assert!(result.bytes() == expected.bytes(), "a part is missing");
        barrier(comm);
    }
}

/// Tests that one call to `progress` reduces only a part of a large message that the sender has
/// written to the receive buffer.
pub(crate) fn reduced_step_by_step() {
    const LEN: usize = 32 << 20;
    const MOST: usize = 8 << 20;
    let comm = &open();
    let data = Buffer::filled(LEN, 3);
    barrier(comm);
    if comm.properties().description.contains("two copies") {
        println!("skipped: {}", comm.properties().description);
        return;
    }
    if comm.rank() == 0 {
        let op = send(comm, &data, 1, 1);
        until(|| {
            assert_eq!(comm.outcome(op).expect("test"), None, "rank 1 has some of the fragments");
            mark("matched").exists().then_some(())
        });
        let _ = std::fs::remove_file(mark("matched"));
        // Rank 1 makes no calls, so this rank writes all fragments that it has not claimed.
        assert_eq!(wait_for(comm, op, Duration::from_millis(500)), None, "the send is over");
        std::fs::write(mark("written"), "").expect("mark");
        assert_eq!(wait(comm, op).status, DTL_SUCCESS);
    } else {
        let (own, into) = (Buffer::new(LEN), Buffer::new(LEN));
        let reduced = || 8 * own.bytes().chunks_exact(8).filter(|word| **word != [0; 8]).count();
        let sum = types::builtin(DTL_DTYPE_UINT64, DTL_OP_SUM).expect("built in");
        let kernel = sum.kernel().expect("built in");
        let other = own.region();
        let by = RecvReduction { kernel, other, is_left: false, replaces_other: true };
        let reducing = comm.groups().reducing.expect("provided");
        let op = reducing.irecv_reduce(into.region(), from(0, 1), by).expect("irecv");
        until(|| {
            comm.progress();
            (own.bytes()[LEN - 8..] != [0; 8]).then_some(())
        });
        std::fs::write(mark("matched"), "").expect("mark");
        assert!(wait_for_mark("written", Duration::from_secs(60)), "rank 0 does not write");
        let before = reduced();
        comm.progress();
        let step = reduced() - before;
        assert!((1..=MOST).contains(&step), "one call to progress has reduced {step} bytes");
        assert_eq!(wait(comm, op).status, DTL_SUCCESS);
        assert!(own.bytes() == data.bytes(), "a part is missing");
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
