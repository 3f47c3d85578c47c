//! Collectives of a few bytes over mailboxes in shared memory: each rank posts its contribution and
//! reads the contributions of the other ranks as they arrive. This exchange replaces all message
//! rounds of `algorithms`.
//!
//! Collectives that use the mailboxes are numbered consecutively, so the messages of a collective
//! have the same number on all ranks. A rank posts its contribution to a collective when it has
//! finished the previous collective. A collective that was started early (as a request) waits for
//! its turn.
//!
//! Operands are combined in the same grouping as in recursive doubling and in the binomial tree of
//! `algorithms::reduce`, so results are bitwise identical to those without mailboxes.

use super::CollArgs;
use super::algorithms::Group;
use super::algorithms::reduce::Fold;
use super::mailboxes::Mailboxes;
use super::schedule::Advance;
use crate::error::{Result, fail};
use crate::runtime::comm::op_desc::Kind;
use crate::runtime::comm::{Comm, progress, progress_count};
use crate::runtime::component::Post;
use crate::runtime::types::Reduction;
use crate::sys::{memory::buf::Region, sync::wait::Backoff};
use std::sync::atomic::Ordering;

/// Small collective in progress.
pub(crate) struct SmallColl {
    kind: Kind,
    root: i32,
    send: Region,
    recv: Region,
    reduction: Option<Reduction>,
    number: u64,
    /// Number of bytes that each rank contributes.
    len: usize,
    /// Tag in the mailbox messages of this collective. Ranks compare it to detect mismatched
    /// collectives.
    what: u32,
    is_posted: bool,
    /// First rank whose mailbox message has not been checked yet; the calling rank skips itself.
    next: i32,
    end: i32,
}

impl SmallColl {
    /// Creates the state of a small collective. `what` is the tag that distinguishes its mailbox
    /// messages from those of other collectives.
    pub(crate) fn new(comm: &Comm, mailboxes: &Mailboxes, args: &CollArgs, what: u32) -> Self {
        let CollArgs { kind, root, bytes: len, reduction, .. } = *args;
        let (next, end) = match kind {
            Kind::Bcast if root != comm.rank => (root, root + 1),
            Kind::Reduce if root != comm.rank => (0, 0),
            Kind::Bcast => (0, 0),
            _ => (0, comm.size),
        };
        SmallColl {
            kind,
            root,
            send: args.send.whole(),
            recv: args.recv.whole(),
            reduction,
            number: mailboxes.next_number(),
            len,
            what,
            is_posted: false,
            next,
            end,
        }
    }

    /// Advances the collective as far as possible without blocking.
    pub(crate) fn advance(&mut self, comm: &Comm, mailboxes: &Mailboxes) -> Result<Advance> {
        if !self.is_posted && !self.post(comm, mailboxes)? {
            return Ok(Advance::Waiting);
        }
        while self.next < self.end {
            if self.next != comm.rank {
                match mailboxes.mailbox.look(self.next, self.number) {
                    Some(post) => self.check(&post)?,
                    None => return Ok(Advance::Waiting),
                }
            }
            self.next += 1;
        }
        self.conclude(comm, mailboxes);
        let met = !matches!(self.kind, Kind::Bcast | Kind::Reduce);
        mailboxes.mailbox.finish(self.number, met);
        mailboxes.over.store(self.number, Ordering::Release);
        Ok(Advance::Done)
    }

    /// Returns true if all previous small collectives are complete.
    pub(crate) fn is_next(&self, mailboxes: &Mailboxes) -> bool {
        self.is_posted || self.is_its_turn(mailboxes)
    }

    fn is_its_turn(&self, mailboxes: &Mailboxes) -> bool {
        mailboxes.over.load(Ordering::Acquire) + 1 == self.number
    }

    fn post(&mut self, comm: &Comm, mailboxes: &Mailboxes) -> Result<bool> {
        if !self.is_its_turn(mailboxes) {
            // A previous collective has failed, so the turn of this one never comes.
            return if comm.is_broken() { Err(comm.fail_with_first()) } else { Ok(false) };
        }
        let data = match self.kind {
            Kind::Bcast if self.root == comm.rank => self.recv,
            _ => self.send,
        };
        self.is_posted = mailboxes.mailbox.post(self.number, self.what, data);
        Ok(self.is_posted)
    }

    fn check(&self, post: &Post) -> Result<()> {
        if post.what == self.what && post.data.len() == self.len {
            return Ok(());
        }
        self.explain(post)
    }

