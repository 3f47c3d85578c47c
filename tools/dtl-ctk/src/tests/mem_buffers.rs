//! Tests of buffers that a program registers with a communicator, and of messages in device memory.
//! They apply to every communicator kind: registration never changes the result of an operation.

use crate::kit::prelude::*;
use std::ffi::c_void;

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Ranks "comm.mem_register.":
        buffers_take_part_in_messages, buffers_take_part_in_collectives,
        buffers_take_part_in_windows, duplicates_have_their_own, bad_buffers_refused,
        device_memory_arrives, device_memory_of_another_allocation;
];

const BUFFER: usize = 300_000;
/// Bytes before and behind a registered buffer.
const GUARD: usize = 1000;

/// Buffer of the program with bytes around it, registered until [`Registered::end`].
struct Registered<'a> {
    rank: &'a Rank,
    bytes: Vec<u8>,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        // Only after a failure: the buffer is still registered.
        std::mem::forget(std::mem::take(&mut self.bytes));
    }
}

fn register(rank: &Rank, first: *mut c_void, size: usize) -> Called {
    call!(dtl_comm_register(rank.comm.raw(), first, size as u64))
}

fn deregister(rank: &Rank, first: *mut c_void) -> Called {
    call!(dtl_comm_deregister(rank.comm.raw(), first))
}

