//! Tests of what accumulates in windows, and of compare and swap: whether the backend has slots for
//! it or the targets apply it.

use crate::data::{self, REDUCTIONS, TYPES, Type, decode, encode};
use crate::kit::catalog::{Group, tests_of_ranks};
use crate::kit::outcome::{Outcome, ensure};
use crate::kit::peer::{Peer, message};
use crate::kit::win::Win;
use crate::reference::fold;
use crate::tests::win::both;
use dtl_sys::*;

pub(crate) const GROUPS: &[Group] = &[
    Group {
        slot: "comm.win_accumulate",
        needs: &[],
        rule: "there[i] = there[i] op buf[i] for `count` elements, each changed as a whole whoever \
            else does so; those of \
               one rank happen in the order of the calls; `result` gets what was there before.",
        usually: "A read and a write that others come between, the wrong width or sign, a dtype \
            that win_atomics should \
                  have denied.",
        tests: tests_of_ranks![
            1 "comm.win.counters_are_exact": "fetch_op of all ranks at once: every number is given \
                once" => counters;
            1 "comm.win.sums_lose_nothing": "all ranks add to one array" => sums;
            1 "comm.win.every_dtype_and_operation": "what is left, and what was there \
                before" => every_pair;
            1 "comm.win.accumulate_in_order": "operations of one rank that do not \
                commute" => in_order;
            1 "comm.win.fetch_sees_earlier_ones": "each fetch of one rank has what the one before \
                left" => sees_own;
            1 "comm.win.no_op_changes_nothing": "it reads, with and without a buffer" => no_op;
            1 "comm.win.accumulate_beside_nothing": "no byte before or behind is touched" => beside;
            1 "comm.win.accumulate_at_any_offset": "at displacements that are no multiple of the \
                element" => unaligned;
            1 "comm.win.accumulate_large": "20000 elements of all ranks at once" => large;
            1 "comm.win.accumulate_to_every_target": "its own memory too" => everywhere;
            1 "comm.win.many_accumulates": "2000 without a flush" => many;
            1 "comm.win.accumulate_buffer_free_after_local_flush": "it is changed then, and the \
                old values count" => local;
        ],
    },
    Group {
        slot: "comm.win_compare_and_swap",
        needs: &[],
        rule: "If the element equals *expected, *value is stored; *result gets what it was. As one \
            step.",
        usually: "Only some bytes compared, the result that of the new value, or a step between \
            the two.",
        tests: tests_of_ranks![
            1 "comm.win.swap_if_equal": "every dtype that is compared" => swap_equal;
            1 "comm.win.swap_refused_if_not": "nothing is stored, and the result says what is \
                there" => swap_not;
            1 "comm.win.swap_compares_every_byte": "values that differ in one byte" => swap_bytes;
            1 "comm.win.swap_has_one_winner": "all ranks at once: one of them" => swap_winner;
            1 "comm.win.swap_counts": "increments by trying again lose nothing" => swap_counts;
            1 "comm.win.swap_and_add_together": "increments by swaps and by sums of one \
                element" => swap_and_add;
        ],
    },
];

fn counters(p: &Peer) -> Outcome {
    const EACH: u64 = 60;
    both(p, 24, |win| {
        win.lock_all()?;
        let mut mine = vec![0u8; (EACH * p.size as u64) as usize];
        for _ in 0..EACH {
            let slot = win.fetch_op(DTL_OP_SUM, 1, p.size - 1, 8)?;
            win.flush(p.size - 1)?;
            let number = win.integer(slot);
            ensure!((0..mine.len() as i64).contains(&number), "the counter gave {number}");
            mine[number as usize] += 1;
        }
        win.unlock_all()?;
        win.fence()?;
        if p.rank == p.size - 1 {
            let is = win.own_integer(8);
            ensure!(is == mine.len() as i64, "the counter is {is}, expected {}", mine.len());
        }
        let before = p.previous();
        // Each rank's numbers go round; together every number is there once.
        let mut all = mine.clone();
        for _ in 1..p.size {
            mine = p.sendrecv(&mine, p.next(), mine.len() as u64, before, 9)?.bytes;
            all.iter_mut().zip(&mine).for_each(|(all, more)| *all += more);
        }
        let wrong = all.iter().position(|times| *times != 1);
        ensure!(wrong.is_none(), "the number {wrong:?} was not given once");
        Ok(())
    })
}

fn integers(values: impl Iterator<Item = i64>) -> Vec<u8> {
    values.flat_map(i64::to_ne_bytes).collect()
}

