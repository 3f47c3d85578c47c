//! Bootstrap of the shared memory segment: once all ranks have joined, rank 0 creates the segment
//! and sends its file descriptor to the other ranks. The exchange uses `backend::bootstrap::uds`.

use super::memory::segment::Segment;
use crate::backend::bootstrap::absence::OpenRequest;
use crate::backend::bootstrap::uds::{NodeOpenRequest, NodeRank, NodeRoot};
use crate::error::{Error, Result};

/// Opens the shared memory segment. All ranks that open the communicator described by `place` must
/// call this function. Rank 0 creates the segment, and the other ranks map it. Calls `prepare`, the
/// rank's local setup, with the segment and the process IDs of the ranks, once the segment is
/// mapped. If `prepare` fails on one rank, all ranks fail. Returns the segment and the result of
/// `prepare`.
pub(super) fn open_segment<T>(
    place: NodeOpenRequest<'_>,
    prepare: impl FnOnce(&Segment, &[i32]) -> Result<T>,
) -> Result<(Segment, T)> {
    let OpenRequest { rank, size, .. } = place.opening;
    if rank == 0 {
        let mut root = NodeRoot::gather(place)?;
        let outcome = share(&mut root, size, prepare);
        return root.finish(outcome);
    }
    let rank = NodeRank::join(place)?;
    let segment = rank.descriptor().and_then(|fd| Segment::attach(fd, size));
    let prepared = segment.and_then(|segment| {
        let prepared = prepare(&segment, &rank.pids)?;
        Ok((segment, prepared))
    });
    rank.finish(prepared)
}

/// Creates the segment, sends its file descriptor to all ranks, and waits until each rank has
/// reported whether its setup succeeded.
fn share<T>(
    root: &mut NodeRoot<'_>,
    size: usize,
    prepare: impl FnOnce(&Segment, &[i32]) -> Result<T>,
) -> Result<(Segment, T)> {
    let own = |error: Error| error.within("rank 0");
    let segment = Segment::create(size).map_err(own)?;
    let pids = root.pids();
    root.share(segment.descriptor())?;
    let prepared = prepare(&segment, &pids).map_err(own)?;
    root.confirm()?;
    Ok((segment, prepared))
}
