//! Requests: operations in flight under a handle. A completed request's handle is stale, unless it
//! is persistent: then it rests until it is started again.
//!
//! A request holds no reference to its communicator, which would cost two atomic operations in its
//! life. It holds the communicator's slot instead. A thread that destroys a communicator first
//! waits for calls that found it open, then cancels all of its requests.
//!
//! In reading order:
//! - `state`: inactive, active, complete
//! - `start`: starting messages
//! - `non_p2p`: requests other than messages
//! - `test`: testing one request
//! - `wait`: waiting for one, any, some, all
//! - `teardown`: requests that end with their communicator

mod non_p2p;
mod start;
pub(in crate::runtime::comm) mod state;
mod teardown;
mod test;
pub mod wait;

use self::non_p2p::Other;
pub use self::non_p2p::isend_on;
pub use self::start::begin;
pub(in crate::runtime::comm) use self::state::PollState;
use self::state::RequestPhase;
pub(in crate::runtime::comm) use self::teardown::{
    cancel_all, check_revocable, end_all, end_if_absent, end_with_comm,
};
pub use self::teardown::{destroy, destroy_all, forget_all};
pub(in crate::runtime::comm) use self::test::{RequestState, poll_request};
use super::p2p_staging::BufferPath;
use super::persistent::Persistent;
use super::send_recv::{self, Data, OpHandle};
use super::{cancel, matched_message, p2p_staging};
use crate::abi::comm::communicator::DTL_ANY_SOURCE;
use crate::abi::handle::dtl_request_t;
use crate::abi::status::{DTL_ERROR_BUSY, DTL_ERROR_LIMIT, DTL_SUCCESS};
use crate::error::{Error, Result, fail};
use crate::runtime::comm::coll::StartedColl;
use crate::runtime::comm::flight_recorder::Ticket;
use crate::runtime::comm::op_desc::Kind;
pub use crate::runtime::comm::op_desc::Tagged;
use crate::runtime::comm::shared_transport::Class;
use crate::runtime::comm::{Comm, progress, rma_path};
use crate::runtime::component::{Completion, SendMode};
use crate::runtime::invalid_handle;
use crate::runtime::memory::device_only;
use crate::sys::handles::epoch::{self, Guard};
use crate::sys::handles::slot_map::{Locked, LookupFailure, SlotAction, SlotMap, SpareSlots};
use crate::sys::handles::slot_ref::SlotRef;
use crate::sys::sync::hints;
use std::sync::Arc;
use std::task::Poll;

/// Type byte of request handles.
pub const TAG: u8 = 7;

/// Each request's group is the handle of its communicator.
static TABLE: SlotMap<Request> = SlotMap::new(TAG);

/// An operation in flight, or a persistent one at rest. Everything below that takes one has its
/// lock. The fields that are read most stand first, in one cache line with the slot's own words.
#[repr(C)]
struct Request {
    /// Slot of its communicator, to which it holds no reference.
    place: SlotRef<Comm>,
    life: RequestPhase<RequestOp, Outcome>,
    what: Tagged,
    peer: i32,
    /// For a persistent request: the operation that `start` starts.
    again: Option<Box<Again>>,
}

/// Operation that a persistent request starts.
struct Again {
    plan: PersistentArgs,
    /// Whether the buffer was such that the host cannot reach: each start stages it anew.
    was_hidden: bool,
    /// The transport's persistent operation, if it has such.
    made: Option<Persistent>,
}

/// A message's arguments.
#[derive(Clone, Copy)]
struct PersistentArgs {
    data: Data,
    peer: i32,
    what: Tagged,
}

/// Operation in flight.
enum RequestOp {
    Started(OpHandle, Ticket),
    /// In one variant, so that messages distinguish no more cases than they need.
    Other(Box<Other>),
}

/// Completion of a finished request, and its error if it failed.
pub type Outcome = (Completion, Result<()>);

/// Puts a request under a handle.
#[inline(always)] // row: message_8
fn insert(
    own: Option<&SpareSlots>,
    comm: &Comm,
    make: impl FnOnce() -> Request,
) -> Result<dtl_request_t> {
    match TABLE.put(own, comm.slot.handle(), make) {
        Ok(id) => Ok(dtl_request_t { id }),
        Err(make) => Err(refuse(comm, make)),
    }
}

