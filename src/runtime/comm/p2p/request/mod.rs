//! Requests: handles of operations in flight. The handle of a completed request is stale, unless
//! the request is persistent. A persistent request becomes inactive until the next start.
//!
//! A request stores the handle table slot of its communicator instead of a reference to the
//! communicator, because a reference would cost two atomic operations per request. A thread that
//! destroys a communicator first waits for calls that found the communicator open, then cancels all
//! requests of the communicator.
//!
//! In reading order:
//! - `state`: inactive, active, complete
//! - `start`: starting messages
//! - `non_p2p`: requests for operations other than messages in host memory
//! - `progress`: progress while no call waits for the request
//! - `test`: testing one request
//! - `wait`: waiting for one, any, some, all
//! - `teardown`: requests that end with their communicator

mod non_p2p;
mod progress;
mod start;
pub(crate) mod state;
mod teardown;
mod test;
pub mod wait;

use self::non_p2p::Other;
pub use self::non_p2p::isend_on;
pub(crate) use self::progress::standing;
pub use self::start::begin;
pub(crate) use self::state::PollState;
use self::state::RequestPhase;
pub(crate) use self::teardown::{
    cancel_all, check_revocable, end_all, end_if_absent, end_messages, end_with_comm,
};
pub use self::teardown::{destroy, destroy_all, forget_all};
pub(crate) use self::test::{RequestState, end_in_order, poll_request, settle_in_order};
use super::op_handle::OpHandle;
use super::p2p_staging::BufferPath;
use super::persistent::Persistent;
use super::send_recv::{self, Data};
use super::{cancel, matched_message, p2p_staging};
use crate::abi::handle::dtl_request_t;
use crate::abi::status::DTL_SUCCESS;
use crate::error::{Error, Result, fail, failure};
use crate::hints;
use crate::runtime::comm::coll::StartedColl;
use crate::runtime::comm::flight_recorder::Ticket;
pub use crate::runtime::comm::op_desc::Tagged;
use crate::runtime::comm::op_desc::{self, Kind};
use crate::runtime::comm::progress::{add_running, add_running_again};
use crate::runtime::comm::shared_transport::Class;
use crate::runtime::comm::{Comm, rma_path};
use crate::runtime::component::{Completion, SendMode};
use crate::runtime::invalid_handle;
use crate::runtime::memory::device_only;
use crate::sys::handles::epoch::{self, Guard, SpareSlots};
use crate::sys::handles::handle_table::SlotRef;
use crate::sys::handles::slot_map::{Locked, LookupFailure, SlotAction, SlotMap};
use std::sync::Arc;
use std::task::Poll;

/// Value of the type byte in request handles.
pub const TAG: u8 = 7;

/// Handle table of requests. The table groups requests by communicator: the group number of a
/// request is the handle of its communicator.
static TABLE: SlotMap<Request> = SlotMap::new();

/// Request: an operation in flight, or an inactive persistent operation. Every function in this
/// file that has a `Request` parameter is called with the lock of the request held. The most
/// frequently read fields come first, so that they share a cache line with the fields of the handle
/// table slot that contains the request.
#[repr(C)]
struct Request {
    /// Handle table slot of the request's communicator. It does not keep the communicator alive.
    place: SlotRef<Comm>,
    life: RequestPhase<RequestOp, Outcome>,
    what: Tagged,
    peer: i32,
    /// Operation that each call to `start` starts; `None` unless the request is persistent.
    again: Option<Box<Again>>,
}

/// Operation that a persistent request starts.
struct Again {
    plan: PersistentArgs,
    /// True if the host could not access the buffer when the request was created. Each start then
    /// stages the message again, unless the transport has a persistent operation for it (`made`).
    was_hidden: bool,
    /// Persistent operation that the transport has created for this request, if any.
    made: Option<Persistent>,
}

/// Arguments of a message.
#[derive(Clone, Copy)]
struct PersistentArgs {
    data: Data,
    peer: i32,
    what: Tagged,
}

/// Operation in flight.
enum RequestOp {
    Started(OpHandle, Ticket),
    /// Staged message, collective, one-sided operation, or send that waits for an event. All of
    /// these share one variant, so that the code path of unstaged messages distinguishes fewer
    /// cases.
    Other(Box<Other>),
}

