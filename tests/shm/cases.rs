//! Code of the ranks in the tests.

use crate::deaths::{Killed, killed, killed_while_taken};
use crate::forbid::{forbid, forbid_as_told};
use crate::rank::*;
use crate::{large, late, parts, reduced};
use dtl::abi::comm::communicator::DTL_ANY_SOURCE;
use dtl::abi::status::*;
use dtl::runtime::component::{OpId, Selector, SendMode};
use dtl::sys::memory::buf::Region;
use std::time::Duration;

/// Replaces this process by the program in DTL_TEST_PROGRAM. A filter for system calls stays in
/// force.
fn run_program() {
    use std::os::unix::process::CommandExt;
    let line = std::env::var("DTL_TEST_PROGRAM").expect("a command");
    let mut words = line.split(' ');
    let mut command = std::process::Command::new(words.next().expect("a program"));
    command.args(words).env_remove("DTL_TEST_FORBID").env("DTL_TEST_CASE", "traffic");
    panic!("{line}: {}", command.exec());
}

pub(crate) fn run(case: &str) {
    forbid_as_told();
    match case {
        "program" => run_program(),
        "traffic" => traffic(&open()),
        "flood" => flood(&open()),
        "big" => big(&open()),
        "any_source" => any_source(&open()),
        "truncation" => truncation(&open()),
        "cancel" => cancel(&open()),
        "synchronous" => synchronous(&open()),
        "taken" => taken(&open()),
        "reopen" => reopen(),
        "retry" => retry(),
        "threads" => threads(&open()),
        "fork" => fork(&open()),
        "leave" => leave(&open()),
        "stopped" => stopped(&open()),
        "unprivileged" => unprivileged(),
        "one_off" => one_off(),
        "different_copy_methods" => different_copy_methods(),
        "bad_setting" => bad_setting(),
        "killed_idle" => killed(Killed::Idle),
        "killed_in_send" => killed(Killed::InSend),
        "killed_in_stream" => killed(Killed::InStream),
        "killed_while_taken" => killed_while_taken(),
        "killed_while_receiving" => large::killed_while_receiving(),
        "killed_while_sending" => large::killed_while_sending(false),
        "killed_while_reduced" => large::killed_while_sending(true),
        "reduced" => reduced::reduced(&open()),
        "reduced_pairs" => reduced::reduced_pairs(),
        "reduced_by_different_methods" => {
            set_different_methods();
            reduced::reduced(&open());
        }
        "reduced_without_reads" => reduced::reduced_without_reads(),
        "reduced_and_truncated" => reduced::reduced_and_truncated(),
        "reduced_and_canceled" => reduced::reduced_and_canceled(),
        "reduced_step_by_step" => reduced::reduced_step_by_step(),
        "late" => late::late(),
        "late_in_the_middle" => late::late_in_the_middle(),
        "late_for_a_wait" => late::late_for_a_wait(),
        "other_count" => late::other_count(),
        "sender_away" => large::sender_away(),
        "received_in_turn" => large::received_in_turn(),
        "reading_is_forbidden_later" => large::reading_is_forbidden_later(),
        "writing_is_forbidden" => large::writing_is_forbidden(),
        "both_ways" => large::both_ways(),
        "chosen_method" => large::chosen_method(),
        "no_cells" => large::no_cells(),
        "parts" => parts::shared(),
        "no_parts" => parts::missing(),
        "killed_with_lock" => parts::killed_with_lock(),
        "crowded" => large::crowded(),
        "sent_and_left" => large::sent_and_left(),
        "huge" => huge(&open()),
        "no_memory" => drop(open_or_say()),
        "no_ring" => no_ring(),
        "open_only" => drop(open_or_say()),
        "open_and_stay" => {
            let _open = open_or_say();
            // Long enough for a second process to come in between.
            std::thread::sleep(Duration::from_millis(1500));
        }
        "open_and_hang" => {
            let _open = open();
            std::thread::sleep(Duration::from_secs(60));
        }
        other => panic!("no case {other}"),
    }
    println!("case passed");
}

