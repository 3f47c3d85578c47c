//! Reference implementation of message matching for tests.

use super::Selector;

/// Reference implementation of message matching for tests: two lists (posted receives and queued
/// messages), searched from the front.
#[derive(Default)]
pub(crate) struct ReferenceMatcher {
    pub(crate) posted: Vec<(Selector, u32)>,
    pub(crate) arrived: Vec<(i32, u64, u32)>,
}

impl ReferenceMatcher {
    /// Returns the first queued message that matches `select`.
    pub(crate) fn peek(&self, select: Selector) -> Option<(i32, u64, u32)> {
        self.arrived.iter().copied().find(|(source, word, _)| select.takes(*source, *word))
    }

    pub(crate) fn message(&mut self, source: i32, word: u64, id: u32) -> Option<(u32, u32)> {
        let index = self.posted.iter().position(|(select, _)| select.takes(source, word));
        if index.is_none() {
            self.arrived.push((source, word, id));
        }
        index.map(|index| (self.posted.remove(index).1, id))
    }

    pub(crate) fn receive(&mut self, select: Selector, id: u32) -> Option<(u32, u32)> {
        let index = self.arrived.iter().position(|(source, word, _)| select.takes(*source, *word));
        if index.is_none() {
            self.posted.push((select, id));
        }
        index.map(|index| (id, self.arrived.remove(index).2))
    }
}