impl RequestPhase<RequestOp, Outcome> {
    /// Returns the phase of an active request with the operation `other`.
    fn active(other: Other) -> Self {
        RequestPhase::Active(RequestOp::Other(Box::new(other)))
    }
}

/// Completion of a request, and the error if the request failed.
pub type Outcome = (Completion, Result<()>);

/// Inserts a request into the handle table and returns its handle. If the table is full, cancels
/// the operation and fails.
#[inline(always)] // row: message_8
fn insert(
    own: Option<&SpareSlots>,
    comm: &Comm,
    make: impl FnOnce() -> Request,
) -> Result<dtl_request_t> {
    match TABLE.put(own, TAG, comm.slot.handle(), make) {
        Ok(id) => Ok(dtl_request_t { id }),
        Err(make) => Err(refuse(comm, make)),
    }
}

/// Cancels an operation for which the handle table has no free slot, because without a handle no
/// call could wait for the operation. After the cancellation the program may reuse the buffer.
/// Returns the error that reports the full table.
#[cold]
#[inline(never)]
fn refuse(comm: &Comm, make: impl FnOnce() -> Request) -> Error {
    let mut request = make();
    drop(cancel::until(&comm.link, || request.cancel(comm)));
    failure!(DTL_ERROR_LIMIT, "too many requests in flight: complete some first")
}

/// Inserts the request of a started message into the handle table. If the start failed, returns its
/// error. (The caller records the message in the flight recorder before it starts the message.
/// Otherwise a trace could show that the peer has received the message before this rank has sent
/// it.)
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

    /// Returns the mode of a send.
    #[inline(always)] // row: message_8
    fn mode(&self) -> SendMode {
        if self.what.is(Kind::Ssend) { SendMode::Synchronous } else { SendMode::Standard }
    }

    /// Determines whether and how the message is staged through host memory.
    #[inline]
    fn path(&self, comm: &Comm) -> Result<BufferPath> {
        if self.is_recv() {
            BufferPath::of_recv(comm, self.data.bytes)
        } else {
            BufferPath::of_send(comm, self.data.bytes, self.peer, self.mode())
        }
    }

    /// Returns the encoded flight-recorder entry for the message.
    #[inline(always)] // row: message_8
    fn words(&self) -> [u64; 3] {
        self.what.words(self.peer, self.data.count, self.data.dtype)
    }
}

/// Starts the receive of a matched message. Returns the handle of its request.
pub fn imrecv(
    inside: &Guard,
    message: &matched_message::MatchedMessage,
    data: Data,
) -> Result<dtl_request_t> {
    let (comm, peer, what) = (&*message.comm, message.source, Tagged::new(Kind::Recv, 0));
    let plan = PersistentArgs { data, peer, what };
    if device_only::may_be(data.bytes) && p2p_staging::is_hidden(comm, data.bytes)? {
        return non_p2p::insert_staged(comm, &plan, matched_message::start_staged(message, data)?);
    }
    let ticket = comm.recorder.begin(plan.words());
    started(inside, comm, (what, peer), ticket, matched_message::start(message, data.bytes))
}

/// Creates an inactive persistent request for a send in standard mode or for a receive. Returns the
/// handle of the request.
pub fn persistent(comm: &Comm, what: Tagged, data: Data, peer: i32) -> Result<dtl_request_t> {
    let (plan, bytes) = (PersistentArgs { data, peer, what }, data.bytes);
    plan.check(comm)?;
    let was_hidden = device_only::may_be(bytes) && p2p_staging::is_hidden(comm, bytes)?;
    let made = if was_hidden && p2p_staging::is_staged(comm, bytes)? {
        None
    } else {
        comm.make_persistent(bytes, peer, what.tag(), plan.is_recv())?
    };
    let again = Some(Box::new(Again { plan, was_hidden, made }));
    insert_request(comm, (what, peer), again, RequestPhase::AtRest)
}

