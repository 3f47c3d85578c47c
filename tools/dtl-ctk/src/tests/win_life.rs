//! Tests of windows: when operations are over, who waits for whom, how windows are made and end.

use crate::kit::catalog::{Group, tests_of_ranks};
use crate::kit::malloc::malloc_bytes;
use crate::kit::outcome::{Outcome, ensure, skip};
use crate::kit::peer::{Peer, message};
use crate::kit::subject::pattern;
use crate::kit::win::Win;
use crate::tests::open::ranks_with;
use crate::tests::presence::without_warning;
use crate::tests::win::both;
use dtl_sys::{DTL_LOCK_EXCLUSIVE, DTL_LOCK_SHARED};

pub(crate) const GROUPS: &[Group] = &[
    Group {
        slot: "comm.win_flush",
        needs: &[],
        rule: "A flush is done when all earlier operations of this rank on that target are done \
            there.",
        usually: "Done when the operations were sent, or when the last one was, which others may \
            overtake.",
        tests: tests_of_ranks![
            2 "comm.win.flush_means_there": "after flush and a message the target finds what was \
                put" => flush_there;
            2 "comm.win.flush_waits_for_large": "the same of puts of 700 KiB" => flush_large;
            2 "comm.win.flush_of_one_target": "each target by itself, in turns" => flush_each;
            2 "comm.win.flush_for_a_third_rank": "put by one, flushed, told to another, who gets \
                it" => flush_third;
            1 "comm.win.flush_of_nothing": "without operations, again and again" => flush_nothing;
            2 "comm.win.unlock_means_there": "after an unlock, as after a flush" => unlock_there;
            2 "comm.win.exclusive_counts": "reading, adding, writing under an exclusive lock loses \
                nothing" => exclusive;
        ],
    },
    Group {
        slot: "comm.win_create, win_attach, win_destroy",
        needs: &[],
        rule: "A window is memory of each rank, of any size and at any address, until win_destroy.",
        usually: "Windows that share a table of addresses, a rank without memory that is not \
            counted, a leak.",
        tests: tests_of_ranks![
            1 "comm.win.parts_differ": "each rank has another size, some none" => parts_differ;
            1 "comm.win.two_windows_apart": "the same offsets in two windows" => two_windows;
            1 "comm.win.one_after_the_other": "30 windows, each used" => again;
            1 "comm.win.of_a_duplicate": "on a duplicate, with messages on both" => of_dup;
            1 "comm.win.of_ranks_turned_round": "on a split in the reverse order" => of_split;
            1 "comm.win.destroy_succeeds": "the library has nothing to warn of" => destroy_succeeds;
            1 "comm.win.keep_no_memory": "memory does not grow with the number of \
                windows" => keeps_nothing;
            1 "comm.win.operations_keep_no_memory": "nor with that of puts, gets and \
                flushes" => operations_keep_nothing;
        ],
    },
];

/// Rounds of puts to the next rank; `over` makes them be there, then a message says so.
fn told(
    p: &Peer,
    size: u64,
    over: impl Fn(&Win) -> Outcome,
    lock: impl Fn(&Win) -> Outcome,
) -> Outcome {
    both(p, size, |win| {
        for round in 0..20 {
            lock(win)?;
            for (at, piece) in (0..).zip(message(p.rank, p.next(), round, size).chunks(7)) {
                win.put(piece, p.next(), at * 7)?;
            }
            over(win)?;
            let told = p.isend(Vec::new(), p.next(), 6)?;
            p.recv(0, p.previous(), 6)?;
            win.own_is(&message(p.previous(), p.rank, round, size))?;
            p.wait(told)?;
            p.meet(7)?;
            win.forget();
        }
        Ok(())
    })
}

