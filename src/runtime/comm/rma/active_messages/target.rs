//! State of this rank as a target, and the functions that receive requests one by one and execute
//! them on the window memory of this rank. Only one thread at a time runs this code, so
//! accumulate operations are atomic. All functions of this module are nonblocking.

use super::lock_queue::{LockRequester, Locks};
use super::origin::{Sends, cancel};
use super::wire_format::{HEAD, Head, REQUEST, ROOM, RequestKind};
use crate::abi::comm::communicator::DTL_ANY_SOURCE;
use crate::abi::status::DTL_SUCCESS;
use crate::abi::word::DTL_OP_NO_OP;
use crate::error::{Result, failure};
use crate::runtime::comm::Comm;
use crate::runtime::comm::p2p::op_handle::OpHandle;
use crate::runtime::comm::posted::Posted;
use crate::runtime::comm::shared_transport::Class;
use crate::runtime::component::{Completion, OpId};
use crate::runtime::types;
use crate::sys::memory::buf::{Region, Scratch};
use std::sync::Arc;

/// Maximum number of requests that one call to `Server::turn` executes.
const MOST: usize = 64;
/// Number of replies in flight at which the target stops receiving further requests.
const MOST_ANSWERS: usize = 256;

pub(super) struct Server {
    comm: Arc<Comm>,
    memory: Region,
    /// Buffer into which requests are received.
    room: Scratch,
    /// Posted receive for the next request, which has not completely arrived.
    coming: Option<OpId>,
    /// Posted receives for the data of large puts, each with the origin's rank.
    receiving: Vec<(OpId, i32)>,
    answering: Sends,
    /// Flush requests to which this target replies only when the data of large puts from the same
    /// origin has arrived: rank of the origin, and tag of the reply.
    flushing: Vec<(i32, i32)>,
    locks: Locks,
    /// Number of failed ranks when the locks held by failed ranks were last released.
    deaths: usize,
    /// Send buffer of the one-byte reply that refuses a lock request.
    refusal: Posted,
}

impl Server {
    pub(super) fn new(comm: Arc<Comm>, memory: Region) -> Result<Server> {
        let room = Scratch::unwritten(ROOM).ok_or_else(|| {
            failure!(
                DTL_ERROR_OUT_OF_MEMORY,
                "no {ROOM} bytes for what other ranks ask of a window"
            )
        })?;
        let refusal = Posted::lent(&comm.link, Scratch::new(1), "a window")?;
        Ok(Server {
            comm,
            memory,
            room,
            coming: None,
            receiving: Vec::new(),
            answering: Sends::default(),
            flushing: Vec::new(),
            locks: Locks::default(),
            deaths: 0,
            refusal,
        })
    }

    /// Makes progress on the messages in flight and executes the requests that have arrived,
    /// without blocking. Returns true if any request arrived or any message completed.
    pub(super) fn turn(&mut self) -> bool {
        let mut moved = self.move_on();
        for _ in 0..MOST {
            if self.answering.len() >= MOST_ANSWERS {
                break;
            }
            let Some(done) = self.next() else { break };
            moved = true;
            if done.status == DTL_SUCCESS {
                self.take(self.comm.localized(done));
            }
        }
        self.look_for_gone(moved);
        moved
    }

    /// Releases the locks that dead ranks hold. If other ranks wait for a lock, also releases the
    /// locks held by ranks that have closed the transport. Such a rank has sent a message that
    /// releases its locks, but this send may have failed.
    fn look_for_gone(&mut self, moved: bool) {
        let deaths = self.comm.failed_count();
        let has_left = |rank| self.comm.has_closed(rank);
        if deaths != self.deaths || (!moved && self.locks.in_the_way().any(has_left)) {
            self.deaths = deaths;
            self.locks.bury(&self.comm.failed_ranks());
            self.grant();
        }
    }

    /// Receives the next request into the receive buffer `room`. Returns `None` if no request has
    /// completely arrived.
    fn next(&mut self) -> Option<Completion> {
        let transport = &self.comm.link.transport;
        let op = match self.coming {
            Some(op) => op,
            None => {
                // An error means that some rank has died and no request is queued.
                let any = self.comm.selector(Class::User, DTL_ANY_SOURCE, REQUEST);
                let matched = transport.take(any).ok().flatten()?;
                transport.receive_matched(matched.message, self.room.region()).ok()?
            }
        };
        // An error means that this thread may not poll; another thread will.
        let done = transport.outcome(op).unwrap_or(None);
        self.coming = done.is_none().then_some(op);
        done
    }

