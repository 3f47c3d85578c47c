//! Message matching: posted receives and unexpected messages of one rank.
//!
//! The queues store the matching order, not the payload: `P` is the transport's descriptor of a
//! posted receive, and `U` is the transport's descriptor of an unexpected message. Messages from
//! one source are matched in arrival order, and receives in posting order, as MPI's non-overtaking
//! rule requires.

use super::peer_map::PeerMap;
use crate::abi::comm::communicator::DTL_ANY_SOURCE;
use crate::runtime::component::Selector;
use std::collections::VecDeque;

/// Posted receives and unexpected messages of one rank. Queues are per source, so a receive that
/// names its source never scans messages from other sources. Serial numbers order the entries in
/// the queues of different sources. The queues of a source are created when its first message
/// arrives or when the first receive that names it is posted.
pub struct Matcher<P, U> {
    sources: PeerMap<Queues<P, U>>,
    posted_any: VecDeque<PostedReceive<P>>,
    next: u64,
}

/// Queues of one source.
struct Queues<P, U> {
    posted: VecDeque<PostedReceive<P>>,
    unexpected: VecDeque<UnexpectedMessage<U>>,
}

impl<P, U> Matcher<P, U> {
    /// Memory, in bytes, for each source that has queues, excluding the queued entries.
    pub const SOURCE_BYTES: usize = size_of::<Queues<P, U>>();
}

impl<P, U> Default for Queues<P, U> {
    fn default() -> Self {
        Queues { posted: VecDeque::new(), unexpected: VecDeque::new() }
    }
}

/// A posted receive with its position in the posting order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PostedReceive<P> {
    serial: u64,
    /// Source and match bits of the messages that the receive matches.
    pub select: Selector,
    /// The transport's descriptor of the receive.
    pub what: P,
}

/// A message that arrived before a matching receive was posted.
#[derive(Debug, PartialEq, Eq)]
pub struct UnexpectedMessage<U> {
    serial: u64,
    /// Rank of the sender.
    pub source: i32,
    /// Match bits of the message (context ID and tag).
    pub match_bits: u64,
    /// The transport's descriptor of the message.
    pub what: U,
}

impl<P: PartialEq, U> Matcher<P, U> {
    /// Creates empty queues for messages from ranks 0 to `ranks` - 1.
    pub fn new(ranks: usize) -> Self {
        Matcher { sources: PeerMap::new(ranks), posted_any: VecDeque::new(), next: 0 }
    }

    fn queues(&self, source: i32) -> Option<&Queues<P, U>> {
        self.sources.get(usize::try_from(source).ok()?)
    }

    fn queues_mut(&mut self, source: i32) -> Option<&mut Queues<P, U>> {
        self.sources.get_mut(usize::try_from(source).ok()?)
    }

    /// Returns the queues of `source`, created if necessary; `None` if `source` is out of range.
    #[inline]
    fn make_queues(&mut self, source: i32) -> Option<&mut Queues<P, U>> {
        self.sources.make(usize::try_from(source).ok()?)
    }

    /// Returns the queue of posted receives that name `source` (or DTL_ANY_SOURCE); `None` if that
    /// queue was never created.
    fn posted_mut(&mut self, source: i32) -> Option<&mut VecDeque<PostedReceive<P>>> {
        match source {
            DTL_ANY_SOURCE => Some(&mut self.posted_any),
            source => self.queues_mut(source).map(|queues| &mut queues.posted),
        }
    }

