//! Choice of the method by which large messages are copied, from times measured on this machine.
//!
//! The fastest method depends on the processor, on the distance between the cores of the two ranks,
//! and on the message size. The receiver measures messages of each size class and chooses a method
//! per class. It publishes its choices in the ring from the sender (`ring`), where the sender reads
//! them. A choice affects only how bytes are copied, never their order or the results of a
//! reduction.
//!
//! The first messages of a size class try each method (`TRIALS`). Then the fastest method is used.
//! The methods are tried in turn at intervals (`EXPLORE`), so that the choice follows a rank that
//! moves to another core. Disturbances only lengthen a transfer. So a shorter time replaces the
//! recorded one at once, and a longer one changes it little (`update`).

/// How the fragments of an accepted message are copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CopyMethod {
    /// Sender and receiver copy through cells. If the sender is not running, the receiver reads
    /// fragments from the sender's memory.
    Cells,
    /// The receiver reads all fragments from the sender's memory.
    Get,
    /// The receiver reads fragments from the sender's memory, and the sender writes the others to
    /// the receiver's memory.
    Split,
}

use CopyMethod::{Cells, Get, Split};

/// All methods, in the order of the trials.
const METHODS: [CopyMethod; 3] = [Cells, Split, Get];

/// Number of size classes. Class 0 is for less than 32 KiB, and each further class for twice the
/// size; the last one has no limit.
const CLASSES: usize = 9;
/// Number of times that each method is tried first, for each size class.
const TRIALS: u32 = 2;
/// After the trials, one of this many messages of a size class is measured.
const SAMPLE: u32 = 8;
/// Number of measured messages of a size class after which a method is explored, in turn.
const EXPLORE: u32 = 32;
/// Factor by which a method that takes more than twice the fastest time is explored more rarely.
const RARELY: u32 = 8;

/// Returns the size class of a message of `len` bytes.
fn class_of(len: usize) -> usize {
    (len >> 15).checked_ilog2().map_or(0, |log| log as usize + 1).min(CLASSES - 1)
}

/// Method for each size class, in two bits per class. The word is shared between processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CopyChoices(pub(crate) u64);

impl CopyChoices {
    /// Returns the method for a message of `len` bytes.
    pub(crate) fn method(self, len: usize) -> CopyMethod {
        match self.0 >> (2 * class_of(len)) & 3 {
            1 => Get,
            2 => Split,
            _ => Cells,
        }
    }

    fn set(&mut self, class: usize, method: CopyMethod) {
        self.0 = self.0 & !(3 << (2 * class)) | (method as u64) << (2 * class);
    }
}

/// Measured times of the messages from one rank.
#[derive(Default)]
pub(crate) struct CopyTimes {
    classes: [ClassTimes; CLASSES],
    choices: CopyChoices,
}

/// Measured times of the messages of a size class.
#[derive(Clone, Copy, Default)]
struct ClassTimes {
    messages: u32,
    measured: u32,
    /// True if the next message tries a method, so that it is measured.
    is_trial: bool,
    /// By method: the time for 1 MiB in nanoseconds, and the number of measured messages.
    times: [(u64, u32); METHODS.len()],
}

impl CopyTimes {
    /// Counts a message of `len` bytes. Returns true if it should be measured.
    pub(crate) fn count_message(&mut self, len: usize) -> bool {
        let Some(class) = self.classes.get_mut(class_of(len)) else { return false };
        class.messages = class.messages.wrapping_add(1);
        class.measured == 0 || class.is_trial || class.messages % SAMPLE == 0
    }

    /// Records that `method` failed for a message of `len` bytes. Returns the choices for the next
    /// messages.
    pub(crate) fn fail(&mut self, len: usize, method: CopyMethod) -> CopyChoices {
        self.record(len, method, u64::from(u32::MAX))
    }

    /// Returns the method for the next message of `len` bytes.
    pub(crate) fn method(&self, len: usize) -> CopyMethod {
        self.choices.method(len)
    }

    /// Records that a message of `len` bytes took `ns` nanoseconds with `method`. Returns the
    /// choices for the next messages.
    pub(crate) fn record(&mut self, len: usize, method: CopyMethod, ns: u64) -> CopyChoices {
        let index = class_of(len);
        if let Some(class) = self.classes.get_mut(index) {
            class.update(method, (ns << 20) / len.max(1) as u64);
            self.choices.set(index, class.choose());
        }
        self.choices
    }
}

impl ClassTimes {
    fn update(&mut self, method: CopyMethod, time: u64) {
        self.measured = self.measured.wrapping_add(1);
        let Some((known, count)) = self.times.get_mut(method as usize) else { return };
        *known = match *count {
            0 => time,
            _ if time < *known => time,
            // At most twice the known time counts, so that one delay has little effect.
            _ => *known + (time - *known).min(*known) / 8,
        };
        *count = count.saturating_add(1);
    }

    fn untried(&self) -> Option<CopyMethod> {
        METHODS.into_iter().find(|&method| self.time(method).1 < TRIALS)
    }

    fn time(&self, method: CopyMethod) -> (u64, u32) {
        self.times.get(method as usize).copied().unwrap_or_default()
    }

    /// Chooses the method for the next message: a method that has had fewer than `TRIALS` trials,
    /// else the method to explore if an exploration is due, else the fastest one.
    fn choose(&mut self) -> CopyMethod {
        let best = METHODS.into_iter().min_by_key(|&method| self.time(method).0).unwrap_or(Cells);
        let round = self.measured / EXPLORE;
        let explored = METHODS.get(round as usize % METHODS.len()).copied().filter(|&method| {
            let is_near = self.time(method).0 <= 2 * self.time(best).0;
            self.measured % EXPLORE == 0 && (is_near || round % RARELY == 0)
        });
        let chosen = self.untried().or(explored).unwrap_or(best);
        self.is_trial = chosen != best || self.untried().is_some();
        chosen
    }
}

#[cfg(test)]
#[path = "tests/copy_choice.rs"]
mod tests;
