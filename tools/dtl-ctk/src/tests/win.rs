//! Tests of windows: puts and gets. They hold for every kind, whether the backend has slots for
//! windows or messages do it. Flushes, locks, making and ending: `win_life`; what accumulates:
//! `win_atomics`.

use crate::kit::catalog::{Group, tests_of_ranks};
use crate::kit::outcome::Outcome;
use crate::kit::peer::{Peer, message};
use crate::kit::win::Win;
use dtl_sys::DTL_LOCK_SHARED;

pub(crate) const GROUPS: &[Group] = &[
    Group {
        slot: "comm.win_put",
        needs: &[],
        rule: "A put copies size_bytes (at least 1) to `offset` bytes behind the beginning of the \
            target's memory; it \
               is done when `buf` is needed no longer.",
        usually: "An offset counted from elsewhere, a copy that rounds to words, a key that \
            belongs to another rank.",
        tests: tests_of_ranks![
            1 "comm.win.put_arrives": "sizes from 1 byte to 100000, each byte and its \
                neighbours" => put_arrives;
            1 "comm.win.put_at_any_offset": "7 bytes at offsets 0 to 40, from addresses 0 to \
                16" => put_offsets;
            1 "comm.win.put_leaves_its_buffer": "what was put is unchanged \
                afterwards" => put_leaves;
            1 "comm.win.put_to_every_target": "every rank to every rank, itself \
                too" => put_everywhere;
            1 "comm.win.put_from_all_at_once": "all ranks beside each other into \
                one" => put_together;
            1 "comm.win.put_large": "3 MiB, and nothing beside them" => put_large;
            1 "comm.win.many_puts_without_a_flush": "3000 of 16 bytes, then one flush" => put_many;
            1 "comm.win.put_buffer_free_after_local_flush": "it is changed then, and the old bytes \
                arrive" => put_local;
            1 "comm.win.put_request_lets_go": "the same after the wait for its \
                request" => put_request;
        ],
    },
    Group {
        slot: "comm.win_get",
        needs: &[],
        rule: "A get copies from the target; it is done when the bytes are in `buf`.",
        usually: "Reported when it was sent instead of when its bytes came; source and destination \
            swapped.",
        tests: tests_of_ranks![
            1 "comm.win.get_brings": "sizes from 1 byte to 100000, each byte and its \
                neighbours" => get_brings;
            1 "comm.win.get_leaves_the_target": "what was read is unchanged there" => get_leaves;
            1 "comm.win.get_from_every_target": "each rank's own part, its own \
                too" => get_everywhere;
            1 "comm.win.many_gets_without_a_flush": "3000 of 8 bytes, each into its \
                place" => get_many;
            1 "comm.win.get_request_is_there": "the bytes are there after the wait for its \
                request" => get_request;
            1 "comm.win.put_and_get_mixed": "puts and gets of other places between each \
                other" => mixed;
        ],
    },
];

/// Runs a test with a window of each sort: memory of the program's, memory of the library's.
pub(crate) fn both(p: &Peer, size: u64, test: impl Fn(&Win) -> Outcome) -> Outcome {
    for win in [Win::given(p, size)?, Win::allocated(p, size)?] {
        win.fence()?;
        test(&win)?;
        win.fence()?;
        win.end()?;
    }
    Ok(())
}

const SIZES: [u64; 9] = [1, 3, 7, 8, 61, 2049, 8192, 70_001, 100_000];

/// So many bytes around what should be in the middle.
fn framed(before: usize, middle: &[u8], size: usize) -> Vec<u8> {
    let mut all = vec![0; size];
    all[before..before + middle.len()].copy_from_slice(middle);
    all
}

fn put_arrives(p: &Peer) -> Outcome {
    const ROOM: usize = 100_064;
    both(p, ROOM as u64, |win| {
        for size in SIZES {
            win.put(&message(p.rank, p.next(), size, size), p.next(), 33)?;
            win.fence()?;
            win.own_is(&framed(33, &message(p.previous(), p.rank, size, size), ROOM))?;
            win.set_own(0, &vec![0; ROOM]);
            win.fence()?;
            win.forget();
        }
        Ok(())
    })
}

