//! Completion queues, each shared by the queue pairs of several peers, and their polling.

use super::config::Config;
use super::verbs::qp::SENDS;
use super::verbs::rail::{Completions, Rail};
use super::verbs::types::{Wc, Zeroed};
use crate::error::Result;
use std::sync::Arc;

/// Maximum number of completions polled from a queue at once.
pub(crate) const BATCH: usize = 16;
/// Maximum number of peers whose queue pairs share a completion queue.
const SHARERS: usize = 32;

/// Completion queues of a communicator, each shared by the queue pairs of several peers.
pub(crate) struct CqSet {
    pub(crate) queues: Vec<SharedCq>,
    /// Buffer that polled completions are written to.
    pub(crate) batch: Vec<Wc>,
}

/// Completion queue, and the number of peers whose queue pairs share it.
pub(crate) struct SharedCq {
    rail: usize,
    pub(crate) completions: Arc<Completions>,
    sharers: usize,
}

impl CqSet {
    pub(crate) fn new() -> Self {
        CqSet { queues: Vec::new(), batch: vec![Wc::zeroed(); BATCH] }
    }

    /// Returns a completion queue of `rail` with room for one more peer's queue pair; creates the
    /// queue if there is none.
    pub(crate) fn share(
        &mut self,
        (rail, of): (usize, &Arc<Rail>),
        config: &Config,
        ranks: usize,
    ) -> Result<Arc<Completions>> {
        let fits = |queue: &&mut SharedCq| queue.rail == rail && queue.sharers < SHARERS;
        if let Some(queue) = self.queues.iter_mut().find(fits) {
            queue.sharers += 1;
            return Ok(Arc::clone(&queue.completions));
        }
        // Per peer, the receives plus as many sends as `QueuePair::make` requests.
        let each = (config.depth + SENDS * config.depth) as usize;
        let completions = Arc::new(of.completions(SHARERS.min(ranks) * each)?);
        self.queues.push(SharedCq { rail, completions: Arc::clone(&completions), sharers: 1 });
        Ok(completions)
    }
}