/// Cancels an operation that no call could wait for, so that the buffer is the caller's again.
#[cold]
#[inline(never)]
fn refuse(comm: &Comm, make: impl FnOnce() -> Request) -> Error {
    let mut request = make();
    drop(cancel::until(&comm.link, || request.cancel(comm)));
    Error::new(DTL_ERROR_LIMIT, "too many requests in flight: complete some first")
}

/// Puts a message under a handle that has begun, or fails as its start did. (It was recorded before
/// it began: otherwise a trace could show that the other rank has the message before this one has
/// sent it.)
#[inline(always)] // row: message_8
fn started(
    inside: &Guard,
    comm: &Comm,
    (what, peer): (Tagged, i32),
    ticket: Ticket,
    begun: Result<OpHandle>,
) -> Result<dtl_request_t> {
    match begun {
        Ok(begun) => insert(inside.spare_slots(), comm, move || {
            let life = RequestPhase::Active(RequestOp::Started(begun, ticket));
            Request { place: comm.slot.get(), what, peer, again: None, life }
        }),
        Err(error) => {
            hints::rarely();
            Err(not_begun(comm, ticket, error))
        }
    }
}

#[cold]
#[inline(never)]
fn not_begun(comm: &Comm, ticket: Ticket, error: Error) -> Error {
    comm.recorder.end(ticket);
    error
}

impl PersistentArgs {
    fn check(&self, comm: &Comm) -> Result<()> {
        if self.is_recv() {
            send_recv::check_recv(comm, self.peer, self.what.tag())
        } else {
            send_recv::check_send(comm, self.peer, self.what.tag())
        }
    }

    #[inline(always)] // row: message_8
    fn start(&self, comm: &Comm) -> Result<OpHandle> {
        let (bytes, peer, tag) = (self.data.bytes, self.peer, self.what.tag());
        if self.is_recv() {
            comm.start_recv(Class::User, bytes, peer, tag)
        } else {
            comm.start_send(Class::User, bytes, peer, tag, self.mode())
        }
    }

    #[inline(always)] // row: message_8
    fn is_recv(&self) -> bool {
        self.what.is(Kind::Recv)
    }

    /// Mode of a send.
    #[inline(always)] // row: message_8
    fn mode(&self) -> SendMode {
        if self.what.is(Kind::Ssend) { SendMode::Synchronous } else { SendMode::Standard }
    }

    /// How the bytes of its buffer travel.
    fn path(&self, comm: &Comm) -> Result<BufferPath> {
        if self.is_recv() {
            BufferPath::of_recv(comm, self.data.bytes)
        } else {
            BufferPath::of_send(comm, self.data.bytes, self.peer, self.mode())
        }
    }

    /// The recorder's words of its operation.
    #[inline(always)] // row: message_8
    fn words(&self) -> [u64; 3] {
        self.what.words(self.peer, self.data.count, self.data.dtype)
    }
}

/// Starts the receive of a probed message.
pub fn imrecv(
    inside: &Guard,
    message: &matched_message::MatchedMessage,
    data: Data,
) -> Result<dtl_request_t> {
    let (comm, peer, what) = (message.comm(), message.source(), Tagged::new(Kind::Recv, 0));
    let plan = PersistentArgs { data, peer, what };
    if device_only::may_be(data.bytes) && p2p_staging::is_hidden(comm, data.bytes)? {
        return non_p2p::insert_staged(comm, &plan, matched_message::start_staged(message, data)?);
    }
    let ticket = comm.recorder.begin(plan.words());
    started(inside, comm, (what, peer), ticket, matched_message::start(message, data.bytes))
}

/// Makes a persistent send (standard) at rest.
pub fn send_init(comm: &Comm, data: Data, dest: i32, tag: i32) -> Result<dtl_request_t> {
    persistent(comm, PersistentArgs { data, peer: dest, what: Tagged::new(Kind::Send, tag) })
}

/// Makes a persistent receive at rest.
pub fn recv_init(comm: &Comm, data: Data, source: i32, tag: i32) -> Result<dtl_request_t> {
    persistent(comm, PersistentArgs { data, peer: source, what: Tagged::new(Kind::Recv, tag) })
}

