//! Receiver of the algorithms' steps: a `schedule` that runs, or a listener of `dry_run` that only
//! looks. The algorithms are written once, for both, so a plan has the steps that would run.

use crate::error::Result;
use crate::sys::memory::buf::Region;

/// A list of steps in rounds. A round's sends and receives are all started, then all completed;
/// then its local steps run in order.
pub(crate) trait Steps {
    /// Zero-byte messages are sent too: they synchronise.
    fn send(&mut self, to: i32, data: Region);

    fn recv(&mut self, from: i32, data: Region);

    /// into = into op from; `from` may be overwritten.
    fn reduce(&mut self, into: Region, from: Region);

    /// right = left op right; `left` is only read, and may be the caller's.
    fn reduce_to_right(&mut self, left: Region, right: Region);

    fn copy(&mut self, into: Region, from: Region);

    /// Everything before is done before anything after starts.
    fn round(&mut self);

    /// Memory that lives as long as the steps run, with anything in it.
    fn scratch(&mut self, len: usize) -> Result<Region>;

    /// Appends what `list` lists, with other numbers for the ranks in it: those of a part of the
    /// ranks become those of all.
    fn renamed(
        &mut self,
        real: &dyn Fn(i32) -> i32,
        list: &mut dyn FnMut(&mut dyn Steps) -> Result<()>,
    ) -> Result<()>;
}
