//! Tests of accumulate operations and of compare-and-swap on windows, whether the backend
//! implements them or the library on the target rank applies them.

use crate::data::{self, REDUCTIONS, TYPES, Type, decode, encode};
use crate::kit::prelude::*;
use crate::reference::fold;
use crate::tests::win::both;

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Ranks "comm.win.":
        counters_are_exact,
        sums_lose_nothing = |p| sums(p, 10, 40, 1), every_dtype_and_operation, accumulate_in_order,
        fetch_sees_earlier_ones, no_op_changes_nothing, accumulate_beside_nothing,
        accumulate_at_any_offset,
        accumulate_large = |p| sums(p, 1, 20_000, 3), accumulate_to_every_target, many_accumulates,
        accumulate_buffer_free_after_local_flush, swap_if_equal, swap_refused_if_not,
        swap_compares_every_byte, swap_has_one_winner,
        swap_counts = |p| counted(p, false),
        swap_and_add_together = |p| counted(p, true);
];

fn counters_are_exact(p: &Rank) -> Outcome {
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
        let wrong = summed(p, mine)?.iter().position(|times| *times != 1);
        check!(wrong.is_none(), "the number {wrong:?} was not given once")
    })
}

fn integers(values: impl Iterator<Item = i64>) -> Vec<u8> {
    values.flat_map(i64::to_ne_bytes).collect()
}

/// Encodes a value as an element. The value must be so small that every dtype can represent it.
fn element(ty: Type, value: i64) -> Vec<u8> {
    let mut bytes = vec![0; ty.size];
    encode(&mut bytes, ty, value);
    bytes
}

/// Returns a small operand that depends on `at` and `by`. For pairs and complex numbers, it encodes
/// both parts.
fn operand(ty: Type, at: i64, by: i64) -> i64 {
    let value = (at * by + 3) % 7;
    match ty.class {
        data::Class::Complex | data::Class::Pair => data::join(value - 2, at % 3),
        data::Class::Signed | data::Class::Float => value - 3,
        data::Class::Bool => value % 2,
        _ => value,
    }
}

fn every_dtype_and_operation(p: &Rank) -> Outcome {
    const COUNT: i64 = 9;
    let types = TYPES.into_iter().filter(|ty| ty.dtype != data::USER_DTYPE);
    let cases: Vec<_> = types
        .flat_map(|ty| REDUCTIONS.map(|(op, name)| (ty, op, name)))
        .filter(|(ty, op, _)| data::go_together(*op, ty.class))
        .collect();
    both(p, COUNT as u64 * 16, |win| {
        for (ty, op, name) in &cases {
            let list = |by| -> Vec<u8> {
                (0..COUNT).flat_map(|at| element(*ty, operand(*ty, at, by))).collect()
            };
            let before = list(5);
            win.set_own(0, &before);
            win.fence()?;
            let slot = win.get_accumulate((ty.dtype, *op), &list(3), p.next(), 0)?;
            win.fence()?;
            let what = format!("{name} of {}", ty.name);
            win.got_is(slot, &before, &format!("{what}: what was there before"))?;
            for (at, is) in (0..COUNT).zip(win.own().chunks(ty.size)) {
                let (left, right) = (operand(*ty, at, 5), operand(*ty, at, 3));
                let should = decode(&element(*ty, fold(*op, ty.class, left, right)), *ty);
                let is = decode(is, *ty);
                ensure!(
                    is == should,
                    "{what}, element {at}: {left} and {right} give {is}, expected {should}"
                );
            }
            win.fence()?;
            win.forget();
        }
        Ok(())
    })
}

fn accumulate_in_order(p: &Rank) -> Outcome {
    both(p, 16 * p.size as u64, |win| {
        let (at, mut should) = (16 * p.rank as u64, 0_i64);
        for step in 1..60_i64 {
            let (add, times) = (step * 7 % 11, step % 3 + 1);
            let one = |op, value: i64, at| {
                win.accumulate((DTL_DTYPE_INT64, op), &value.to_ne_bytes(), p.next(), at)
            };
            one(DTL_OP_SUM, add, at)?;
            one(DTL_OP_PROD, times, at)?;
            one(DTL_OP_REPLACE, step, at + 8)?;
            should = (should + add).wrapping_mul(times);
        }
        win.fence()?;
        let at = 16 * p.previous() as usize;
        let (is, last) = (win.own_integer(at), win.own_integer(at + 8));
        ensure!(is == should, "sums and products in turns give {is}, expected {should}");
        check!(last == 59, "the last of 59 replacements is {last}")
    })
}