fn persistent(comm: &Comm, plan: PersistentArgs) -> Result<dtl_request_t> {
    plan.check(comm)?;
    let (bytes, what, peer) = (plan.data.bytes, plan.what, plan.peer);
    let was_hidden = device_only::may_be(bytes) && p2p_staging::is_hidden(comm, bytes)?;
    let made = if was_hidden && p2p_staging::is_staged(comm, bytes)? {
        None
    } else if plan.is_recv() {
        comm.make_recv(bytes, peer, what.tag())?
    } else {
        comm.make_send(bytes, peer, what.tag())?
    };
    let again = Some(Box::new(Again { plan, was_hidden, made }));
    insert(epoch::spare_slots(), comm, || Request {
        place: comm.slot.get(),
        what,
        peer,
        again,
        life: RequestPhase::AtRest,
    })
}

/// Starts a persistent request.
pub fn start(inside: &Guard, handle: dtl_request_t) -> Result<()> {
    let is_staged = look(inside, handle, |request, comm| {
        request.start(comm)?;
        Ok(matches!(request.life, RequestPhase::Active(RequestOp::Other(_))))
    })?;
    if is_staged {
        progress::add_running_again(handle);
    }
    Ok(())
}

/// Puts a collective under a handle.
pub fn collective(comm: &Comm, begun: StartedColl) -> Result<dtl_request_t> {
    let kind = begun.kind();
    let (life, runs) = match begun.start(comm)? {
        None => (RequestPhase::Over(at_rest()), false),
        Some(run) => {
            let moves_itself =
                run.is_irrevocable() && !comm.link.transport.properties().needs_progress;
            (
                RequestPhase::Active(RequestOp::Other(Box::new(Other::Collective(run)))),
                !moves_itself,
            )
        }
    };
    let what = Tagged::new(kind, 0);
    let handle = insert(epoch::spare_slots(), comm, || Request {
        place: comm.slot.get(),
        what,
        peer: -1,
        again: None,
        life,
    })?;
    if runs {
        progress::add_running(handle);
    }
    Ok(handle)
}

/// Puts an operation on a window under a handle.
pub(in crate::runtime::comm) fn of_window(
    comm: &Comm,
    (kind, peer): (Kind, i32),
    way: &Arc<dyn rma_path::RmaPath>,
    begun: rma_path::RmaStart,
) -> Result<dtl_request_t> {
    insert(epoch::spare_slots(), comm, || {
        let life = match begun {
            rma_path::RmaStart::Over => RequestPhase::Over(at_rest()),
            rma_path::RmaStart::Pending(ticket) => RequestPhase::Active(RequestOp::Other(
                Box::new(Other::Window(Arc::clone(way), ticket)),
            )),
        };
        Request { place: comm.slot.get(), what: Tagged::new(kind, 0), peer, again: None, life }
    })
}

/// Outcome of waiting for an inactive persistent request.
pub(in crate::runtime::comm) fn at_rest() -> Outcome {
    (Completion::NOBODY, Ok(()))
}

/// Moves a request on and returns its state. Its outcome stays in it.
pub(in crate::runtime::comm) fn standing(handle: dtl_request_t) -> Result<Option<PollState>> {
    standing_if(handle, |_, _| true)
}

/// Moves a request on from a thread of the library's own, unless its transport wants none of those
/// or the program's own operation would run there.
pub(in crate::runtime::comm) fn serve(handle: dtl_request_t) {
    let may = |request: &Request, comm: &Comm| {
        comm.link.transport.properties().allows_progress_thread
            && !matches!(&request.life, RequestPhase::Active(RequestOp::Other(other))
                if other.calls_program())
    };
    // A failure is returned to the thread that waits for the request.
    drop(standing_if(handle, may));
}

fn standing_if(
    handle: dtl_request_t,
    may: impl Fn(&Request, &Comm) -> bool,
) -> Result<Option<PollState>> {
    let inside = epoch::enter();
    let mut request = match TABLE.try_look(handle.id) {
        Ok(request) => request,
        Err(LookupFailure::Stale) => return Ok(None),
        Err(_) => return Ok(Some(PollState::Active)),
    };
    request.set_owner();
    match request.comm(&inside) {
        Some(comm) if may(&request, comm) => request.settle(comm).map(Some),
        _ => Ok(Some(PollState::Active)),
    }
}