fn open_or_say() -> Rank {
    match try_open() {
        Ok(comm) => comm,
        Err(error) => {
            println!("{error}");
            std::process::exit(3);
        }
    }
}

/// Exchanges a message with all ranks, so that no rank leaves while others still need it.
pub(crate) fn barrier(comm: &Rank) {
    let (data, into) = (Buffer::new(1), Buffer::new(1));
    let sends: Vec<OpId> = (0..comm.size()).map(|rank| send(comm, &data, rank, 1 << 40)).collect();
    let receives: Vec<OpId> =
        (0..comm.size()).map(|rank| receive(comm, &into, from(rank, 1 << 40))).collect();
    for op in sends.into_iter().chain(receives) {
        assert_eq!(wait(comm, op).status, DTL_SUCCESS);
    }
}

struct Message {
    from: i32,
    to: i32,
    word: u64,
    len: usize,
    seed: u64,
}

fn plan(size: i32, count: usize) -> Vec<Message> {
    let mut random = Random(99);
    let lengths = [0, 1, 47, 48, 49, 4096, 16 << 10, (16 << 10) + 1, 70_000, 300_000];
    let rank = |random: &mut Random| random.below(size as u64) as i32;
    (0..count)
        .map(|index| Message {
            from: rank(&mut random),
            to: rank(&mut random),
            word: random.below(3),
            len: lengths[random.below(10) as usize],
            seed: index as u64 * 2 + 12_345,
        })
        .collect()
}

/// Tests contents and order of random messages, which each rank posts and waits for in a different
/// order.
fn traffic(comm: &Rank) {
    let me = comm.rank();
    let plan = plan(comm.size(), 150 * comm.size() as usize);
    let mut random = Random(7 + me as u64);
    let (mut sends, mut receives) = (Vec::new(), Vec::new());
    let mut outgoing = plan.iter().filter(|m| m.from == me);
    let mut incoming = plan.iter().filter(|m| m.to == me);
    // In the plan's order per source and word, but sends and receives interleaved at random.
    loop {
        let next = if random.below(2) == 0 { outgoing.next().map(|m| (m, true)) } else { None };
        match next
            .or_else(|| incoming.next().map(|m| (m, false)))
            .or_else(|| outgoing.next().map(|m| (m, true)))
        {
            Some((m, true)) => {
                let data = Buffer::filled(m.len, m.seed);
                sends.push((send(comm, &data, m.to, m.word), data));
            }
            Some((m, false)) => {
                let into = Buffer::new(m.len);
                receives.push((receive(comm, &into, from(m.from, m.word)), into, m));
            }
            None => break,
        }
    }
    while !receives.is_empty() {
        let (op, into, message) =
            receives.swap_remove(random.below(receives.len() as u64) as usize);
        let done = wait(comm, op);
        assert_eq!(
            (done.status, done.source, done.match_bits),
            (DTL_SUCCESS, message.from, message.word)
        );
        assert_eq!(done.size, message.len as u64);
        assert!(
            into.holds(message.len, message.seed),
            "contents of a message of {} bytes",
            message.len
        );
    }
    for (op, _data) in sends {
        assert_eq!(wait(comm, op).status, DTL_SUCCESS);
    }
    assert_eq!(failed_count(comm), 0);
    barrier(comm);
}

/// Sends all messages to all ranks before any rank receives.
fn flood(comm: &Rank) {
    const SMALL: u64 = 1500;
    const LARGE: u64 = 10;
    let others: Vec<i32> = (0..comm.size()).filter(|rank| *rank != comm.rank()).collect();
    let small: Vec<Buffer> = (0..SMALL).map(|index| Buffer::filled(1000, index + 1)).collect();
    let large: Vec<Buffer> = (0..LARGE).map(|index| Buffer::filled(1 << 20, index + 1)).collect();
    let mut sends = Vec::new();
    for &rank in &others {
        sends.extend(small.iter().map(|data| send(comm, data, rank, 1)));
        sends.extend(large.iter().map(|data| send(comm, data, rank, 2)));
    }
    for &rank in &others {
        for index in 0..LARGE {
            let into = Buffer::new(1 << 20);
            wait(comm, receive(comm, &into, from(rank, 2)));
            assert!(into.holds(1 << 20, index + 1));
        }
        for index in 0..SMALL {
            let into = Buffer::new(1000);
            wait(comm, receive(comm, &into, from(rank, 1)));
            assert!(into.holds(1000, index + 1), "small message {index} of rank {rank}");
        }
    }
    for op in sends {
        assert_eq!(wait(comm, op).status, DTL_SUCCESS);
    }
    barrier(comm);
}