    /// Makes progress on the receives of put data and on the sends of replies. Returns true if the
    /// number of these receives or sends in flight has changed.
    fn move_on(&mut self) -> bool {
        let transport = &self.comm.link.transport;
        let before = (self.receiving.len(), self.answering.len());
        self.receiving.retain(|(op, _)| !matches!(transport.outcome(*op), Ok(Some(_))));
        self.answering.collect(&self.comm);
        for (origin, tag) in std::mem::take(&mut self.flushing) {
            self.flush(origin, tag);
        }
        before != (self.receiving.len(), self.answering.len())
    }

    /// Sends a reply. Ignores a failure of the send, for example because the origin has died.
    fn answer(&mut self, to: (i32, i32), data: Region, buffer: Option<Scratch>) {
        drop(self.answering.send(&self.comm, to, data, buffer));
    }

    /// Sends a reply without data.
    fn confirm(&mut self, to: (i32, i32)) {
        self.answer(to, Region::EMPTY, None);
    }

    /// Replies to a flush request. If data of large puts from the same origin is still arriving,
    /// defers the reply until these puts are complete.
    fn flush(&mut self, origin: i32, tag: i32) {
        if self.receiving.iter().any(|(_, of)| *of == origin) {
            self.flushing.push((origin, tag));
        } else {
            self.confirm((origin, tag));
        }
    }

    /// Executes the request that has been received into the buffer `room`.
    fn take(&mut self, done: Completion) {
        let Some(head) = Head::parse(self.room.region().first_words()) else { return };
        let (origin, tag) = (done.source, head.tag);
        // Clipped to this rank's part. The origin has checked that the bytes are inside.
        let place = self.memory.part(head.offset as usize, head.len as usize);
        let data = self.room.region().part(HEAD, (done.size as usize).saturating_sub(HEAD));
        let asker = LockRequester { origin, tag, exclusive: head.op == 1 };
        match head.what {
            RequestKind::Put => place.copy_from(data),
            RequestKind::PutLarge => {
                let started = self.comm.start_recv(Class::User, place, origin, tag);
                if let Ok(OpHandle::Op(op)) = started {
                    self.receiving.push((op, origin));
                }
            }
            RequestKind::Get => self.answer((origin, tag), place, None),
            RequestKind::Accumulate => apply(&head, place, data),
            RequestKind::GetAccumulate => {
                self.fetch_and((origin, tag), place, || apply(&head, place, data));
            }
            RequestKind::Swap => {
                let (value, expected) =
                    (data.part(0, place.len()), data.part(place.len(), place.len()));
                self.fetch_and((origin, tag), place, || place.swap_if(expected, value));
            }
            RequestKind::Lock => {
                self.locks.request(asker);
                self.grant();
            }
            RequestKind::LockIfFree if self.locks.share_if_free(asker) => {
                self.confirm((origin, tag));
            }
            RequestKind::LockIfFree => self.answer((origin, tag), self.refusal.region(), None),
            RequestKind::Unlock => {
                self.locks.release(origin);
                self.grant();
            }
            RequestKind::Forget => {
                if self.locks.forget(origin, tag) {
                    self.confirm((origin, tag));
                }
                self.grant();
            }
            RequestKind::Flush => self.flush(origin, tag),
        }
    }

    /// Updates `place` and replies with its previous bytes. The reply is sent after the update, so
    /// an origin that has received the reply knows that the update is complete.
    fn fetch_and(&mut self, to: (i32, i32), place: Region, change: impl FnOnce()) {
        // Without memory no reply is sent, and the origin fails by its time limit.
        let Some(scratch) = self.answering.buffer() else { return };
        let copy = scratch.region().part(0, place.len());
        copy.copy_from(place);
        change();
        self.answer(to, copy, Some(scratch));
    }

    fn grant(&mut self) {
        while let Some(asker) = self.locks.grant() {
            self.confirm((asker.origin, asker.tag));
        }
    }

    /// Returns true if no rank holds a lock or waits for one.
    pub(super) fn is_unlocked(&self) -> bool {
        self.locks.are_free()
    }

    /// Cancels all operations.
    pub(super) fn close(&mut self) {
        let room = std::mem::take(&mut self.room);
        if let Some(op) = self.coming.take() {
            cancel(&self.comm, op, Some(room));
        }
        self.receiving.drain(..).for_each(|(op, _)| cancel(&self.comm, op, None));
        self.answering.close(&self.comm);
    }
}

/// Computes `place = place op data`, elementwise, with the dtype and the reduction operation of
/// `head`. The origin has checked that both are built-in.
pub(super) fn apply(head: &Head, place: Region, data: Region) {
    if head.op == DTL_OP_NO_OP {
        return;
    }
    if let Ok(by) = types::reduction(head.dtype, head.op) {
        by.apply(place, data);
    }
}
