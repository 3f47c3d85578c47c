//! Tests of `cells`.

use super::*;
use crate::sys::memory::buf::Scratch;

fn both() -> (CellPool, CellMemory) {
    let memory = SharedMapping::create(STRIDE).expect("memfd");
    memory.commit(0, STRIDE).expect("commit");
    (CellPool::new(&memory, 0).expect("pool"), CellMemory::new(&memory, 0).expect("cells"))
}

/// Allocates all free cells and returns them in ascending order.
fn all(pool: &mut CellPool) -> Vec<u16> {
    let mut had: Vec<u16> = (0..2 * CELLS).filter_map(|_| pool.take()).collect();
    had.sort_unstable();
    had
}

#[test]
fn each_cell_is_had_once_until_it_is_free() {
    let (mut pool, cells) = both();
    assert_eq!(all(&mut pool), (0..FIRST_CELLS).collect::<Vec<_>>());
    let number = pool.send(9, 1);
    assert!(all(&mut pool).is_empty());
    cells.free(9, number);
    pool.give_back(12);
    assert_eq!(all(&mut pool), [9, 12]);
    assert_eq!(pool.send(9, 1), number + 1);
    cells.free(9, number);
    assert!(all(&mut pool).is_empty(), "read once, sent twice");
}

#[test]
fn a_rank_that_sends_much_uses_all_cells() {
    let (mut pool, _) = both();
    let steps = [(SOME_BYTES, FIRST_CELLS), (MANY_BYTES - SOME_BYTES, SOME_CELLS)];
    for (bytes, count) in steps {
        for _ in 1..bytes / CELL {
            pool.count(CELL);
        }
        let had = all(&mut pool);
        assert_eq!(had, (0..count).collect::<Vec<_>>());
        had.into_iter().for_each(|cell| pool.give_back(cell));
        pool.count(CELL);
    }
    assert_eq!(all(&mut pool), (0..CELLS).collect::<Vec<_>>());
}

#[test]
fn a_message_larger_than_the_first_cells_uses_more() {
    let (mut pool, _) = both();
    pool.count(CELL * usize::from(FIRST_CELLS));
    assert_eq!(all(&mut pool).len(), usize::from(FIRST_CELLS));
    pool.count(CELL * usize::from(FIRST_CELLS) + 1);
    assert_eq!(all(&mut pool), (FIRST_CELLS..SOME_CELLS).collect::<Vec<_>>());
}

#[test]
fn what_was_sent_to_a_rank_that_is_gone_comes_back() {
    let (mut pool, cells) = both();
    let had = all(&mut pool);
    let number = pool.send(had[0], 3);
    cells.free(had[0], number);
    pool.send(had[1], 3);
    pool.send(had[2], 4);
    assert_eq!(all(&mut pool), had[..1]);
    pool.take_back_from(3);
    assert_eq!(all(&mut pool), had[1..2], "not what is filled and sent to nobody yet");
    assert_eq!(pool.send(had[1], 5), 1, "as if it had never been sent");
}

#[test]
fn bytes_arrive_and_the_outside_is_refused() {
    let (mut pool, cells) = both();
    let data = Scratch::of_words(&(0..CELL as u64 / 8).collect::<Vec<_>>()).expect("memory");
    let cell = pool.take().expect("a cell");
    let parts = [(0, CELL), (0, 63), (1, 64), (3, 200), (7, CELL - 7)];
    for (at, len, is_nt) in
        parts.into_iter().flat_map(|(at, len)| [(at, len, false), (at, len, true)])
    {
        let part = data.region().part(at, len);
        pool.fill(cell, part, is_nt);
        let bytes = cells.bytes(cell, len).expect("inside");
        // SAFETY: no thread writes the cell until it is freed, or the data.
        let [copied, expected] = [bytes, part].map(|region| unsafe { region.as_slice() });
        assert!(copied == expected, "{len} bytes from {at}, {is_nt}");
    }
    assert!(cells.bytes(CELLS, 1).is_none() && cells.bytes(0, CELL + 1).is_none());
}