fn sums(p: &Peer) -> Outcome {
    const COUNT: i64 = 40;
    both(p, COUNT as u64 * 8, |win| {
        for _ in 0..10 {
            let bytes = integers((0..COUNT).map(|at| at + i64::from(p.rank)));
            win.accumulate((DTL_DTYPE_INT64, DTL_OP_SUM), (&bytes, COUNT as u64), 0, 0)?;
        }
        win.fence()?;
        let ranks = i64::from(p.size);
        let should = integers((0..COUNT).map(|at| 10 * (at * ranks + ranks * (ranks - 1) / 2)));
        win.own_is(&if p.rank == 0 { should } else { vec![0; COUNT as usize * 8] })
    })
}

/// Small values that every dtype has.
fn element(ty: Type, value: i64) -> Vec<u8> {
    let mut bytes = vec![0; ty.size];
    encode(&mut bytes, ty, value);
    bytes
}

/// An operand: for pairs and complex numbers two parts.
fn operand(ty: Type, at: i64, by: i64) -> i64 {
    let value = (at * by + 3) % 7;
    match ty.class {
        data::Class::Complex | data::Class::Pair => data::join(value - 2, at % 3),
        data::Class::Signed | data::Class::Float => value - 3,
        data::Class::Bool => value % 2,
        _ => value,
    }
}

fn every_pair(p: &Peer) -> Outcome {
    const COUNT: i64 = 9;
    both(p, COUNT as u64 * 16, |win| {
        for ty in TYPES.into_iter().filter(|ty| ty.dtype != data::USER_DTYPE) {
            for (op, name) in
                REDUCTIONS.into_iter().filter(|(op, _)| data::go_together(*op, ty.class))
            {
                let list = |by| -> Vec<u8> {
                    (0..COUNT).flat_map(|at| element(ty, operand(ty, at, by))).collect()
                };
                let (before, bytes) = (list(5), list(3));
                win.set_own(0, &before);
                win.fence()?;
                let slot =
                    win.get_accumulate((ty.dtype, op), (&bytes, COUNT as u64), p.next(), 0)?;
                win.fence()?;
                let what = format!("{name} of {}", ty.name);
                win.got_is(slot, &before, &format!("{what}: what was there before"))?;
                let after = win.own();
                for (at, is) in (0..COUNT).zip(after.chunks(ty.size)) {
                    let (left, right) = (operand(ty, at, 5), operand(ty, at, 3));
                    let should = decode(&element(ty, fold(op, ty.class, left, right)), ty);
                    ensure!(
                        decode(is, ty) == should,
                        "{what}, element {at}: {left} and {right} give {}, expected {should}",
                        decode(is, ty)
                    );
                }
                win.fence()?;
                win.forget();
            }
        }
        Ok(())
    })
}

fn in_order(p: &Peer) -> Outcome {
    const INT: dtl_dtype_t = DTL_DTYPE_INT64;
    both(p, 16 * p.size as u64, |win| {
        let at = 16 * p.rank as u64;
        let mut should = 0_i64;
        for step in 1..60_i64 {
            let (add, times) = (step * 7 % 11, step % 3 + 1);
            win.accumulate((INT, DTL_OP_SUM), (&add.to_ne_bytes(), 1), p.next(), at)?;
            win.accumulate((INT, DTL_OP_PROD), (&times.to_ne_bytes(), 1), p.next(), at)?;
            win.accumulate((INT, DTL_OP_REPLACE), (&step.to_ne_bytes(), 1), p.next(), at + 8)?;
            should = (should + add).wrapping_mul(times);
        }
        win.fence()?;
        let at = 16 * p.previous() as usize;
        let (is, last) = (win.own_integer(at), win.own_integer(at + 8));
        ensure!(is == should, "sums and products in turns give {is}, expected {should}");
        ensure!(last == 59, "the last of 59 replacements is {last}");
        Ok(())
    })
}

fn sees_own(p: &Peer) -> Outcome {
    both(p, 8 * p.size as u64, |win| {
        let at = 8 * p.rank as u64;
        let slots: Vec<_> = (0..100)
            .map(|_| win.fetch_op(DTL_OP_SUM, 3, p.next(), at))
            .collect::<Result<_, _>>()?;
        win.fence()?;
        for (slot, number) in slots.into_iter().zip(0..) {
            let is = win.integer(slot);
            ensure!(is == number * 3, "fetch {number} gave {is}, expected {}", number * 3);
        }
        Ok(())
    })
}

fn no_op(p: &Peer) -> Outcome {
    both(p, 800, |win| {
        let mine = message(p.rank, p.rank, 6, 800);
        win.set_own(0, &mine);
        win.fence()?;
        let theirs = message(p.next(), p.next(), 6, 800);
        for (dtype, size) in
            [(DTL_DTYPE_INT32, 4), (DTL_DTYPE_FLOAT64, 8), (DTL_DTYPE_COMPLEX128, 16)]
        {
            let slot =
                win.get_accumulate((dtype, DTL_OP_NO_OP), (&[7; 800], 800 / size), p.next(), 0)?;
            win.accumulate((dtype, DTL_OP_NO_OP), (&[9; 800], 800 / size), p.next(), 0)?;
            win.fence()?;
            win.got_is(slot, &theirs, "what NO_OP read")?;
        }
        win.own_is(&mine)
    })
}

