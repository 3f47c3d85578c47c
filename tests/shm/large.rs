//! Code of the ranks in tests of large messages: copies while a rank is inactive, without memory
//! for cells, with more messages than cells, and when a rank ends in the middle of a message.

use crate::cases::{barrier, exchange};
use crate::forbid::{end_at, forbid};
use crate::rank::*;
use dtl::abi::status::*;
use dtl::abi::word::{DTL_DTYPE_BYTE, DTL_OP_REPLACE};
use dtl::runtime::component::{OpId, RecvReduction, SendMode};
use dtl::runtime::types::builtin;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Returns the path of a file by which ranks synchronize without the communicator.
pub(crate) fn mark(name: &str) -> PathBuf {
    let job = std::env::var("DTL_JOB").unwrap_or_default().replace('/', "-");
    std::env::temp_dir().join(format!("dtl-test-{name}-{job}"))
}

pub(crate) fn wait_for_mark(name: &str, limit: Duration) -> bool {
    let started = Instant::now();
    while !mark(name).exists() {
        if started.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let _ = std::fs::remove_file(mark(name));
    true
}

/// Tests that rank 1 receives a message although rank 0 makes no calls after starting the send.
pub(crate) fn sender_away() {
    const LEN: usize = 3_000_001;
    let comm = &open();
    barrier(comm);
    if comm.properties().description.contains("two copies") {
        println!("skipped: {}", comm.properties().description);
        return;
    }
    if comm.rank() == 0 {
        let data = Buffer::filled(LEN, 5);
        let op = send(comm, &data, 1, 1);
        assert!(wait_for_mark("away", Duration::from_secs(15)), "rank 1 waits for the sender");
        assert_eq!(wait(comm, op).status, DTL_SUCCESS);
    } else {
        let into = Buffer::new(LEN);
        assert_eq!(wait(comm, receive(comm, &into, from(0, 1))).status, DTL_SUCCESS);
        assert!(into.holds(LEN, 5));
        std::fs::write(mark("away"), "").expect("mark");
    }
    barrier(comm);
}

/// Tests that messages without a receive stay in their cells, and are not kept in heap memory first,
/// while the receiver receives them one by one.
pub(crate) fn received_in_turn() {
    const LEN: usize = 64 << 10;
    const COUNT: usize = 4;
    let comm = &open();
    barrier(comm);
    if comm.rank() == 0 {
        let data = Buffer::filled(LEN, 5);
        for _ in 0..COUNT {
            let op = send(comm, &data, 1, 1);
            assert_eq!(wait(comm, op).status, DTL_SUCCESS);
        }
        std::fs::write(mark("sent"), "").expect("mark");
    } else {
        assert!(wait_for_mark("sent", Duration::from_secs(15)), "cells for all messages");
        let (into, before) = (Buffer::new(LEN), heap_in_use());
        for number in 0..COUNT {
            assert_eq!(wait(comm, receive(comm, &into, from(0, 1))).status, DTL_SUCCESS);
            assert!(into.holds(LEN, 5));
            let kept = heap_in_use().saturating_sub(before);
            assert!(kept < LEN, "{kept} bytes are kept after message {number}");
        }
    }
    barrier(comm);
}

fn heap_in_use() -> usize {
    // SAFETY: the function has no requirements.
    let heap = unsafe { libc::mallinfo2() };
    heap.uordblks + heap.hblkhd
}

/// Tests that rank 1 loses the permission to read rank 0's memory: the fragments that it claimed
/// return to the sender.
pub(crate) fn reading_is_forbidden_later() {
    const LEN: usize = 3_000_001;
    let comm = &open();
    barrier(comm);
    if comm.rank() == 0 {
        let data = Buffer::filled(LEN, 5);
        let op = send(comm, &data, 1, 1);
        // Rank 1 takes fragments meanwhile, in vain.
        assert!(wait_for_mark("forbidden", Duration::from_secs(15)), "rank 1 has not begun");
        assert_eq!(wait(comm, op).status, DTL_SUCCESS);
    } else {
        forbid(libc::SYS_process_vm_readv, libc::EPERM);
        let into = Buffer::new(LEN);
        let op = receive(comm, &into, from(0, 1));
        assert_eq!(wait_for(comm, op, Duration::from_millis(50)), None, "the sender is away");
        std::fs::write(mark("forbidden"), "").expect("mark");
        assert_eq!(wait(comm, op).status, DTL_SUCCESS);
        assert!(into.holds(LEN, 5));
        let text = dtl::runtime::explain::text();
        let is_denied =
            text.contains("copies of large messages with rank 0: through shared memory");
        assert!(is_denied || comm.properties().description.contains("two copies ("), "{text}");
    }
    barrier(comm);
}

/// Tests that fragments are sent through cells if rank 0 may not write to rank 1's memory.
pub(crate) fn writing_is_forbidden() {
    let comm = &open();
    barrier(comm);
    if comm.rank() == 0 {
        forbid(libc::SYS_process_vm_writev, libc::EPERM);
    }
    for len in [20_000, 64 << 10, 3_000_001] {
        exchange(comm, len);
    }
}

/// Tests that of two messages in opposite directions each is read by its receiver: a write to the
/// other rank's memory ends the process.
pub(crate) fn both_ways() {
    const LEN: usize = 1 << 20;
    let comm = &open();
    barrier(comm);
    if comm.properties().description.contains("two copies (") {
        println!("skipped: {}", comm.properties().description);
        return;
    }
    let other = 1 - comm.rank();
    let seed = |rank: i32| 5 + rank as u64 * 2;
    let (data, into) = (Buffer::filled(LEN, seed(comm.rank())), Buffer::new(LEN));
    end_at(libc::SYS_process_vm_writev);
    let ops = [receive(comm, &into, from(other, 1)), send(comm, &data, other, 1)];
    ops.into_iter().for_each(|op| assert_eq!(wait(comm, op).status, DTL_SUCCESS));
    assert!(into.holds(LEN, seed(other)));
    barrier(comm);
}

/// Tests that `dtl_explain` reports the choice of the copy method, which is made only where the
/// kernel's copies are permitted.
pub(crate) fn chosen_method() {
    let comm = &open();
    let (data, into) = (Buffer::filled(1_000_000, 31), Buffer::new(1_000_000));
    for turn in 0..200 {
        let other = 1 - comm.rank();
        let op = match turn % 2 == comm.rank() {
            true => send(comm, &data, other, 1),
            false => receive(comm, &into, from(other, 1)),
        };
        assert_eq!(wait(comm, op).status, DTL_SUCCESS);
    }
    let topic = format!("copies of messages of 512 to 1024 KiB from rank {}: ", 1 - comm.rank());
    let text = dtl::runtime::explain::text();
    let is_measured = comm.properties().description.contains("whichever is faster");
    assert_eq!(text.contains(&topic), is_measured, "{text}");
    let methods = ["cells ", "cells_nt ", "cma_get ", "cma_split "];
    assert_eq!(methods.iter().all(|method| text.contains(method)), is_measured, "{text}");
    barrier(comm);
}

/// Tests that large messages use the rings if there is no memory for cells.
pub(crate) fn no_cells() {
    let comm = &open();
    barrier(comm);
    forbid(libc::SYS_fallocate, libc::ENOSPC);
    for len in [20_000, 64 << 10, (64 << 10) + 1, 1_000_001] {
        exchange(comm, len);
    }
}

/// Tests that all ranks send more messages to all ranks than there are cells, while rank 0 is late.
pub(crate) fn crowded() {
    const EACH: u64 = 12;
    let comm = &open();
    let me = comm.rank();
    let others: Vec<i32> = (0..comm.size()).filter(|rank| *rank != me).collect();
    let len = |index: u64| [17_000, 65_536, 65_537, 200_000, 500_000][index as usize % 5];
    let seed =
        |source: i32, dest: i32, index: u64| (source as u64 * 8 + dest as u64) * 1000 + index * 2;
    let modes = [SendMode::Standard, SendMode::Standard, SendMode::Synchronous];
    let mut sends: Vec<(OpId, Buffer)> = Vec::new();
    for index in 0..EACH {
        for &dest in &others {
            let data = Buffer::filled(len(index), seed(me, dest, index));
            let op =
                comm.isend(data.region(), dest, index, modes[index as usize % 3]).expect("isend");
            sends.push((op, data));
        }
    }
    if me == 0 {
        std::thread::sleep(Duration::from_millis(100));
    }
    // From the last one on, so that all of them come unexpected.
    for index in (0..EACH).rev() {
        for &source in &others {
            let into = Buffer::new(len(index));
            let done = wait(comm, receive(comm, &into, from(source, index)));
            assert_eq!((done.status, done.size), (DTL_SUCCESS, len(index) as u64));
            assert!(
                into.holds(len(index), seed(source, me, index)),
                "message {index} of rank {source}"
            );
        }
    }
    sends.iter().for_each(|(op, _)| assert_eq!(wait(comm, *op).status, DTL_SUCCESS));
    barrier(comm);
}

/// Tests that a message of up to 64 KiB is received after its sender has completed the send and
/// left.
pub(crate) fn sent_and_left() {
    let comm = &open();
    barrier(comm);
    let (data, into) = (Buffer::filled(60_000, 7), Buffer::new(60_000));
    if comm.rank() == 0 {
        assert_eq!(wait(comm, send(comm, &data, 1, 1)).status, DTL_SUCCESS);
        return comm.close().expect("close");
    }
    until(|| {
        comm.progress();
        (!failed_ranks(comm).is_empty()).then_some(())
    });
    assert_eq!(wait(comm, receive(comm, &into, from(0, 1))).status, DTL_SUCCESS);
    assert!(into.holds(60_000, 7));
}

/// Kills rank 1 while it receives large messages of rank 0, which then sends to the other ranks as
/// before.
pub(crate) fn killed_while_receiving() {
    const LEN: usize = 200 << 20;
    let comm = &open();
    let into = Buffer::new(if comm.rank() < 3 { LEN } else { 1 });
    barrier(comm);
    match comm.rank() {
        0 => {
            let data = Buffer::new(LEN);
            data.region().fill(3);
            let ops: Vec<OpId> = (0..3).map(|_| send(comm, &data, 1, 2)).collect();
            for op in ops {
                assert_eq!(wait(comm, op).status, DTL_ERROR_RANK_FAILURE);
            }
            let op = send(comm, &data, 2, 3);
            assert_eq!(wait(comm, op).status, DTL_SUCCESS);
        }
        1 => {
            let op = receive(comm, &into, from(0, 2));
            until(|| {
                assert_eq!(comm.outcome(op).expect("test"), None);
                // The first fragments are there.
                (into.bytes()[1 << 20] != 0 || into.bytes()[LEN - 1] != 0).then_some(())
            });
            // SAFETY: ends this process, which is what the case is about.
            unsafe { libc::raise(libc::SIGKILL) };
        }
        2 => {
            assert_eq!(wait(comm, receive(comm, &into, from(0, 3))).status, DTL_SUCCESS);
            let threes = vec![3; 1 << 20];
            assert!(into.bytes().chunks(1 << 20).all(|part| part == threes));
        }
        _ => {}
    }
    for (me, other) in [(0, 2), (2, 0)] {
        if comm.rank() == me {
            let op = send(comm, &Buffer::filled(1, 1), other, 9);
            assert_eq!(wait(comm, receive(comm, &into, from(other, 9))).status, DTL_SUCCESS);
            assert_eq!(wait(comm, op).status, DTL_SUCCESS);
        }
    }
}

/// Kills rank 1 while rank 0 receives a large message of rank 1, which is reduced as it arrives if
/// `is_reduced`.
pub(crate) fn killed_while_sending(is_reduced: bool) {
    const LEN: usize = 200 << 20;
    // Through cells, a message of up to 64 KiB is sent in full before it is received.
    let is_by_kernel = std::env::var("DTL_SHM_COPY").is_ok_and(|method| method != "cells");
    let early_len = if is_by_kernel { 16_000 } else { 60_000 };
    let comm = &open();
    let into = Buffer::new(if comm.rank() < 3 { LEN } else { 1 });
    barrier(comm);
    if comm.rank() == 1 {
        let data = Buffer::new(LEN);
        data.region().fill(3);
        let early = send(comm, &Buffer::filled(early_len, 9), 0, 1);
        assert_eq!(wait(comm, early).status, DTL_SUCCESS);
        let op = send(comm, &data, 0, 2);
        until(|| {
            assert_eq!(comm.outcome(op).expect("test"), None);
            mark("begun").exists().then_some(())
        });
        let _ = std::fs::remove_file(mark("begun"));
        // SAFETY: ends this process, which is what the case is about.
        unsafe { libc::raise(libc::SIGKILL) };
    }
    if comm.rank() == 0 {
        let scratch = Buffer::new(LEN);
        let op = if is_reduced {
            // Copies the bytes, which is fast in a debug build, too.
            let replace = builtin(DTL_DTYPE_BYTE, DTL_OP_REPLACE);
            let kernel = replace.and_then(|by| by.kernel()).expect("built in");
            let other = into.region();
            let by = RecvReduction { kernel, other, is_left: false, replaces_other: true };
            let reducing = comm.groups().reducing.expect("provided");
            reducing.irecv_reduce(scratch.region(), from(1, 2), by).expect("irecv")
        } else {
            receive(comm, &into, from(1, 2))
        };
        until(|| {
            assert_eq!(comm.outcome(op).expect("test"), None);
            (into.bytes()[1 << 20] != 0 || into.bytes()[LEN - 1] != 0).then_some(())
        });
        std::fs::write(mark("begun"), "").expect("mark");
        // Slowly, so that the message is not over before the other is.
        while !wait_until_gone(comm) {}
        assert_eq!(wait(comm, op).status, DTL_ERROR_RANK_FAILURE);
        // What had been sent in full stays.
        let early = Buffer::new(early_len);
        assert_eq!(wait(comm, receive(comm, &early, from(1, 1))).status, DTL_SUCCESS);
        assert!(early.holds(early_len, 9));
    }
}

/// Sleeps briefly; returns true if a rank is known to have died or left.
fn wait_until_gone(comm: &Rank) -> bool {
    std::thread::sleep(Duration::from_millis(20));
    (0..3).for_each(|_| comm.progress());
    !failed_ranks(comm).is_empty()
}
