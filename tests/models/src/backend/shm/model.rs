//! Models of the ring (records that wrap around its end, and a claim for which both sides compete),
//! of cells that are reused, and of fragments that both sides claim.
//!
//! Here the ring has two slots, room for two cache lines of longer payloads, and one claim. A
//! record that is written, read or freed too early is an unordered access to its bytes, which loom
//! rejects.

use super::memory::cells::{self, CellMemory, CellPool};
use super::memory::ring::{Consumer, Payload, Producer, RecordKind, STRIDE};
use crate::Model;
use crate::sys::memory::buf::Region;
use crate::sys::os::shm_segment::SharedMapping;
use loom::thread;
use std::sync::Arc;

pub const ALL: &[Model] = &[
    ("ring: records in their slots", short_records),
    ("ring: longer records round the end", long_records),
    ("ring: words round the end", words),
    ("ring: take against cancel", claims),
    ("ring: a claim that comes back", claim_again),
    ("cells: filled again when they were read", cells_again),
    ("fragments: from both ends, each once", fragments),
];

fn ends() -> (Producer, Consumer, Arc<SharedMapping>) {
    let memory = SharedMapping::create(STRIDE);
    (Producer::new(&memory, 0).unwrap(), Consumer::new(&memory, 0).unwrap(), memory)
}

/// Waits for the next record.
fn next<R>(
    consumer: &mut Consumer,
    look: impl FnOnce(&Consumer, &super::memory::ring::RingRecord) -> R,
) -> R {
    loop {
        if let Some(record) = consumer.peek().expect("a record") {
            let seen = look(consumer, &record);
            consumer.pop(&record);
            consumer.publish_free();
            return seen;
        }
        thread::yield_now();
    }
}

fn push(producer: &mut Producer, kind: RecordKind, key: u64, payload: Payload) {
    while !producer.push(kind, key, payload) {
        thread::yield_now();
    }
}

/// Sizes of payloads in slots: the third record needs the slot of the first.
const SHORT: &[usize] = &[16, 24, 16];
/// Sizes of longer payloads: two of one cache line, and one of two lines, which needs the space of
/// both others.
const LONG: &[usize] = &[40, 64, 72];

fn short_records() {
    records(SHORT, &[1, 3]);
}

fn long_records() {
    records(LONG, &[]);
}

/// Waits for the next record, which is in its slot, by `peek_short`.
fn next_short(consumer: &mut Consumer, look: impl FnOnce(u64, Region)) {
    loop {
        if let Some((key, payload)) = consumer.peek_short() {
            look(key, payload);
            consumer.pop_short();
            consumer.publish_free();
            return;
        }
        thread::yield_now();
    }
}

/// Reads the records `short` by `peek_short`.
fn records(lengths: &'static [usize], short: &[u64]) {
    let (mut producer, mut consumer, _memory) = ends();
    let writer = thread::spawn(move || {
        let data = SharedMapping::create(128);
        for (key, len) in (1..).zip(lengths.iter().copied()) {
            let bytes = data.region().part(0, len);
            bytes.write(0, key);
            bytes.write(len / 8 - 1, key);
            push(&mut producer, RecordKind::Eager, key, Payload::Bytes(bytes));
        }
    });
    for (key, len) in (1..).zip(lengths.iter().copied()) {
        let check = |found, payload: Region| {
            assert_eq!((found, payload.len()), (key, len));
            assert_eq!((payload.read(0), payload.read(len / 8 - 1)), (key, key));
        };
        if short.contains(&key) {
            next_short(&mut consumer, check);
        } else {
            next(&mut consumer, |_, record| check(record.key, record.payload));
        }
    }
    writer.join().unwrap();
    assert!(matches!(consumer.peek(), Ok(None)));
}

fn words() {
    let (mut producer, mut consumer, _memory) = ends();
    let writer = thread::spawn(move || {
        for key in 1..=4 {
            push(&mut producer, RecordKind::Clear, key, Payload::Words([key; 4]));
        }
    });
    for key in 1..=4 {
        next(&mut consumer, |_, record| assert_eq!((record.key, record.words), (key, [key; 4])));
    }
    writer.join().unwrap();
}