fn fetch_sees_earlier_ones(p: &Rank) -> Outcome {
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

fn no_op_changes_nothing(p: &Rank) -> Outcome {
    both(p, 800, |win| {
        let mine = message(p.rank, p.rank, 6, 800);
        win.set_own(0, &mine);
        win.fence()?;
        let theirs = message(p.next(), p.next(), 6, 800);
        for dtype in [DTL_DTYPE_INT32, DTL_DTYPE_FLOAT64, DTL_DTYPE_COMPLEX128] {
            let slot = win.get_accumulate((dtype, DTL_OP_NO_OP), &[7; 800], p.next(), 0)?;
            win.accumulate((dtype, DTL_OP_NO_OP), &[9; 800], p.next(), 0)?;
            win.fence()?;
            win.got_is(slot, &theirs, "what NO_OP read")?;
        }
        win.own_is(&mine)
    })
}

fn accumulate_beside_nothing(p: &Rank) -> Outcome {
    both(p, 96, |win| {
        for ty in TYPES.into_iter().filter(|ty| ty.dtype != data::USER_DTYPE) {
            win.set_own(0, &[0x5A; 96]);
            win.fence()?;
            let bytes = message(p.rank, p.next(), ty.size as u64, 3 * ty.size as u64);
            win.accumulate((ty.dtype, DTL_OP_REPLACE), &bytes, p.next(), 16)?;
            win.fence()?;
            let mut should = vec![0x5A; 96];
            let theirs = p.due(ty.size as u64, 3 * ty.size as u64);
            should[16..16 + theirs.len()].copy_from_slice(&theirs);
            win.own_is(&should)?;
            win.fence()?;
        }
        Ok(())
    })
}

fn accumulate_at_any_offset(p: &Rank) -> Outcome {
    const EACH: i64 = 40;
    both(p, 64, |win| {
        for _ in 0..EACH {
            win.fetch_op(DTL_OP_SUM, 5, 0, 3)?;
            win.accumulate((DTL_DTYPE_INT32, DTL_OP_SUM), &[1, 0, 0, 0, 2, 0, 0, 0], 0, 21)?;
        }
        win.fence()?;
        let all = EACH * i64::from(p.size);
        let mut should = vec![0; 64];
        should[3..11].copy_from_slice(&(5 * all).to_ne_bytes());
        should[21..25].copy_from_slice(&(all as i32).to_ne_bytes());
        should[25..29].copy_from_slice(&(2 * all as i32).to_ne_bytes());
        win.first_is(&should)
    })
}

fn accumulate_to_every_target(p: &Rank) -> Outcome {
    const EACH: i64 = 30;
    both(p, 16, |win| {
        for _ in 0..EACH {
            (0..p.size).try_for_each(|rank| win.add(&[i64::from(rank) + 1], rank, 8).map(drop))?;
        }
        win.fence()?;
        win.sum_is(EACH * i64::from(p.size) * (i64::from(p.rank) + 1))
    })
}

fn many_accumulates(p: &Rank) -> Outcome {
    const MANY: u64 = 2000;
    both(p, 64 * 8, |win| {
        win.lock_all()?;
        (0..MANY).try_for_each(|number| win.add(&[1], p.next(), number % 64 * 8).map(drop))?;
        win.flush(p.next())?;
        win.unlock_all()?;
        win.fence()?;
        win.own_is(&integers((0..64).map(|place| ((MANY + 63 - place) / 64) as i64)))
    })
}

fn accumulate_buffer_free_after_local_flush(p: &Rank) -> Outcome {
    both(p, 900, |win| {
        win.lock_all()?;
        for _ in 0..10 {
            for at in 0..9 {
                win.accumulate((DTL_DTYPE_UINT8, DTL_OP_SUM), &[2; 100], p.next(), at * 100)?;
            }
            win.flush_local(p.next())?;
            win.spoil();
        }
        win.unlock_all()?;
        win.fence()?;
        win.own_is(&[20; 900])
    })
}

/// Returns the dtypes that compare-and-swap supports.
fn compared() -> impl Iterator<Item = Type> {
    use data::Class::{Bool, Byte, Signed, Unsigned};
    TYPES.into_iter().filter(|ty| matches!(ty.class, Signed | Unsigned | Byte | Bool))
}

fn swap_if_equal(p: &Rank) -> Outcome {
    both(p, 32, |win| {
        for ty in compared() {
            let element = |rank, number, size| message(rank, number, size, 8)[..ty.size].to_vec();
            win.set_own(0, &[0x33; 32]);
            win.set_own(8, &element(p.rank, 0, 8));
            win.fence()?;
            let (value, theirs) = (element(p.rank, 1, 9), element(p.next(), 0, 8));
            let slot = win.compare_and_swap(ty.dtype, (&value, &theirs), p.next(), 8)?;
            win.fence()?;
            let (is, name) = (win.got(slot), ty.name);
            let good = is[..ty.size] == theirs;
            ensure!(good, "{name}: the result is {is:?}, expected {theirs:?}");
            let mut should = vec![0x33; 32];
            should[8..8 + ty.size].copy_from_slice(&element(p.previous(), 1, 9));
            win.own_is(&should)?;
            win.fence()?;
        }
        Ok(())
    })
}

fn swap_refused_if_not(p: &Rank) -> Outcome {
    both(p, 8, |win| {
        for ty in compared() {
            win.set_own(0, &[0x11; 8]);
            win.fence()?;
            let pair = (&[0x22; 8][..ty.size], &[0x44; 8][..ty.size]);
            let slot = win.compare_and_swap(ty.dtype, pair, p.next(), 0)?;
            win.fence()?;
            let (is, name) = (win.got(slot), ty.name);
            ensure!(is[..ty.size] == [0x11; 8][..ty.size], "{name}: the result is {is:?}");
            win.own_is(&[0x11; 8])?;
            win.fence()?;
        }
        Ok(())
    })
}

fn swap_compares_every_byte(p: &Rank) -> Outcome {
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

fn swap_has_one_winner(p: &Rank) -> Outcome {
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
        let all = summed(p, won)?;
        let wrong = all.iter().position(|winners| *winners != 1);
        check!(wrong.is_none(), "round {wrong:?} has not one winner: {all:?}")
    })
}