/// Inserts a request into the handle table and returns its handle. Not used on the fast path of
/// messages.
fn insert_request(
    comm: &Comm,
    (what, peer): (Tagged, i32),
    again: Option<Box<Again>>,
    life: RequestPhase<RequestOp, Outcome>,
) -> Result<dtl_request_t> {
    let place = comm.slot.get();
    insert(epoch::spare_slots(), comm, || Request { place, life, what, peer, again })
}

/// Starts a persistent request.
pub fn start(inside: &Guard, handle: dtl_request_t) -> Result<()> {
    let is_staged = look(inside, handle, |request, comm| {
        request.start(comm)?;
        Ok(matches!(request.life, RequestPhase::Active(RequestOp::Other(_))))
    })?;
    if is_staged {
        add_running_again(&TABLE, handle);
    }
    Ok(())
}

/// Starts a nonblocking collective. Returns the handle of its request.
pub fn collective(comm: &Comm, begun: StartedColl) -> Result<dtl_request_t> {
    let kind = begun.kind();
    let (mut life, mut runs) = (RequestPhase::Over(at_rest()), false);
    if let StartedColl::Going(mut run) = begun {
        if !run.start(comm)? {
            runs = !run.is_irrevocable() || comm.link.transport.properties().needs_progress;
            life = RequestPhase::active(Other::Collective(run));
        }
    }
    let handle = insert_request(comm, (Tagged::new(kind, 0), -1), None, life)?;
    if runs {
        add_running(&TABLE, handle);
    }
    Ok(handle)
}

/// Inserts the request of a started one-sided operation into the handle table. Returns the handle
/// of the request.
pub(crate) fn of_window(
    comm: &Comm,
    (kind, peer): (Kind, i32),
    path: &Arc<dyn rma_path::RmaPath>,
    begun: rma_path::RmaStart,
) -> Result<dtl_request_t> {
    let life = begun.map_or_else(
        || RequestPhase::Over(at_rest()),
        |ticket| RequestPhase::active(Other::Window(Arc::clone(path), ticket)),
    );
    insert_request(comm, (Tagged::new(kind, 0), peer), None, life)
}

/// Returns the outcome of a wait for an inactive persistent request: success, with an empty
/// completion.
pub(crate) fn at_rest() -> Outcome {
    (Completion::NOBODY, Ok(()))
}

/// Returns a reference-counted pointer to the request's communicator, for callers that may block.
pub(crate) fn comm_of(handle: dtl_request_t) -> Option<Arc<Comm>> {
    let comm = TABLE.group_of(handle.id)?;
    crate::runtime::comm::comm_table::TABLE.pin(&epoch::enter(), comm)
}

/// Returns the communicator of a request, borrowed for the lifetime of the epoch guard `inside`.
pub(crate) fn comm_here(inside: &Guard, handle: dtl_request_t) -> Option<&Comm> {
    crate::runtime::comm::comm_table::TABLE.get(inside, TABLE.group_of(handle.id)?)
}

/// Returns the name of a request for error messages, and the kind of its operation.
pub(crate) fn name_of(handle: dtl_request_t) -> (String, Option<Kind>) {
    match TABLE.try_look(handle.id) {
        Ok(request) => (request.name(), Some(request.what.kind())),
        Err(LookupFailure::Stale) => ("completed meanwhile".to_owned(), None),
        Err(_) => ("another call is at it".to_owned(), None),
    }
}

/// Calls `look` with the lock of a live request held. If another thread holds the lock, waits for
/// it.
fn look<R>(
    inside: &Guard,
    handle: dtl_request_t,
    look: impl FnOnce(&mut Request, &Comm) -> Result<R>,
) -> Result<R> {
    let looked = TABLE.with(handle.id, |request| {
        SlotAction::Keep(match request.comm(inside) {
            Some(comm) => look(request, comm),
            None => Err(crate::runtime::comm::communicator::destroyed()),
        })
    });
    looked.unwrap_or_else(|missed| Err(missed_by(handle, &missed)))
}

/// Returns the error for a request whose lookup failed: its handle is stale, or an outer call on
/// this thread holds its lock.
#[cold]
fn missed_by(handle: dtl_request_t, missed: &LookupFailure) -> Error {
    if *missed == LookupFailure::Stale { stale(handle) } else { in_own_hands(handle) }
}

