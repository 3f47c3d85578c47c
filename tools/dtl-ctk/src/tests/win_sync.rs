//! Tests of synchronization on windows: completion, waiting, creation and destruction.

use crate::kit::malloc::malloc_bytes;
use crate::kit::prelude::*;
use crate::tests::comm_open::ranks_with;
use crate::tests::lifecycle::without_warning;
use crate::tests::win::both;

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Ranks "comm.win.":
        flush_means_there,
        flush_waits_for_large = |p| flushed(p, 6, 700 << 10, 700 << 10),
        flush_of_one_target, flush_for_a_third_rank,
        flush_of_nothing, unlock_means_there, exclusive_counts, parts_differ, two_windows_apart,
        one_after_the_other = |p| (0..30).try_for_each(|number| once(p, number, 1 + number * 211)),
        of_a_duplicate, of_ranks_turned_round, destroy_succeeds, keep_no_memory,
        operations_keep_no_memory;
];

/// Puts to the next rank in rounds. In each round, calls `over` to complete the puts. The target
/// then checks its window memory.
fn put_and_check(
    p: &Rank,
    win: &Win,
    (rounds, size, piece): (u64, u64, usize),
    lock: impl Fn() -> Called,
    over: impl Fn() -> Called,
) -> Outcome {
    for round in 0..rounds {
        lock()?;
        win.put_pieces(&message(p.rank, p.next(), round, size), piece, p.next(), 0)?;
        over()?;
        check_after_signal(p, win, || win.own_is(&p.due(round, size)))?;
    }
    Ok(())
}

fn flush_means_there(p: &Rank) -> Outcome {
    // The unlock comes behind what is looked at.
    flushed(p, 20, 700, 70)?;
    both(p, 70, |win| {
        let flush = || win.flush(p.next()).and_then(|()| win.unlock_all());
        put_and_check(p, win, (20, 70, 7), || win.lock_all(), flush)
    })
}

fn unlock_means_there(p: &Rank) -> Outcome {
    both(p, 100, |win| {
        let lock = || win.lock(DTL_LOCK_SHARED, p.next());
        put_and_check(p, win, (20, 100, 7), lock, || win.unlock(p.next()))
    })
}

fn flush_of_one_target(p: &Rank) -> Outcome {
    const SIZE: u64 = 100;
    both(p, SIZE * p.size as u64, |win| {
        win.lock_all()?;
        for round in 0..10 {
            // The first that is flushed is the last that is put to.
            for step in (0..p.size).rev() {
                let target = (p.rank + 1 + step) % p.size;
                let bytes = message(p.rank, target, round, SIZE);
                win.put_pieces(&bytes, 20, target, SIZE * p.rank as u64)?;
            }
            let mut sends = Vec::new();
            for step in 1..p.size {
                let target = (p.rank + step) % p.size;
                win.flush(target)?;
                sends.push(p.isend(Vec::new(), target, 6)?);
            }
            win.flush(p.rank)?;
            for step in 1..p.size {
                let from = (p.rank + p.size - step) % p.size;
                p.recv(0, from, 6)?;
                let (own, should) = (win.own(), message(from, p.rank, round, SIZE));
                let is = own.chunks(SIZE as usize).nth(from as usize);
                ensure!(
                    is == Some(&should[..]),
                    "what rank {from} has put and flushed in round {round} is not there"
                );
            }
            p.done(sends)?;
            p.meet(7)?;
            win.forget();
        }
        Ok(win.unlock_all()?)
    })
}

fn flush_for_a_third_rank(p: &Rank) -> Outcome {
    both(p, 512, |win| {
        win.lock_all()?;
        for round in 0..20 {
            // Into the next but one's memory, told to the next.
            let there = (p.rank + 2) % p.size;
            win.put(&message(p.rank, there, round, 512), there, 0)?;
            win.flush(there)?;
            check_after_signal(p, win, || {
                let (whose, there) = (p.previous(), (p.previous() + 2) % p.size);
                let (slot, should) = (win.get(512, there, 0)?, message(whose, there, round, 512));
                win.flush_local(there)?;
                win.got_is(slot, &should, "what another rank has put and flushed")
            })?;
        }
        Ok(win.unlock_all()?)
    })
}

fn flush_of_nothing(p: &Rank) -> Outcome {
    both(p, 8, |win| {
        win.lock_all()?;
        for _ in 0..50 {
            win.flush_all()?;
            win.flush(p.next())?;
            win.flush_local(p.rank)?;
        }
        Ok(win.unlock_all()?)
    })
}

fn exclusive_counts(p: &Rank) -> Outcome {
    const EACH: i64 = 30;
    both(p, 16, |win| {
        for _ in 0..EACH {
            win.lock(DTL_LOCK_EXCLUSIVE, 0)?;
            let slot = win.get(8, 0, 8)?;
            win.flush_local(0)?;
            win.put(&(win.integer(slot) + 1).to_ne_bytes(), 0, 8)?;
            win.unlock(0)?;
        }
        win.fence()?;
        win.first_sum_is(EACH * i64::from(p.size))
    })
}

fn parts_differ(p: &Rank) -> Outcome {
    let size = |rank: i32| rank as u64 * 1000 % 3001;
    let part = |rank: i32| pattern(rank as u64, size(rank));
    for win in [Win::given(p, size(p.rank))?, Win::allocated(p, size(p.rank))?] {
        win.set_own(0, &part(p.rank));
        win.fence()?;
        let mut slots = Vec::new();
        for target in (0..p.size).filter(|target| size(*target) > 0) {
            slots.push((target, win.get(size(target), target, 0)?));
        }
        win.fence()?;
        for (rank, slot) in slots {
            win.got_is(slot, &part(rank), &format!("rank {rank}'s part"))?;
        }
        let from = p.previous() as u8;
        if size(p.next()) > 0 {
            win.put(&[p.rank as u8], p.next(), size(p.next()) - 1)?;
        }
        win.fence()?;
        let last = win.own().last().copied();
        ensure!(last.is_none_or(|last| last == from), "the last byte is {last:?}, expected {from}");
        win.fence()?;
        win.end()?;
    }
    Ok(())
}