    #[cold]
    fn explain(&self, post: &Post) -> Result<()> {
        if post.what != self.what {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "rank {} is in another collective: do all ranks make the same calls in the same \
                 order?",
                self.next
            );
        }
        fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "rank {} sent {} bytes where this rank expects {}: do all ranks pass the same count to \
             the same collective?",
            self.next,
            post.data.len(),
            self.len
        )
    }

    /// Computes the result from the messages in the mailboxes. All required messages must have
    /// arrived.
    fn conclude(&self, comm: &Comm, mailboxes: &Mailboxes) {
        let part = |rank: i32| {
            mailboxes.mailbox.look(rank, self.number).map_or(Region::EMPTY, |post| post.data)
        };
        let (recv, root, len) = (self.recv, self.root, self.len);
        match (self.kind, &self.reduction) {
            (Kind::Bcast, _) if root != comm.rank => recv.copy_from(part(root)),
            (Kind::Allgather, _) => {
                for rank in 0..comm.size {
                    recv.part(rank as usize * len, len).copy_from(part(rank));
                }
            }
            (Kind::Reduce, Some(by)) if root == comm.rank => {
                fold_all(by, comm.group(), Some(root), part, recv, mailboxes.room.region());
            }
            (Kind::Allreduce, Some(by)) => {
                fold_all(by, comm.group(), None, part, recv, mailboxes.room.region());
            }
            _ => {}
        }
    }

    /// Returns the ranks that the collective currently waits for.
    pub(crate) fn awaited(&self, comm: &Comm, mailboxes: &Mailboxes) -> impl Iterator<Item = i32> {
        let (from, to) = match self.is_posted {
            true => (self.next, self.end),
            false if self.is_its_turn(mailboxes) => (0, comm.size),
            false => (0, 0),
        };
        let own = comm.rank;
        (from..to).filter(move |rank| *rank != own)
    }

    /// Returns true if the first rank that the collective waits for died or left without posting
    /// its contribution. If `looks` is true, also checks the flag that a rank sets when it destroys
    /// the communicator.
    pub(crate) fn is_lost(&self, comm: &Comm, mailboxes: &Mailboxes, looks: bool) -> bool {
        // The departure is checked before the mailbox: messages from before the departure are then
        // visible.
        self.awaited(comm, mailboxes).next().is_some_and(|rank| {
            let has_gone = comm.has_closed(rank) || (looks && comm.has_left(rank));
            has_gone && mailboxes.mailbox.look(rank, self.number).is_none()
        })
    }

    /// Pauses between two polls of a waiting call.
    pub(crate) fn pause(&self, comm: &Comm, mailboxes: &Mailboxes, backoff: &mut Backoff) {
        if !self.is_posted && !self.is_its_turn(mailboxes) {
            let over = mailboxes.over.load(Ordering::Relaxed);
            self.progress_others(comm, mailboxes);
            if mailboxes.over.load(Ordering::Relaxed) != over {
                *backoff = Backoff::new();
                return;
            }
        }
        let awaited = (self.is_posted, self.next);
        comm.link.pause_with(backoff, |_, limit| match awaited {
            (true, rank) if !progress_count::has_running() => {
                mailboxes.mailbox.rest(rank, self.number, limit)
            }
            _ => false,
        });
        if backoff.is_turn(TURN) {
            // Other ranks may wait for this rank's part of a message.
            comm.link.transport.progress();
        }
    }

    /// Makes progress on the transport and on earlier collectives, after a poll that did not find a
    /// new message from another rank.
    pub(crate) fn progress_others(&self, comm: &Comm, mailboxes: &Mailboxes) {
        comm.link.transport.progress();
        if !self.is_its_turn(mailboxes) && !mailboxes.is_moving.swap(true, Ordering::Acquire) {
            progress::others(comm);
            mailboxes.is_moving.store(false, Ordering::Release);
        }
    }
}

/// Number of mailbox polls between two polls of the transport.
const TURN: u32 = 16;

/// Reduces the data of all ranks into `into`. Groups the operands as a binomial tree does if there
/// is a root, otherwise as recursive doubling does.
fn fold_all(
    by: &Reduction,
    g: Group,
    root: Option<i32>,
    part: impl Fn(i32) -> Region,
    into: Region,
    room: Region,
) {
    if let Some(root) = root {
        let top = if by.commutes { root } else { 0 };
        let leaf = |place: i32| (part((place + top) % g.size), None);
        return Tree { by, count: g.size, leaf }.fold(0, g.size, into, room);
    }
    let fold = Fold::new(g);
    let leaf = |place: i32| match place < fold.extra {
        true => (part(2 * place), Some(part(2 * place + 1))),
        false => (part(place + fold.extra), None),
    };
    Tree { by, count: fold.core, leaf }.fold(0, fold.core, into, room);
}

/// Binomial tree over `count` leaves. Each leaf is the data of one rank, or the data of two ranks,
/// which are combined first.
struct Tree<'a, L> {
    by: &'a Reduction,
    count: i32,
    leaf: L,
}

impl<L: Fn(i32) -> (Region, Option<Region>)> Tree<'_, L> {
    /// Reduces the leaves from `first` to `first + reach - 1` into `into`. The ranks' data is only
    /// read. `room` is scratch memory for the partial results of the lower levels.
    fn fold(&self, first: i32, reach: i32, into: Region, room: Region) {
        let mut step = 1;
        let (left, right) = (self.leaf)(first);
        match right {
            Some(right) => self.pair(left, right, into),
            None if reach > 1 && first + 1 < self.count => match (self.leaf)(first + 1) {
                (right, None) => {
                    self.pair(left, right, into);
                    step = 2;
                }
                _ => into.copy_from(left),
            },
            None => into.copy_from(left),
        }
        while step < reach && first + step < self.count {
            let (other, below) = (room.part(0, into.len()), room.part(into.len(), room.len()));
            self.fold(first + step, step, other, below);
            self.by.apply(into, other);
            step *= 2;
        }
    }

    #[inline]
    fn pair(&self, left: Region, right: Region, into: Region) {
        into.copy_from(right);
        self.by.apply_to_right(left, into);
    }
}

#[cfg(test)]
#[path = "tests/small_coll.rs"]
mod tests;
