//! Tests that a mailbox slot (area with one mailbox per rank) is reserved again only when no rank
//! uses it, and that a message block or page of a mailbox is overwritten only when all ranks have
//! read it. The memory ordering between threads is tested in `tests/models`.

use super::*;
use crate::sys::memory::buf::Scratch;
use crate::sys::os::shm_segment::SharedMapping;
use std::sync::Arc;

fn memory(ranks: usize) -> Arc<SharedMapping> {
    SharedMapping::private(place_bytes(ranks)).expect("memory")
}

fn slots(memory: &Arc<SharedMapping>) -> Span {
    memory.span(0, memory.len()).expect("inside")
}

fn mailbox(memory: &Arc<SharedMapping>, own: usize, context: u32) -> MailboxView {
    MailboxView::new(slots(memory), Box::new([0, SHEET as u32]), own * SHEET, context)
}

fn post(mailbox: &MailboxView, number: u64, word: u64) -> bool {
    mailbox.post(number, 5, Scratch::of_words(&[word]).expect("memory").region())
}

fn read(mailbox: &MailboxView, rank: i32, number: u64) -> Option<u64> {
    let post = mailbox.look(rank, number)?;
    assert_eq!((post.what, post.data.len()), (5, 8));
    Scratch::copy_of(post.data).expect("memory").words().first().copied()
}

#[test]
fn a_block_is_not_used_again_before_all_have_done_with_it() {
    let memory = memory(2);
    let (one, two) = (mailbox(&memory, 0, 3), mailbox(&memory, 1, 3));
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
    let (one, two) = (mailbox(&memory, 0, 3), mailbox(&memory, 1, 3));
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
    let (one, two) = (mailbox(&memory, 0, 3), mailbox(&memory, 1, 3));
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
    let (one, two) = (mailbox(&memory, 0, 3), mailbox(&memory, 1, 3));
    assert!(post(&one, 1, 4));
    assert_eq!(read(&two, 0, 1), Some(4));
    let (one, two) = (mailbox(&memory, 0, 4), mailbox(&memory, 1, 4));
    assert_eq!(read(&two, 0, 1), None);
    for number in 1..=BLOCKS {
        assert!(post(&one, number, 1));
    }
    assert!(!post(&one, BLOCKS + 1, 1), "the other one's word is of the earlier communicator");
}

/// Memory for the mailboxes of two ranks, and the mailbox slots (areas with one mailbox per rank)
/// that each rank has reserved.
struct Two {
    memory: Arc<SharedMapping>,
    places: [Places; 2],
}

impl Two {
    fn new() -> Two {
        let memory = SharedMapping::private(PLACES * place_bytes(2)).expect("memory");
        Two { memory, places: Default::default() }
    }

    fn reserve(&mut self, rank: usize) -> u32 {
        self.places[rank].reserve(|_| false).expect("a place").0 as u32
    }

    fn open(&mut self, own: usize, context: u32, places: [u32; 2]) -> MailboxView {
        let slots = Some(slots(&self.memory));
        let member = |(rank, place)| Member { rank, place };
        let members: Vec<_> = (0..).zip(places).map(member).collect();
        self.places[own].open(slots, (2, own), context, &members).expect("mailbox")
    }

    fn is_free(&mut self, rank: usize, place: u32, is_gone: bool) -> bool {
        let reserved = self.places[rank].reserve(|_| is_gone).expect("a place").0 as u32;
        self.places[rank].release(reserved);
        reserved == place
    }
}

#[test]
fn a_place_is_free_when_all_its_ranks_have_gone_through() {
    let mut two = Two::new();
    let places = [two.reserve(0), two.reserve(1)];
    assert_eq!(places, [1, 1], "the first one is the first communicator's");
    assert!(!two.is_free(0, 1, false), "it is reserved");
    let one = two.open(0, 3, places);
    assert!(!two.is_free(0, 1, false));
    drop(one);
    assert!(!two.is_free(0, 1, false), "rank 1 may not have come so far");
    let other = two.open(1, 3, places);
    assert!(!two.is_free(0, 1, false) && two.is_free(0, 1, true));
    drop(other);
    assert!(two.is_free(0, 1, false));
    let later = two.open(1, 9, places);
    assert!(two.is_free(0, 1, false), "rank 1 is in another communicator there");
    drop(later);
}

#[test]
fn a_rank_that_has_left_keeps_its_sheet_until_its_board_goes() {
    let mut two = Two::new();
    let places = [two.reserve(0), two.reserve(1)];
    let (one, other) = (two.open(0, 3, places), two.open(1, 3, places));
    assert!(!one.has_left(1) && !other.has_left(0) && !one.has_left(-1) && !one.has_left(2));
    other.leave();
    assert!(one.has_left(1) && !other.has_left(0));
    assert!(!two.is_free(0, 1, false) && !two.is_free(1, 1, false), "its threads may still use it");
    drop(other);
    assert!(one.has_left(1) && !two.is_free(1, 1, false), "rank 0 still looks");
    one.leave();
    drop(one);
    assert!(two.is_free(0, 1, false) && two.is_free(1, 1, false));
    let later = [two.reserve(0), two.reserve(1)];
    let (one, other) = (two.open(0, 5, later), two.open(1, 5, later));
    drop(other);
    assert!(!one.has_left(1), "its mailbox is closed, but not marked as left");
}

#[test]
fn communicators_made_at_the_same_time_share_no_sheet() {
    let mut two = Two::new();
    // Threads of rank 1 run in the opposite order.
    let (of_a, of_b) = (two.reserve(0), two.reserve(0));
    let (of_other_b, of_other_a) = (two.reserve(1), two.reserve(1));
    let (a, b) = ([of_a, of_other_a], [of_b, of_other_b]);
    assert_ne!(of_a, of_b);
    let mailboxes =
        [(3, a), (4, b)].map(|(context, places)| [0, 1].map(|own| two.open(own, context, places)));
    for (value, [one, other]) in (10..).zip(&mailboxes) {
        assert!(post(one, 1, value) && post(other, 1, value + 100));
    }
    for (value, [one, other]) in (10..).zip(&mailboxes) {
        assert_eq!((read(one, 1, 1), read(other, 0, 1)), (Some(value + 100), Some(value)));
    }
}

#[test]
fn places_are_given_back_and_end() {
    let mut two = Two::new();
    let all: Vec<_> = (1..PLACES).map(|_| two.reserve(0)).collect();
    assert!(all.iter().copied().eq(1..PLACES as u32) && two.places[0].reserve(|_| true).is_none());
    two.places[0].release(7);
    assert_eq!(two.reserve(0), 7);
    let mailbox = two.open(0, 3, [7, 1]);
    two.places[0].release(7);
    assert!(two.places[0].reserve(|_| false).is_none(), "a mailbox is there");
    drop(mailbox);
}
