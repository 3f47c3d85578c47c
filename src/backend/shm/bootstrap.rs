//! Bootstrap of the segment: once all ranks have joined, rank 0 creates the shared memory and sends
//! them its file descriptor. The exchange uses `backend::bootstrap::uds`.

use super::memory::segment::Segment;
use crate::backend::bootstrap::absence::OpenRequest;
use crate::backend::bootstrap::uds::{NodeOpenRequest, NodeRank, NodeRoot};
use crate::error::{Error, Result};

/// Result of the bootstrap: the segment and the process IDs.
pub(super) struct BootstrapResult {
    pub(super) segment: Segment,
    /// Process ID of each rank.
    pub(super) pids: Vec<i32>,
}

/// Creates or maps the segment together with all ranks of `place`. Calls `prepare`, the rank's
/// local setup, once the segment is mapped. If `prepare` fails on one rank, all ranks fail.
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

/// Creates the segment, sends its file descriptor to all ranks, and waits until each rank has
/// reported whether its setup succeeded.
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