fn big(comm: &Rank) {
    const LEN: usize = 64 << 20;
    let expected = match std::env::var("DTL_SHM_COPY").as_deref() {
        Ok("cells") => "two copies (DTL_SHM_COPY=cells)",
        Ok("cells_nt") => "two copies (DTL_SHM_COPY=cells_nt)",
        Ok("cma_get") => "one copy by the receiver (DTL_SHM_COPY=cma_get)",
        Ok(_) => "one copy by sender and receiver (DTL_SHM_COPY=cma_split)",
        Err(_) => "one copy (process_vm_readv, process_vm_writev) or two",
    };
    let description = &comm.properties().description;
    assert!(description.contains(expected) && description.len() < 128, "{description}");
    let other = 1 - comm.rank();
    let (data, into) = (Buffer::filled(LEN, 5 + comm.rank() as u64 * 2), Buffer::new(LEN));
    let ops = [send(comm, &data, other, 1), receive(comm, &into, from(other, 1))];
    for op in ops {
        let done = wait(comm, op);
        assert_eq!((done.status, done.size), (DTL_SUCCESS, LEN as u64));
    }
    assert!(into.holds(LEN, 5 + other as u64 * 2));
    barrier(comm);
}

/// Tests sizes that do not fit into 32 bits, with one copy and (by DTL_SHM_COPY) with two.
fn huge(comm: &Rank) {
    const LEN: usize = (4 << 30) + 12_345;
    const LIMIT: Duration = Duration::from_secs(100);
    let marks = [0, (1 << 31) - 8, (1 << 32) - 8, LEN - 16];
    let buffer = Buffer::new(LEN);
    if comm.rank() == 0 {
        (1_u8..).zip(marks).for_each(|(mark, at)| buffer.region().part(at, 16).fill(mark));
        let op = send(comm, &buffer, 1, 1);
        assert_eq!(wait_for(comm, op, LIMIT).expect("sent").status, DTL_SUCCESS);
    } else {
        let op = receive(comm, &buffer, from(0, 1));
        let done = wait_for(comm, op, LIMIT).expect("received");
        assert_eq!((done.status, done.size), (DTL_SUCCESS, LEN as u64));
        for (mark, at) in (1_u8..).zip(marks) {
            assert_eq!(buffer.bytes()[at..at + 16], [mark; 16]);
        }
    }
    barrier(comm);
}

fn any_source(comm: &Rank) {
    const EACH: usize = 50;
    let len = |index: usize| if index % 5 == 0 { 40_000 } else { 100 };
    if comm.rank() > 0 {
        for index in 0..EACH {
            let data =
                Buffer::filled(len(index), (comm.rank() as u64) << 32 | index as u64 | 1 << 20);
            assert_eq!(wait(comm, send(comm, &data, 0, 4)).status, DTL_SUCCESS);
        }
    } else {
        let mut next = vec![0_usize; comm.size() as usize];
        for _ in 0..EACH * (comm.size() as usize - 1) {
            let into = Buffer::new(40_000);
            let done = wait(comm, receive(comm, &into, from_any(4)));
            let index = next[done.source as usize];
            next[done.source as usize] += 1;
            assert_eq!(done.size, len(index) as u64);
            assert!(into.holds(len(index), (done.source as u64) << 32 | index as u64 | 1 << 20));
        }
        assert_eq!(next[1..], vec![EACH; next.len() - 1]);
    }
    barrier(comm);
}