/// Returns the error for a request that an outer call on this thread is already polling.
#[cold]
pub(crate) fn in_own_hands(handle: dtl_request_t) -> Error {
    failure!(
        DTL_ERROR_BUSY,
        "request {:#x} is moved on by a call further up this thread, which has called the function \
         of the program that calls this: let that function return first",
        handle.id
    )
}

/// Returns true if an outer call on this thread is polling the request. The request cannot complete
/// before that call returns.
pub(crate) fn is_in_own_hands(handle: dtl_request_t) -> bool {
    TABLE.is_own(handle.id)
}

/// Returns the error for a stale handle, which does not refer to a request.
#[cold]
pub(crate) fn stale(handle: dtl_request_t) -> Error {
    invalid_handle("request", TAG, handle.id)
}

impl Locked<Request> {
    /// Returns the communicator of the request, or `None` if the communicator is destroyed.
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
                    let staged = non_p2p::stage(comm, plan, plan.path(comm)?)?;
                    return Ok(non_p2p::operation(comm, plan, staged));
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

    /// Makes progress on the request (nonblocking) and returns its state. If the request is
    /// complete, its outcome stays stored in the request.
    fn settle(&mut self, comm: &Comm) -> Result<PollState> {
        let (kind, peer) = (self.what.kind(), self.peer);
        self.life.settle(|operation| poll(comm, (kind, peer), operation))
    }

    /// Cancels the operation of the request. Returns `None` if the operation was canceled, and the
    /// outcome if it completed. Canceling a collective makes all ranks abandon it. Returns Pending
    /// if the operation has been matched but is not complete; the caller must then retry.
    fn cancel(&mut self, comm: &Comm) -> Result<Poll<Option<Outcome>>> {
        let (kind, peer) = (self.what.kind(), self.peer);
        self.life.cancel(at_rest(), |operation| match operation {
            RequestOp::Started(started, ticket) => {
                let Poll::Ready(done) = comm.try_cancel_started(*started)? else {
                    return Ok(Poll::Pending);
                };
                comm.recorder.end(*ticket);
                Ok(Poll::Ready(done.map(|done| outcome(comm, (kind, peer), done))))
            }
            RequestOp::Other(other) => other.cancel(comm, (kind, peer)),
        })
    }

    /// Returns true if the operation is a collective in progress that cannot be canceled.
    fn is_irrevocable(&self) -> bool {
        matches!(&self.life, RequestPhase::Active(RequestOp::Other(other))
            if other.is_irrevocable())
    }

    /// Returns the name of the request for error messages.
    fn name(&self) -> String {
        if let RequestPhase::Active(RequestOp::Other(other)) = &self.life {
            if let Some(call) = other.call() {
                return call.to_string();
            }
        }
        let kind = self.what.kind();
        if kind.is_collective() {
            kind.name().to_owned()
        } else {
            format!("{} {}", what(kind), op_desc::rank_name(self.peer))
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
fn outcome(comm: &Comm, (kind, peer): (Kind, i32), mut done: Completion) -> Outcome {
    let is_ok = done.status == DTL_SUCCESS;
    let ended = if is_ok { Ok(()) } else { comm.check_done(&mut done, what(kind), peer) };
    (done, ended)
}

#[inline(always)] // row: message_8
fn poll(comm: &Comm, of: (Kind, i32), operation: &mut RequestOp) -> Result<Option<Outcome>> {
    match operation {
        RequestOp::Started(started, ticket) => {
            let Some(done) = comm.poll(*started)? else { return Ok(None) };
            comm.recorder.end(*ticket);
            Ok(Some(outcome(comm, of, done)))
        }
        RequestOp::Other(other) => other.poll(comm, of),
    }
}

pub(crate) fn failed(error: Error) -> Outcome {
    (Completion { status: error.status(), ..Completion::NOBODY }, Err(error))
}

/// Returns true if the handle still refers to a request.
#[inline]
pub fn is_alive(handle: dtl_request_t) -> bool {
    TABLE.is_live(handle.id)
}

/// Requests the cancellation of the operation. A later wait or test then completes the request.
/// Fails with DTL_ERROR_NOT_SUPPORTED for a collective or one-sided operation.
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