fn beside(p: &Peer) -> Outcome {
    both(p, 96, |win| {
        for ty in TYPES.into_iter().filter(|ty| ty.dtype != data::USER_DTYPE) {
            win.set_own(0, &[0x5A; 96]);
            win.fence()?;
            let bytes = message(p.rank, p.next(), ty.size as u64, 3 * ty.size as u64);
            win.accumulate((ty.dtype, DTL_OP_REPLACE), (&bytes, 3), p.next(), 16)?;
            win.fence()?;
            let mut should = vec![0x5A; 96];
            let theirs = message(p.previous(), p.rank, ty.size as u64, 3 * ty.size as u64);
            should[16..16 + theirs.len()].copy_from_slice(&theirs);
            win.own_is(&should)?;
            win.fence()?;
        }
        Ok(())
    })
}

fn unaligned(p: &Peer) -> Outcome {
    const EACH: i64 = 40;
    both(p, 64, |win| {
        for _ in 0..EACH {
            win.fetch_op(DTL_OP_SUM, 5, 0, 3)?;
            win.accumulate((DTL_DTYPE_INT32, DTL_OP_SUM), (&[1, 0, 0, 0, 2, 0, 0, 0], 2), 0, 21)?;
        }
        win.fence()?;
        let all = EACH * i64::from(p.size);
        let mut should = vec![0; 64];
        if p.rank == 0 {
            should[3..11].copy_from_slice(&(5 * all).to_ne_bytes());
            should[21..25].copy_from_slice(&(all as i32).to_ne_bytes());
            should[25..29].copy_from_slice(&(2 * all as i32).to_ne_bytes());
        }
        win.own_is(&should)
    })
}

fn large(p: &Peer) -> Outcome {
    const COUNT: i64 = 20_000;
    both(p, COUNT as u64 * 8, |win| {
        let bytes = integers((0..COUNT).map(|at| at * 3 + i64::from(p.rank)));
        win.accumulate((DTL_DTYPE_INT64, DTL_OP_SUM), (&bytes, COUNT as u64), 0, 0)?;
        win.fence()?;
        let ranks = i64::from(p.size);
        let should = integers((0..COUNT).map(|at| at * 3 * ranks + ranks * (ranks - 1) / 2));
        win.own_is(&if p.rank == 0 { should } else { vec![0; COUNT as usize * 8] })
    })
}

fn everywhere(p: &Peer) -> Outcome {
    const EACH: i64 = 30;
    both(p, 16, |win| {
        for _ in 0..EACH {
            for target in 0..p.size {
                let by = i64::from(target) + 1;
                win.accumulate((DTL_DTYPE_INT64, DTL_OP_SUM), (&by.to_ne_bytes(), 1), target, 8)?;
            }
        }
        win.fence()?;
        let (is, should) = (win.own_integer(8), EACH * i64::from(p.size) * (i64::from(p.rank) + 1));
        ensure!(is == should, "the sum is {is}, expected {should}");
        Ok(())
    })
}

fn many(p: &Peer) -> Outcome {
    const MANY: u64 = 2000;
    both(p, 64 * 8, |win| {
        win.lock_all()?;
        for number in 0..MANY {
            win.accumulate(
                (DTL_DTYPE_INT64, DTL_OP_SUM),
                (&1_i64.to_ne_bytes(), 1),
                p.next(),
                number % 64 * 8,
            )?;
        }
        win.flush(p.next())?;
        win.unlock_all()?;
        win.fence()?;
        let should = integers((0..64).map(|place| ((MANY + 63 - place) / 64) as i64));
        win.own_is(&should)
    })
}

fn local(p: &Peer) -> Outcome {
    both(p, 900, |win| {
        win.lock_all()?;
        for _ in 0..10 {
            for at in 0..9 {
                win.accumulate(
                    (DTL_DTYPE_UINT8, DTL_OP_SUM),
                    (&[2; 100], 100),
                    p.next(),
                    at * 100,
                )?;
            }
            win.flush_local(p.next())?;
            win.spoil();
        }
        win.unlock_all()?;
        win.fence()?;
        win.own_is(&[20; 900])
    })
}

/// The dtypes that are compared.
fn compared() -> impl Iterator<Item = Type> {
    use data::Class::{Bool, Byte, Signed, Unsigned};
    TYPES.into_iter().filter(|ty| matches!(ty.class, Signed | Unsigned | Byte | Bool))
}

