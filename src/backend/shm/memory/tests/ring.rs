//! Tests of `ring`.

use super::*;
use crate::sys::memory::buf::Scratch;

fn ends() -> (Producer, Consumer) {
    let memory = SharedMapping::create(STRIDE).expect("memfd");
    memory.commit(0, STRIDE).expect("commit");
    (Producer::new(&memory, 0).expect("ring"), Consumer::new(&memory, 0).expect("ring"))
}

fn send(producer: &mut Producer, key: u64, len: usize) -> bool {
    let data = Scratch::new(len).expect("memory");
    data.region().fill(key as u8);
    producer.push(RecordKind::Eager, key, Payload::Bytes(data.region()))
}

fn next(consumer: &mut Consumer) -> Option<(u64, usize)> {
    let record = consumer.peek().expect("sound")?;
    let is_short = record.kind == RecordKind::Eager && record.payload.len() <= IN_SLOT;
    let short = consumer.peek_short().map(|(key, payload)| (key, payload.len()));
    assert_eq!(short, is_short.then(|| (record.key, record.payload.len())));
    // SAFETY: the record is not popped yet, so the producer does not write its payload.
    let bytes = unsafe { record.payload.as_slice() };
    assert!(bytes.iter().all(|&byte| byte == record.key as u8));
    let found = (record.key, bytes.len());
    if is_short && record.key % 2 == 0 {
        consumer.pop_short()
    } else {
        consumer.pop(&record)
    }
    Some(found)
}

#[test]
fn records_come_out_as_they_went_in_round_and_round() {
    let (mut producer, mut consumer) = ends();
    for key in 0..1000_u64 {
        let len = key as usize * 7919 % (MAX_DATA + 1);
        assert!(send(&mut producer, key, len));
        assert_eq!(next(&mut consumer), Some((key, len)));
        consumer.publish_free();
    }
    assert_eq!(next(&mut consumer), None);
}

#[test]
fn a_full_ring_refuses_and_goes_on_later() {
    let (mut producer, mut consumer) = ends();
    let mut sent = 0;
    while send(&mut producer, sent, 5000) {
        sent += 1;
    }
    assert!(sent >= (CAPACITY / 5120 - 1) as u64);
    for key in 0..sent {
        assert_eq!(next(&mut consumer), Some((key, 5000)));
    }
    consumer.publish_free();
    assert!(send(&mut producer, 7, MAX_DATA));
    assert_eq!(next(&mut consumer), Some((7, MAX_DATA)));
}

#[test]
fn control_words() {
    let (mut producer, mut consumer) = ends();
    assert!(producer.push(RecordKind::Offer, 5, Payload::Offer([u64::MAX, 2, 3, 4], 7)));
    assert_eq!(consumer.peek_short().map(|(key, _)| key), None);
    let record = consumer.peek().expect("sound").expect("record");
    assert_eq!(
        (record.kind, record.claim, record.key, record.words),
        (RecordKind::Offer, 7, 5, [u64::MAX, 2, 3, 4])
    );
}

#[test]
fn garbage_is_noticed() {
    let (producer, mut consumer) = ends();
    producer.ring.put(0, 1 | 99 << 32);
    assert!(consumer.peek().is_err(), "no kind");
    producer.ring.put(0, stamp(0, RecordKind::Eager, MAX_DATA as u64 + 1));
    assert!(consumer.peek().is_err(), "too long");
    for end in [0, 64, CAPACITY as u64 + 64, u64::MAX] {
        producer.ring.put(0, stamp(0, RecordKind::Eager, 1000));
        producer.ring.put(WORDS, end);
        assert!(consumer.peek().is_err(), "bytes that end at {end}");
    }
    producer.ring.put(0, stamp(SLOTS, RecordKind::Eager, 0));
    assert!(matches!(consumer.peek(), Ok(None)), "the number of a later record");
}

#[test]
fn two_threads() {
    let (mut producer, mut consumer) = ends();
    const COUNT: u64 = 20_000;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for key in 0..COUNT {
                while !send(&mut producer, key, (key % 300) as usize) {
                    std::thread::yield_now();
                }
            }
        });
        for key in 0..COUNT {
            loop {
                if let Some(found) = next(&mut consumer) {
                    assert_eq!(found, (key, (key % 300) as usize));
                    break;
                }
                consumer.publish_free();
                std::thread::yield_now();
            }
        }
    });
}