fn flush_there(p: &Peer) -> Outcome {
    let flush = |win: &Win| {
        win.flush(p.next())?;
        Ok(win.unlock_all()?)
    };
    // The unlock comes behind what is looked at.
    both(p, 700, |win| {
        win.lock_all()?;
        for round in 0..20 {
            for (at, piece) in (0..).zip(message(p.rank, p.next(), round, 700).chunks(70)) {
                win.put(piece, p.next(), at * 70)?;
            }
            win.flush(p.next())?;
            let told = p.isend(Vec::new(), p.next(), 6)?;
            p.recv(0, p.previous(), 6)?;
            win.own_is(&message(p.previous(), p.rank, round, 700))?;
            p.wait(told)?;
            p.meet(7)?;
            win.forget();
        }
        Ok(win.unlock_all()?)
    })?;
    told(p, 70, flush, |win| Ok(win.lock_all()?))
}

fn flush_large(p: &Peer) -> Outcome {
    const SIZE: u64 = 700 << 10;
    both(p, SIZE, |win| {
        win.lock_all()?;
        for round in 0..6 {
            let should = message(p.previous(), p.rank, round, SIZE);
            win.put(&message(p.rank, p.next(), round, SIZE), p.next(), 0)?;
            win.flush(p.next())?;
            let told = p.isend(Vec::new(), p.next(), 6)?;
            p.recv(0, p.previous(), 6)?;
            win.own_is(&should)?;
            p.wait(told)?;
            p.meet(7)?;
            win.forget();
        }
        Ok(win.unlock_all()?)
    })
}

fn unlock_there(p: &Peer) -> Outcome {
    told(p, 100, |win| Ok(win.unlock(p.next())?), |win| Ok(win.lock(DTL_LOCK_SHARED, p.next())?))
}

fn flush_each(p: &Peer) -> Outcome {
    const SIZE: u64 = 100;
    let size = p.size as u64;
    both(p, SIZE * size, |win| {
        win.lock_all()?;
        for round in 0..10 {
            // The first that is flushed is the last that is put to.
            for step in (0..p.size).rev() {
                let target = (p.rank + 1 + step) % p.size;
                for (at, piece) in (0..).zip(message(p.rank, target, round, SIZE).chunks(20)) {
                    win.put(piece, target, SIZE * p.rank as u64 + at * 20)?;
                }
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
                let at = SIZE as usize * from as usize;
                let is = &win.own()[at..at + SIZE as usize];
                let should = message(from, p.rank, round, SIZE);
                ensure!(
                    is == should,
                    "what rank {from} has put and flushed in round {round} is not there"
                );
            }
            sends.into_iter().try_for_each(|send| p.wait(send).map(drop))?;
            p.meet(7)?;
            win.forget();
        }
        Ok(win.unlock_all()?)
    })
}

fn flush_third(p: &Peer) -> Outcome {
    both(p, 512, |win| {
        win.lock_all()?;
        for round in 0..20 {
            let (to, whose) = ((p.rank + 1) % p.size, (p.rank + p.size - 1) % p.size);
            // Into the next but one's memory, told to the next.
            let there = (p.rank + 2) % p.size;
            win.put(&message(p.rank, there, round, 512), there, 0)?;
            win.flush(there)?;
            let told = p.isend(Vec::new(), to, 6)?;
            p.recv(0, whose, 6)?;
            let there = (whose + 2) % p.size;
            let slot = win.get(512, there, 0)?;
            win.flush_local(there)?;
            win.got_is(
                slot,
                &message(whose, there, round, 512),
                "what another rank has put and flushed",
            )?;
            p.wait(told)?;
            p.meet(7)?;
        }
        Ok(win.unlock_all()?)
    })
}

fn flush_nothing(p: &Peer) -> Outcome {
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

fn exclusive(p: &Peer) -> Outcome {
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
        let (is, should) =
            (win.own_integer(8), if p.rank == 0 { EACH * i64::from(p.size) } else { 0 });
        ensure!(is == should, "the sum is {is}, expected {should}");
        Ok(())
    })
}

