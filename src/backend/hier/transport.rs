//! The communicator as `runtime` sees it: the router behind one short lock.

use super::nodes::Nodes;
use super::router::Router;
use crate::error::{Result, fail};
use crate::runtime::backend::{
    Done, Filling, Groups, Matched, OpId, Remote, Selector, SendMode, Transport, Windows, poll_of,
};
use crate::runtime::registry::Backend;
use crate::sys::buf::Region;
use crate::sys::lock::Mutex;
use std::sync::Arc;
use std::task::Poll;

/// See the module's text.
pub(super) struct Endpoint {
    /// `None` when it is closed.
    router: Mutex<Option<Router>>,
    nodes: Arc<Nodes>,
    rank: i32,
    size: i32,
    /// Of the transport between the nodes.
    may_be_served: bool,
    answers_late: bool,
    description: String,
    /// Shares, which keep a registered one registered.
    _kinds: [Arc<Backend>; 2],
}

impl Endpoint {
    /// `kinds`: those of the two.
    pub(super) fn new(
        node: Box<dyn Transport>,
        across: Box<dyn Transport>,
        nodes: Nodes,
        kinds: [Arc<Backend>; 2],
    ) -> Self {
        let (rank, size, may_be_served) = (across.rank(), across.size(), across.may_be_served());
        let answers_late = across.answers_late();
        // What matters first: a C program gets the beginning.
        let description = format!(
            "{}: {} inside, {} between ({}; {})",
            nodes.text(),
            kinds[0].name(),
            kinds[1].name(),
            node.describe(),
            across.describe()
        );
        let nodes = Arc::new(nodes);
        let router = Mutex::new(Some(Router::new(node, across, Arc::clone(&nodes))));
        Endpoint {
            router,
            nodes,
            rank,
            size,
            may_be_served,
            answers_late,
            description,
            _kinds: kinds,
        }
    }

    #[inline]
    fn with<T>(&self, act: impl FnOnce(&mut Router) -> Result<T>) -> Result<T> {
        match self.router.lock().as_mut() {
            Some(router) => act(router),
            None => fail!(DTL_ERROR_INVALID_STATE, "the communicator is closed"),
        }
    }
}

impl Transport for Endpoint {
    fn groups(&self) -> Groups<'_> {
        Groups::NONE
    }

    fn windows(&self) -> Windows {
        Windows::None("the ranks are on several nodes, or are to behave so")
    }

    fn remote(&self, rank: i32) -> Option<Result<Arc<dyn Remote>>> {
        self.with(|router| Ok(router.remote(rank))).ok().flatten()
    }

    fn rank(&self) -> i32 {
        self.rank
    }

    fn size(&self) -> i32 {
        self.size
    }

    fn may_be_served(&self) -> bool {
        self.may_be_served
    }

    fn answers_late(&self) -> bool {
        self.answers_late
    }

    fn isend(&self, data: Region, dest: i32, word: u64, mode: SendMode) -> Result<OpId> {
        self.with(|router| router.isend(data, dest, word, mode))
    }

    /// To a rank of this node, if its transport does.
    fn sends_parts(&self) -> bool {
        self.with(|router| Ok(router.sends_parts())).unwrap_or(false)
    }

    fn isend_filling(
        &self,
        data: Region,
        dest: i32,
        word: u64,
        by: &Arc<Filling>,
    ) -> Option<Result<OpId>> {
        self.with(|router| router.isend_filling(data, dest, word, by)).transpose()
    }

    fn arrived(&self, op: OpId) -> usize {
        self.with(|router| Ok(router.arrived(op))).unwrap_or(0)
    }

    fn irecv(&self, data: Region, select: Selector) -> Result<OpId> {
        self.with(|router| router.irecv(data, select))
    }

    fn probe(&self, select: Selector) -> Result<Option<Done>> {
        self.with(|router| router.probe(select))
    }

    fn take(&self, select: Selector) -> Result<Option<Matched>> {
        self.with(|router| router.take(select))
    }

    fn receive_matched(&self, message: OpId, data: Region) -> Result<OpId> {
        self.with(|router| router.receive_matched(message, data))
    }

    fn test(&self, op: OpId, told: &mut Done) -> Poll<Result<()>> {
        poll_of(self.with(|router| Ok(router.test(op)?.map(|done| *told = done).is_some())))
    }

    fn progress(&self) {
        // Who holds the lock makes progress itself.
        if let Some(router) = self.router.try_lock().as_mut().and_then(|router| router.as_mut()) {
            router.progress();
        }
    }

    fn cancel(&self, op: OpId) -> Result<()> {
        self.with(|router| router.cancel(op))
    }

    fn is_one_node(&self) -> bool {
        self.nodes.count == 1
    }

    fn nodes(&self) -> Option<&[i32]> {
        (self.nodes.count > 1).then_some(&self.nodes.of)
    }

    fn failed_ranks(&self) -> Vec<i32> {
        self.with(|router| Ok(router.failed_ranks())).unwrap_or_default()
    }

    fn failed_count(&self) -> usize {
        self.with(|router| Ok(router.failed_count())).unwrap_or(0)
    }

    fn describe(&self) -> String {
        self.description.clone()
    }

    fn failure_text(&self) -> Option<String> {
        self.with(|router| Ok(router.failure_text())).ok().flatten()
    }

    fn close(&self) -> Result<()> {
        match self.router.lock().take() {
            Some(router) => router.close(),
            None => fail!(DTL_ERROR_INVALID_STATE, "the communicator is closed"),
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if let Some(router) = self.router.get_mut().take() {
            drop(router.close());
        }
    }
}