    fn serial(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Appends a receive to its queue. The caller must first check, for example with
    /// [`Matcher::take_unexpected`], that no unexpected message matches.
    pub fn post(&mut self, select: Selector, what: P) {
        let posted = self.place(select, what);
        self.put(posted);
    }

    /// Appends a receive that names its source, if no unexpected message from that source is
    /// queued. Returns false, without any effect, if there is one, if the receive is from
    /// DTL_ANY_SOURCE, or if the source has no queues yet.
    #[inline]
    pub fn post_first(&mut self, select: Selector, what: P) -> bool {
        let serial = self.next + 1;
        match self.queues_mut(select.source) {
            Some(queues) if queues.unexpected.is_empty() => {
                queues.posted.push_back(PostedReceive { serial, select, what });
                self.next = serial;
                true
            }
            _ => false,
        }
    }

    /// Assigns the next serial number to a receive, without queueing the receive.
    pub fn place(&mut self, select: Selector, what: P) -> PostedReceive<P> {
        PostedReceive { serial: self.serial(), select, what }
    }

    /// Inserts a receive into its queue, which is ordered by serial number. The caller must first
    /// check, for example with [`Matcher::take_unexpected`], that no unexpected message matches.
    pub fn put(&mut self, posted: PostedReceive<P>) {
        let queue = match posted.select.source {
            DTL_ANY_SOURCE => Some(&mut self.posted_any),
            source => self.make_queues(source).map(|queues| &mut queues.posted),
        };
        let Some(queue) = queue else { return };
        if queue.back().is_none_or(|last| last.serial < posted.serial) {
            queue.push_back(posted);
        } else {
            let later = queue.iter().rev().take_while(|other| other.serial > posted.serial).count();
            queue.insert(queue.len() - later, posted);
        }
    }

    /// Finds the first posted receive that matches the message. Returns a flag that is true if that
    /// receive names DTL_ANY_SOURCE, and the index of the receive in its queue; `None` if no
    /// receive matches.
    fn find_posted(&self, source: i32, word: u64) -> Option<(bool, usize)> {
        let first = |queue: &VecDeque<PostedReceive<P>>| {
            let front = queue.front()?;
            if front.select.takes(source, word) {
                return Some((front.serial, 0));
            }
            later_posted(queue, source, word)
        };
        let named = self.queues(source).and_then(|queues| first(&queues.posted));
        match (named, first(&self.posted_any)) {
            (Some((a, index)), Some((b, _))) if a < b => Some((false, index)),
            (_, Some((_, index))) => Some((true, index)),
            (Some((_, index)), None) => Some((false, index)),
            (None, None) => None,
        }
    }

    /// Returns true if a receive from DTL_ANY_SOURCE is posted.
    pub fn waits_for_any(&self) -> bool {
        !self.posted_any.is_empty()
    }

    /// Returns true if no posted receive can match a message from `source` and no unexpected
    /// message from `source` is queued.
    pub fn is_idle(&self, source: i32) -> bool {
        let is_empty =
            |queues: &Queues<P, U>| queues.posted.is_empty() && queues.unexpected.is_empty();
        self.posted_any.is_empty() && self.queues(source).is_none_or(is_empty)
    }

    /// Returns true if a receive from `source` is posted; one from DTL_ANY_SOURCE does not count.
    pub fn has_posted(&self, source: i32) -> bool {
        self.queues(source).is_some_and(|queues| !queues.posted.is_empty())
    }

    /// Returns true if a posted receive matches a message from `source` with match bits `word`.
    pub fn is_wanted(&self, source: i32, word: u64) -> bool {
        self.find_posted(source, word).is_some()
    }

    /// Removes and returns the first posted receive that matches a message; `None` if none matches.
    pub fn take_posted(&mut self, source: i32, word: u64) -> Option<P> {
        self.take_placed(source, word).map(|posted| posted.what)
    }

    /// Returns the queue of posted receives that name `source`, if no receive from DTL_ANY_SOURCE
    /// is posted. A message from `source` that its first receive matches is for that receive.
    #[inline]
    pub fn posted_from(&mut self, source: i32) -> Option<&mut VecDeque<PostedReceive<P>>> {
        if self.posted_any.is_empty() {
            self.queues_mut(source).map(|queues| &mut queues.posted)
        } else {
            None
        }
    }

    /// Removes and returns the first posted receive that matches a message, with its serial number;
    /// `None` if none matches. If the message is canceled later, the caller can requeue the receive
    /// with [`Matcher::put`].
    pub fn take_placed(&mut self, source: i32, word: u64) -> Option<PostedReceive<P>> {
        if let Some(queue) = self.posted_from(source) {
            // Usually the first receive matches.
            if queue.front()?.select.takes(source, word) {
                return queue.pop_front();
            }
        }
        let (any, index) = self.find_posted(source, word)?;
        take(self.posted_mut(if any { DTL_ANY_SOURCE } else { source })?, index)
    }

    /// Queues an unexpected message. The caller must first check, for example with
    /// [`Matcher::take_posted`], that no posted receive matches.
    pub fn arrive(&mut self, source: i32, word: u64, what: U) {
        let message = UnexpectedMessage { serial: self.serial(), source, match_bits: word, what };
        if let Some(queues) = self.make_queues(source) {
            queues.unexpected.push_back(message);
        }
    }

    /// Finds the earliest unexpected message that matches the selector `select`. Returns its source
    /// and its index in that source's queue, or `None` if there is no such message.
    fn find_unexpected(&self, select: &Selector) -> Option<(i32, usize)> {
        let first = |queues: &Queues<P, U>| {
            let queue = &queues.unexpected;
            let found =
                queue.iter().position(|message| select.takes(message.source, message.match_bits));
            found.and_then(|index| {
                queue.get(index).map(|message| (message.serial, message.source, index))
            })
        };
        let found = if select.source == DTL_ANY_SOURCE {
            self.sources.values().filter_map(first).min_by_key(|(serial, ..)| *serial)
        } else {
            self.queues(select.source).and_then(first)
        };
        found.map(|(_, source, index)| (source, index))
    }

    /// Returns the first unexpected message that matches the selector `select`, without removing
    /// the message; `None` if no message matches.
    pub fn peek(&self, select: &Selector) -> Option<&UnexpectedMessage<U>> {
        let (source, index) = self.find_unexpected(select)?;
        self.queues(source)?.unexpected.get(index)
    }

    /// Removes and returns the first unexpected message that matches the selector `select`; `None`
    /// if no message matches.
    pub fn take_unexpected(&mut self, select: &Selector) -> Option<UnexpectedMessage<U>> {
        if self.queues(select.source).is_some_and(|queues| queues.unexpected.is_empty()) {
            return None;
        }
        let (source, index) = self.find_unexpected(select)?;
        take(&mut self.queues_mut(source)?.unexpected, index)
    }

    /// Cancels the posted receive `what`, whose source argument is `source` (a rank or
    /// DTL_ANY_SOURCE). Returns false if the receive is not in the queue.
    pub fn cancel(&mut self, source: i32, what: &P) -> bool {
        let Some(queue) = self.posted_mut(source) else { return false };
        let index = queue.iter().position(|posted| posted.what == *what);
        index.and_then(|index| queue.remove(index)).is_some()
    }

    /// Removes and returns all posted receives that name `source`, in posting order.
    pub fn take_posted_from(&mut self, source: i32) -> Vec<P> {
        let queue = self
            .queues_mut(source)
            .map(|queues| std::mem::take(&mut queues.posted))
            .unwrap_or_default();
        queue.into_iter().map(|posted| posted.what).collect()
    }

    /// Drops the unexpected messages from `source` for which `keep` returns false.
    pub fn retain_unexpected(&mut self, source: i32, keep: impl Fn(&U) -> bool) {
        if let Some(queues) = self.queues_mut(source) {
            queues.unexpected.retain(|message| keep(&message.what));
        }
    }

    /// Removes and returns the first unexpected message from `source` for which `is` returns true;
    /// `None` if there is no such message.
    pub fn remove_unexpected(
        &mut self,
        source: i32,
        is: impl Fn(&U) -> bool,
    ) -> Option<UnexpectedMessage<U>> {
        let queue = &mut self.queues_mut(source)?.unexpected;
        let index = queue.iter().position(|message| is(&message.what))?;
        queue.remove(index)
    }
}

/// Searches `queue` for the first posted receive that matches a message from `source` with match
/// bits `word`. Returns the receive's serial number and index, or `None` if no receive matches.
#[inline(never)]
fn later_posted<P>(
    queue: &VecDeque<PostedReceive<P>>,
    source: i32,
    word: u64,
) -> Option<(u64, usize)> {
    let found = queue.iter().enumerate().find(|(_, posted)| posted.select.takes(source, word));
    found.map(|(index, posted)| (posted.serial, index))
}

/// Removes entry `index` of a queue and returns it, or `None` if `index` is out of range. Usually
/// `index` is 0.
fn take<T>(queue: &mut VecDeque<T>, index: usize) -> Option<T> {
    if index == 0 { queue.pop_front() } else { queue.remove(index) }
}

#[cfg(test)]
#[path = "tests/reference_matcher.rs"]
pub(crate) mod reference_matcher;

#[cfg(test)]
#[path = "tests/match_queues.rs"]
mod tests;
