//! RMA path that uses active messages, for transports that support only messages: an origin sends
//! requests, and the target executes them when it polls for requests.
//!
//! The process of a target executes requests in every library call that waits, and in a separate
//! thread while no call waits (`rma_progress`). If all ranks are in one process, a call that waits
//! executes the requests for all of them.
//!
//! The data of small puts is part of the request message. A large put sends a request, then its
//! data as a separate message from the source buffer to the destination. Fetched data is received
//! as a message into the caller's buffer. Only the data of accumulate operations is divided into
//! fragments and copied through buffers. Puts and gets within a node need no request if the kernel
//! permits copies between the two processes (`cma`).
//!
//! In reading order:
//! - `wire_format`: encoding of requests
//! - `origin`: requests in flight
//! - `lock_requests`: locks that the origin requests
//! - `target`: execution of requests
//! - `lock_queue`: ranks that have the lock or wait for it
//! - `cma`: puts and gets whose data the kernel copies between processes

mod cma;
mod lock_queue;
mod lock_requests;
mod origin;
mod target;
mod wire_format;

use self::cma::Copies;
use self::target::Server;
use self::wire_format::{FRAGMENT, Head, INLINE, RequestKind, answer_tag, data_tag};
use super::rma_progress as serving;
use crate::error::{Error, Result, fail, failure};
use crate::runtime::comm::p2p::op_handle::OpHandle;
use crate::runtime::comm::posted::Posted;
use crate::runtime::comm::rma_path::{
    Change, FlushScope, RmaOp, RmaPath, RmaStart, TargetRange, Ticket, TicketRequest,
};
use crate::runtime::comm::shared_transport::Class;
use crate::runtime::comm::{Comm, progress};
use crate::runtime::component::SendMode;
use crate::sys::memory::buf::{Region, Scratch};
use crate::sys::sync::lock::{Mutex, MutexGuard};
use crate::sys::sync::wait::{Backoff, Deadline};
use origin::{Origin, SendCredit};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) struct Active {
    comm: Arc<Comm>,
    memory: Region,
    /// True if all ranks are threads of this process.
    is_one_process: bool,
    origin: Mutex<Origin>,
    server: Mutex<Server>,
    is_closed: AtomicBool,
    /// Receive buffer for the one-byte reply that a target sends to refuse a lock request. The
    /// value of the byte has no meaning.
    refusal: Posted,
    copies: Copies,
}

/// Reply that a call waits for.
struct PendingReply {
    target: i32,
    tag: i32,
    started: OpHandle,
    /// Number of requests to the target (only those without a reply of their own) that are complete
    /// when this reply has arrived.
    goal: u64,
    is_there: bool,
    /// True if the reply is a refusal.
    is_refused: bool,
}

impl Active {
    pub(super) fn new(comm: Arc<Comm>, memory: Region, is_one_process: bool) -> Result<Active> {
        let origin = Mutex::new(Origin::new(Arc::clone(&comm)));
        let server = Mutex::new(Server::new(Arc::clone(&comm), memory)?);
        let refusal = Posted::lent(&comm.link, Scratch::new(1), "a window")?;
        let is_closed = AtomicBool::new(false);
        let copies = Copies::NONE;
        Ok(Active { comm, memory, is_one_process, origin, server, is_closed, refusal, copies })
    }

    /// Enables copies by the operating system's kernel for puts and gets on targets on this node,
    /// if the kernel permits such copies. `bases` contains the address of each rank's window memory
    /// in the process of that rank, indexed by rank. Returns the description for `dtl_explain`.
    pub(super) fn use_copies(&mut self, bases: &[u64]) -> String {
        let (copies, why) = Copies::new(&self.comm, bases);
        self.copies = copies;
        why
    }

    /// Executes a put or get as a copy by the operating system's kernel. Returns false if the
    /// operation must be sent as a request. First checks that the target is alive, because the
    /// memory of a dead rank may still be accessible.
    fn copy(&self, spot: TargetRange, op: &RmaOp) -> Result<bool> {
        if !self.copies.is_any() {
            return Ok(false);
        }
        self.check_alive(&(spot.target..spot.target + 1))?;
        self.copies.copy(&self.comm, spot, op)
    }