fn truncation(comm: &Rank) {
    for (sent, room) in [
        (10, 5),
        (10, 0),
        (40_000, 20_000),
        (40_000, 0),
        (100_000, 50_000),
        (100_000, 10),
        (100_000, 0),
        (5 << 20, 3 << 20),
    ] {
        if comm.rank() == 0 {
            assert_eq!(wait(comm, send(comm, &Buffer::filled(sent, 3), 1, 1)).status, DTL_SUCCESS);
        } else {
            let into = Buffer::new(room + 64);
            let op = comm.irecv(into.region().part(0, room), from(0, 1)).expect("irecv");
            let done = wait(comm, op);
            assert_eq!((done.status, done.size), (DTL_ERROR_TRUNCATED, sent as u64));
            assert!(into.holds(room, 3));
            assert!(into.bytes()[room..].iter().all(|&byte| byte == 0), "bytes beyond the buffer");
        }
    }
    barrier(comm);
}

fn cancel(comm: &Rank) {
    let other = 1 - comm.rank();
    let (large, into) = (Buffer::filled(100_000, 3), Buffer::new(100_000));
    let unmatched = receive(comm, &into, from(other, 77));
    assert_eq!(comm.outcome(unmatched).expect("test"), None);
    comm.cancel(unmatched).expect("cancel");
    assert_eq!(wait(comm, unmatched).status, DTL_ERROR_CANCELED);
    // More offers than there are claims: some are with the receiver, some wait here; all can go.
    let offers: Vec<OpId> = (0..300).map(|_| send(comm, &large, other, 5)).collect();
    assert_eq!(comm.outcome(offers[0]).expect("test"), None);
    for &op in &offers {
        comm.cancel(op).expect("cancel");
        assert_eq!(wait(comm, op).status, DTL_ERROR_CANCELED);
    }
    // The other may still be withdrawing: a receive that comes earlier takes what is offered.
    barrier(comm);
    let good = Buffer::filled(100_000, 9);
    let ops = [send(comm, &good, other, 5), receive(comm, &into, from(other, 5))];
    for op in ops {
        assert_eq!(wait(comm, op).status, DTL_SUCCESS);
        comm.cancel(op).expect("too late is no error");
    }
    assert!(into.holds(100_000, 9), "a cancelled message was received");
    barrier(comm);
}

/// Tests that a synchronous send of any size completes when it is received, not before, and can be
/// canceled.
fn synchronous(comm: &Rank) {
    let other = 1 - comm.rank();
    for len in [0, 1, 100, 16 << 10, 40_000, 100_000] {
        let (data, into) = (Buffer::filled(len, 5), Buffer::new(len));
        let alone = ssend(comm, &data, other, 1);
        assert_eq!(
            wait_for(comm, alone, Duration::from_millis(30)),
            None,
            "{len}: nobody receives it"
        );
        comm.cancel(alone).expect("cancel");
        assert_eq!(wait(comm, alone).status, DTL_ERROR_CANCELED, "{len}");
        barrier(comm);
        let sent = ssend(comm, &data, other, 1);
        let done = wait(comm, receive(comm, &into, from_any(1)));
        assert_eq!((done.status, done.size, done.source), (DTL_SUCCESS, len as u64, other));
        assert!(into.holds(len, 5), "{len}");
        assert_eq!(wait(comm, sent).status, DTL_SUCCESS, "{len}");
        let own = ssend(comm, &data, comm.rank(), 2);
        assert_eq!(comm.outcome(own).expect("test"), None, "{len}: to itself");
        assert_eq!(wait(comm, receive(comm, &into, from(comm.rank(), 2))).status, DTL_SUCCESS);
        assert_eq!(wait(comm, own).status, DTL_SUCCESS);
        barrier(comm);
    }
}