fn parts_differ(p: &Peer) -> Outcome {
    let size = |rank: i32| rank as u64 * 1000 % 3001;
    for win in [Win::given(p, size(p.rank))?, Win::allocated(p, size(p.rank))?] {
        win.set_own(0, &pattern(p.rank as u64, size(p.rank)));
        win.fence()?;
        let mut slots = Vec::new();
        for target in (0..p.size).filter(|target| size(*target) > 0) {
            slots.push((target, win.get(size(target), target, 0)?));
        }
        win.fence()?;
        for (target, slot) in slots {
            win.got_is(
                slot,
                &pattern(target as u64, size(target)),
                &format!("rank {target}'s part"),
            )?;
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

fn two_windows(p: &Peer) -> Outcome {
    let (one, other) = (Win::given(p, 900)?, Win::given(p, 900)?);
    one.fence()?;
    other.fence()?;
    for round in 0..5 {
        one.put(&message(p.rank, p.next(), round, 900), p.next(), 0)?;
        other.put(&message(p.rank, p.next(), round + 50, 900), p.next(), 0)?;
        one.fence()?;
        one.own_is(&message(p.previous(), p.rank, round, 900))?;
        other.fence()?;
        other.own_is(&message(p.previous(), p.rank, round + 50, 900))?;
        one.fence()?;
        other.fence()?;
    }
    other.end()?;
    one.put(&message(p.rank, p.next(), 99, 900), p.next(), 0)?;
    one.fence()?;
    one.own_is(&message(p.previous(), p.rank, 99, 900))?;
    one.end()
}

/// A window that is made, used and ended.
fn once(p: &Peer, number: u64, size: u64) -> Outcome {
    let win = Win::given(p, size)?;
    win.fence()?;
    win.put(&message(p.rank, p.next(), number, size), p.next(), 0)?;
    win.fence()?;
    win.own_is(&message(p.previous(), p.rank, number, size))?;
    win.end()
}

fn again(p: &Peer) -> Outcome {
    (0..30).try_for_each(|number| once(p, number, 1 + number * 211))
}

/// Rank 0 listens, in whose process others may be, too.
fn destroy_succeeds(p: &Peer) -> Outcome {
    let some = || {
        p.barrier()?;
        (0..3).try_for_each(|number| once(p, number, 100))?;
        Ok(p.barrier()?)
    };
    if p.rank == 0 { without_warning("closing a window", some) } else { some() }
}

fn of_dup(p: &Peer) -> Outcome {
    let dup = p.dup()?;
    crate::tests::p2p::ring(p, 3000, 1)?;
    once(&dup, 1, 500)?;
    crate::tests::p2p::ring(&dup, 3000, 1)?;
    once(p, 2, 500)
}

fn of_split(p: &Peer) -> Outcome {
    let Some(turned) = p.split(0, -p.rank)? else { return Ok(()) };
    once(&turned, 3, 2000)?;
    let Some(half) = p.split(p.rank % 2, 0)? else { return Ok(()) };
    once(&half, 4, 2000)
}

/// Rounds at most, and the first ones that do not count: pools grow in them.
const ROUNDS: usize = 60;
const WARM: usize = 2;
/// Rounds between two looks that are compared: what malloc and those who leave late keep for a
/// while comes and goes, but is less than a leak of so many rounds.
const APART: usize = 16;

/// Does something in rounds until memory has not grown from one of them to a later one. `least`:
/// growth of a round that is no leak.
fn without_growth(p: &Peer, least: i64, round: impl Fn() -> Outcome) -> Outcome {
    let (mut levels, mut is_calm) = (Vec::with_capacity(ROUNDS), false);
    for number in 0..ROUNDS {
        round()?;
        p.barrier()?;
        let Some(level) = malloc_bytes() else {
            skip!("this C library does not tell how much memory is taken");
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
    ensure!(false, "memory grows with every round, bytes after each: {levels:?}");
    Ok(())
}

fn keeps_nothing(p: &Peer) -> Outcome {
    without_growth(p, 8 * 24, || (0..8).try_for_each(|number| once(p, number, 64)))
}

fn operations_keep_nothing(p: &Peer) -> Outcome {
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
