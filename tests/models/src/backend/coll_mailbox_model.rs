//! Models of collective mailboxes: a posted message is read completely, and its block is not
//! overwritten before all ranks have read it.
//!
//! Here a mailbox has two blocks of one word, and a page for two words. A block that is read or
//! reused too early is an unordered access to its bytes, which loom rejects.

use super::coll_mailbox::{MailboxView, Places, SHEET, place_bytes};
use super::wakeup::Doorbell;
use crate::Model;
use crate::runtime::component::{CollMailbox, Member};
use crate::sys::memory::buf::Region;
use crate::sys::os::shm_segment::SharedMapping;
use crate::sys::sync::{AtomicU64, Ordering};
use loom::thread;
use std::sync::Arc;
use std::time::Duration;

pub const ALL: &[Model] = &[
    ("mailbox: all post and all read", all_read),
    ("mailbox: one posts ahead of who reads", one_ahead),
    ("mailbox: pages: one posts ahead", pages_ahead),
    ("mailbox: the one that reads changes", turns),
    ("mailbox: ahead after all have met", ahead_after_meeting),
    ("mailbox: a place is used again", used_again),
    ("bell: a post against a sleep", post_against_sleep),
];

fn mailbox(memory: &Arc<SharedMapping>, own: usize) -> MailboxView {
    MailboxView::new(
        memory.span(0, memory.len()).unwrap(),
        Box::new([0, SHEET as u32]),
        own * SHEET,
        0,
    )
}

fn post(mailbox: &MailboxView, number: u64, data: Region) {
    while !mailbox.post(number, 1, data) {
        thread::yield_now();
    }
}

fn post_word(mailbox: &MailboxView, number: u64, word: u64) {
    let data = SharedMapping::create(8);
    data.region().write(0, word);
    post(mailbox, number, data.region());
}

fn read(mailbox: &MailboxView, rank: i32, number: u64) -> u64 {
    loop {
        if let Some(post) = mailbox.look(rank, number) {
            assert_eq!((post.what, post.data.len()), (1, 8));
            return post.data.read(0);
        }
        thread::yield_now();
    }
}

/// Runs both ranks, each in a thread of its own.
fn two(body: impl Fn(&MailboxView, usize) + Send + Sync + Copy + 'static) {
    let memory = SharedMapping::create(2 * SHEET);
    let other = mailbox(&memory, 1);
    let second = thread::spawn(move || body(&other, 1));
    body(&mailbox(&memory, 0), 0);
    second.join().unwrap();
}

/// Posts as an allreduce does. No rank reads the progress words of the other ranks, because their
/// posts show how far they are.
fn all_read() {
    two(|mailbox, own| {
        for number in 1..=4 {
            post_word(mailbox, number, 10 * number + own as u64);
            assert_eq!(read(mailbox, 1 - own as i32, number), 10 * number + 1 - own as u64);
            mailbox.finish(number, true);
        }
    });
}

/// Performs a broadcast from rank 0.
fn broadcast(mailbox: &MailboxView, own: usize, number: u64) {
    if own == 0 {
        post_word(mailbox, number, number);
    } else {
        post(mailbox, number, Region::EMPTY);
        assert_eq!(read(mailbox, 0, number), number);
    }
    mailbox.finish(number, false);
}

fn one_ahead() {
    two(|mailbox, own| (1..=4).for_each(|number| broadcast(mailbox, own, number)));
}

/// Models messages that do not fit into a block.
fn pages_ahead() {
    two(|mailbox, own| {
        for number in 1..=3 {
            if own == 0 {
                let data = SharedMapping::create(16);
                data.region().write(0, number);
                data.region().write(1, number + 10);
                post(mailbox, number, data.region());
            } else {
                post(mailbox, number, Region::EMPTY);
                let post = loop {
                    match mailbox.look(0, number) {
                        Some(post) => break post,
                        None => thread::yield_now(),
                    }
                };
                assert_eq!((post.data.read(0), post.data.read(1)), (number, number + 10));
            }
            mailbox.finish(number, false);
        }
    });
}

fn ahead_after_meeting() {
    two(|mailbox, own| {
        post_word(mailbox, 1, own as u64);
        assert_eq!(read(mailbox, 1 - own as i32, 1), 1 - own as u64);
        mailbox.finish(1, true);
        (2..=4).for_each(|number| broadcast(mailbox, own, number));
    });
}

/// Models broadcasts whose roots alternate.
fn turns() {
    two(|mailbox, own| {
        for number in 1..=4 {
            if own as u64 == number % 2 {
                post_word(mailbox, number, number);
            } else {
                post(mailbox, number, Region::EMPTY);
                assert_eq!(read(mailbox, (number % 2) as i32, number), number);
            }
            mailbox.finish(number, false);
        }
    });
}

/// Rank 0's mailbox is reserved for another communicator as soon as rank 1 no longer reads it there.
fn used_again() {
    let memory = SharedMapping::create(3 * place_bytes(2));
    let open = |places: &mut Places,
                memory: &Arc<SharedMapping>,
                own: usize,
                context: u32,
                at: [u32; 2]| {
        let span = memory.span(0, memory.len());
        let members = [0, 1].map(|rank| Member { rank, place: at[rank as usize] });
        places.open(span, (2, own), context, &members).unwrap()
    };
    let theirs = Arc::clone(&memory);
    let reader = thread::spawn(move || {
        let mailbox = open(&mut Places::default(), &theirs, 1, 5, [1, 1]);
        assert_eq!(read(&mailbox, 0, 1), 7);
    });
    let mut places = Places::default();
    let (place, _) = places.reserve(|_| false).unwrap();
    let mailbox = open(&mut places, &memory, 0, 5, [1, 1]);
    post_word(&mailbox, 1, 7);
    drop(mailbox);
    while places.reserve(|_| false).unwrap().0 != place {
        places.release(2);
        thread::yield_now();
    }
    let mailbox = open(&mut places, &memory, 0, 6, [1, 2]);
    post_word(&mailbox, 1, 8);
    reader.join().unwrap();
}

/// Models two threads that sleep until a word is stored. If the thread that stores the word did not
/// wake both, they would sleep forever.
fn post_against_sleep() {
    let it = Arc::new((Doorbell::default(), AtomicU64::new(0)));
    let sleepers: Vec<_> = (0..2)
        .map(|_| {
            let it = Arc::clone(&it);
            thread::spawn(move || {
                let is_there = || it.1.load(Ordering::Acquire) == 1;
                while !is_there() {
                    it.0.sleep(is_there, Duration::from_secs(1));
                }
            })
        })
        .collect();
    it.1.store(1, Ordering::Release);
    it.0.ring();
    sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
}
