//! Costs for `dtl-ctk report`: the time of slots of the backend's tables, called as the library
//! calls them, and of the functions of the library that lead to them.
//!
//! Calls of one process are measured in batches, by turns with slots and with the library. Ranks
//! measure slots and the library in workers of their own, by turns, because both would meet under
//! one job name.

use crate::case::Op;
use crate::kit::calls::Backend;
use crate::kit::exec_calls::{Event, Executor, Job, Stream};
use crate::kit::outcome::{Outcome, call, skip};
use crate::kit::rank::Rank;
use crate::kit::slot_comm::SlotComm;
use crate::kit::subject::{Subject, kind_name, pattern};
use crate::kit::vtables::Vtables;
use crate::tests::coll_call::{Collective, Form};
use dtl_sys::*;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr;
use std::time::{Duration, Instant};

/// Least time of a batch, and number of batches.
const BATCH: Duration = Duration::from_micros(200);
const BATCHES: usize = 15;
/// Round trips of a batch of messages, and their sizes.
const TRIPS: u64 = 100;
const SIZES: [(usize, &str); 2] = [(8, "message, 8 B"), (65_536, "message, 64 KiB")];
const WORD: u64 = 0x21;
const ALLREDUCE: &str = "allreduce, 8 B";

/// Costs that a worker measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Costs {
    /// Slots and functions that need one process.
    Alone,
    /// Slots of a comm table.
    Slots,
    /// Functions of communicators.
    Ranks,
}

/// Measured nanoseconds by operation: of slots, and of the library.
pub(crate) type Measured = BTreeMap<String, [Vec<f64>; 2]>;

/// Kinds of lines: cost of a slot, and of the library.
pub(crate) const SLOT: char = 's';
pub(crate) const LIBRARY: char = 'l';

/// Receives the kind of a cost, the operation, and the nanoseconds if they are measured.
pub(crate) type Row<'a> = &'a (dyn Fn(char, &str, Option<f64>) + Sync);

pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Measures the costs that need one process.
pub(crate) fn alone(s: &Subject, vtables: Option<&Vtables>, row: Row) -> Outcome {
    if let Some(kind) = s.kinds.first() {
        memory(s.backend, vtables, kind.word, row)?;
    }
    if s.has("exec") {
        exec(s.backend, vtables, row)?;
    }
    Ok(())
}

/// Measures a slot (if the backend's table has it) and a function of the library by turns.
fn pair(
    row: Row,
    name: &str,
    mut slot: Option<impl FnMut() -> Outcome>,
    mut library: impl FnMut() -> Outcome,
) -> Outcome {
    fn batch(count: u32, call: &mut dyn FnMut() -> Outcome) -> Outcome<Duration> {
        let begin = Instant::now();
        (0..count).try_for_each(|_| call())?;
        Ok(begin.elapsed())
    }
    let mut count = 1;
    while batch(count, &mut library)? < BATCH && count < 100_000 {
        count *= 2;
    }
    let (mut bare, mut ours) = (Vec::new(), Vec::new());
    let each = |time: Duration| time.as_nanos() as f64 / f64::from(count);
    for _ in 0..BATCHES {
        if let Some(slot) = &mut slot {
            bare.push(each(batch(count, slot)?));
        }
        ours.push(each(batch(count, &mut library)?));
    }
    row(SLOT, name, median(bare));
    row(LIBRARY, name, median(ours));
    Ok(())
}

/// Calls a slot of a backend's table and checks its status.
macro_rules! bare {
    ($vtables:expr, $name:literal, $function:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: a slot of the table that was registered, with the arguments that its contract
        // names.
        let status = unsafe { $function($vtables.own $(, $argument)*) };
        Vtables::check($name, status)
    }};
}

