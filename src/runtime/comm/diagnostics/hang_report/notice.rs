//! Notice: the message in which a rank reports its operations to another rank, and the encoding of
//! this message as 64-bit words.

use crate::abi::status::dtl_status_t;
use crate::runtime::comm::failure::missing_ranks::MissingRanks;
use crate::runtime::comm::op_desc::OpDesc;
use std::fmt::Write;

/// Maximum number of operations that one notice (message to another rank) reports.
pub(super) const TOLD: usize = 8;
/// Maximum number of failed and absent ranks that one notice (message to another rank) lists.
const NAMED: usize = 8;
pub(super) const WORDS: usize = 3 + NAMED + 4 * TOLD;

/// Reason why a rank sends a notice (message to another rank).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoticeKind {
    Ask = 1,
    Answer = 2,
    /// The sender has abandoned the collective that `Notice::number` identifies.
    GaveUp = 3,
    /// The communicator is revoked: rank `Notice::number` has called `revoke` or, if the number is
    /// `HERE`, a rank has called `shrink`.
    Revoke = 4,
    /// The sender does not participate in the communicator that collective `Notice::number` created
    /// or, if the number is `HERE`, in the communicator on which it sent the notice.
    Absent = 5,
}

/// Message in which a rank reports its operations to another rank.
#[derive(Clone)]
pub(super) struct Notice {
    pub(super) why: NoticeKind,
    pub(super) status: dtl_status_t,
    /// Number of the collective that this message concerns: the abandoned collective, or the
    /// collective that a query or reply names.
    pub(super) number: u64,
    /// Ranks whose failure or absence from the communicator made the sender abandon the collective.
    /// A message contains at most the first `NAMED` of them.
    pub(super) gone: MissingRanks,
    /// Operations of the sender, each with a flag that is true if the operation is complete. The
    /// latest operations come first.
    pub(super) calls: Vec<(OpDesc, bool)>,
}

impl Notice {
    pub(super) fn words(&self) -> Vec<u64> {
        let mut words = vec![self.why as u64, self.status as u32 as u64, self.number];
        words.extend(gone_words(&self.gone));
        for (call, over) in self.calls.iter().take(TOLD) {
            words.push(1 + u64::from(*over));
            words.extend(call.portable().words());
        }
        words.resize(WORDS, 0);
        words
    }

    pub(super) fn parse(words: &[u64]) -> Option<Notice> {
        use NoticeKind::{Absent, Answer, Ask, GaveUp, Revoke};
        let (&[why, status, number], words) = words.split_first_chunk()?;
        let (gone, calls) = words.split_first_chunk::<NAMED>()?;
        let why = [Ask, Answer, GaveUp, Revoke, Absent].into_iter().find(|w| *w as u64 == why)?;
        let calls = calls.chunks_exact(4).filter_map(|entry| match *entry {
            [state @ 1..=2, a, b, c] => Some((OpDesc::from_words([a, b, c])?, state == 2)),
            _ => None,
        });
        let (status, gone) = (status as u32 as i32, parse_gone(gone));
        Some(Notice { why, status, number, gone, calls: calls.collect() })
    }

    /// Returns the latest incomplete operation of the sender; `None` if all reported operations are
    /// complete.
    pub(super) fn present(&self) -> Option<&OpDesc> {
        self.calls.iter().find(|(_, over)| !over).map(|(call, _)| call)
    }

    /// Returns the incomplete collective with the lowest number, if any.
    pub(super) fn stuck(&self) -> Option<&OpDesc> {
        let unfinished =
            self.calls.iter().filter(|(call, over)| !over && call.kind.is_collective());
        unfinished.map(|(call, _)| call).min_by_key(|call| call.tag)
    }

    /// Describes the state of the sender: its latest incomplete operation; its first incomplete
    /// collective, if that is a different operation; and the collective with the number `about`, if
    /// it is complete.
    pub(super) fn place(&self, about: Option<i32>) -> String {
        let is_collective = |(call, _): &&(OpDesc, bool)| call.kind.is_collective();
        let stuck = self.stuck();
        let meant = self
            .calls
            .iter()
            .filter(is_collective)
            .find(|(call, over)| *over && Some(call.tag) == about);
        let mut text = match (self.present(), self.calls.first()) {
            (Some(call), _) => format!("in {call}"),
            (None, Some((last, _))) => {
                format!("in no operation of this communicator (the last one was {last})")
            }
            (None, None) => "in no operation of this communicator (and was in none)".to_owned(),
        };
        if let Some(call) = stuck.filter(|call| self.present() != Some(*call)) {
            let _ = write!(text, ", begun before: {call}");
        }
        if let Some((call, _)) = meant.filter(|_| self.present().is_some()) {
            let _ = write!(text, ", after {call}");
        }
        text
    }
}

/// Bit that is set in the encoding of an absent rank, and clear in the encoding of a failed rank.
const ABSENT: u64 = 1 << 32;

/// Encodes each failed or absent rank as one nonzero word; the remaining words are 0.
fn gone_words(gone: &MissingRanks) -> [u64; NAMED] {
    let word = |rank: &i32, mark: u64| mark | (u64::from(rank.unsigned_abs()) + 1);
    let failed = gone.failed.iter().map(|rank| word(rank, 0));
    let all = failed.chain(gone.absent.iter().map(|rank| word(rank, ABSENT)));
    let mut words = [0; NAMED];
    words.iter_mut().zip(all).for_each(|(slot, word)| *slot = word);
    words
}

fn parse_gone(words: &[u64; NAMED]) -> MissingRanks {
    let mut gone = MissingRanks::default();
    for word in words.iter().filter(|word| **word != 0) {
        let list = if word & ABSENT == 0 { &mut gone.failed } else { &mut gone.absent };
        list.push((*word as u32).wrapping_sub(1) as i32);
    }
    gone
}

#[cfg(test)]
#[path = "tests/notice.rs"]
mod tests;
