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
    /// `into = into op from`; `from` may be overwritten.
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
/// then its local steps run in order.
pub(crate) trait Steps {
    fn step(&mut self, step: Step);

    /// Appends a send. Messages of zero bytes are sent too, because they synchronize.
    fn send(&mut self, to: i32, data: Region) {
        self.step(Step::Send { to, data });
    }

    fn recv(&mut self, from: i32, data: Region) {
        self.step(Step::Recv { from, data });
    }

    /// Appends `into = into op from`; `from` may be overwritten.
    fn reduce(&mut self, into: Region, from: Region) {
        self.step(Step::Reduce { into, from });
    }

    /// Appends `right = left op right`; `left` is only read, and may be the caller's buffer.
    fn reduce_to_right(&mut self, left: Region, right: Region) {
        self.step(Step::ReduceToRight { left, right });
    }

    /// Appends a copy, unless source and destination are the same.
    fn copy(&mut self, into: Region, from: Region) {
        if into != from {
            self.step(Step::Copy { into, from });
        }
    }

    /// Ends the round: all previous steps complete before any later step starts.
    fn round(&mut self) {
        self.step(Step::Round);
    }

    /// Returns `len` bytes of uninitialized memory that remains allocated until the steps have been
    /// executed.
    fn scratch(&mut self, len: usize) -> Result<Region>;

    /// Appends the steps that `list` generates for a subset of the ranks; `real` maps a rank of the
    /// subset to its rank in the whole collective.
    fn renamed(
        &mut self,
        real: &dyn Fn(i32) -> i32,
        list: &mut dyn FnMut(&mut dyn Steps) -> Result<()>,
    ) -> Result<()>;
}
