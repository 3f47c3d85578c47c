//! Tests that call the memory functions of a comm table (`mem_supports`, `mem_register`,
//! `mem_deregister`) directly, in the same way as the library calls them. Memory is registered, and
//! messages and collectives use addresses inside it.

use crate::kit::malloc::malloc_bytes;
use crate::kit::prelude::*;
use crate::kit::slot_comm::SlotComm;
use crate::tests::coll_call::{Collective, Form};
use crate::tests::mem_call::{Area, Place, Registration, Slots};

pub(crate) const TESTS: &[(&str, Body)] = functions![
    SlotComm "comm.mem_supports.":
        answers_as_documented, same_each_time;
    SlotComm "comm.mem_register.":
        sends_from_every_offset, receives_at_every_offset, sizes_of_messages,
        latest_bytes_are_sent, same_range_twice, overlapping_ranges, no_room_leaves_nothing,
        collectives_inside, keep_no_memory;
    SlotComm "comm.mem_deregister.":
        same_range_again, others_stay, makes_room, host_memory_stays_usable,
        address_given_again;
];

/// Size of the registered areas, larger than two pages of 64 KiB.
const AREA: u64 = 200_000;

fn answers_as_documented(comm: &SlotComm) -> Outcome {
    let slots = Slots::of(comm)?;
    for place in slots.places() {
        for size in [1, 64, 4096, AREA] {
            let area = slots.area(place, size)?;
            slots.supports(&area.info())?;
            slots.supports(&area.part(size / 2, size - size / 2))?;
        }
    }
    Ok(())
}

fn same_each_time(comm: &SlotComm) -> Outcome {
    let slots = Slots::of(comm)?;
    for place in slots.places() {
        let area = slots.area(place, AREA)?;
        let first = slots.supports(&area.info())?;
        for round in 0..20 {
            let made = slots.register_all(&area)?;
            let during = slots.supports(&area.info())?;
            slots.deregister(made)?;
            let after = slots.supports(&area.info())?;
            ensure!(
                [during, after] == [first; 2],
                "mem_supports returns {first} for an allocation, and later {during} while it is \
                 registered and {after} after its deregistration (round {round})"
            );
        }
    }
    Ok(())
}

const OFFSETS: [u64; 9] = [0, 1, 7, 64, 4095, 4096, 65_537, 100_000, AREA - 20_000];

fn pair(slots: &Slots, place: Place) -> Outcome<(Area, Area)> {
    Ok((slots.area(place, AREA)?, slots.area(place, AREA)?))
}

fn sends_from_every_offset(comm: &SlotComm) -> Outcome {
    let slots = Slots::of(comm)?;
    slots.each_place(|place| {
        let (out, into) = pair(&slots, place)?;
        let made = [slots.register_all(&out)?, slots.register_all(&into)?];
        for (at, key) in OFFSETS.into_iter().zip(1..) {
            slots.moves((&out, at), (&into, 1000), 20_000, key)?;
        }
        made.into_iter().try_for_each(|one| slots.deregister(one))
    })
}

fn receives_at_every_offset(comm: &SlotComm) -> Outcome {
    let slots = Slots::of(comm)?;
    slots.each_place(|place| {
        let (out, into) = pair(&slots, place)?;
        let made = [slots.register_all(&out)?, slots.register_all(&into)?];
        for (at, key) in OFFSETS.into_iter().zip(20..) {
            slots.moves((&out, 1000), (&into, at), 20_000, key)?;
        }
        made.into_iter().try_for_each(|one| slots.deregister(one))
    })
}

/// A part in the middle is registered, and messages fill it up to its first and last byte.
fn sizes_of_messages(comm: &SlotComm) -> Outcome {
    let slots = Slots::of(comm)?;
    slots.each_place(|place| {
        let (out, into) = pair(&slots, place)?;
        for (size, key) in [1, 8, 61, 4096, 8191, 70_001, AREA - 2000].into_iter().zip(40..) {
            // Memory that the host cannot access is registered as a whole allocation.
            let part = |area: &Area| if area.is_host() { (1000, size) } else { (0, AREA) };
            let register = |area: &Area| slots.register(area, part(area).0, part(area).1);
            let made = [register(&out)?, register(&into)?];
            slots.moves((&out, 1000), (&into, 1000), size, key)?;
            made.into_iter().try_for_each(|one| slots.deregister(one))?;
        }
        Ok(())
    })
}

fn latest_bytes_are_sent(comm: &SlotComm) -> Outcome {
    let slots = Slots::of(comm)?;
    slots.each_place(|place| {
        let (out, into) = pair(&slots, place)?;
        let made = [slots.register_all(&out)?, slots.register_all(&into)?];
        (60..66).try_for_each(|key| slots.moves((&out, 500), (&into, 700), 30_000, key))?;
        made.into_iter().try_for_each(|one| slots.deregister(one))
    })
}

