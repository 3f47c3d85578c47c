//! Quick part of the conformance tests, run in the program's process: a check of the most basic
//! function of each component of a backend. The program dtl-ctk has all other tests, including
//! those that require ranks or may crash.

use super::device;
use super::exec::event::Event;
use super::exec::executor::Executor;
use super::exec::host::thread_pool::LoopBody;
use super::exec::stream::Stream;
use super::memory::{self, Owner, Request, transfer};
use super::registry::Backend;
use crate::abi::backend::vtable::DTL_BACKEND_NO_COMPUTE;
use crate::abi::word::*;
use crate::error::{Error, Result, fail, failure};
use crate::sys::handles::epoch;
use crate::sys::memory::buf::{Region, Scratch};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Size of a test allocation in bytes.
const SIZE: usize = 10_000;
/// Time limit of asynchronous work in nanoseconds.
const LIMIT_NS: u64 = 10_000_000_000;

/// Result of a check that did not fail.
enum Done {
    Ok,
    Skipped(&'static str),
}

type Check = fn(&Arc<Backend>) -> Result<Done>;

/// Checks in the order of execution.
const CHECKS: [(&str, Check); 9] = [
    ("device.count: there is a device, and the count stays the same", count),
    ("device.get: the current device is one of them", current),
    ("memory.alloc: HOST memory keeps its contents", |backend| keeps(backend, DTL_MEMORY_HOST)),
    ("memory.alloc: DEVICE memory keeps its contents", |backend| keeps(backend, DTL_MEMORY_DEVICE)),
    ("memory.alloc: an unknown kind is refused", unknown_kind),
    ("transfer.fill: a fill sets its bytes and no others", fill),
    ("exec.stream: work runs in order before synchronize returns", order),
    ("exec.event: an event is complete when the work before it is", event),
    ("exec.parallel_for: every iteration runs once", loops),
];

/// Runs all checks. Returns a report with one line per check, and the first failure.
pub fn run(backend: &Arc<Backend>) -> (String, Result<()>) {
    let mut text = String::new();
    let mut outcome = backend.ready();
    if let Err(error) = &outcome {
        let _ = writeln!(text, "failed  availability: {error}");
        return (text, outcome);
    }
    for (name, check) in CHECKS {
        let _ = match check(backend) {
            Ok(Done::Ok) => writeln!(text, "ok      {name}"),
            Ok(Done::Skipped(why)) => writeln!(text, "skipped {name}: {why}"),
            Err(error) => {
                let line = writeln!(text, "failed  {name}: {error}");
                outcome = outcome
                    .and(Err(error.within(&format!("self-test of {}: {name}", backend.name()))));
                line
            }
        };
    }
    (text, outcome)
}

fn count(backend: &Arc<Backend>) -> Result<Done> {
    if backend.device.is_none() {
        return Ok(Done::Skipped("no device table"));
    }
    let devices = backend.device()?;
    let (first, again) = (devices.count()?, devices.count()?);
    if first < 1 || first != again {
        return fail!(DTL_ERROR_BACKEND, "{first} device(s), asked again {again}");
    }
    Ok(Done::Ok)
}

fn current(backend: &Arc<Backend>) -> Result<Done> {
    if backend.device.is_none() {
        return Ok(Done::Skipped("no device table"));
    }
    device::check(backend, device::get(backend)?)?;
    Ok(Done::Ok)
}

/// Returns true if the backend has memory of kind `kind`.
fn has(backend: &Backend, kind: dtl_enum_word_t) -> bool {
    backend.memory.is_some() && memory::kind_info(backend, kind).is_ok()
}

/// Returns test data in which all 64-bit words differ.
fn pattern(seed: u64) -> Vec<u64> {
    (0..SIZE as u64 / 8).map(|index| (index + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect()
}

fn no_memory() -> Error {
    failure!(DTL_ERROR_OUT_OF_MEMORY, "no memory for a buffer on the host")
}

/// Copies 64-bit words into an allocation.
fn put(block: Region, words: &[u64]) -> Result<()> {
    let host = Scratch::of_words(words).ok_or_else(no_memory)?;
    transfer::copy(&epoch::enter(), block, host.region())
}

/// Returns the contents of an allocation as 64-bit words.
fn read(block: Region) -> Result<Vec<u64>> {
    let host = Scratch::new(block.len()).ok_or_else(no_memory)?;
    transfer::copy(&epoch::enter(), host.region(), block)?;
    Ok(host.words())
}

/// Runs a check with an allocation, and frees the allocation whatever the result.
fn with_block(
    backend: &Backend,
    kind: dtl_enum_word_t,
    check: impl FnOnce(Region) -> Result<()>,
) -> Result<Done> {
    if !has(backend, kind) {
        return Ok(Done::Skipped("the backend has no such memory"));
    }
    let wanted = Request { kind, size: SIZE as u64, align: 256 };
    let addr = match memory::alloc(Owner::Program, backend, &wanted, None) {
        // A backend that does not describe its memory kinds reports only here which kinds it has.
        Err(error) if error.status() == crate::abi::status::DTL_ERROR_NOT_SUPPORTED => {
            return Ok(Done::Skipped("the backend has no such memory"));
        }
        taken => taken?,
    };
    let outcome = check(Region::allocated(addr, SIZE));
    memory::free(Owner::Program, backend, addr)?;
    match outcome {
        // Neither the host nor the backend copies it.
        Err(error) if error.status() == crate::abi::status::DTL_ERROR_NOT_SUPPORTED => {
            Ok(Done::Skipped("the backend has no copies of such memory"))
        }
        outcome => outcome.map(|()| Done::Ok),
    }
}

fn keeps(backend: &Arc<Backend>, kind: dtl_enum_word_t) -> Result<Done> {
    with_block(backend, kind, |block| {
        for seed in [1, 77] {
            put(block, &pattern(seed))?;
            if read(block)? != pattern(seed) {
                return fail!(
                    DTL_ERROR_BACKEND,
                    "what was copied to it is not what comes back ({SIZE} bytes)"
                );
            }
        }
        Ok(())
    })
}

fn unknown_kind(backend: &Arc<Backend>) -> Result<Done> {
    if backend.memory.is_none() {
        return Ok(Done::Skipped("no memory table"));
    }
    // No member has the value 0.
    const NO_KIND: dtl_enum_word_t = 0x0001_0000_0000_0000;
    let wanted = Request { kind: NO_KIND, size: 64, align: 0 };
    match memory::alloc(Owner::Program, backend, &wanted, None) {
        Err(error) if error.status() == crate::abi::status::DTL_ERROR_NOT_SUPPORTED => Ok(Done::Ok),
        Err(error) => Err(error),
        Ok(addr) => {
            memory::free(Owner::Program, backend, addr)?;
            fail!(DTL_ERROR_BACKEND, "memory of kind {NO_KIND:#x}, which is none, was given")
        }
    }
}

fn fill(backend: &Arc<Backend>) -> Result<Done> {
    let kind = if has(backend, DTL_MEMORY_DEVICE) { DTL_MEMORY_DEVICE } else { DTL_MEMORY_HOST };
    with_block(backend, kind, |block| {
        let mut should = pattern(5);
        put(block, &should)?;
        transfer::fill(&epoch::enter(), block.part(80, 800), 0x5C)?;
        should.iter_mut().skip(10).take(100).for_each(|word| *word = 0x5C5C_5C5C_5C5C_5C5C);
        let is = read(block)?;
        match is.iter().zip(&should).position(|(is, should)| is != should) {
            Some(at) => {
                fail!(DTL_ERROR_BACKEND, "word {at} is wrong after bytes 80 to 879 were filled")
            }
            None => Ok(()),
        }
    })
}

/// Submits a task to `stream`. When the task runs, it increments `turn` if `turn` equals `number`.
fn in_turn(stream: &Stream, turn: &Arc<AtomicU64>, number: u64) -> Result<()> {
    let turn = Arc::clone(turn);
    stream.run(move || {
        let _ = turn.compare_exchange(number, number + 1, Ordering::SeqCst, Ordering::SeqCst);
        Ok(())
    })
}

fn order(backend: &Arc<Backend>) -> Result<Done> {
    let (stream, turn) = (Stream::create(Arc::clone(backend), 0, 0)?, Arc::new(AtomicU64::new(0)));
    let ran = (0..20)
        .try_for_each(|number| in_turn(&stream, &turn, number))
        .and_then(|()| stream.synchronize());
    Arc::new(stream).close();
    ran?;
    match turn.load(Ordering::SeqCst) {
        20 => Ok(Done::Ok),
        done => fail!(
            DTL_ERROR_BACKEND,
            "of 20 pieces of work only the first {done} ran in their order"
        ),
    }
}

fn event(backend: &Arc<Backend>) -> Result<Done> {
    let stream = Stream::create(Arc::clone(backend), 0, 0)?;
    let (event, turn) = (Event::create(Arc::clone(backend), 0)?, Arc::new(AtomicU64::new(0)));
    let reached = in_turn(&stream, &turn, 0)
        .and_then(|()| stream.record(&event))
        .and_then(|()| event.wait(LIMIT_NS));
    Arc::new(stream).close();
    reached?;
    if turn.load(Ordering::SeqCst) == 0 {
        return fail!(DTL_ERROR_BACKEND, "the event is complete, the work before it has not run");
    }
    Ok(Done::Ok)
}

fn loops(backend: &Arc<Backend>) -> Result<Done> {
    if backend.flags & DTL_BACKEND_NO_COMPUTE != 0 {
        return Ok(Done::Skipped("the backend computes nothing"));
    }
    let executor = Executor::create(Arc::clone(backend), 0, 0)?;
    let counts: Arc<Vec<AtomicU64>> = Arc::new((0..1000).map(|_| AtomicU64::new(0)).collect());
    let seen = Arc::clone(&counts);
    let body = LoopBody::Shared(Arc::new(move |from, to| {
        for index in from..to {
            if let Some(count) = seen.get(index as usize) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }));
    let ran = executor.run_loop(0, 1000, 7, body);
    executor.close();
    ran?;
    match counts.iter().position(|count| count.load(Ordering::Relaxed) != 1) {
        Some(at) => fail!(DTL_ERROR_BACKEND, "iteration {at} of 1000 did not run exactly once"),
        None => Ok(Done::Ok),
    }
}