/// A share of a request's communicator, for what may wait.
pub(in crate::runtime::comm) fn comm_of(handle: dtl_request_t) -> Option<Arc<Comm>> {
    let comm = TABLE.group_of(handle.id)?;
    crate::runtime::comm::TABLE.pin(&epoch::enter(), comm)
}

/// A request's communicator.
pub(in crate::runtime::comm) fn comm_here(inside: &Guard, handle: dtl_request_t) -> Option<&Comm> {
    crate::runtime::comm::TABLE.get(inside, TABLE.group_of(handle.id)?)
}

/// Returns the name of a request for error texts, and its kind.
pub(in crate::runtime::comm) fn name_of(handle: dtl_request_t) -> (String, Option<Kind>) {
    match TABLE.try_look(handle.id) {
        Ok(request) => (request.name(), Some(request.what.kind())),
        Err(LookupFailure::Stale) => ("completed meanwhile".to_owned(), None),
        Err(_) => ("another call is at it".to_owned(), None),
    }
}

/// Runs `look` on a live request, after another thread that holds its lock.
fn look<R>(
    inside: &Guard,
    handle: dtl_request_t,
    look: impl FnOnce(&mut Request, &Comm) -> Result<R>,
) -> Result<R> {
    let looked = TABLE.with(handle.id, |request| {
        SlotAction::Keep(match request.comm(inside) {
            Some(comm) => look(request, comm),
            None => Err(crate::runtime::comm::destroyed()),
        })
    });
    looked.unwrap_or_else(|missed| Err(missed_by(handle, &missed)))
}

/// Why there was no look at a request.
#[cold]
fn missed_by(handle: dtl_request_t, missed: &LookupFailure) -> Error {
    if *missed == LookupFailure::Stale { stale(handle) } else { in_own_hands(handle) }
}

/// Returns the error of a request that a call further up this thread moves on.
#[cold]
pub(in crate::runtime::comm) fn in_own_hands(handle: dtl_request_t) -> Error {
    let text = format!(
        "request {:#x} is moved on by a call further up this thread, which has called the function \
         of the program that calls \
         this: let that function return first",
        handle.id
    );
    Error::new(DTL_ERROR_BUSY, text)
}

/// Whether a call further up this thread moves a request on: it is not over before that returns.
pub(in crate::runtime::comm) fn is_in_own_hands(handle: dtl_request_t) -> bool {
    TABLE.is_own(handle.id)
}

/// The error of a handle that names no request.
#[cold]
pub(in crate::runtime::comm) fn stale(handle: dtl_request_t) -> Error {
    invalid_handle("request", TAG, handle.id)
}

impl Locked<Request> {
    /// Its communicator, unless that is destroyed.
    #[inline(always)] // row: message_8
    fn comm<'g>(&self, inside: &'g Guard) -> Option<&'g Comm> {
        self.place.get(inside, self.group())
    }
}

impl Request {
    fn start(&mut self, comm: &Comm) -> Result<()> {
        let Some(Again { plan, was_hidden, made }) = self.again.as_deref() else {
            return fail!(
                DTL_ERROR_INVALID_STATE,
                "the request ({}) is not persistent: it runs already",
                self.name()
            );
        };
        let begin = || {
            plan.check(comm)?;
            let operation = match made {
                Some(made) => made.start()?,
                None if (*was_hidden || device_only::may_be(plan.data.bytes))
                    && p2p_staging::is_still_hidden(comm, plan.data.bytes, *was_hidden)? =>
                {
                    return non_p2p::begin_staged(comm, plan);
                }
                None => plan.start(comm)?,
            };
            let ticket = comm.recorder.begin(plan.words());
            Ok(RequestOp::Started(operation.kept(), ticket))
        };
        self.life.start(begin).unwrap_or_else(|| {
            fail!(
                DTL_ERROR_INVALID_STATE,
                "the request ({}) is active: wait for it first",
                self.name()
            )
        })
    }