/// Checks that the sender may reuse the bytes of a canceled request, and that the bytes of an
/// accepted request are read.
fn claims() {
    let (mut producer, mut consumer, _memory) = ends();
    let message = SharedMapping::create(8);
    let bytes = Arc::clone(&message);
    let sender = thread::spawn(move || {
        let claim = producer.offers.open().unwrap();
        bytes.region().write(0, 7);
        push(&mut producer, RecordKind::Offer, 5, Payload::Offer([8, 0, 0, 0], claim));
        let withdrawn = producer.offers.cancel(claim);
        if withdrawn {
            bytes.region().write(0, 9);
        }
        withdrawn
    });
    let taken = next(&mut consumer, |consumer, record| {
        let taken = consumer.offers.take(record.claim);
        if taken {
            assert_eq!(message.region().read(0), 7);
        }
        taken
    });
    assert!(sender.join().unwrap() != taken, "either taken or withdrawn");
}

/// Checks that a canceled claim is offered again only after the receiver has seen the cancellation,
/// so that the old record never accepts the new request.
fn claim_again() {
    let (mut producer, mut consumer, _memory) = ends();
    let claim = producer.offers.open().unwrap();
    push(&mut producer, RecordKind::Offer, 1, Payload::Offer([0; 4], claim));
    assert!(producer.offers.cancel(claim));
    let sender = thread::spawn(move || {
        let again = loop {
            match producer.offers.open() {
                Some(claim) => break claim,
                None => thread::yield_now(),
            }
        };
        push(&mut producer, RecordKind::Offer, 2, Payload::Offer([0; 4], again));
    });
    next(&mut consumer, |consumer, record| {
        assert!(
            record.key == 1
                && !consumer.offers.is_open(record.claim)
                && !consumer.offers.take(record.claim)
        );
    });
    next(&mut consumer, |consumer, record| {
        assert!(record.key == 2 && consumer.offers.take(record.claim))
    });
    sender.join().unwrap();
}

/// Sends three messages through two cells: the third waits until a cell has been read.
fn cells_again() {
    let (mut producer, mut consumer, _memory) = ends();
    let shared = SharedMapping::create(cells::STRIDE);
    let (mut pool, cells) =
        (CellPool::new(&shared, 0).unwrap(), CellMemory::new(&shared, 0).unwrap());
    let sender = thread::spawn(move || {
        let data = SharedMapping::create(16);
        for key in 1..=3 {
            data.region().write(1, key);
            let cell = loop {
                match pool.take() {
                    Some(cell) => break cell,
                    None => thread::yield_now(),
                }
            };
            pool.fill(cell, data.region(), false);
            let number = pool.send(cell, 1);
            let words = [cell.into(), number, 16, 0];
            push(&mut producer, RecordKind::Cell, key, Payload::Words(words));
        }
    });
    for key in 1..=3 {
        next(&mut consumer, |_, record| {
            let [cell, number, len, _] = record.words;
            let bytes = cells.bytes(cell as u16, len as usize).unwrap();
            assert_eq!((record.key, bytes.read(1)), (key, key));
            cells.free(cell as u16, number);
        });
    }
    sender.join().unwrap();
}

/// The receiver makes three fragments claimable and claims up to two of them from the end, the
/// sender from the front. The sender returns the first fragment that it claims. In the end each
/// fragment is claimed by one side, and none is lost.
fn fragments() {
    let (mut producer, mut consumer, memory) = ends();
    let offers = Producer::new(&memory, 0).unwrap().offers;
    let sender = thread::spawn(move || {
        next(&mut consumer, |_, record| assert_eq!(record.kind, RecordKind::Clear));
        let take = || offers.take_fragments(0, |_| 1);
        take().into_iter().for_each(|_| offers.return_fragments(0, 1));
        std::iter::from_fn(take).flatten().collect::<Vec<_>>()
    });
    let offered = Consumer::new(&memory, 0).unwrap().offers;
    offered.share(0, 0..3);
    push(&mut producer, RecordKind::Clear, 1, Payload::Words([0; 4]));
    let taken = (0..2).filter_map(|_| offered.take_fragments(0, |_| 1));
    let mut had: Vec<u32> = taken.flatten().collect();
    had.extend(sender.join().unwrap());
    had.sort_unstable();
    assert_eq!(had, [0, 1, 2]);
}