fn swap_equal(p: &Peer) -> Outcome {
    both(p, 32, |win| {
        for ty in compared() {
            let old = message(p.rank, 0, 8, 8);
            win.set_own(0, &[0x33; 32]);
            win.set_own(8, &old[..ty.size]);
            win.fence()?;
            let theirs = &message(p.next(), 0, 8, 8)[..ty.size];
            let slot = win.compare_and_swap(
                ty.dtype,
                (&message(p.rank, 1, 9, 8)[..ty.size], theirs),
                p.next(),
                8,
            )?;
            win.fence()?;
            let result = win.got(slot);
            ensure!(
                &result[..ty.size] == theirs,
                "{}: the result is {result:?}, expected {theirs:?}",
                ty.name
            );
            let mut should = vec![0x33; 32];
            should[8..8 + ty.size].copy_from_slice(&message(p.previous(), 1, 9, 8)[..ty.size]);
            win.own_is(&should)?;
            win.fence()?;
        }
        Ok(())
    })
}

fn swap_not(p: &Peer) -> Outcome {
    both(p, 8, |win| {
        for ty in compared() {
            win.set_own(0, &[0x11; 8]);
            win.fence()?;
            let pair = (&[0x22; 8][..ty.size], &[0x44; 8][..ty.size]);
            let slot = win.compare_and_swap(ty.dtype, pair, p.next(), 0)?;
            win.fence()?;
            let result = win.got(slot);
            ensure!(
                result[..ty.size] == [0x11; 8][..ty.size],
                "{}: the result is {result:?}",
                ty.name
            );
            win.own_is(&[0x11; 8])?;
            win.fence()?;
        }
        Ok(())
    })
}

fn swap_bytes(p: &Peer) -> Outcome {
    both(p, 8, |win| {
        let old = message(7, 7, 7, 8);
        win.set_own(0, &old);
        win.fence()?;
        for at in 0..8 {
            let mut other = old.clone();
            other[at] ^= 0x10;
            win.compare_and_swap(DTL_DTYPE_UINT64, (&[0; 8], &other), p.next(), 0)?;
        }
        win.fence()?;
        win.own_is(&old)
    })
}

fn swap_winner(p: &Peer) -> Outcome {
    const ROUNDS: usize = 30;
    both(p, 8 * ROUNDS as u64, |win| {
        win.lock_all()?;
        let mut won = Vec::new();
        for round in 0..ROUNDS {
            p.barrier()?;
            let was = win.swap_now(i64::from(p.rank) + 1, 0, 0, 8 * round as u64)?;
            ensure!((0..=i64::from(p.size)).contains(&was), "the element was {was}");
            won.push(u8::from(was == 0));
        }
        win.unlock_all()?;
        win.fence()?;
        let (mut all, mut mine) = (won.clone(), won);
        for _ in 1..p.size {
            mine = p.sendrecv(&mine, p.next(), ROUNDS as u64, p.previous(), 9)?.bytes;
            all.iter_mut().zip(&mine).for_each(|(all, more)| *all += more);
        }
        let wrong = all.iter().position(|winners| *winners != 1);
        ensure!(wrong.is_none(), "round {wrong:?} has not one winner: {all:?}");
        Ok(())
    })
}

/// Adds one by trying until nobody came between.
fn add_one(win: &Win, at: u64) -> Outcome {
    let mut held = 0;
    loop {
        let found = win.swap_now(held + 1, held, 0, at)?;
        if found == held {
            return Ok(());
        }
        held = found;
    }
}

fn swap_counts(p: &Peer) -> Outcome {
    const EACH: i64 = 30;
    both(p, 16, |win| {
        win.lock_all()?;
        (0..EACH).try_for_each(|_| add_one(win, 8))?;
        win.unlock_all()?;
        win.fence()?;
        let (is, should) =
            (win.own_integer(8), if p.rank == 0 { EACH * i64::from(p.size) } else { 0 });
        ensure!(is == should, "the sum is {is}, expected {should}");
        Ok(())
    })
}

fn swap_and_add(p: &Peer) -> Outcome {
    const EACH: i64 = 30;
    both(p, 16, |win| {
        win.lock_all()?;
        for _ in 0..EACH {
            add_one(win, 8)?;
            win.accumulate((DTL_DTYPE_INT64, DTL_OP_SUM), (&1_i64.to_ne_bytes(), 1), 0, 8)?;
        }
        win.unlock_all()?;
        win.fence()?;
        let (is, should) =
            (win.own_integer(8), if p.rank == 0 { 2 * EACH * i64::from(p.size) } else { 0 });
        ensure!(is == should, "the sum is {is}, expected {should}");
        Ok(())
    })
}
