//! Interface that receives the steps of an algorithm. It is implemented by `schedule`, which
//! executes the steps, and by `dry_run`, which only reports them. Both receive the steps from the
//! same algorithm functions, so a dry run reports the steps that `schedule` would execute.

use crate::error::Result;
use crate::sys::memory::buf::Region;

/// One step of a collective.
#[derive(Clone, Copy)]
pub(crate) enum Step {
    Send {
        to: i32,
        data: Region,
    },
    Recv {
        from: i32,
        data: Region,
    },
    /// `into = into op from`; `from` may be overwritten if the operation does not commute.
    Reduce {
        into: Region,
        from: Region,
    },
    /// `right = left op right`; `left` is unchanged.
    ReduceToRight {
        left: Region,
        right: Region,
    },
    Copy {
        into: Region,
        from: Region,
    },
    /// All previous steps complete before any later step starts.
    Round,
}

/// List of steps in rounds. All sends and receives of a round are started, then all are completed;
/// then its local steps run in order. One exception: a reduction directly after the receive of one
/// of its operands may run on each part of the message as it arrives. Its result must not overlap
/// the data that the round sends, and no local step of the round may precede it. In the list, a
/// send between receive and reduction prevents this.
pub(crate) trait Steps {
    /// Returns the list of steps, so that further steps can be appended.
    fn steps(&mut self) -> &mut Vec<Step>;

    /// Appends a send. Messages of zero bytes are sent too, because they synchronize.
    fn send(&mut self, to: i32, data: Region) {
        self.steps().push(Step::Send { to, data });
    }

    fn recv(&mut self, from: i32, data: Region) {
        self.steps().push(Step::Recv { from, data });
    }

    /// Appends `into = into op from`; `from` may be overwritten if the operation does not commute.
    fn reduce(&mut self, into: Region, from: Region) {
        self.steps().push(Step::Reduce { into, from });
    }

    /// Appends `right = left op right`; `left` is only read, and may be the caller's buffer.
    fn reduce_to_right(&mut self, left: Region, right: Region) {
        self.steps().push(Step::ReduceToRight { left, right });
    }

    /// Appends a copy, unless source and destination are the same.
    fn copy(&mut self, into: Region, from: Region) {
        if into != from {
            self.steps().push(Step::Copy { into, from });
        }
    }

    /// Ends the round: all previous steps complete before any later step starts.
    fn round(&mut self) {
        self.steps().push(Step::Round);
    }

    /// Returns `len` bytes of uninitialized memory that remains allocated until the steps have been
    /// executed.
    fn scratch(&mut self, len: usize) -> Result<Region>;
}

impl dyn Steps + '_ {
    /// Appends the steps that `list` generates for a subset of the ranks; `real` maps a rank of the
    /// subset to its rank in the whole collective.
    pub(crate) fn renamed(
        &mut self,
        real: impl Fn(i32) -> i32,
        list: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let first = self.steps().len();
        list(self)?;
        for step in self.steps().iter_mut().skip(first) {
            if let Step::Send { to: peer, .. } | Step::Recv { from: peer, .. } = step {
                *peer = real(*peer);
            }
        }
        Ok(())
    }
}