fn two_windows_apart(p: &Rank) -> Outcome {
    let (one, other) = (Win::given(p, 900)?, Win::given(p, 900)?);
    one.fence()?;
    other.fence()?;
    for round in 0..5 {
        one.put(&message(p.rank, p.next(), round, 900), p.next(), 0)?;
        other.put(&message(p.rank, p.next(), round + 50, 900), p.next(), 0)?;
        one.fence()?;
        one.own_is(&p.due(round, 900))?;
        other.fence()?;
        other.own_is(&p.due(round + 50, 900))?;
        one.fence()?;
        other.fence()?;
    }
    other.end()?;
    one.put(&message(p.rank, p.next(), 99, 900), p.next(), 0)?;
    one.fence()?;
    one.own_is(&p.due(99, 900))?;
    one.end()
}

/// Creates, uses and destroys a window.
fn once(p: &Rank, number: u64, size: u64) -> Outcome {
    let win = Win::given(p, size)?;
    win.fence()?;
    win.put(&message(p.rank, p.next(), number, size), p.next(), 0)?;
    win.fence()?;
    win.own_is(&p.due(number, size))?;
    win.end()
}

/// Checks that the destruction of a window does not log a warning. Only rank 0 registers the log
/// callback, because other ranks may share its process.
fn destroy_succeeds(p: &Rank) -> Outcome {
    let some = || {
        p.barrier()?;
        (0..3).try_for_each(|number| once(p, number, 100))?;
        Ok(p.barrier()?)
    };
    if p.rank == 0 { without_warning("closing a window", some) } else { some() }
}

fn of_a_duplicate(p: &Rank) -> Outcome {
    let dup = p.dup()?;
    crate::tests::p2p::ring(p, 3000, 1)?;
    once(&dup, 1, 500)?;
    crate::tests::p2p::ring(&dup, 3000, 1)?;
    once(p, 2, 500)
}

fn of_ranks_turned_round(p: &Rank) -> Outcome {
    let Some(turned) = p.split(0, -p.rank)? else { return Ok(()) };
    once(&turned, 3, 2000)?;
    let Some(half) = p.split(p.rank % 2, 0)? else { return Ok(()) };
    once(&half, 4, 2000)
}

/// Maximum number of rounds of [`without_growth`].
const ROUNDS: usize = 60;
/// Number of initial rounds whose measurements are ignored, because memory pools grow in them.
const WARM: usize = 2;
/// Minimum number of rounds between two compared measurements. If every round leaks, the total leak
/// over this many rounds exceeds the memory that malloc and exiting threads retain temporarily.
const APART: usize = 16;

/// Runs `round` repeatedly until, on each rank, the malloc memory of the process has not grown
/// between two rounds that are at least `APART` rounds apart. An average growth of less than
/// `least` bytes per round does not count as a leak.
fn without_growth(p: &Rank, least: i64, round: impl Fn() -> Outcome) -> Outcome {
    let (mut levels, mut is_calm) = (Vec::with_capacity(ROUNDS), false);
    for number in 0..ROUNDS {
        round()?;
        p.barrier()?;
        let Some(level) = malloc_bytes() else {
            skip!("this C library does not report how much memory is in use");
        };
        // In one process nobody goes on before all have looked.
        p.barrier()?;
        levels.push(level);
        let has_not_grown = |(at, before): (usize, &i32)| {
            let rounds = number - at;
            rounds >= APART && i64::from(level.wrapping_sub(*before)) < least * rounds as i64
        };
        is_calm |= levels.iter().enumerate().skip(WARM).any(has_not_grown);
        if number >= WARM + APART && ranks_with(p, is_calm)? == p.size as usize {
            return Ok(());
        }
    }
    check!(false, "memory grows with every round, bytes after each: {levels:?}")
}

fn keep_no_memory(p: &Rank) -> Outcome {
    without_growth(p, 8 * 24, || (0..8).try_for_each(|number| once(p, number, 64)))
}

fn operations_keep_no_memory(p: &Rank) -> Outcome {
    let win = Win::given(p, 64)?;
    win.lock_all()?;
    without_growth(p, 200 * 8, || {
        for _ in 0..200 {
            win.put(&[1; 8], p.next(), 0)?;
            win.get(8, p.next(), 8)?;
            win.flush(p.next())?;
            win.forget();
        }
        Ok(())
    })?;
    win.unlock_all()?;
    win.end()
}

/// Sends a message to the next rank to signal that the data in that rank's window memory is
/// complete. Calls `check` after the message from the previous rank has arrived.
fn check_after_signal(p: &Rank, win: &Win, check: impl FnOnce() -> Outcome) -> Outcome {
    let told = p.isend(Vec::new(), p.next(), 6)?;
    p.recv(0, p.previous(), 6)?;
    check()?;
    p.wait(told)?;
    p.meet(7)?;
    win.forget();
    Ok(())
}

/// Puts to the next rank in rounds within one epoch, with a flush in each round.
fn flushed(p: &Rank, rounds: u64, size: u64, piece: usize) -> Outcome {
    both(p, size, |win| {
        win.lock_all()?;
        put_and_check(p, win, (rounds, size, piece), || Ok(()), || win.flush(p.next()))?;
        Ok(win.unlock_all()?)
    })
}
