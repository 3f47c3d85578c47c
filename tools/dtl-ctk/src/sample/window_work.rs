//! Execution of the queued window operations of the backend "sample", a few in each call to `test`.

use super::arithmetic::Update;
use super::window::{ELEMENT, TURN, Waiting, What, ended};
use super::{Status, fault};
use crate::minimal::Rank;
use dtl_sys::DTL_SUCCESS;
use std::ptr;
use std::sync::PoisonError;
use std::time::Duration;

/// Executes up to `TURN` pending operations of the rank. Called by `test`.
pub(crate) fn go_on(rank: &mut Rank) {
    rank.turns += 1;
    if EARLY.into_iter().any(fault::is) && rank.turns % 64 != 0 {
        // What is told before its time must be seen before it comes true.
        return flush_early(rank);
    }
    let is_forgotten = |first: &Waiting| !matches!(first.what, What::Flush);
    if fault::is("comm.win_flush.forgets_target") && rank.waiting.front().is_some_and(is_forgotten)
    {
        // Long enough for the target to look, also on a busy machine.
        std::thread::sleep(Duration::from_millis(20));
    }
    for _ in 0..TURN {
        let is_copy =
            |waiting: &&Waiting| matches!(waiting.what, What::Copy { .. } | What::Short { .. });
        let copies = rank.waiting.iter().take(TURN).take_while(is_copy).count();
        // The youngest of the copies in front: they have no order.
        let Some(waiting) = rank.waiting.remove(copies.saturating_sub(1)) else { return };
        let status = do_it(rank, &waiting);
        let next = rank.waiting.front().map_or(waiting.op, |next| next.op);
        let op = if fault::is("comm.test.mixes_up_words") { next } else { waiting.op };
        if !matches!(waiting.what, What::Short { .. }) {
            rank.finish(op, (0, 0, 0), status);
        }
    }
}

/// Faults that, if injected, make an operation complete too early.
const EARLY: [&str; 5] = [
    "comm.win_put.reads_late",
    "comm.win_get.done_early",
    "comm.win_flush.done_early",
    "comm.win_flush.forgets_target",
    "comm.win_accumulate.reads_late",
];

fn flush_early(rank: &mut Rank) {
    let is_flush = |waiting: &Waiting| matches!(waiting.what, What::Flush);
    let at =
        rank.waiting.iter().position(is_flush).filter(|_| fault::is("comm.win_flush.done_early"));
    if let Some(flush) = at.and_then(|at| rank.waiting.remove(at)) {
        rank.finish(flush.op, (0, 0, 0), DTL_SUCCESS);
    }
}

fn do_it(rank: &Rank, waiting: &Waiting) -> Status {
    match waiting.what {
        What::Flush => {}
        What::Short { bytes, to, size } => {
            // SAFETY: the target's memory belongs to its window; see below.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, size) };
        }
        What::Copy { from, to, size } => {
            // SAFETY: the buffer belongs to the operation, the target's memory to its window;
            // threads that do not synchronize do not look at what is copied.
            unsafe { ptr::copy(from, to, size) };
        }
        What::Change { from, result, there, count, update } => {
            for index in 0..count {
                let at = index * update.size;
                let (from, result) = (step(from.cast_mut(), at), step(result, at));
                change(
                    rank,
                    waiting.target,
                    there.wrapping_add(at),
                    (from.cast_const(), result),
                    update,
                );
            }
        }
        What::Swap { value, expected, result, there, size } => {
            swap(rank, waiting.target, there, (value, expected, result), size);
        }
    }
    ended()
}

/// Advances a pointer by this number of bytes; NULL stays NULL.
fn step(pointer: *mut u8, bytes: usize) -> *mut u8 {
    if pointer.is_null() { pointer } else { pointer.wrapping_add(bytes) }
}

/// Returns the bytes of an element; zeros if `from` is NULL.
fn read(from: *const u8, size: usize) -> [u8; ELEMENT] {
    let mut bytes = [0; ELEMENT];
    if !from.is_null() {
        // SAFETY: an element is there, of at most so many bytes.
        unsafe { ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), size) };
    }
    bytes
}

fn write(bytes: [u8; ELEMENT], to: *mut u8, size: usize) {
    if !to.is_null() {
        // SAFETY: as above.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, size) };
    }
}

/// Applies `update` to one element of the target while holding the lock of the target rank.
fn change(
    rank: &Rank,
    target: i32,
    there: *mut u8,
    (from, result): (*const u8, *mut u8),
    update: Update,
) {
    let alone =
        rank.lock_of(target).map(|lock| lock.lock().unwrap_or_else(PoisonError::into_inner));
    let alone = alone.filter(|_| !fault::is("comm.win_accumulate.not_atomic"));
    let before = read(there, update.size);
    let after = update.apply(before, read(from, update.size));
    if alone.is_none() {
        std::thread::sleep(Duration::from_micros(50));
    }
    write(after, there, update.size);
    write(
        if fault::is("comm.win_accumulate.result_is_after") { after } else { before },
        result,
        update.size,
    );
}

fn swap(
    rank: &Rank,
    target: i32,
    there: *mut u8,
    (value, expected, result): (*const u8, *const u8, *mut u8),
    size: usize,
) {
    let alone =
        rank.lock_of(target).map(|lock| lock.lock().unwrap_or_else(PoisonError::into_inner));
    let apart =
        ["comm.win_compare_and_swap.not_atomic", "comm.win_compare_and_swap.apart_from_sums"];
    let alone = alone.filter(|_| !apart.into_iter().any(fault::is));
    let before = read(there, size);
    let always = fault::is("comm.win_compare_and_swap.always_stores");
    let never = fault::is("comm.win_compare_and_swap.never_stores");
    if alone.is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    if (always || before == read(expected, size)) && !never {
        write(read(value, size), there, size);
    }
    let told = fault::or("comm.win_compare_and_swap.tells_the_new", read(there, size), before);
    write(told, result, size);
}