/// Tests that messages are probed, reserved and received in the order sent, and that canceled
/// messages are not found.
fn taken(comm: &Rank) {
    let other = 1 - comm.rank();
    let any = Selector { source: DTL_ANY_SOURCE, match_bits: 0x100, ignore: 0xFF };
    for len in [0, 100, 40_000, 100_000] {
        let data: Vec<Buffer> = (0..4).map(|seed| Buffer::filled(len, seed)).collect();
        let gone = send(comm, &Buffer::filled(100_000, 9), other, 0x100);
        comm.cancel(gone).expect("cancel");
        assert_eq!(wait(comm, gone).status, DTL_ERROR_CANCELED);
        // Until the other rank has withdrawn its own, a look may see it.
        barrier(comm);
        let sent = [
            send(comm, &data[0], other, 0x101),
            ssend(comm, &data[1], other, 0x102),
            send(comm, &data[2], other, 0x101),
            ssend(comm, &data[3], other, 0x102),
        ];
        let seen = until(|| comm.probe(any).expect("probe"));
        assert_eq!(
            (seen.source, seen.match_bits, seen.size, seen.status),
            (other, 0x101, len as u64, DTL_SUCCESS)
        );
        let early = until(|| comm.take(from(other, 0x102)).expect("take"));
        assert_eq!(early.done.match_bits, 0x102);
        let into: Vec<Buffer> = (0..4).map(|_| Buffer::new(len)).collect();
        assert_eq!(wait(comm, receive(comm, &into[0], any)).match_bits, 0x101);
        assert_eq!(wait(comm, receive(comm, &into[2], any)).match_bits, 0x101);
        let late = until(|| comm.take(any).expect("take"));
        assert_eq!((late.done.match_bits, comm.take(any).expect("take")), (0x102, None));
        for (message, place) in [(late.message, 3), (early.message, 1)] {
            let op = comm.receive_matched(message, into[place].region()).expect("receive");
            assert_eq!(wait(comm, op).size, len as u64);
        }
        for (place, into) in into.iter().enumerate() {
            assert!(into.holds(len, place as u64), "{len}: {place}");
        }
        sent.into_iter().for_each(|op| assert_eq!(wait(comm, op).status, DTL_SUCCESS));
        let error = comm.receive_matched(late.message, into[0].region()).expect_err("received");
        assert_eq!(error.status(), DTL_ERROR_INVALID_HANDLE);
        barrier(comm);
    }
}

fn reopen() {
    for round in 0..3 {
        let (one, two) = (open(), open());
        assert_eq!(one.size(), 3);
        let next = (one.rank() + 1) % 3;
        // The same words on both: they must not mix.
        for (comm, seed) in [(&two, 21), (&one, 11)] {
            wait(comm, send(comm, &Buffer::filled(500, seed + round), next, 1));
        }
        for (comm, seed) in [(&one, 11), (&two, 21)] {
            let into = Buffer::new(500);
            wait(comm, receive(comm, &into, from((one.rank() + 2) % 3, 1)));
            assert!(into.holds(500, seed + round));
        }
        one.close().expect("close");
        let error = one.isend(Region::EMPTY, 0, 1, SendMode::Standard).expect_err("closed");
        assert_eq!(error.status(), DTL_ERROR_INVALID_STATE);
    }
}

/// Tests that rank 1 is too late for the first open and that the second open succeeds nevertheless.
fn retry() {
    let late = std::env::var("DTL_RANK").as_deref() == Ok("1");
    std::thread::sleep(Duration::from_millis(if late { 600 } else { 0 }));
    let error = try_open_for(200).err().expect("nobody else opens now");
    assert_eq!(error.status(), DTL_ERROR_TIMEOUT, "{error}");
    exchange(&open(), 100_000);
}

fn threads(comm: &Rank) {
    let other = 1 - comm.rank();
    std::thread::scope(|scope| {
        for word in 0..4_u64 {
            scope.spawn(move || {
                for index in 1..150_u64 {
                    let len = if index % 10 == 0 { 50_000 } else { 64 };
                    let (data, into) = (Buffer::filled(len, word << 32 | index), Buffer::new(len));
                    let (s, r) =
                        (send(comm, &data, other, word), receive(comm, &into, from(other, word)));
                    assert_eq!(wait(comm, r).status, DTL_SUCCESS);
                    assert_eq!(wait(comm, s).status, DTL_SUCCESS);
                    assert!(into.holds(len, word << 32 | index));
                }
            });
        }
    });
    barrier(comm);
}

