//! State of the target: receives requests one by one and executes them on this rank's memory. Only
//! one thread at a time runs this code, so accumulating operations are atomic. No function waits.

use super::lock_queue::{LockRequester, Locks};
use super::origin::cancel;
use super::wire_format::{HEAD, Head, REQUEST, ROOM, RequestKind};
use crate::abi::comm::communicator::DTL_ANY_SOURCE;
use crate::abi::status::DTL_SUCCESS;
use crate::abi::word::DTL_OP_NO_OP;
use crate::error::{Result, fail};
use crate::runtime::comm::Comm;
use crate::runtime::comm::p2p::op_handle::OpHandle;
use crate::runtime::comm::posted::Posted;
use crate::runtime::comm::shared_transport::Class;
use crate::runtime::component::{Completion, OpId, SendMode};
use crate::runtime::types;
use crate::sys::memory::buf::{Region, Scratch};

/// Maximum number of requests executed in one turn.
const MOST: usize = 64;
/// Number of replies in flight above which no further request is received.
const MOST_ANSWERS: usize = 256;
/// Number of buffers retained for later replies.
const SPARE: usize = 4;

pub(super) struct Server {
    memory: Region,
    /// Receive buffer of requests.
    room: Scratch,
    /// Request that has not completely arrived.
    coming: Option<OpId>,
    /// Receives of the data of large puts, each with its origin.
    receiving: Vec<(OpId, i32)>,
    answering: Vec<(OpId, Option<Scratch>)>,
    spare: Vec<Scratch>,
    /// Flushes that wait for large puts of their origin: origin, and tag of the reply.
    flushing: Vec<(i32, i32)>,
    locks: Locks,
    /// Number of deaths that the locks already reflect.
    deaths: usize,
    /// Send buffer of the one byte of a refusal.
    refusal: Posted,
}

impl Server {
    pub(super) fn new(comm: &Comm, memory: Region) -> Result<Server> {
        let Some(room) = Scratch::unwritten(ROOM) else {
            return fail!(
                DTL_ERROR_OUT_OF_MEMORY,
                "no {ROOM} bytes for what other ranks ask of a window"
            );
        };
        let refusal = Posted::lent(&comm.link, Scratch::new(1), "a window")?;
        Ok(Server {
            memory,
            room,
            coming: None,
            receiving: Vec::new(),
            answering: Vec::new(),
            spare: Vec::new(),
            flushing: Vec::new(),
            locks: Locks::default(),
            deaths: 0,
            refusal,
        })
    }

    /// Serves requests without waiting. Returns true if there was anything to do.
    pub(super) fn turn(&mut self, comm: &Comm) -> bool {
        let mut moved = self.move_on(comm);
        for _ in 0..MOST {
            if self.answering.len() >= MOST_ANSWERS {
                break;
            }
            let Some(done) = self.next(comm) else { break };
            moved = true;
            if done.status == DTL_SUCCESS {
                self.take(comm, comm.localized(done));
            }
        }
        self.look_for_gone(comm, moved);
        moved
    }

    /// Releases the locks of dead ranks. If other ranks wait, also releases the locks of ranks that
    /// have left: these ranks release their locks themselves, but that message may have failed.
    fn look_for_gone(&mut self, comm: &Comm, moved: bool) {
        let deaths = comm.failed_count();
        let has_left = |rank| comm.has_closed(rank);
        if deaths != self.deaths || (!moved && self.locks.in_the_way().any(has_left)) {
            self.deaths = deaths;
            self.locks.bury(&comm.failed_ranks());
            self.grant(comm);
        }
    }

    /// Receives the next request into `room`. Returns `None` if no request has completely arrived.
    fn next(&mut self, comm: &Comm) -> Option<Completion> {
        let transport = &comm.link.transport;
        let op = match self.coming {
            Some(op) => op,
            None => {
                // An error means that some rank has died and no request is queued.
                let any = comm.selector(Class::User, DTL_ANY_SOURCE, REQUEST);
                let matched = transport.take(any).ok().flatten()?;
                transport.receive_matched(matched.message, self.room.region()).ok()?
            }
        };
        // An error means that this thread may not poll; another thread will.
        let done = transport.outcome(op).unwrap_or(None);
        self.coming = done.is_none().then_some(op);
        done
    }

    /// Makes progress on data and replies in flight.
    fn move_on(&mut self, comm: &Comm) -> bool {
        let transport = &comm.link.transport;
        let before = (self.receiving.len(), self.answering.len());
        self.receiving.retain(|(op, _)| !matches!(transport.outcome(*op), Ok(Some(_))));
        let mut at = 0;
        while let Some((op, _)) = self.answering.get(at) {
            if !matches!(transport.outcome(*op), Ok(Some(_))) {
                at += 1;
            } else if let (_, Some(scratch)) = self.answering.swap_remove(at) {
                self.keep(scratch);
            }
        }
        if !self.flushing.is_empty() {
            let (done, later) = std::mem::take(&mut self.flushing)
                .into_iter()
                .partition(|(origin, _)| !self.receiving.iter().any(|(_, of)| of == origin));
            self.flushing = later;
            let done: Vec<(i32, i32)> = done;
            done.into_iter()
                .for_each(|(origin, tag)| self.answer(comm, (origin, tag), Region::EMPTY, None));
        }
        before != (self.receiving.len(), self.answering.len())
    }

