//! Interface of the transport to `runtime`: the router under one lock, which is held only briefly.

use super::nodes::Nodes;
use super::router::Router;
use crate::error::{Result, fail};
use crate::runtime::component::{
    Completion, CrossMemory, Dest, Diagnostics, Groups, Liveness, Matched, OpId, Pipeline,
    PipelinedSource, Properties, RecvMode, Remote, Selector, SendMode, Transport, poll_of,
};
use crate::runtime::registry::Backend;
use crate::sys::memory::buf::Region;
use crate::sys::sync::lock::Mutex;
use std::sync::Arc;
use std::task::Poll;

/// Transport of a communicator: the router, protected by a lock that is held only briefly.
pub(super) struct HierTransport {
    /// `None` once the communicator is closed.
    router: Mutex<Option<Router>>,
    properties: Properties,
    /// These two flags are true if the node's transport has the capability group `CrossMemory` and
    /// `Pipeline`, respectively.
    node_has_cross_memory: bool,
    node_has_pipeline: bool,
    /// References to the backends in use, so that none can be unregistered.
    _kinds: [Arc<Backend>; 2],
}

impl HierTransport {
    /// Creates the transport. `kinds` contains the backend of the transport `node`, then the
    /// backend of the transport `across`.
    pub(super) fn new(
        node: Box<dyn Transport>,
        across: Box<dyn Transport>,
        nodes: Nodes,
        kinds: [Arc<Backend>; 2],
    ) -> Self {
        let between = across.properties();
        // The most important part comes first, because a C program gets a truncated text.
        let description = format!(
            "{}: {} inside, {} between ({}; {})",
            nodes.text(),
            kinds[0].name(),
            kinds[1].name(),
            node.properties().description,
            between.description
        );
        let properties = Properties {
            answers_late: between.answers_late,
            allows_progress_thread: between.allows_progress_thread,
            is_one_node: nodes.count == 1,
            nodes: (nodes.count > 1).then(|| Arc::clone(&nodes.of)),
            ..Properties::new(between.rank, between.size, description)
        };
        let groups = node.groups();
        HierTransport {
            properties,
            node_has_cross_memory: groups.cross_memory.is_some(),
            node_has_pipeline: groups.pipeline.is_some(),
            router: Mutex::new(Some(Router::new(node, across, nodes))),
            _kinds: kinds,
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Router) -> Result<T>) -> Result<T> {
        match self.router.lock().as_mut() {
            Some(router) => act(router),
            None => fail!(DTL_ERROR_INVALID_STATE, "the communicator is closed"),
        }
    }
}

impl Transport for HierTransport {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn groups(&self) -> Groups<'_> {
        Groups {
            liveness: Some(self),
            cross_memory: self.node_has_cross_memory.then_some(self as _),
            rma: Err("the ranks are on several nodes, or are to behave so"),
            pipeline: self.node_has_pipeline.then_some(self as _),
            diagnostics: Some(self),
            ..Groups::NONE
        }
    }

    fn start_send(&self, data: Region, to: Dest, mode: SendMode, _may_block: bool) -> Result<OpId> {
        self.with(|router| router.isend(data, to, mode))
    }

    fn start_recv(&self, data: Region, select: Selector, _mode: RecvMode<'_>) -> Result<OpId> {
        self.with(|router| router.irecv(data, select))
    }

    fn probe(&self, select: Selector) -> Result<Option<Completion>> {
        self.with(|router| router.probe(select))
    }

    fn take(&self, select: Selector) -> Result<Option<Matched>> {
        self.with(|router| router.take(select))
    }

    fn receive_matched(&self, message: OpId, data: Region) -> Result<OpId> {
        self.with(|router| router.receive_matched(message, data))
    }

    fn test(&self, op: OpId, completion: &mut Completion) -> Poll<Result<()>> {
        poll_of(self.with(|router| Ok(router.test(op)?.map(|done| *completion = done).is_some())))
    }

    fn progress(&self) {
        // A thread that holds the lock makes progress itself.
        if let Some(router) = self.router.try_lock().as_mut().and_then(|router| router.as_mut()) {
            router.progress();
        }
    }

    fn cancel(&self, op: OpId) -> Result<()> {
        self.with(|router| router.cancel(op))
    }

    fn close(&self) -> Result<()> {
        match self.router.lock().take() {
            Some(router) => router.close(),
            None => fail!(DTL_ERROR_INVALID_STATE, "the communicator is closed"),
        }
    }
}

impl Liveness for HierTransport {
    fn failed_ranks(&self) -> Vec<i32> {
        self.with(|router| Ok(router.failed_ranks())).unwrap_or_default()
    }

    fn failed_count(&self) -> usize {
        self.with(|router| Ok(router.failed_count())).unwrap_or(0)
    }
}

impl CrossMemory for HierTransport {
    fn remote(&self, rank: i32) -> Option<Result<Arc<dyn Remote>>> {
        self.with(|router| Ok(router.remote(rank))).ok().flatten()
    }
}

/// Pipelined sends on the transport to the destination rank. A send returns `None` if that
/// transport does not support a pipelined send of the message.
impl Pipeline for HierTransport {
    fn isend_pipelined(
        &self,
        data: Region,
        dest: i32,
        word: u64,
        by: &Arc<PipelinedSource>,
    ) -> Option<Result<OpId>> {
        self.with(|router| router.isend_pipelined(data, dest, word, by)).transpose()
    }

    fn arrived(&self, op: OpId) -> usize {
        self.with(|router| Ok(router.arrived(op))).unwrap_or(0)
    }
}

impl Diagnostics for HierTransport {
    fn failure_text(&self) -> Option<String> {
        self.with(|router| Ok(router.failure_text())).ok().flatten()
    }
}

impl Drop for HierTransport {
    fn drop(&mut self) {
        if let Some(router) = self.router.get_mut().take() {
            drop(router.close());
        }
    }
}