    /// Locks the origin's state to start an operation; fails if the window is closed.
    fn lock_origin(&self) -> Result<MutexGuard<'_, Origin>> {
        let origin = self.origin.lock();
        if self.is_closed.load(Ordering::Acquire) {
            return Err(destroyed());
        }
        Ok(origin)
    }

    fn serve_here(&self) {
        if self.is_one_process {
            serving::serve_all();
        } else {
            self.serve();
        }
    }

    /// Polls `look` until it returns true, and executes requests from other ranks between the
    /// polls. Fails when the communicator's time limit expires. The error message begins with
    /// `what`, which describes the event that did not occur.
    pub(super) fn wait(&self, what: &str, look: impl FnMut() -> Result<bool>) -> Result<()> {
        self.until(self.comm.deadline(), |limit| format!("{what} {limit}"), look)
    }

    /// Polls `look` until it returns true, and executes requests from other ranks between the
    /// polls. Fails at `deadline`. `what` creates the error message from a string that describes
    /// the time limit.
    fn until(
        &self,
        deadline: Deadline,
        what: impl Fn(&str) -> String,
        mut look: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        let mut backoff = Backoff::new();
        while !look()? {
            self.serve_here();
            self.comm.pause(&mut backoff);
            if backoff.is_long() {
                self.comm.check_open()?;
                if deadline.passed() {
                    let millis = self.comm.timeout_ns / 1_000_000;
                    let limit = format!("within {millis} ms (the communicator's time limit)");
                    return fail!(DTL_ERROR_TIMEOUT, "{}", what(&limit));
                }
                progress::others(&self.comm);
            }
        }
        Ok(())
    }

    /// Waits until one more request may be sent to a target.
    fn make_room(&self, target: i32) -> Result<()> {
        let room = || self.lock_origin()?.room(target);
        match room()? {
            SendCredit::Free => Ok(()),
            SendCredit::Flush => self.flush(target..target + 1, FlushScope::Target),
            SendCredit::Later => {
                let what = |limit: &str| {
                    format!(
                        "no room for it: operations before it, of target {target} among others, \
                         did not end {limit}"
                    )
                };
                self.until(self.comm.deadline(), what, || Ok(room()? != SendCredit::Later))
            }
        }
    }

    /// Posts the receive for the reply to a request, then sends the request. An empty reply grants
    /// or confirms the request; a reply of one byte refuses it.
    fn send_request(&self, target: i32, head: Head, goal: u64) -> Result<PendingReply> {
        let mut origin = self.lock_origin()?;
        let tag = answer_tag(origin.next());
        let started = self.comm.start_recv(Class::User, self.refusal.region(), target, tag)?;
        if let Err(error) = origin.post(target, &Head { tag, ..head }, &[]) {
            if self.comm.cancel_started(started).is_err() {
                origin.abandon(started);
            }
            return Err(error);
        }
        Ok(PendingReply { target, tag, started, goal, is_there: false, is_refused: false })
    }

    /// Returns true if the reply `answer` has arrived, or if it cannot arrive because of a failure.
    fn is_answered(&self, answer: &mut PendingReply, what: &str, failed: &mut Result<()>) -> bool {
        if answer.is_there {
            return true;
        }
        let end = match self.comm.poll_peer(answer.started, answer.target) {
            Ok(None) => return false,
            Ok(Some(mut done)) => {
                answer.is_refused = done.size > 0;
                self.comm.check_done(&mut done, what, answer.target)
            }
            Err(error) => {
                self.origin.lock().abandon(answer.started);
                Err(error)
            }
        };
        answer.is_there = true;
        note_first(failed, end);
        true
    }

    /// Fails if one of the targets is known to have died. A flush reports the death even if no
    /// operation was in flight to that target.
    pub(super) fn check_alive(&self, targets: &Range<i32>) -> Result<()> {
        self.copies.check_there(targets)?;
        if !self.comm.has_died() {
            return Ok(());
        }
        let dead = self.comm.failed_ranks().into_iter().find(|rank| targets.contains(rank));
        dead.map_or(Ok(()), |rank| fail!(DTL_ERROR_RANK_FAILURE, "target {rank} has died or left"))
    }

    /// Sends a request together with its data. `reply` contains the receive buffer of the reply,
    /// the name of the operation for error messages, and a flag that is true if the caller will
    /// poll the operation. `reply` is `None` for a request to which the target does not reply; such
    /// a request is confirmed only by a flush.
    fn request(
        &self,
        target: i32,
        head: Head,
        data: &[Region],
        reply: Option<(Region, &'static str, TicketRequest)>,
    ) -> Result<RmaStart> {
        self.make_room(target)?;
        let mut origin = self.lock_origin()?;
        let Some((into, what, wants_ticket)) = reply else {
            return origin.post_counted(target, &head, data).map(|()| None);
        };
        let number = origin.next();
        let tag = answer_tag(number);
        let started = self.comm.start_recv(Class::User, into, target, tag)?;
        if let Err(error) = origin.post(target, &Head { tag, ..head }, data) {
            self.comm.cancel_started(started)?;
            return Err(error);
        }
        Ok(origin.add(number, (what, target), started, wants_ticket))
    }

    /// Performs an operation on this rank's own memory.
    fn apply_here(&self, own: Region, op: &RmaOp) {
        match *op {
            RmaOp::Put(from) => own.copy_from(from),
            RmaOp::Get(into) => into.copy_from(own),
            RmaOp::Accumulate { from, result, by } => {
                let _alone = self.server.lock();
                by.update.apply_locked(own, from, result);
            }
            RmaOp::CompareAndSwap(swap) => {
                let _alone = self.server.lock();
                swap.result.copy_from(own);
                own.swap_if(swap.expected, swap.value);
            }
        }
    }

    fn put(&self, to: TargetRange, from: Region, wants_ticket: TicketRequest) -> Result<RmaStart> {
        let head = Head::new(RequestKind::Put).at(to.offset, to.len);
        if to.len <= INLINE {
            return self.request(to.target, head, &[from], None);
        }
        self.make_room(to.target)?;
        let mut origin = self.lock_origin()?;
        let number = origin.next();
        let tag = data_tag(number);
        origin.post_counted(to.target, &Head { what: RequestKind::PutLarge, tag, ..head }, &[])?;
        let started =
            self.comm.start_send(Class::User, from, to.target, tag, SendMode::Standard)?;
        Ok(origin.add(number, ("put to", to.target), started, wants_ticket))
    }

    /// Sends an accumulate operation as one or more requests, each with a fragment of the data.
    /// The target executes each request as a whole, without other accumulate operations in
    /// between.
    fn accumulate(
        &self,
        to: TargetRange,
        from: Region,
        result: Region,
        by: &Change,
    ) -> Result<RmaStart> {
        let fetches = !result.is_empty();
        let kind = if fetches { RequestKind::GetAccumulate } else { RequestKind::Accumulate };
        let head = Head { op: by.op, dtype: by.dtype, ..Head::new(kind) };
        let element = by.update.size().max(1);
        let most = (FRAGMENT / element * element).max(1);
        let mut begun = None;
        for at in (0..to.len).step_by(most) {
            let len = most.min(to.len - at);
            let reply = fetches.then(|| (result.part(at, len), "accumulate at", false));
            let head = head.at(to.offset + at, len);
            begun = self.request(to.target, head, &[from.part(at, len)], reply)?;
        }
        Ok(begun)
    }
}