fn memory(backend: Backend, vtables: Option<&Vtables>, kind: u64, row: Row) -> Outcome {
    let name = kind_name(kind);
    let slots = vtables.and_then(|vtables| {
        let table = vtables.tables.memory.as_ref()?;
        Some((vtables, table.alloc?, table.free?))
    });
    let slot = slots.map(|(vtables, alloc, free)| {
        move || {
            let mut pointer = ptr::null_mut();
            bare!(vtables, "memory.alloc", alloc(4096, 64, kind, &raw mut pointer))?;
            bare!(vtables, "memory.free", free(pointer, 4096, 64, kind))
        }
    });
    let library = || Ok(backend.alloc(kind, 4096, 64)?.free()?);
    pair(row, &format!("alloc and free, {name}, 4 KiB"), slot, library)?;
    let (block, bytes) = (backend.alloc(kind, 65_536, 64)?, pattern(1, 65_536));
    let (to, from) = (block.at(0), bytes.as_ptr().cast::<c_void>());
    let copy = vtables.and_then(|vtables| Some((vtables, vtables.tables.transfer.as_ref()?.copy?)));
    let slot = copy.map(|(vtables, copy)| {
        move || bare!(vtables, "transfer.copy", copy(to, kind, from, DTL_MEMORY_HOST, 65_536))
    });
    pair(row, &format!("copy from host to {name}, 64 KiB"), slot, || Ok(block.write(0, &bytes)?))?;
    Ok(block.free()?)
}

extern "C" fn nothing(_: *mut c_void) -> dtl_status_t {
    DTL_SUCCESS
}

fn exec(backend: Backend, vtables: Option<&Vtables>, row: Row) -> Outcome {
    let table = vtables.and_then(|vtables| Some((vtables, vtables.tables.exec.as_ref()?)));
    let (executor, job) = (Executor::new(backend)?, Job::new(|| 0));
    let slot = table.and_then(|(vtables, table)| Some((vtables, table.execute?)));
    let slot = slot.map(|(vtables, execute)| {
        move || bare!(vtables, "exec.execute", execute(Some(nothing), ptr::null_mut()))
    });
    pair(row, "launch of a task", slot, || Ok(executor.run(job)?))?;
    let (stream, event) = (Stream::new(backend, 0)?, Event::new(backend)?);
    let slots = table.and_then(|(vtables, table)| {
        let create = (table.stream_create?, table.event_create?);
        let destroy = (table.stream_destroy?, table.event_destroy?);
        Some((vtables, create, table.event_record?, table.event_sync?, destroy))
    });
    let (mut on, mut own) = (ptr::null_mut(), ptr::null_mut());
    if let Some((vtables, (stream_create, event_create), ..)) = slots {
        bare!(vtables, "exec.stream_create", stream_create(0, 0, &raw mut on))?;
        bare!(vtables, "exec.event_create", event_create(0, &raw mut own))?;
    }
    let slot = slots.map(|(vtables, _, record, sync, _)| {
        move || {
            bare!(vtables, "exec.event_record", record(own, on))?;
            bare!(vtables, "exec.event_sync", sync(own))
        }
    });
    let library = || Ok(event.record(&stream).and_then(|()| event.sync())?);
    pair(row, "event, recorded and awaited", slot, library)?;
    if let Some((vtables, .., (stream_destroy, event_destroy))) = slots {
        bare!(vtables, "exec.event_destroy", event_destroy(own))?;
        bare!(vtables, "exec.stream_destroy", stream_destroy(on))?;
    }
    event.destroy()?;
    Ok(stream.destroy()?)
}

/// Returns half of the time of a call, the median of several batches.
fn half(mut trip: impl FnMut() -> Outcome) -> Outcome<Option<f64>> {
    trip()?;
    let mut times = Vec::new();
    for _ in 0..BATCHES {
        let begin = Instant::now();
        (0..TRIPS).try_for_each(|_| trip())?;
        times.push(begin.elapsed().as_nanos() as f64 / TRIPS as f64 / 2.0);
    }
    Ok(median(times))
}

/// Measures one-way messages as half of a round trip between ranks 0 and 1.
fn messages(
    (rank, ranks): (i32, i32),
    send: impl Fn(&[u8], i32) -> Outcome,
    receive: impl Fn(&mut [u8], i32) -> Outcome,
    row: impl Fn(&str, Option<f64>),
) -> Outcome {
    if ranks < 2 {
        skip!("messages and collectives take two ranks, there is one");
    }
    for (size, name) in SIZES {
        let (sent, mut room) = (vec![1; size], vec![0; size]);
        match rank {
            0 => row(name, half(|| send(&sent, 1).and_then(|()| receive(&mut room, 1)))?),
            1 => drop(half(|| receive(&mut room, 0).and_then(|()| send(&sent, 0)))?),
            _ => {}
        }
    }
    Ok(())
}

