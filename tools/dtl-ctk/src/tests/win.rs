//! Tests of puts and gets on windows. They apply to every communicator kind, whether the backend
//! implements windows or the library implements them with messages. Flushes, locks and creation are
//! tested in `win_sync`, accumulate operations in `win_atomics`.

use crate::kit::prelude::*;

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Ranks "comm.win.":
        put_arrives, put_at_any_offset, put_leaves_its_buffer, put_to_every_target,
        put_from_all_at_once, put_large, many_puts_without_a_flush,
        put_buffer_free_after_local_flush, put_request_lets_go, get_brings, get_leaves_the_target,
        get_from_every_target, many_gets_without_a_flush, get_request_is_there, put_and_get_mixed;
];

/// Runs a test on two windows, one after the other: one over memory that the test program
/// allocates, and one over memory that the library allocates.
pub(crate) fn both(p: &Rank, size: u64, test: impl Fn(&Win) -> Outcome) -> Outcome {
    for win in [Win::given(p, size)?, Win::allocated(p, size)?] {
        win.fence()?;
        test(&win)?;
        win.fence()?;
        win.end()?;
    }
    Ok(())
}

const SIZES: [u64; 9] = [1, 3, 7, 8, 61, 2049, 8192, 70_001, 100_000];

/// Returns `size` bytes that contain `middle` at offset `before` and are otherwise zero.
fn framed(before: usize, middle: &[u8], size: usize) -> Vec<u8> {
    let mut all = vec![0; size];
    all[before..before + middle.len()].copy_from_slice(middle);
    all
}

fn put_arrives(p: &Rank) -> Outcome {
    const ROOM: usize = 100_064;
    both(p, ROOM as u64, |win| {
        for size in SIZES {
            win.put(&message(p.rank, p.next(), size, size), p.next(), 33)?;
            win.fence()?;
            win.own_is(&framed(33, &p.due(size, size), ROOM))?;
            win.set_own(0, &vec![0; ROOM]);
            win.fence()?;
            win.forget();
        }
        Ok(())
    })
}

fn put_at_any_offset(p: &Rank) -> Outcome {
    both(p, 64, |win| {
        for at in 0..41 {
            let number = at as u64;
            let skewed = message(p.rank, p.next(), number, 7 + number % 17);
            let (_, bytes) = skewed.split_at((number % 17) as usize);
            win.put(bytes, p.next(), number)?;
            win.fence()?;
            let theirs = p.due(number, 7 + number % 17);
            win.own_is(&framed(at, &theirs[at % 17..], 64))?;
            win.set_own(0, &[0; 64]);
            win.fence()?;
        }
        Ok(())
    })
}

fn put_leaves_its_buffer(p: &Rank) -> Outcome {
    both(p, 4096, |win| {
        for size in [8, 4096] {
            let bytes = message(p.rank, p.next(), 1, size);
            let slot = win.put(&bytes, p.next(), 0)?;
            win.fence()?;
            win.got_is(slot, &bytes, "the buffer of a put")?;
        }
        Ok(())
    })
}

fn put_to_every_target(p: &Rank) -> Outcome {
    for size in [24, 5000] {
        both(p, size * p.size as u64, |win| {
            for target in 0..p.size {
                win.put(&message(p.rank, target, 5, size), target, size * p.rank as u64)?;
            }
            win.fence()?;
            let should: Vec<u8> =
                (0..p.size).flat_map(|from| message(from, p.rank, 5, size)).collect();
            win.own_is(&should)
        })?;
    }
    Ok(())
}

fn put_from_all_at_once(p: &Rank) -> Outcome {
    const EACH: u64 = 9;
    const ROUNDS: u64 = 50;
    let all = p.size as u64;
    both(p, EACH * ROUNDS * all, |win| {
        for round in 0..ROUNDS {
            let at = (round * all + p.rank as u64) * EACH;
            win.put(&message(p.rank, 0, round, EACH), 0, at)?;
        }
        win.fence()?;
        let of = |round| (0..p.size).flat_map(move |from| message(from, 0, round, EACH));
        win.first_is(&(0..ROUNDS).flat_map(of).collect::<Vec<u8>>())
    })
}

fn put_large(p: &Rank) -> Outcome {
    const SIZE: u64 = 3 << 20;
    both(p, SIZE + 100, |win| {
        win.put(&message(p.rank, p.previous(), 2, SIZE), p.previous(), 50)?;
        win.fence()?;
        win.own_is(&framed(50, &message(p.next(), p.rank, 2, SIZE), SIZE as usize + 100))
    })
}

fn many_puts_without_a_flush(p: &Rank) -> Outcome {
    const MANY: u64 = 3000;
    both(p, MANY * 16, |win| {
        win.lock_all()?;
        for number in 0..MANY {
            // Neighbours in time are far apart in memory.
            let place = number * 1231 % MANY;
            win.put(&message(p.rank, p.next(), place, 16), p.next(), place * 16)?;
        }
        win.flush(p.next())?;
        win.unlock_all()?;
        win.fence()?;
        let should: Vec<u8> = (0..MANY).flat_map(|number| p.due(number, 16)).collect();
        win.own_is(&should)
    })
}

