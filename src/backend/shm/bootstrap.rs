//! How the ranks of a job come to share their memory: rank 0 makes it when all have come, and
//! passes it on. The exchange is that of `backend::bootstrap::uds`.

use super::memory::segment::Segment;
use crate::backend::bootstrap::absence::OpenRequest;
use crate::backend::bootstrap::uds::{NodeOpenRequest, NodeRank, NodeRoot};
use crate::error::{Error, Result};

/// What the ranks have when they have met.
pub(super) struct BootstrapResult {
    pub(super) segment: Segment,
    /// Process id of each rank.
    pub(super) pids: Vec<i32>,
}

/// Meets the other ranks. `prepare` is each rank's own part, done when the memory is there; its
/// failure is everybody's.
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

/// Makes the memory, hands it out, and waits for each rank's report whether it could use it.
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