/// Measures messages and an allreduce through the slots of a comm table.
pub(crate) fn slots_of_rank(comm: &SlotComm, row: Row) -> Outcome {
    let (table, own, at) = comm.bare();
    let (Some(isend), Some(irecv), Some(test)) = (table.isend, table.irecv, table.test) else {
        skip!("the comm table lacks isend, irecv or test");
    };
    let wait = |(slot, started): (&str, dtl_status_t), id: u64| {
        Vtables::check(slot, started)?;
        let mut result =
            dtl_comm_done_t { source: 0, status: DTL_SUCCESS, match_word: 0, size_bytes: 0 };
        let (mut done, mut turn) = (0, 0_u64);
        while done == 0 {
            // SAFETY: the slot's contract: an operation of this communicator, and two outputs.
            let status = unsafe { test(own, at, id, &raw mut done, &raw mut result) };
            Vtables::check("comm.test", status)?;
            turn += 1;
            // Ranks may share a core.
            if turn % 64 == 0 {
                std::thread::yield_now();
            }
        }
        Vtables::check(slot, result.status)
    };
    let send = |bytes: &[u8], peer| {
        let (from, size, mut id) = (bytes.as_ptr().cast(), bytes.len() as u64, 0);
        // SAFETY: the slot's contract; the buffer lives until the operation is complete.
        let status = unsafe { isend(own, at, from, size, peer, WORD, &raw mut id) };
        wait(("comm.isend", status), id)
    };
    let receive = |room: &mut [u8], peer| {
        let (into, size, mut id) = (room.as_mut_ptr().cast(), room.len() as u64, 0);
        // SAFETY: the slot's contract; the buffer lives until the operation is complete.
        let status = unsafe { irecv(own, at, into, size, peer, WORD, 0, &raw mut id) };
        wait(("comm.irecv", status), id)
    };
    messages((comm.rank, comm.size), send, receive, |name, ns| row(SLOT, name, ns))?;
    comm.meet(WORD + 1)?;
    let one = Collective::new(comm, Form { count: 1, ..Form::new(Op::Allreduce) });
    if let Some(start) = table.coll_start {
        let args = one.args();
        if one.is_supported()? {
            let half = half(|| {
                let mut id = 0;
                // SAFETY: the slot's contract; the buffers live until the operation is complete.
                let status = unsafe { start(own, at, &raw const args, &raw mut id) };
                wait(("comm.coll_start", status), id)
            })?;
            if comm.rank == 0 {
                row(SLOT, ALLREDUCE, half.map(|half| half * 2.0));
            }
        }
    }
    comm.meet(WORD + 2)?;
    comm.close()
}

/// Measures messages and an allreduce through the library.
pub(crate) fn library_of_rank(world: &Rank, row: Row) -> Outcome {
    let (comm, byte) = (world.comm.raw(), DTL_DTYPE_BYTE);
    let send = |bytes: &[u8], peer| {
        let (from, count) = (bytes.as_ptr().cast(), bytes.len() as u64);
        Ok(call!(dtl_comm_send(comm, from, count, byte, peer, 1))?)
    };
    let receive = |room: &mut [u8], peer| {
        let (into, count) = (room.as_mut_ptr().cast(), room.len() as u64);
        Ok(call!(dtl_comm_recv(comm, into, count, byte, peer, 1, ptr::null_mut()))?)
    };
    messages((world.rank, world.size), send, receive, |name, ns| row(LIBRARY, name, ns))?;
    world.barrier()?;
    let (mine, mut sum) = (1_i64, 0_i64);
    let (from, into) = ((&raw const mine).cast(), (&raw mut sum).cast());
    let half =
        half(|| Ok(call!(dtl_comm_allreduce(comm, from, into, 1, DTL_DTYPE_INT64, DTL_OP_SUM))?))?;
    if world.rank == 0 {
        row(LIBRARY, ALLREDUCE, half.map(|half| half * 2.0));
    }
    Ok(world.barrier()?)
}