/// Checks that a put transfers the original data although the origin buffer is overwritten after
/// local completion. `put` starts the put and completes it locally.
fn put_spoilt(p: &Rank, put: impl Fn(&Win, &[u8]) -> Outcome) -> Outcome {
    for size in [8, 300, 40_000] {
        both(p, size, |win| {
            for round in 0..10 {
                win.lock(DTL_LOCK_SHARED, p.next())?;
                put(win, &message(p.rank, p.next(), round, size))?;
                win.spoil();
                win.unlock(p.next())?;
                win.fence()?;
                win.own_is(&p.due(round, size))?;
                win.fence()?;
                win.forget();
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn put_buffer_free_after_local_flush(p: &Rank) -> Outcome {
    put_spoilt(p, |win, bytes| {
        win.put_pieces(bytes, bytes.len() / 12 + 1, p.next(), 0)?;
        Ok(win.flush_local(p.next())?)
    })
}

fn put_request_lets_go(p: &Rank) -> Outcome {
    put_spoilt(p, |win, bytes| {
        win.put_and_wait(bytes, p.next(), 0)?;
        Ok(())
    })
}

fn get_brings(p: &Rank) -> Outcome {
    const ROOM: u64 = 100_064;
    both(p, ROOM, |win| {
        win.set_own(0, &message(p.rank, p.rank, 4, ROOM));
        win.fence()?;
        let theirs = message(p.next(), p.next(), 4, ROOM);
        for size in SIZES {
            let at = size % 60;
            let slot = win.get(size, p.next(), at)?;
            win.fence()?;
            win.got_is(slot, &theirs[at as usize..(at + size) as usize], "what was got")?;
            win.forget();
        }
        Ok(())
    })
}

fn get_leaves_the_target(p: &Rank) -> Outcome {
    both(p, 5000, |win| {
        let mine = message(p.rank, p.rank, 1, 5000);
        win.set_own(0, &mine);
        win.fence()?;
        for size in [8, 5000] {
            win.get(size, p.next(), 0)?;
            win.fence()?;
            win.own_is(&mine)?;
            win.fence()?;
        }
        Ok(())
    })
}

fn get_from_every_target(p: &Rank) -> Outcome {
    for size in [16, 6000] {
        both(p, size, |win| {
            let part = |rank| message(rank, rank, 9, size);
            win.set_own(0, &part(p.rank));
            win.fence()?;
            let slots: Vec<_> =
                (0..p.size).map(|target| win.get(size, target, 0)).collect::<Result<_, _>>()?;
            win.fence()?;
            (0..).zip(slots).try_for_each(|(rank, slot)| {
                win.got_is(slot, &part(rank), &format!("rank {rank}'s part"))
            })
        })?;
    }
    Ok(())
}

fn many_gets_without_a_flush(p: &Rank) -> Outcome {
    const MANY: u64 = 3000;
    both(p, MANY * 8, |win| {
        let all = |rank| -> Vec<u8> {
            (0..MANY).flat_map(|number| message(rank, 0, number, 8)).collect()
        };
        win.set_own(0, &all(p.rank));
        win.fence()?;
        win.lock_all()?;
        let mut slots = Vec::new();
        for number in 0..MANY {
            let place = number * 77 % MANY;
            slots.push((place, win.get(8, p.next(), place * 8)?));
        }
        win.flush(p.next())?;
        win.unlock_all()?;
        slots.into_iter().try_for_each(|(place, slot)| {
            win.got_is(slot, &message(p.next(), 0, place, 8), &format!("element {place}"))
        })
    })
}

fn get_request_is_there(p: &Rank) -> Outcome {
    for size in [8, 50_000] {
        both(p, size, |win| {
            win.set_own(0, &message(p.rank, 0, 3, size));
            win.fence()?;
            win.lock_all()?;
            for _ in 0..10 {
                // Others before it: it is not the next one that is done.
                (0..12).try_for_each(|_| win.get(size, p.next(), 0).map(drop))?;
                let slot = win.get_and_wait(size, p.next(), 0)?;
                win.got_is(slot, &message(p.next(), 0, 3, size), "what was got")?;
                win.flush_local(p.next())?;
                win.forget();
            }
            Ok(win.unlock_all()?)
        })?;
    }
    Ok(())
}

fn put_and_get_mixed(p: &Rank) -> Outcome {
    const HALF: u64 = 64 * 40;
    both(p, HALF * 2, |win| {
        win.set_own(0, &message(p.rank, 0, 1, HALF));
        win.fence()?;
        win.lock_all()?;
        let mut slots = Vec::new();
        for place in 0..64 {
            slots.push(win.get(40, p.next(), place * 40)?);
            win.put(&message(p.rank, p.next(), place, 40), p.next(), HALF + place * 40)?;
        }
        win.unlock_all()?;
        let theirs = message(p.next(), 0, 1, HALF);
        for (slot, should) in slots.into_iter().zip(theirs.chunks(40)) {
            win.got_is(slot, should, "what was got")?;
        }
        win.fence()?;
        let mut should = message(p.rank, 0, 1, HALF);
        should.extend((0..64).flat_map(|place| p.due(place, 40)));
        win.own_is(&should)
    })
}
