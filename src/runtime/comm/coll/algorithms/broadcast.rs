//! Barrier and broadcast.

use super::choice::Algorithm;
use super::{Group, ring, share};
use crate::error::Result;
use crate::runtime::comm::coll::schedule_builder::Steps;
use crate::sys::memory::buf::Region;

pub(crate) fn barrier(s: &mut dyn Steps, g: Group) -> Result<()> {
    let mut distance = 1;
    while distance < g.size {
        s.recv(g.after(-distance), Region::EMPTY);
        s.send(g.after(distance), Region::EMPTY);
        s.round();
        distance *= 2;
    }
    Ok(())
}

pub(crate) fn bcast(
    s: &mut dyn Steps,
    g: Group,
    how: Algorithm,
    root: i32,
    data: Region,
) -> Result<()> {
    match how {
        Algorithm::ScatterRing => scatter_ring(s, g, root, data),
        _ => binomial(s, g, root, data),
    }
    Ok(())
}

/// Appends a binomial-tree broadcast. Virtual ranks are counted from the root.
fn binomial(s: &mut dyn Steps, g: Group, root: i32, data: Region) {
    let me = g.steps_from(root);
    let real = |virtual_rank: i32| (virtual_rank + root) % g.size;
    let mut reach = 1;
    while reach < g.size {
        if me & reach != 0 {
            s.recv(real(me - reach), data);
            s.round();
            break;
        }
        reach *= 2;
    }
    // `reach` is the width of the subtree: send to its halves, the largest first.
    while reach > 1 {
        reach /= 2;
        if me + reach < g.size {
            s.send(real(me + reach), data);
        }
    }
    s.round();
}

/// Appends a broadcast: the root scatters the data, then a ring allgather distributes the parts
/// that the ranks have received.
fn scatter_ring(s: &mut dyn Steps, g: Group, root: i32, data: Region) {
    let part = |rank: i32| share(data, rank, g.size, 1);
    if g.rank == root {
        (0..g.size).filter(|rank| *rank != root).for_each(|rank| s.send(rank, part(rank)));
    } else {
        s.recv(root, part(g.rank));
    }
    s.round();
    ring(s, g, part(g.rank), part);
}
