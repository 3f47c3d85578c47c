//! Prefix reductions (scan, exscan).

use super::Group;
use crate::error::Result;
use crate::runtime::comm::coll::schedule_builder::Steps;
use crate::sys::memory::buf::Region;

/// Appends an inclusive scan: reduces the data of all ranks from rank 0 up to and including this
/// rank.
pub(crate) fn scan(s: &mut dyn Steps, g: Group, send: Region, recv: Region) -> Result<()> {
    s.copy(recv, send);
    s.round();
    prefix(s, g, 0, recv)
}

/// Appends the steps of an exclusive scan: each rank's result combines the data of all lower ranks.
/// The result buffer of rank 0 remains unchanged.
pub(crate) fn exscan(s: &mut dyn Steps, g: Group, send: Region, recv: Region) -> Result<()> {
    // In place, the neighbor's part would overwrite data that is still to be sent.
    let own = s.scratch(send.len())?;
    s.copy(own, send);
    s.round();
    if g.rank + 1 < g.size {
        s.send(g.rank + 1, own);
    }
    if g.rank > 0 {
        s.recv(g.rank - 1, recv);
    }
    s.round();
    if g.rank > 0 { prefix(s, g, 1, recv) } else { Ok(()) }
}

/// Appends the steps of recursive doubling over the ranks from `first` on. After the round with
/// distance d, `total` covers the last 2 * d of these ranks up to and including this rank.
fn prefix(s: &mut dyn Steps, g: Group, first: i32, total: Region) -> Result<()> {
    let other = s.scratch(total.len())?;
    let mut distance = 1;
    while distance < g.size - first {
        if g.rank + distance < g.size {
            s.send(g.rank + distance, total);
        }
        if g.rank - distance >= first {
            s.recv(g.rank - distance, other);
            s.reduce(other, total);
            s.copy(total, other);
        }
        s.round();
        distance *= 2;
    }
    Ok(())
}
