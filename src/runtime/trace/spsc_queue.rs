//! Bounded queue of fixed-size records with one writer thread, and one reader at a time. It carries
//! the trace events of a thread to the writer of the trace file. Neither side waits for the other.
//!
//! Memory ordering. The writer fills a slot with plain (relaxed) stores and then stores `written`
//! with release. The reader loads `written` with acquire before it reads the slot, so it sees the
//! complete record. In the opposite direction, the reader stores `read` with release after its last
//! load of the slot, and the writer loads `read` with acquire before it fills the slot again, so it
//! never overwrites a record that is still being read. `written` and `read` are each written by one
//! thread at a time, because a lock admits one reader at a time. The words of a record are atomics,
//! so a second writer thread (an error) would corrupt records but cause no undefined behavior.

use crate::sys::sync::{AtomicU64, AtomicUsize, Ordering, size};
use std::array;

/// Number of 64-bit words of a record, which contains one trace event.
pub(crate) const WORDS: usize = size(12, 2);

/// One element of the queue.
pub(crate) type Record = [u64; WORDS];

/// Bounded queue of records with one writing thread and one reader at a time.
pub(crate) struct SpscQueue {
    slots: Box<[[AtomicU64; WORDS]]>,
    /// Number of records ever written; only the writer stores it.
    written: AtomicUsize,
    /// Number of records ever read; only the reader stores it.
    read: AtomicUsize,
}

impl SpscQueue {
    /// Creates an empty queue for at most `room` records; returns `None` if out of memory.
    pub(crate) fn new(room: usize) -> Option<Self> {
        let mut slots = Vec::new();
        slots.try_reserve_exact(room).ok()?;
        slots.extend((0..room).map(|_| array::from_fn(|_| AtomicU64::new(0))));
        let slots = slots.into_boxed_slice();
        Some(SpscQueue { slots, written: AtomicUsize::new(0), read: AtomicUsize::new(0) })
    }

    fn slot(&self, number: usize) -> Option<&[AtomicU64; WORDS]> {
        self.slots.get(number % self.slots.len().max(1))
    }

    /// Appends a record and returns the number of records written before it; `None` if the queue is
    /// full. Only the writer thread may call this function.
    pub(crate) fn push(&self, record: &Record) -> Option<usize> {
        let number = self.written.load(Ordering::Relaxed);
        let is_full = number - self.read.load(Ordering::Acquire) >= self.slots.len();
        let slot = self.slot(number).filter(|_| !is_full)?;
        for (word, value) in slot.iter().zip(record) {
            word.store(*value, Ordering::Relaxed);
        }
        self.written.store(number + 1, Ordering::Release);
        Some(number)
    }

    /// Removes and returns the oldest record; `None` if the queue is empty. The caller must hold a
    /// lock, so that there is one reader at a time.
    pub(crate) fn take(&self) -> Option<Record> {
        let number = self.read.load(Ordering::Relaxed);
        if number == self.written.load(Ordering::Acquire) {
            return None;
        }
        let record = self.slot(number)?.each_ref().map(|word| word.load(Ordering::Relaxed));
        self.read.store(number + 1, Ordering::Release);
        Some(record)
    }
}