impl<'a> Registered<'a> {
    fn new(rank: &'a Rank) -> Outcome<Registered<'a>> {
        let mut made = Registered { rank, bytes: vec![0xA5; BUFFER + 2 * GUARD] };
        register(rank, made.at(0), BUFFER)?;
        Ok(made)
    }

    /// Returns the address at this offset of the registered buffer.
    fn at(&mut self, offset: usize) -> *mut c_void {
        self.bytes[GUARD + offset..].as_mut_ptr().cast()
    }

    fn set(&mut self, offset: usize, bytes: &[u8]) {
        self.bytes.fill(0xA5);
        self.bytes[GUARD + offset..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Checks that the buffer contains these bytes at this offset, and 0xA5 elsewhere.
    fn is(&self, offset: usize, bytes: &[u8], what: &str) -> Outcome {
        let mut should = vec![0xA5; self.bytes.len()];
        should[GUARD + offset..][..bytes.len()].copy_from_slice(bytes);
        same!(&self.bytes, &should, "{what}: {}")
    }

    fn end(mut self) -> Outcome {
        let first = self.at(0);
        deregister(self.rank, first)?;
        drop(std::mem::take(&mut self.bytes));
        Ok(())
    }
}

/// Sends from one buffer to the next rank and receives into another one from the previous rank.
fn passed(p: &Rank, from: *const c_void, into: *mut c_void, size: usize) -> Called {
    let (comm, count, next, previous) = (p.comm.raw(), size as u64, p.next(), p.previous());
    let none = ptr::null_mut();
    let byte = DTL_DTYPE_BYTE;
    call!(dtl_comm_sendrecv(comm, from, count, next, 5, into, count, previous, 5, byte, none))
}

/// Sizes and offsets of messages: frames and large messages, odd and even.
const MESSAGES: [(usize, usize); 8] = [
    (1, 0),
    (100, 1),
    (8192, 7),
    (8193, 4096),
    (20_000, 65_537),
    (100_000, 100_000),
    (200_000, 99_999),
    (BUFFER, 0),
];

fn buffers_take_part_in_messages(p: &Rank) -> Outcome {
    let (mut out, mut into) = (Registered::new(p)?, Registered::new(p)?);
    for ((size, at), number) in MESSAGES.into_iter().zip(1..) {
        let to = BUFFER - size - at.min(BUFFER - size);
        let (sent, due) =
            (message(p.rank, p.next(), number, size as u64), p.due(number, size as u64));
        out.set(at, &sent);
        into.set(0, &[]);
        passed(p, out.at(at), into.at(to), size)?;
        let what = format!("{size} bytes from offset {at} of a registered buffer to {to} of one");
        into.is(to, &due, &what)?;
        out.is(at, &sent, &what)?;
    }
    out.end()?;
    into.end()
}

fn buffers_take_part_in_collectives(p: &Rank) -> Outcome {
    let (mut out, mut into) = (Registered::new(p)?, Registered::new(p)?);
    let (comm, ranks) = (p.comm.raw(), p.size as usize);
    for (count, at, number) in [(1_usize, 8, 1_u64), (100, 64, 2), (9000 / ranks, 4096, 3)] {
        let (size, words) = (count * 8, count as u64);
        let values = |rank: u64| -> Vec<u8> {
            (0..words).flat_map(|i| (i * number + (rank + 1) * 1000).to_ne_bytes()).collect()
        };
        let (own, all) = (values(p.rank as u64), (0..ranks as u64).flat_map(values));
        out.set(at, &own);
        into.set(0, &[]);
        let (from, to) = (out.at(at).cast_const(), into.at(at));
        call!(dtl_comm_allgather(comm, from, words, to, DTL_DTYPE_UINT64))?;
        into.is(at, &all.collect::<Vec<u8>>(), "an allgather in registered buffers")?;
        let rounds = ranks as u64;
        let sum = |i: u64| i * number * rounds + 1000 * rounds * (rounds + 1) / 2;
        into.set(0, &[]);
        call!(dtl_comm_allreduce(comm, from, to, words, DTL_DTYPE_UINT64, DTL_OP_SUM))?;
        let sums: Vec<u8> = (0..words).flat_map(|i| sum(i).to_ne_bytes()).collect();
        into.is(at, &sums, "an allreduce in registered buffers")?;
        let root = p.size - 1;
        let bytes = message(root, 99, number, size as u64);
        into.set(at, if p.rank == root { &bytes } else { &[] });
        call!(dtl_comm_bcast(comm, to, size as u64, DTL_DTYPE_BYTE, root))?;
        into.is(at, &bytes, "a bcast in a registered buffer")?;
        out.is(at, &own, "the send buffer of collectives")?;
    }
    out.end()?;
    into.end()
}

fn buffers_take_part_in_windows(p: &Rank) -> Outcome {
    let (mut out, mut exposed) = (Registered::new(p)?, Registered::new(p)?);
    let (base, none) = (exposed.at(0), DTL_WIN_NULL);
    let win = output!(none, dtl_win_create(p.comm.raw(), base, BUFFER as u64, 1))?;
    for ((size, at), number) in MESSAGES.into_iter().zip(1..) {
        let sent = message(p.rank, p.next(), number, size as u64);
        out.set(at, &sent);
        exposed.set(0, &[]);
        call!(dtl_win_fence(win))?;
        let (from, count, to) = (out.at(at), size as u64, p.next());
        call!(dtl_win_put(win, from, count, DTL_DTYPE_BYTE, to, at as u64))?;
        call!(dtl_win_fence(win))?;
        let what = format!("a put of {size} bytes from a registered buffer into one");
        exposed.is(at, &p.due(number, size as u64), &what)?;
        out.set(0, &[]);
        let from = p.previous();
        call!(dtl_win_get(win, out.at(at), count, DTL_DTYPE_BYTE, from, at as u64))?;
        call!(dtl_win_fence(win))?;
        let before = (p.previous() + p.size - 1) % p.size;
        let what = format!("a get of {size} bytes from a registered buffer into one");
        out.is(at, &message(before, p.previous(), number, size as u64), &what)?;
    }
    call!(dtl_win_destroy(win))?;
    out.end()?;
    exposed.end()
}

/// A duplicate shares the transport, but has registered buffers of its own.
fn duplicates_have_their_own(p: &Rank) -> Outcome {
    let other = p.dup()?;
    let (mut out, mut into) = (Registered::new(p)?, Registered::new(p)?);
    register(&other, out.at(0), BUFFER)?;
    register(&other, into.at(500), BUFFER - 1000)?;
    for (rank, number) in [(p, 1), (&other, 2)] {
        let sent = message(p.rank, p.next(), number, 50_000);
        out.set(3, &sent);
        into.set(0, &[]);
        passed(rank, out.at(3), into.at(600), 50_000)?;
        into.is(
            600,
            &p.due(number, 50_000),
            "a message in buffers that two duplicates registered",
        )?;
    }
    deregister(&other, out.at(0))?;
    other.destroy()?; // ends the registration of `into`
    let sent = message(p.rank, p.next(), 3, 50_000);
    out.set(7, &sent);
    into.set(0, &[]);
    passed(p, out.at(7), into.at(700), 50_000)?;
    into.is(700, &p.due(3, 50_000), "a message after the duplicate ended its registrations")?;
    out.end()?;
    into.end()
}

fn bad_buffers_refused(p: &Rank) -> Outcome {
    let mut one = Registered::new(p)?;
    let first = one.at(0);
    let inside = one.at(100);
    let null = register(p, ptr::null_mut(), 1);
    refused(null, DTL_ERROR_NULL_POINTER, "NULL")?;
    let mut other = vec![0_u8; 64];
    let plain = other.as_mut_ptr().cast();
    refused(register(p, plain, 0), DTL_ERROR_INVALID_ARGUMENT, "a buffer of 0 bytes")?;
    refused(register(p, first, BUFFER), DTL_ERROR_ALREADY_EXISTS, "a buffer twice")?;
    refused(register(p, inside, 1), DTL_ERROR_ALREADY_EXISTS, "a part of a buffer")?;
    refused(deregister(p, inside), DTL_ERROR_NOT_FOUND, "an address inside a buffer")?;
    refused(deregister(p, plain), DTL_ERROR_NOT_FOUND, "a buffer that is not registered")?;
    let host = Backend::find("host")?.alloc(DTL_MEMORY_HOST, 64, 0)?;
    let beyond = register(p, host.at(0), 65);
    refused(beyond, DTL_ERROR_OUT_OF_BOUNDS, "a byte more than an allocation has")?;
    let sent = message(p.rank, p.next(), 1, 20_000);
    one.set(0, &sent);
    let mut got = vec![0; 20_000];
    passed(p, one.at(0), got.as_mut_ptr().cast(), 20_000)?;
    same!(&got, &p.due(1, 20_000), "after refusals, a message from a registered buffer: {}")?;
    one.end()
}

/// Returns the backend of the communicator if it has device memory.
fn device_memory(p: &Rank) -> Outcome<Backend> {
    let own = match p.kind.as_str() {
        "self" | "threads" | "minimal" | "faulty" => None,
        kind => Backend::find(kind).ok(),
    };
    let Some(backend) = own else { skip!("the kind is no backend's") };
    if backend.info()?.components & DTL_COMPONENT_MEMORY == 0
        || optional(backend.alloc(DTL_MEMORY_DEVICE, 64, 0))?.is_none()
    {
        skip!("the backend has no device memory");
    }
    Ok(backend)
}

/// Passes messages between two allocations and compares these completely.
fn in_device_memory(p: &Rank, out: &Block, into: &Block, numbers: u64) -> Outcome {
    let whole = |at: usize, bytes: &[u8]| {
        let mut all = vec![0xA5; BUFFER];
        all[at..at + bytes.len()].copy_from_slice(bytes);
        all
    };
    for ((size, at), number) in MESSAGES.into_iter().zip(numbers..) {
        let to = BUFFER - size - at.min(BUFFER - size);
        let sent = whole(at, &message(p.rank, p.next(), number, size as u64));
        out.write(0, &sent)?;
        into.write(0, &whole(0, &[]))?;
        passed(p, out.at(at as u64), into.at(to as u64), size)?;
        let what = format!("{size} bytes from offset {at} of device memory to {to}");
        same!(&into.all()?, &whole(to, &p.due(number, size as u64)), "{what}: {}")?;
        same!(&out.all()?, &sent, "{what}, the sender's memory: {}")?;
    }
    Ok(())
}

fn device_memory_arrives(p: &Rank) -> Outcome {
    let backend = device_memory(p)?;
    let alloc = || backend.alloc(DTL_MEMORY_DEVICE, BUFFER as u64, 0);
    let (out, into) = (alloc()?, alloc()?);
    in_device_memory(p, &out, &into, 1)?;
    register(p, out.at(0), BUFFER)?;
    register(p, into.at(0), BUFFER)?;
    in_device_memory(p, &out, &into, 20)?;
    deregister(p, out.at(0))?;
    deregister(p, into.at(0))?;
    in_device_memory(p, &out, &into, 40)
}

/// Allocations that are freed while the communicator lives, and others at their addresses.
fn device_memory_of_another_allocation(p: &Rank) -> Outcome {
    let backend = device_memory(p)?;
    let alloc = || backend.alloc(DTL_MEMORY_DEVICE, BUFFER as u64, 0);
    for round in 0..3 {
        let (out, into) = (alloc()?, alloc()?);
        in_device_memory(p, &out, &into, 100 * round)?;
        out.free()?;
        into.free()?;
    }
    Ok(())
}