    fn keep(&mut self, scratch: Scratch) {
        if self.spare.len() < SPARE {
            self.spare.push(scratch);
        }
    }

    /// Sends a reply. If the origin has died, the failure is ignored.
    fn answer(
        &mut self,
        comm: &Comm,
        (origin, tag): (i32, i32),
        data: Region,
        scratch: Option<Scratch>,
    ) {
        match comm.start_send(Class::User, data, origin, tag, SendMode::Standard) {
            Ok(OpHandle::Op(op)) => self.answering.push((op, scratch)),
            _ => scratch.into_iter().for_each(|scratch| self.keep(scratch)),
        }
    }

    /// Executes the request in `room`.
    fn take(&mut self, comm: &Comm, done: Completion) {
        let origin = done.source;
        let Some(head) = Head::parse(self.room.first_words()) else { return };
        // Clipped to this rank's part. The origin has checked that the bytes are inside.
        let place = self.memory.part(head.offset as usize, head.len as usize);
        let data = self.room.region().part(HEAD, (done.size as usize).saturating_sub(HEAD));
        match head.what {
            RequestKind::Put => place.copy_from(data),
            RequestKind::PutLarge => self.receive(comm, place, (origin, head.tag)),
            RequestKind::Get => self.answer(comm, (origin, head.tag), place, None),
            RequestKind::Accumulate => apply(&head, place, data),
            RequestKind::GetAccumulate => {
                self.fetch_and(comm, (origin, head.tag), place, || apply(&head, place, data));
            }
            RequestKind::Swap => {
                let (value, expected) =
                    (data.part(0, place.len()), data.part(place.len(), place.len()));
                self.fetch_and(comm, (origin, head.tag), place, || place.swap_if(expected, value));
            }
            RequestKind::Lock => {
                self.locks.request(LockRequester {
                    origin,
                    tag: head.tag,
                    exclusive: head.op == 1,
                });
                self.grant(comm);
            }
            RequestKind::LockIfFree => {
                let asker = LockRequester { origin, tag: head.tag, exclusive: false };
                let is_shared = self.locks.share_if_free(asker);
                let data = if is_shared { Region::EMPTY } else { self.refusal.region() };
                self.answer(comm, (origin, head.tag), data, None);
            }
            RequestKind::Unlock => {
                self.locks.release(origin);
                self.grant(comm);
            }
            RequestKind::Forget => {
                if self.locks.forget(origin, head.tag) {
                    self.answer(comm, (origin, head.tag), Region::EMPTY, None);
                }
                self.grant(comm);
            }
            RequestKind::Flush if self.receiving.iter().any(|(_, of)| *of == origin) => {
                self.flushing.push((origin, head.tag));
            }
            RequestKind::Flush => self.answer(comm, (origin, head.tag), Region::EMPTY, None),
        }
    }

    fn receive(&mut self, comm: &Comm, place: Region, (origin, tag): (i32, i32)) {
        if let Ok(OpHandle::Op(op)) = comm.start_recv(Class::User, place, origin, tag) {
            self.receiving.push((op, origin));
        }
    }

    /// Updates `place` and replies with its previous bytes. The reply is sent after the update, so
    /// an origin that has received the reply can rely on the update.
    fn fetch_and(&mut self, comm: &Comm, to: (i32, i32), place: Region, change: impl FnOnce()) {
        // Without memory no reply is sent, and the origin fails by its time limit.
        let Some(scratch) = self.spare.pop().or_else(|| Scratch::unwritten(ROOM)) else { return };
        let copy = scratch.region().part(0, place.len());
        copy.copy_from(place);
        change();
        self.answer(comm, to, copy, Some(scratch));
    }

    fn grant(&mut self, comm: &Comm) {
        while let Some(asker) = self.locks.grant() {
            self.answer(comm, (asker.origin, asker.tag), Region::EMPTY, None);
        }
    }

    /// Returns true if no rank has a lock or waits for one.
    pub(super) fn is_unlocked(&self) -> bool {
        self.locks.are_free()
    }

    /// Cancels all operations.
    pub(super) fn close(&mut self, comm: &Comm) {
        let room = std::mem::take(&mut self.room);
        if let Some(op) = self.coming.take() {
            cancel(comm, op, Some(room));
        }
        self.receiving.drain(..).for_each(|(op, _)| cancel(comm, op, None));
        self.answering.drain(..).for_each(|(op, scratch)| cancel(comm, op, scratch));
    }
}

/// Applies `place = place op data`; the origin has checked that dtype and op are built-in.
pub(super) fn apply(head: &Head, place: Region, data: Region) {
    if head.op == DTL_OP_NO_OP {
        return;
    }
    if let Ok(by) = types::reduction(head.dtype, head.op) {
        by.apply(place, data);
    }
}