/// Two duplicates of a communicator share its transport, and a program may register a buffer with
/// both.
fn same_range_twice(comm: &SlotComm) -> Outcome {
    let slots = Slots::of(comm)?;
    slots.each_place(|place| {
        let (out, into) = pair(&slots, place)?;
        for is_first in [true, false] {
            let mut made = [
                (slots.register_all(&out)?, slots.register_all(&into)?),
                (slots.register_all(&out)?, slots.register_all(&into)?),
            ];
            if is_first {
                made.reverse();
            }
            let [(one, other), left] = made;
            slots.deregister(one)?;
            slots.deregister(other)?;
            slots.moves((&out, 3000), (&into, 5000), 50_000, 81)?;
            slots.deregister(left.0)?;
            slots.deregister(left.1)?;
        }
        Ok(())
    })
}

/// Buffers of duplicates of a communicator may overlap.
fn overlapping_ranges(comm: &SlotComm) -> Outcome {
    let slots = Slots::of(comm)?;
    slots.each_place(|place| {
        let (out, into) = pair(&slots, place)?;
        if !out.is_host() {
            return Ok(()); // such allocations are registered as a whole
        }
        let ranges = [(0, 100_000), (50_000, 100_000), (60_000, 1000), (0, AREA)];
        let register = |area: &Area| -> Outcome<Vec<Option<Registration>>> {
            ranges.iter().map(|(at, size)| slots.register(area, *at, *size)).collect()
        };
        let mut made: Vec<_> = register(&out)?.into_iter().zip(register(&into)?).collect();
        for (at, size) in ranges {
            slots.moves((&out, at), (&into, at), size, 90 + at)?;
        }
        // The last one that is left is the second: the others that overlapped it have ended.
        for at in [3, 2, 0] {
            let (one, other) = made.remove(at);
            slots.deregister(one)?;
            slots.deregister(other)?;
            slots.moves((&out, 50_000), (&into, 50_000), 100_000, 94 + at as u64)?;
        }
        made.into_iter().try_for_each(|(one, other)| {
            slots.deregister(one)?;
            slots.deregister(other)
        })
    })
}

const MOST: usize = 300;
const PIECE: u64 = 4096;

/// Registers pieces of an area until there is no room for another one, or until there are 300.
fn fill_up(slots: &Slots, area: &Area) -> Outcome<Vec<Registration>> {
    let mut made = Vec::new();
    while made.len() < MOST {
        match slots.try_register(&area.part(made.len() as u64 * PIECE, PIECE))? {
            Ok(one) => made.push(one),
            Err(status) => {
                let is_known = [DTL_ERROR_LIMIT, DTL_ERROR_OUT_OF_MEMORY].contains(&status);
                ensure!(
                    is_known && !made.is_empty(),
                    "comm.mem_register returned {} ({status}) with {} registrations: return \
                     DTL_ERROR_LIMIT or DTL_ERROR_OUT_OF_MEMORY if no more memory can be registered",
                    name_of(status),
                    made.len()
                );
                break;
            }
        }
    }
    Ok(made)
}

fn no_room_leaves_nothing(comm: &SlotComm) -> Outcome {
    let slots = Slots::of(comm)?;
    let Some(host) = slots.places().next() else { return Ok(()) };
    let area = slots.area(host, MOST as u64 * PIECE + PIECE)?;
    if slots.supports(&area.info())? != DTL_COMM_MEM_ADDRESS {
        skip!("mem_supports does not return DTL_COMM_MEM_ADDRESS for host memory");
    }
    let mut made = fill_up(&slots, &area)?;
    let count = made.len();
    if count < MOST {
        for _ in 0..50 {
            let again = slots.try_register(&area.part(MOST as u64 * PIECE, PIECE))?;
            ensure!(again.is_err(), "comm.mem_register found no room at first, and room later");
        }
        slots.deregister(made.pop())?;
        match slots.try_register(&area.part(0, PIECE))? {
            Ok(one) => made.push(one),
            Err(status) => wrong!(
                "after 50 refusals one of {count} registrations has ended, and comm.mem_register \
                 still returns {}",
                name_of(status)
            ),
        }
    }
    made.into_iter().try_for_each(|one| slots.deregister(Some(one)))?;
    let made = fill_up(&slots, &area)?;
    let is = made.len();
    made.into_iter().try_for_each(|one| slots.deregister(Some(one)))?;
    check!(is == count, "{count} pieces could be registered, and after their deregistration {is}")
}

fn collectives_inside(comm: &SlotComm) -> Outcome {
    let slots = Slots::of(comm)?;
    let Some(host) = slots.places().next() else { return Ok(()) };
    let is_direct = slots.supports(&slots.area(host, AREA)?.info())? == DTL_COMM_MEM_ADDRESS;
    let mut is_any = false;
    for form in Form::each(comm.size) {
        for form in [form, Form { count: 5000, ..form }] {
            let mut one = Collective::new(comm, form);
            if !one.is_supported()? {
                continue;
            }
            let mut made = Vec::new();
            for range in one.memory().into_iter().filter(|range| is_direct && range.size_bytes > 0)
            {
                let area = slots.area(host, 64)?;
                let info =
                    dtl_mem_info_t { base: range.ptr, size_bytes: range.size_bytes, ..area.info() };
                match slots.try_register(&info)? {
                    Ok(registration) => made.push(registration),
                    Err(status) => wrong!("comm.mem_register returned {}", name_of(status)),
                }
            }
            one.start()?;
            one.wait()?;
            made.into_iter().try_for_each(|one| slots.deregister(Some(one)))?;
            is_any = true;
        }
    }
    if !is_any {
        skip!("the comm table executes no collectives");
    }
    slots.if_registered()
}