fn put_offsets(p: &Peer) -> Outcome {
    both(p, 64, |win| {
        for at in 0..41 {
            let number = at as u64;
            let skewed = message(p.rank, p.next(), number, 7 + number % 17);
            let (_, bytes) = skewed.split_at((number % 17) as usize);
            win.put(bytes, p.next(), number)?;
            win.fence()?;
            let theirs = message(p.previous(), p.rank, number, 7 + number % 17);
            win.own_is(&framed(at, &theirs[at % 17..], 64))?;
            win.set_own(0, &[0; 64]);
            win.fence()?;
        }
        Ok(())
    })
}

fn put_leaves(p: &Peer) -> Outcome {
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

fn put_everywhere(p: &Peer) -> Outcome {
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

fn put_together(p: &Peer) -> Outcome {
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
        let should: Vec<u8> = (0..ROUNDS).flat_map(of).collect();
        win.own_is(&if p.rank == 0 { should } else { vec![0; should.len()] })
    })
}

fn put_large(p: &Peer) -> Outcome {
    const SIZE: u64 = 3 << 20;
    both(p, SIZE + 100, |win| {
        win.put(&message(p.rank, p.previous(), 2, SIZE), p.previous(), 50)?;
        win.fence()?;
        win.own_is(&framed(50, &message(p.next(), p.rank, 2, SIZE), SIZE as usize + 100))
    })
}

fn put_many(p: &Peer) -> Outcome {
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
        let should: Vec<u8> =
            (0..MANY).flat_map(|number| message(p.previous(), p.rank, number, 16)).collect();
        win.own_is(&should)
    })
}

/// A put after which the buffer is spoilt.
fn put_spoilt(p: &Peer, put: impl Fn(&Win, &[u8]) -> Outcome) -> Outcome {
    for size in [8, 300, 40_000] {
        both(p, size, |win| {
            for round in 0..10 {
                win.lock(DTL_LOCK_SHARED, p.next())?;
                put(win, &message(p.rank, p.next(), round, size))?;
                win.spoil();
                win.unlock(p.next())?;
                win.fence()?;
                win.own_is(&message(p.previous(), p.rank, round, size))?;
                win.fence()?;
                win.forget();
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn put_local(p: &Peer) -> Outcome {
    put_spoilt(p, |win, bytes| {
        let piece = bytes.len() / 12 + 1;
        for (at, bytes) in (0..).step_by(piece).zip(bytes.chunks(piece)) {
            win.put(bytes, p.next(), at)?;
        }
        Ok(win.flush_local(p.next())?)
    })
}

fn put_request(p: &Peer) -> Outcome {
    put_spoilt(p, |win, bytes| {
        win.put_and_wait(bytes, p.next(), 0)?;
        Ok(())
    })
}

fn get_brings(p: &Peer) -> Outcome {
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

fn get_leaves(p: &Peer) -> Outcome {
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

fn get_everywhere(p: &Peer) -> Outcome {
    for size in [16, 6000] {
        both(p, size, |win| {
            win.set_own(0, &message(p.rank, p.rank, 9, size));
            win.fence()?;
            let slots: Vec<_> =
                (0..p.size).map(|target| win.get(size, target, 0)).collect::<Result<_, _>>()?;
            win.fence()?;
            (0..).zip(slots).try_for_each(|(target, slot)| {
                win.got_is(
                    slot,
                    &message(target, target, 9, size),
                    &format!("rank {target}'s part"),
                )
            })
        })?;
    }
    Ok(())
}

fn get_many(p: &Peer) -> Outcome {
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

fn get_request(p: &Peer) -> Outcome {
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

fn mixed(p: &Peer) -> Outcome {
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
        should.extend((0..64).flat_map(|place| message(p.previous(), p.rank, place, 40)));
        win.own_is(&should)
    })
}
