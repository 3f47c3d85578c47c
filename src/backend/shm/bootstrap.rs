//! Bootstrap of the shared memory: rank 0 creates the segment when all ranks have joined and passes
//! its descriptor to them. The exchange uses `backend::bootstrap::uds`.

use super::memory::segment::Segment;
use crate::backend::bootstrap::absence::OpenRequest;
use crate::backend::bootstrap::uds::{NodeOpenRequest, NodeRank, NodeRoot};
use crate::error::{Error, Result};

/// Result of the bootstrap: the shared memory and the process ids.
pub(super) struct BootstrapResult {
    pub(super) segment: Segment,
    /// Process id of each rank.
    pub(super) pids: Vec<i32>,
}

/// Exchanges the segment with the other ranks. `prepare` is each rank's local setup and runs once
/// the segment is mapped; if it fails on one rank, the bootstrap fails on all ranks.
pub(super) fn meet(
    place: NodeOpenRequest<'_>,
    prepare: &mut dyn FnMut(&BootstrapResult) -> Result<()>,
) -> Result<BootstrapResult> {
    let OpenRequest { rank, size, .. } = place.opening;
    if rank == 0 {
        let mut root = NodeRoot::gather(place)?;
        let outcome = share(&mut root, size, prepare);
        return root.finish(outcome);
    }
    let rank = NodeRank::join(place)?;
    let segment = rank.descriptor().and_then(|fd| Segment::attach(fd, size));
    let meeting = segment.map(|segment| BootstrapResult { segment, pids: rank.pids.clone() });
    let prepared = meeting.and_then(|meeting| prepare(&meeting).map(|()| meeting));
    rank.finish(prepared)
}

/// Creates the segment, sends its descriptor to all ranks, and waits for each rank's report whether
/// its setup succeeded.
fn share(
    root: &mut NodeRoot<'_>,
    size: usize,
    prepare: &mut dyn FnMut(&BootstrapResult) -> Result<()>,
) -> Result<BootstrapResult> {
    let own = |error: Error| error.within("rank 0");
    let meeting =
        BootstrapResult { segment: Segment::create(size).map_err(own)?, pids: root.pids() };
    root.share(meeting.segment.descriptor())?;
    prepare(&meeting).map_err(own)?;
    root.confirm()?;
    Ok(meeting)
}