/// Registers memory in rounds until the memory allocated by malloc does not grow in a round.
fn keep_no_memory(comm: &SlotComm) -> Outcome {
    const EACH: i32 = 500;
    let slots = Slots::of(comm)?;
    slots.each_place(|place| {
        let area = slots.area(place, AREA)?;
        let mut grown = Vec::new();
        for _ in 0..5 {
            let before = malloc_bytes();
            for _ in 0..EACH {
                slots.deregister(slots.register_all(&area)?)?;
            }
            let (Some(before), Some(after)) = (before, malloc_bytes()) else {
                skip!("this C library does not report how much memory is in use");
            };
            grown.push(after.wrapping_sub(before));
        }
        // A leaked block of malloc has 32 bytes or more.
        let least = grown.iter().skip(2).copied().min().unwrap_or(0);
        check!(least < 8 * EACH, "memory grows with {EACH} registrations, by {grown:?} bytes")
    })
}

fn same_range_again(comm: &SlotComm) -> Outcome {
    let slots = Slots::of(comm)?;
    slots.each_place(|place| {
        let (out, into) = pair(&slots, place)?;
        (110..118).try_for_each(|key| {
            let made = [slots.register_all(&out)?, slots.register_all(&into)?];
            slots.moves((&out, key), (&into, 2 * key), 20_000, key)?;
            made.into_iter().try_for_each(|one| slots.deregister(one))
        })
    })
}

fn others_stay(comm: &SlotComm) -> Outcome {
    let slots = Slots::of(comm)?;
    slots.each_place(|place| {
        let all: Vec<(Area, Area)> = (0..3).map(|_| pair(&slots, place)).collect::<Outcome<_>>()?;
        // Which one ends first, and which one after it.
        for order in [[0, 1, 2], [1, 2, 0], [2, 0, 1]] {
            let register = |(one, other): &(Area, Area)| {
                Ok(Some((slots.register_all(one)?, slots.register_all(other)?)))
            };
            let mut made: Vec<_> = all.iter().map(register).collect::<Outcome<_>>()?;
            for (turn, at) in order.into_iter().enumerate() {
                if let Some((one, other)) = made[at].take() {
                    slots.deregister(one)?;
                    slots.deregister(other)?;
                }
                for left in &order[turn + 1..] {
                    let ((out, into), key) = (&all[*left], 130 + 3 * turn + left);
                    slots.moves((out, 10), (into, 20), 40_000, key as u64)?;
                }
            }
        }
        Ok(())
    })
}

fn makes_room(comm: &SlotComm) -> Outcome {
    let slots = Slots::of(comm)?;
    slots.each_place(|place| {
        let area = slots.area(place, AREA)?;
        (0..2000).try_for_each(|_| slots.deregister(slots.register_all(&area)?))
    })
}

/// Host memory need not be registered.
fn host_memory_stays_usable(comm: &SlotComm) -> Outcome {
    let slots = Slots::of(comm)?;
    let Some(host) = slots.places().next() else { return Ok(()) };
    let (out, into) = pair(&slots, host)?;
    for key in 140..145 {
        slots.deregister(slots.register_all(&out)?)?;
        slots.deregister(slots.register_all(&into)?)?;
        slots.moves((&out, 5), (&into, 9), 60_000, key)?;
    }
    slots.if_registered()
}

/// Ranges of other sizes at the address of the one before, and allocations that may be there.
fn address_given_again(comm: &SlotComm) -> Outcome {
    let slots = Slots::of(comm)?;
    slots.each_place(|place| {
        let (out, into) = pair(&slots, place)?;
        for (size, key) in [60_000, 130_000, AREA, 60_000].into_iter().zip(160..) {
            // Memory that the host cannot access is registered as a whole allocation.
            let size = if out.is_host() && into.is_host() { size } else { AREA };
            let made = [slots.register(&out, 0, size)?, slots.register(&into, 0, size)?];
            slots.moves((&out, size - 50_000), (&into, size - 50_000), 50_000, key)?;
            made.into_iter().try_for_each(|one| slots.deregister(one))?;
        }
        for (size, key) in [AREA, AREA / 2, AREA, 2 * AREA, AREA].into_iter().zip(150..) {
            let (out, into) = (slots.area(place, size)?, slots.area(place, size)?);
            let made = [slots.register_all(&out)?, slots.register_all(&into)?];
            slots.moves((&out, size - 50_000), (&into, size - 50_000), 50_000, key)?;
            made.into_iter().try_for_each(|one| slots.deregister(one))?;
        }
        Ok(())
    })
}