fn fork(comm: &Rank) {
    let data = Buffer::filled(100, 3);
    // SAFETY: the child only makes calls that are refused, and leaves with _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused =
            comm.isend(data.region(), 0, 1, SendMode::Standard).err().map(|error| error.status());
        let closed = comm.close().err().map(|error| error.status());
        let fine =
            refused == Some(DTL_ERROR_FORKED) && closed == refused && failed_count(comm) == 0;
        // SAFETY: ends the child without running the parent's destructors.
        unsafe { libc::_exit(if fine { 0 } else { 1 }) };
    }
    let mut status = -1;
    // SAFETY: waits for that child; writes one integer.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0, "the child was not refused");
    let (other, into) = (1 - comm.rank(), Buffer::new(100));
    let ops = [send(comm, &data, other, 1), receive(comm, &into, from(other, 1))];
    ops.into_iter().for_each(|op| assert_eq!(wait(comm, op).status, DTL_SUCCESS));
    assert!(into.holds(100, 3) && failed_ranks(comm).is_empty());
    barrier(comm);
}

/// Tests that rank 1 sends and closes at once: messages that it sent arrive, and receives of other
/// messages fail.
fn leave(comm: &Rank) {
    if comm.rank() == 1 {
        for index in 0..20 {
            let op = send(comm, &Buffer::filled(2000, index + 1), 0, 1);
            assert_eq!(comm.outcome(op).expect("test").expect("there is room").status, DTL_SUCCESS);
        }
        return comm.close().expect("close");
    }
    if comm.rank() == 0 {
        std::thread::sleep(Duration::from_millis(300));
        for index in 0..20 {
            let into = Buffer::new(2000);
            assert_eq!(wait(comm, receive(comm, &into, from(1, 1))).status, DTL_SUCCESS);
            assert!(into.holds(2000, index + 1));
        }
    }
    let into = Buffer::new(10);
    assert_eq!(wait(comm, receive(comm, &into, from(1, 1))).status, DTL_ERROR_RANK_FAILURE);
    assert_eq!(wait(comm, send(comm, &Buffer::new(10), 1, 1)).status, DTL_ERROR_RANK_FAILURE);
    assert_eq!((failed_ranks(comm), failed_count(comm)), (vec![1], 0));
    // Leaving is no death: the others still receive from anybody.
    let other = 2 - comm.rank();
    let any = receive(comm, &into, from_any(6));
    wait(comm, send(comm, &Buffer::new(10), other, 6));
    assert_eq!((wait(comm, any).status), DTL_SUCCESS);
    let any = receive(comm, &into, from_any(7));
    wait(comm, send(comm, &Buffer::new(10), other, 7));
    assert_eq!((wait(comm, any).status), DTL_SUCCESS);
}

fn stopped(comm: &Rank) {
    let into = Buffer::new(4);
    if comm.rank() == 1 {
        let pid = std::process::id();
        let data = Buffer::new(4);
        // SAFETY: the array is valid while it is copied from.
        let bytes = unsafe { Region::new((&raw const pid).cast_mut().cast(), 4) };
        data.region().copy_from(bytes);
        wait(comm, send(comm, &data, 0, 1));
        wait(comm, receive(comm, &into, from(0, 2)));
        wait(comm, send(comm, &data, 0, 3));
        return barrier(comm);
    }
    wait(comm, receive(comm, &into, from(1, 1)));
    let pid = u32::from_ne_bytes(into.bytes().try_into().expect("4 bytes")) as i32;
    // SAFETY: a signal to the other rank of this test.
    unsafe { libc::kill(pid, libc::SIGSTOP) };
    // The signal takes a moment to stop a process that runs on another processor.
    let is_stopped =
        || std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("stat").contains(") T ");
    while !is_stopped() {
        std::thread::yield_now();
    }
    let answer = receive(comm, &into, from(1, 3));
    wait(comm, send(comm, &Buffer::new(4), 1, 2));
    assert_eq!(wait_for(comm, answer, Duration::from_millis(700)), None);
    assert_eq!(failed_count(comm), 0);
    // SAFETY: as above.
    unsafe { libc::kill(pid, libc::SIGCONT) };
    assert_eq!(wait(comm, answer).status, DTL_SUCCESS);
    barrier(comm);
}