/// Adds one to an integer with compare-and-swap. Retries until no other rank has changed the
/// integer since it was last fetched.
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

/// Returns the element-wise sum of `mine` over all ranks.
fn summed(p: &Rank, mut mine: Vec<u8>) -> Outcome<Vec<u8>> {
    let mut all = mine.clone();
    for _ in 1..p.size {
        mine = p.sendrecv(&mine, p.next(), mine.len() as u64, p.previous(), 9)?.bytes;
        all.iter_mut().zip(&mine).for_each(|(all, more)| *all += more);
    }
    Ok(all)
}

/// Adds `index * by + rank` to each of `count` integers in the window memory of rank 0, `rounds`
/// times. Then checks the sums.
fn sums(p: &Rank, rounds: i64, count: i64, by: i64) -> Outcome {
    both(p, count as u64 * 8, |win| {
        let values: Vec<i64> = (0..count).map(|at| at * by + i64::from(p.rank)).collect();
        (0..rounds).try_for_each(|_| win.add(&values, 0, 0).map(drop))?;
        win.fence()?;
        let ranks = i64::from(p.size);
        let sum = |at| rounds * (at * by * ranks + ranks * (ranks - 1) / 2);
        win.first_is(&integers((0..count).map(sum)))
    })
}

/// Increments an integer in the window memory of rank 0 with compare-and-swap. If `accumulates` is
/// true, also increments it with accumulate operations.
fn counted(p: &Rank, accumulates: bool) -> Outcome {
    const EACH: i64 = 30;
    both(p, 16, |win| {
        win.lock_all()?;
        for _ in 0..EACH {
            add_one(win, 8)?;
            if accumulates {
                win.add(&[1], 0, 8)?;
            }
        }
        win.unlock_all()?;
        win.fence()?;
        win.first_sum_is(EACH * i64::from(p.size) * (1 + i64::from(accumulates)))
    })
}
