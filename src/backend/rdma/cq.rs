//! Completion queues, each shared by the queue pairs of several peers, and their polling.

use super::engine::RdmaEngine;
use super::verbs::qp::SENDS;
use super::verbs::rail::Completions;
use super::verbs::types::{Wc, Zeroed};
use crate::error::{Result, fail};
use std::sync::Arc;

/// Maximum number of completions polled from a queue at once.
const BATCH: usize = 16;
/// Maximum number of batches polled from a queue in one round.
const BATCHES: usize = 8;
/// Maximum number of peers whose queue pairs share a completion queue.
const SHARERS: usize = 32;

/// Completion queues of a communicator, each shared by the queue pairs of several peers.
pub(crate) struct CqSet {
    queues: Vec<SharedCq>,
    /// Buffer that polled completions are written to.
    batch: Vec<Wc>,
}

struct SharedCq {
    rail: usize,
    completions: Arc<Completions>,
    sharers: usize,
}

impl CqSet {
    pub(crate) fn new() -> Self {
        CqSet { queues: Vec::new(), batch: vec![Wc::zeroed(); BATCH] }
    }

    pub(crate) fn queues(&self) -> impl Iterator<Item = &Completions> {
        self.queues.iter().map(|queue| queue.completions.as_ref())
    }

    /// Polls up to `BATCH` completions of queue `index` into the batch; returns their number.
    fn take(&mut self, index: usize) -> Result<usize> {
        match self.queues.get(index) {
            Some(queue) => queue.completions.poll(&mut self.batch),
            None => Ok(0),
        }
    }
}

impl RdmaEngine {
    /// Returns, or creates, a completion queue of `rail` with room for one more peer's queue pair.
    pub(crate) fn completions(&mut self, rail: usize) -> Result<Arc<Completions>> {
        let fits = |queue: &&mut SharedCq| queue.rail == rail && queue.sharers < SHARERS;
        if let Some(queue) = self.polling.queues.iter_mut().find(fits) {
            queue.sharers += 1;
            return Ok(Arc::clone(&queue.completions));
        }
        let Some(of) = self.rails.get(rail) else {
            return fail!(DTL_ERROR_INTERNAL, "there is no rail {rail}");
        };
        // Per peer, the receives plus as many sends as `QueuePair::make` requests.
        let each = (self.config.depth + SENDS * self.config.depth) as usize;
        let completions = Arc::new(of.completions(SHARERS.min(self.peers.ranks()) * each)?);
        self.polling.queues.push(SharedCq {
            rail,
            completions: Arc::clone(&completions),
            sharers: 1,
        });
        Ok(completions)
    }

    /// Polls and handles completions of all queues; returns true if any completed.
    pub(crate) fn poll(&mut self) -> Result<bool> {
        let mut something = false;
        for index in 0..self.polling.queues.len() {
            something |= self.take_from(index)?;
        }
        if !something {
            self.post_again(); // Posts the receives while no completion has to be handled.
        }
        Ok(something)
    }

    /// Polls and handles up to `BATCHES` batches of queue `index`; returns true if there were any.
    fn take_from(&mut self, index: usize) -> Result<bool> {
        for before in 0..BATCHES {
            let count = self.polling.take(index)?;
            for at in 0..count {
                let Some(entry) = self.polling.batch.get(at).copied() else { break };
                self.completed(&entry);
            }
            if count < BATCH {
                return Ok(before + count > 0);
            }
        }
        Ok(true)
    }
}