/// Returns the error for a call on a window that another thread has destroyed.
pub(super) fn destroyed() -> Error {
    failure!(DTL_ERROR_CANCELED, "the window was destroyed by another thread")
}

fn note_first(first: &mut Result<()>, next: Result<()>) {
    if first.is_ok() {
        *first = next;
    }
}

fn text(targets: &Range<i32>) -> String {
    if targets.len() == 1 {
        format!("target {}", targets.start)
    } else {
        format!("targets {} to {}", targets.start, targets.end - 1)
    }
}

impl RmaPath for Active {
    fn describe(&self) -> &'static str {
        if self.copies.is_any() {
            "copies by the kernel, and messages"
        } else if self.needs_thread() {
            "messages, served by the target's calls and a thread"
        } else if self.is_one_process {
            "messages, served by whoever waits in this process"
        } else {
            "messages, served by the target's calls only"
        }
    }

    fn start(&self, at: TargetRange, op: &RmaOp, wants_ticket: TicketRequest) -> Result<RmaStart> {
        if at.target == self.comm.rank {
            self.apply_here(self.memory.part(at.offset, at.len), op);
            return Ok(None);
        }
        match *op {
            RmaOp::Put(_) | RmaOp::Get(_) if self.copy(at, op)? => Ok(None),
            RmaOp::Put(from) => self.put(at, from, wants_ticket),
            RmaOp::Get(into) => {
                let head = Head::new(RequestKind::Get).at(at.offset, at.len);
                self.request(at.target, head, &[], Some((into, "get from", wants_ticket)))
            }
            RmaOp::Accumulate { from, result, by } => self.accumulate(at, from, result, &by),
            RmaOp::CompareAndSwap(swap) => {
                let head = Head::new(RequestKind::Swap).at(at.offset, at.len);
                let reply = Some((swap.result, "compare and swap at", false));
                self.request(at.target, head, &[swap.value, swap.expected], reply)
            }
        }
    }

    fn lock(&self, targets: Range<i32>, exclusive: bool) -> Result<()> {
        let deadline = self.comm.deadline();
        if targets.len() == 1 {
            self.lock_one(targets.start, exclusive, deadline)
        } else {
            self.lock_all(targets, deadline)
        }
    }

    /// Releases the locks by sending messages to which the targets do not reply.
    fn leave(&self, targets: Range<i32>) -> Result<()> {
        let mut left = Ok(());
        for target in targets {
            let head = Head::new(RequestKind::Unlock);
            let posted = self.lock_origin().and_then(|mut origin| origin.post(target, &head, &[]));
            left = left.and(posted);
        }
        left
    }

    /// Waits until all operations on `targets` are complete at the level `reach`, then returns
    /// their first failure.
    fn flush(&self, targets: Range<i32>, reach: FlushScope) -> Result<()> {
        let (mut answers, mut failed) = (Vec::new(), Ok(()));
        if reach == FlushScope::Target {
            for target in targets.clone() {
                let Some(goal) = self.origin.lock().unanswered(target) else { continue };
                match self.send_request(target, Head::new(RequestKind::Flush), goal) {
                    Ok(answer) => answers.push(answer),
                    Err(error) => {
                        self.origin.lock().answered(target, goal);
                        note_first(&mut failed, Err(error));
                    }
                }
            }
        }
        let waited = self.until(
            self.comm.deadline(),
            |limit| {
                let whose = text(&targets);
                format!(
                    "operations on {whose} did not end {limit}: they go on, and their buffers \
                    stay in use until a flush, unlock or fence succeeds"
                )
            },
            || {
                let is_local = self.origin.lock().collect(&targets, false)?;
                let mut answers = answers.iter_mut();
                let all = answers.all(|answer| self.is_answered(answer, "flush of", &mut failed));
                Ok(is_local && all)
            },
        );
        let mut origin = self.origin.lock();
        for answer in &answers {
            if answer.is_there {
                origin.answered(answer.target, answer.goal);
            } else {
                origin.abandon(answer.started);
            }
        }
        waited?;
        note_first(&mut failed, origin.failure(&targets));
        drop(origin);
        failed.and_then(|()| {
            if reach == FlushScope::Target { self.check_alive(&targets) } else { Ok(()) }
        })
    }

    fn is_over(&self, ticket: Ticket) -> Result<bool> {
        let polled = self.origin.lock().poll(ticket);
        match polled {
            Some(Ok(false)) => {
                self.serve_here();
                Ok(false)
            }
            Some(end) => end,
            None => fail!(DTL_ERROR_CANCELED, "the window was destroyed"),
        }
    }

    fn cancel(&self, ticket: Ticket) -> Result<()> {
        let taken = self.origin.lock().take(ticket);
        taken.map_or(Ok(()), |started| self.comm.cancel_started(started).map(drop))
    }

    fn serve(&self) -> bool {
        let Some(mut server) = self.server.try_lock() else { return false };
        !self.is_closed.load(Ordering::Acquire) && server.turn()
    }

    fn needs_thread(&self) -> bool {
        !self.is_one_process && self.comm.link.transport.properties().allows_progress_thread
    }

    fn close(&self, together: bool) {
        if together {
            // Messages to this rank are in flight, including unlocks and replies that no call waits
            // for. They are received, or the transport could deliver them to the next communicator.
            let what = |limit: &str| format!("ranks did not give their locks back {limit}");
            let is_all = || {
                let is_unlocked = !self.serve() && self.server.lock().is_unlocked();
                Ok(is_unlocked && self.origin.lock().is_answered())
            };
            drop(self.until(self.comm.deadline(), what, is_all));
        }
        let mut server = self.server.lock();
        if !self.is_closed.swap(true, Ordering::AcqRel) {
            server.close();
            self.origin.lock().close();
        }
    }
}
