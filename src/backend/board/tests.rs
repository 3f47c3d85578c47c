//! What a board must not do: take a block back too early, or a place. How threads meet on one: `tests/models`.

use super::*;
use crate::sys::buf::Scratch;
use crate::sys::shared::Memory;
use std::sync::Arc;

fn memory(ranks: usize) -> Arc<Memory> {
    Memory::private(place_bytes(ranks)).expect("memory")
}

fn sheets(memory: &Arc<Memory>) -> Span {
    memory.span(0, memory.len()).expect("inside")
}

fn board(memory: &Arc<Memory>, own: usize, context: u32) -> Board {
    Board::new(sheets(memory), &[0, 1], own, context)
}

fn post(board: &Board, number: u64, word: u64) -> bool {
    board.post(number, 5, Scratch::of_words(&[word]).expect("memory").region())
}

fn read(board: &Board, rank: i32, number: u64) -> Option<u64> {
    let post = board.look(rank, number)?;
    assert_eq!((post.what, post.data.len()), (5, 8));
    Scratch::copy_of(post.data).expect("memory").words().first().copied()
}

#[test]
fn a_block_is_not_used_again_before_all_have_done_with_it() {
    let memory = memory(2);
    let (one, two) = (board(&memory, 0, 3), board(&memory, 1, 3));
    for number in 1..=BLOCKS {
        assert!(post(&one, number, number));
        one.finish(number, false);
    }
    assert!(!post(&one, BLOCKS + 1, 0), "nobody has read the first");
    assert_eq!((read(&two, 0, 1), read(&two, 0, BLOCKS + 1)), (Some(1), None));
    two.finish(1, false);
    assert!(post(&one, BLOCKS + 1, 77));
    assert_eq!((read(&two, 0, 1), read(&two, 0, BLOCKS + 1)), (None, Some(77)));
    one.finish(BLOCKS + 1, false);
    assert!(!post(&one, BLOCKS + 2, 0));
}

#[test]
fn a_page_is_not_used_again_before_all_have_done_with_it() {
    let memory = memory(2);
    let (one, two) = (board(&memory, 0, 3), board(&memory, 1, 3));
    let long = |number: u64| Scratch::of_words(&[number; SMALL / 8 + 1]).expect("memory");
    for number in 1..=PAGES {
        assert!(one.post(number, 5, long(number).region()));
        one.finish(number, false);
    }
    assert!(!one.post(PAGES + 1, 5, long(0).region()), "nobody has read the first");
    assert!(post(&one, PAGES + 1, 7), "which fits into a block");
    for number in 1..=PAGES {
        let post = two.look(0, number).expect("posted");
        assert_eq!(Scratch::copy_of(post.data).expect("memory").words(), long(number).words());
        two.finish(number, false);
    }
    assert_eq!(read(&two, 0, PAGES + 1), Some(7));
    one.finish(PAGES + 1, false);
    assert!(one.post(PAGES + 2, 5, long(9).region()), "all have done with the second");
}

#[test]
fn numbers_go_on_past_what_a_stamp_holds() {
    let memory = memory(2);
    let (one, two) = (board(&memory, 0, 3), board(&memory, 1, 3));
    let begin = u64::from(u32::MAX) - 20;
    one.finish(begin, true);
    two.finish(begin, true);
    for number in begin + 1..begin + 60 {
        assert!(post(&one, number, number), "{number}");
        assert!(post(&two, number, 1));
        assert_eq!(read(&two, 0, number), Some(number));
        one.finish(number, false);
        two.finish(number, false);
    }
}

#[test]
fn what_an_earlier_communicator_posted_is_not_seen() {
    let memory = memory(2);
    let (one, two) = (board(&memory, 0, 3), board(&memory, 1, 3));
    assert!(post(&one, 1, 4));
    assert_eq!(read(&two, 0, 1), Some(4));
    let (one, two) = (board(&memory, 0, 4), board(&memory, 1, 4));
    assert_eq!(read(&two, 0, 1), None);
    for number in 1..=BLOCKS {
        assert!(post(&one, number, 1));
    }
    assert!(!post(&one, BLOCKS + 1, 1), "the other one's word is of the earlier communicator");
}

#[test]
fn a_place_is_free_when_all_its_ranks_have_gone_through() {
    let memory = memory(2);
    let mut places = Places::default();
    let free = |places: &Places| places.free(|_| false) & 1 << 7 != 0;
    assert!(free(&places) && places.free(|_| false) & 1 == 0, "the first one is taken");
    let one = board(&memory, 0, 3);
    places.take(7, sheets(&memory), &one);
    assert!(!free(&places));
    drop(one);
    assert!(!free(&places), "rank 1 may not have come so far");
    let two = board(&memory, 1, 3);
    assert!(!free(&places) && places.free(|rank| rank == 1) & 1 << 7 != 0);
    drop(two);
    assert!(free(&places));
    let later = board(&memory, 1, 9);
    assert!(free(&places), "rank 1 is in another communicator there");
    drop(later);
}