/// Tests an unprivileged user, in processes whose memory cannot be read.
fn unprivileged() {
    // SAFETY: changes this process' user; root only, so else it fails and the rest still holds.
    unsafe { libc::setuid(65534) };
    // SAFETY: takes integers only.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) }, 0);
    let comm = open();
    assert!(
        comm.properties().description.contains("two copies (not permitted (EPERM))"),
        "{}",
        comm.properties().description
    );
    let text = dtl::runtime::explain::text();
    let topic = "copies of large messages: through shared memory: reading the memory of rank ";
    assert!(text.contains(topic) && text.contains("DTL_SHM_COPY=allow"), "{text}");
    exchange(&comm, 3 << 20);
}

/// Tests that rank 0 disables reads of memory while rank 1 permits them.
fn one_off() {
    if std::env::var("DTL_RANK").as_deref() == Ok("0") {
        // SAFETY: no other thread of this process reads the environment now.
        unsafe { std::env::set_var("DTL_SHM_COPY", "cells") };
    }
    let comm = open();
    let expected = if comm.rank() == 0 {
        "two copies (DTL_SHM_COPY=cells)"
    } else {
        "two copies (DTL_SHM_COPY=cells on rank 0)"
    };
    assert!(comm.properties().description.contains(expected), "{}", comm.properties().description);
    exchange(&comm, 3 << 20);
}

/// Tests ranks with different values of DTL_SHM_COPY.
fn different_copy_methods() {
    set_different_methods();
    traffic(&open());
}

fn set_different_methods() {
    let rank: usize = std::env::var("DTL_RANK").expect("rank").parse().expect("a number");
    // SAFETY: no other thread of this process reads the environment now.
    unsafe {
        std::env::set_var("DTL_SHM_COPY", ["cma_get", "cma_split", "cells_nt", "auto"][rank])
    };
}

fn bad_setting() {
    let error = try_open().err().expect("refused");
    assert!(error.text().contains("DTL_SHM_COPY=\"maybe\""), "{error}");
}

/// Tests that no memory is left for the ring of rank 0, which is allocated at the first message.
fn no_ring() {
    let comm = &open();
    if comm.rank() == 1 {
        let error = wait(comm, receive(comm, &Buffer::new(10), from(0, 1)));
        return assert_eq!(error.status, DTL_ERROR_RANK_FAILURE, "rank 0 leaves");
    }
    forbid(libc::SYS_fallocate, libc::ENOSPC);
    for _ in 0..3 {
        let data = Buffer::new(10);
        let error = comm.isend(data.region(), 1, 1, SendMode::Standard).expect_err("no memory");
        assert_eq!(error.status(), DTL_ERROR_OUT_OF_MEMORY, "{error}");
        assert!(
            error.text().contains("ring from rank 1 to rank 0: No space left on device"),
            "{error}"
        );
    }
    // What needs no new memory goes on: a message to itself.
    assert_eq!(failed_count(comm), 0);
    comm.close().expect("close");
}

pub(crate) fn exchange(comm: &Rank, len: usize) {
    let other = 1 - comm.rank();
    let (data, into) = (Buffer::filled(len, 31), Buffer::new(len));
    let ops = [send(comm, &data, other, 1), receive(comm, &into, from(other, 1))];
    ops.into_iter().for_each(|op| assert_eq!(wait(comm, op).status, DTL_SUCCESS));
    assert!(into.holds(len, 31));
    barrier(comm);
}