    /// Moves the request on without waiting. Its outcome stays in it.
    #[inline]
    fn settle(&mut self, comm: &Comm) -> Result<PollState> {
        let (kind, peer) = (self.what.kind(), self.peer);
        self.life.settle(|operation| poll(comm, (kind, peer), operation))
    }

    /// Cancels the operation; `None` = cancelled. A collective is given up, for all ranks. Pending:
    /// it has been matched and is not over, so it goes on; call again.
    fn cancel(&mut self, comm: &Comm) -> Result<Poll<Option<Outcome>>> {
        let (kind, peer) = (self.what.kind(), self.peer);
        self.life.cancel(at_rest(), |operation| match operation {
            RequestOp::Started(started, ticket) => {
                let Poll::Ready(done) = comm.try_cancel_started(*started)? else {
                    return Ok(Poll::Pending);
                };
                comm.recorder.end(*ticket);
                Ok(Poll::Ready(done.map(|done| (done, outcome(comm, (kind, peer), &done)))))
            }
            RequestOp::Other(other) => other.cancel(comm, (kind, peer)),
        })
    }

    /// Returns the request's name for error texts.
    fn name(&self) -> String {
        if let RequestPhase::Active(RequestOp::Other(other)) = &self.life {
            if let Some(call) = other.call() {
                return call.to_string();
            }
        }
        let kind = self.what.kind();
        if kind.is_collective() {
            kind.name().to_owned()
        } else if self.peer == DTL_ANY_SOURCE {
            format!("{} any rank", what(kind))
        } else {
            format!("{} rank {}", what(kind), self.peer)
        }
    }
}

fn what(kind: Kind) -> &'static str {
    match kind {
        Kind::Recv => "receive from",
        Kind::Put => "put to",
        Kind::Get => "get from",
        _ => "send to",
    }
}

#[inline(always)] // row: message_8
fn outcome(comm: &Comm, (kind, peer): (Kind, i32), done: &Completion) -> Result<()> {
    if done.status == DTL_SUCCESS { Ok(()) } else { comm.check_done(done, what(kind), peer) }
}

#[inline(always)] // row: message_8
fn poll(comm: &Comm, of: (Kind, i32), operation: &mut RequestOp) -> Result<Option<Outcome>> {
    match operation {
        RequestOp::Started(started, ticket) => {
            let Some(done) = comm.poll(*started)? else { return Ok(None) };
            comm.recorder.end(*ticket);
            Ok(Some((done, outcome(comm, of, &done))))
        }
        RequestOp::Other(other) => other.poll(comm, of),
    }
}

pub(in crate::runtime::comm) fn failed(error: Error) -> Outcome {
    (Completion { status: error.status(), ..Completion::NOBODY }, Err(error))
}

/// Whether a handle still names a request.
#[inline]
#[must_use]
pub fn is_alive(handle: dtl_request_t) -> bool {
    TABLE.is_live(handle.id)
}

/// Whether it is over, or gone; does not move it on.
pub(in crate::runtime::comm) fn is_at_rest(handle: dtl_request_t) -> bool {
    match TABLE.try_look(handle.id) {
        Ok(request) => !matches!(request.life, RequestPhase::Active(_)),
        Err(missed) => missed == LookupFailure::Stale,
    }
}

/// Tries to cancel the operation; the request then completes through wait or test.
pub fn cancel(inside: &Guard, handle: dtl_request_t) -> Result<()> {
    look(inside, handle, |request, comm| match &mut request.life {
        RequestPhase::Active(RequestOp::Started(started, _)) => {
            started.op().map_or(Ok(()), |op| comm.link.transport.cancel(op))
        }
        RequestPhase::Over(_) => Ok(()),
        RequestPhase::AtRest => {
            fail!(DTL_ERROR_INVALID_STATE, "the request ({}) is not active", request.name())
        }
        RequestPhase::Active(RequestOp::Other(other)) => {
            let why = match &mut **other {
                Other::Collective(_) => "the other ranks are in it too",
                Other::Window(..) => "wait for it",
                Other::Staged(staged) => return staged.cancel(comm),
                Other::Gated(gated) => {
                    gated.cancel();
                    return Ok(());
                }
            };
            fail!(
                DTL_ERROR_NOT_SUPPORTED,
                "what was started ({}) cannot be withdrawn: {why}",
                request.name()
            )
        }
    })
}
