//! Models of a traced thread's journal: the writer against a concurrent reader.

use crate::Model;
use crate::runtime::trace::spsc_queue::{SpscQueue, WORDS};
use loom::thread;
use std::sync::Arc;

pub const ALL: &[Model] = &[
    ("journal: records come whole and in their order", whole_records),
    ("journal: a slot that serves again", slot_serves_again),
];

/// Runs a writer that may have more records than there is room for against a reader. Each pushed
/// record is read exactly once.
fn against(room: usize, records: u64, looks: usize) {
    let journal = Arc::new(SpscQueue::new(room).expect("memory"));
    let theirs = Arc::clone(&journal);
    let reader =
        thread::spawn(move || (0..looks).filter_map(|_| take(&theirs)).collect::<Vec<_>>());
    let pushed: Vec<u64> =
        (1..=records).filter(|number| journal.push(&[*number; WORDS]).is_some()).collect();
    let mut taken = reader.join().unwrap();
    taken.extend(std::iter::from_fn(|| take(&journal)));
    assert_eq!(taken, pushed);
}

fn take(journal: &SpscQueue) -> Option<u64> {
    let record = journal.take()?;
    assert!(record.iter().all(|word| *word == record[0]), "half of a record: {record:?}");
    Some(record[0])
}

fn whole_records() {
    against(2, 2, 2);
}

fn slot_serves_again() {
    against(1, 3, 2);
}
