//! Requests: operations in flight under a handle. A completed request's handle is stale, unless it is
//! persistent: then it rests until it is started again.

use super::life::Life;
pub(super) use super::life::Standing;
use super::link::Class;
use super::message::{self, Message};
use super::p2p::{self, Data, Started};
use super::persistent::Persistent;
use super::recorder::{Kind, Ticket};
use super::run::Run;
use super::schedule::Advance;
use super::{Comm, progress};
use crate::abi::comm::{DTL_ANY_SOURCE, dtl_recv_info_t};
use crate::abi::handle::dtl_request_t;
use crate::abi::status::*;
use crate::error::{Error, Result, fail};
use crate::runtime::backend::{Done, SendMode, recv_info};
use crate::runtime::invalid_handle;
use crate::sys::pool::{Pool, Then, Tried};
use std::sync::Arc;

/// Type byte of request handles.
pub const TAG: u8 = 7;

static TABLE: Pool<Request> = Pool::new(TAG);

/// An operation in flight, or a persistent one at rest. Everything below that takes one has its lock.
struct Request {
    comm: Arc<Comm>,
    kind: Kind,
    peer: i32,
    /// What `start` starts, of a persistent one.
    plan: Option<Plan>,
    /// The same in the transport's hands, if that has such.
    made: Option<Persistent>,
    life: Life<Operation, Outcome>,
}

/// A persistent operation's arguments.
#[derive(Clone, Copy)]
struct Plan {
    data: Data,
    peer: i32,
    tag: i32,
    kind: Kind,
}

/// What is in flight.
enum Operation {
    Started(Started, Ticket),
    Collective(Box<Run>),
}

/// What a finished request tells, and its error if it failed.
pub type Outcome = (dtl_recv_info_t, Result<()>);

/// How a request stands for who asks after it.
pub(super) enum Asked {
    /// It is over, who asks has heard of it, and its handle is stale unless it is persistent.
    Over(Outcome),
    /// Persistent, and not started.
    AtRest,
    Active,
    /// Active on a communicator that is destroyed or being shrunk.
    Closed(Arc<Comm>),
    /// There is no such request (any more).
    Stale,
}

fn insert(request: Request) -> Result<dtl_request_t> {
    match TABLE.put(request) {
        Ok(id) => Ok(dtl_request_t { id }),
        Err(mut request) => {
            // Nobody could wait for it: it is taken back, so that the buffer is the caller's again.
            drop(request.take_back());
            fail!(DTL_ERROR_LIMIT, "too many requests in flight: complete some first")
        }
    }
}

fn started(comm: Arc<Comm>, plan: &Plan, started: Started) -> Result<dtl_request_t> {
    let ticket = comm.recorder.begin(&plan.data.call(plan.kind, plan.peer, plan.tag));
    let life = Life::Active(Operation::Started(started, ticket));
    insert(Request { comm, kind: plan.kind, peer: plan.peer, plan: None, made: None, life })
}

impl Plan {
    fn check(&self, comm: &Comm) -> Result<()> {
        if self.kind == Kind::Recv {
            p2p::check_recv(comm, self.peer, self.tag)
        } else {
            p2p::check_send(comm, self.peer, self.tag)
        }
    }

    fn start(&self, comm: &Comm) -> Result<Started> {
        let (bytes, peer, tag) = (self.data.bytes, self.peer, self.tag);
        match self.kind {
            Kind::Recv => comm.start_recv(Class::User, bytes, peer, tag),
            Kind::Ssend => comm.start_send(Class::User, bytes, peer, tag, SendMode::Synchronous),
            _ => comm.start_send(Class::User, bytes, peer, tag, SendMode::Standard),
        }
    }
}

/// Starts a send.
pub fn isend(comm: Arc<Comm>, data: Data, dest: i32, tag: i32, mode: SendMode) -> Result<dtl_request_t> {
    let kind = if mode == SendMode::Synchronous { Kind::Ssend } else { Kind::Send };
    let plan = Plan { data, peer: dest, tag, kind };
    plan.check(&comm)?;
    let operation = plan.start(&comm)?;
    started(comm, &plan, operation)
}

/// Starts a receive.
pub fn irecv(comm: Arc<Comm>, data: Data, source: i32, tag: i32) -> Result<dtl_request_t> {
    let plan = Plan { data, peer: source, tag, kind: Kind::Recv };
    plan.check(&comm)?;
    let operation = plan.start(&comm)?;
    started(comm, &plan, operation)
}

/// Starts the receive of a probed message.
pub fn imrecv(message: &Message, data: Data) -> Result<dtl_request_t> {
    let plan = Plan { data, peer: message.source(), tag: 0, kind: Kind::Recv };
    let operation = message::start(message, data)?;
    started(Arc::clone(message.comm()), &plan, operation)
}

/// Makes a persistent send (standard) at rest.
pub fn send_init(comm: Arc<Comm>, data: Data, dest: i32, tag: i32) -> Result<dtl_request_t> {
    persistent(comm, Plan { data, peer: dest, tag, kind: Kind::Send })
}

/// Makes a persistent receive at rest.
pub fn recv_init(comm: Arc<Comm>, data: Data, source: i32, tag: i32) -> Result<dtl_request_t> {
    persistent(comm, Plan { data, peer: source, tag, kind: Kind::Recv })
}

fn persistent(comm: Arc<Comm>, plan: Plan) -> Result<dtl_request_t> {
    plan.check(&comm)?;
    let (bytes, kind, peer) = (plan.data.bytes, plan.kind, plan.peer);
    let made = match kind {
        Kind::Recv => comm.make_recv(bytes, peer, plan.tag)?,
        _ => comm.make_send(bytes, peer, plan.tag)?,
    };
    insert(Request { comm, kind, peer, plan: Some(plan), made, life: Life::AtRest })
}

/// Starts a persistent request.
pub fn start(handle: dtl_request_t) -> Result<()> {
    look(handle, Request::start)
}

/// Puts a collective under a handle.
pub fn collective(comm: Arc<Comm>, run: Run) -> Result<dtl_request_t> {
    let kind = run.kind();
    let (life, runs) = match run.start(&comm)? {
        None => (Life::Over(at_rest()), false),
        Some(run) => (Life::Active(Operation::Collective(Box::new(run))), true),
    };
    let handle = insert(Request { comm, kind, peer: -1, plan: None, made: None, life })?;
    if runs {
        progress::add_running(handle);
    }
    Ok(handle)
}

/// Asks after a request without waiting, and takes its outcome if it is over. Another thread that does so
/// just now is not waited for.
#[inline]
pub(super) fn ask(handle: dtl_request_t) -> Result<Asked> {
    let asked = TABLE.try_with(handle.id, |request| match request.settle() {
        Err(error) => Then::Keep(Err(error)),
        Ok(Standing::Active) if !request.comm.is_open() => {
            Then::Keep(Ok(Asked::Closed(Arc::clone(&request.comm))))
        }
        Ok(Standing::Active) => Then::Keep(Ok(Asked::Active)),
        Ok(Standing::AtRest) => Then::Keep(Ok(Asked::AtRest)),
        Ok(Standing::Over) => match (request.life.take_outcome(), &request.plan) {
            (Some(outcome), None) => Then::End(Ok(Asked::Over(outcome))),
            (Some(outcome), Some(_)) => Then::Keep(Ok(Asked::Over(outcome))),
            (None, _) => Then::Keep(Ok(Asked::Active)),
        },
    });
    match asked {
        Tried::Stale => Ok(Asked::Stale),
        Tried::Busy => Ok(Asked::Active),
        Tried::Kept(asked) => asked,
    }
}

/// What who waits for a persistent request at rest is told.
pub(super) fn at_rest() -> Outcome {
    (recv_info(&p2p::NOBODY), Ok(()))
}

/// Moves a request on and tells how it stands; its outcome stays.
pub(super) fn standing(handle: dtl_request_t) -> Result<Option<Standing>> {
    match TABLE.try_with(handle.id, |request| Then::Keep(request.settle())) {
        Tried::Stale => Ok(None),
        Tried::Busy => Ok(Some(Standing::Active)),
        Tried::Kept(standing) => standing.map(Some),
    }
}

/// Ends an active request whose communicator is gone: its operation is taken back.
pub(super) fn end_with_comm(handle: dtl_request_t, comm: &Comm) -> Result<Outcome> {
    let taken = TABLE.with(handle.id, |request| match request.take_back() {
        Err(error) => Then::Keep(Err(error)),
        Ok(taken) if request.plan.is_some() => Then::Keep(Ok(taken)),
        Ok(taken) => Then::End(Ok(taken)),
    });
    match taken {
        Some(Err(error)) => Err(error),
        Some(Ok(Some(outcome))) => Ok(outcome),
        Some(Ok(None)) | None => Err(comm.ended()),
    }
}

/// A share of a request's communicator.
pub(super) fn comm_of(handle: dtl_request_t) -> Option<Arc<Comm>> {
    TABLE.with(handle.id, |request| Then::Keep(Arc::clone(&request.comm)))
}

/// What a request is, for error texts; and whether it is a collective.
pub(super) fn name_of(handle: dtl_request_t) -> (String, bool) {
    let name = TABLE.with(handle.id, |request| Then::Keep((request.name(), request.kind.is_collective())));
    name.unwrap_or_else(|| ("completed meanwhile".to_owned(), false))
}

/// Looks at a live request, waiting for who is at it just now.
fn look<R>(handle: dtl_request_t, look: impl FnOnce(&mut Request) -> Result<R>) -> Result<R> {
    TABLE.with(handle.id, |request| Then::Keep(look(request))).unwrap_or_else(|| Err(stale(handle)))
}

/// The error of a handle that names no request.
#[cold]
pub(super) fn stale(handle: dtl_request_t) -> Error {
    invalid_handle("request", TAG, handle.id)
}

impl Request {
    fn start(&mut self) -> Result<()> {
        let Some(plan) = &self.plan else {
            return fail!(
                DTL_ERROR_INVALID_STATE,
                "the request ({}) is not persistent: it runs already",
                self.name()
            );
        };
        let begin = || {
            plan.check(&self.comm)?;
            let operation = match &self.made {
                Some(made) => made.start()?,
                None => plan.start(&self.comm)?,
            };
            let ticket = self.comm.recorder.begin(&plan.data.call(plan.kind, plan.peer, plan.tag));
            Ok(Operation::Started(operation, ticket))
        };
        self.life.start(begin).unwrap_or_else(|| {
            fail!(DTL_ERROR_INVALID_STATE, "the request ({}) is active: wait for it first", self.name())
        })
    }

    /// Moves it on without waiting.
    #[inline]
    fn settle(&mut self) -> Result<Standing> {
        let (comm, kind, peer) = (&self.comm, self.kind, self.peer);
        self.life.settle(|operation| poll(comm, (kind, peer), operation))
    }

    /// Takes the operation back; `None` = withdrawn. A collective is given up, for all ranks.
    fn take_back(&mut self) -> Result<Option<Outcome>> {
        let (comm, kind, peer) = (&self.comm, self.kind, self.peer);
        self.life.take_back(at_rest(), |operation| match operation {
            Operation::Started(started, ticket) => {
                let done = comm.take_back(*started)?;
                comm.recorder.end(*ticket);
                Ok(done.map(|done| (recv_info(&done), outcome(comm, (kind, peer), &done))))
            }
            Operation::Collective(run) => {
                let error = Error::new(DTL_ERROR_CANCELED, "it was given up before it was over");
                run.fail(comm, &error);
                Ok(None)
            }
        })
    }

    /// What it is, for error texts.
    fn name(&self) -> String {
        if self.kind.is_collective() {
            self.kind.name().to_owned()
        } else if self.peer == DTL_ANY_SOURCE {
            format!("{} any rank", what(self.kind))
        } else {
            format!("{} rank {}", what(self.kind), self.peer)
        }
    }
}

fn what(kind: Kind) -> &'static str {
    if kind == Kind::Recv { "receive from" } else { "send to" }
}

#[inline]
fn outcome(comm: &Comm, (kind, peer): (Kind, i32), done: &Done) -> Result<()> {
    comm.check_done(done, what(kind), peer)
}

#[inline]
fn poll(comm: &Comm, of: (Kind, i32), operation: &mut Operation) -> Result<Option<Outcome>> {
    match operation {
        Operation::Started(started, ticket) => {
            let Some(done) = comm.poll(*started)? else { return Ok(None) };
            comm.recorder.end(*ticket);
            Ok(Some((recv_info(&done), outcome(comm, of, &done))))
        }
        Operation::Collective(run) => match run.progress(comm) {
            Ok(Advance::Done) => {
                run.recycle(comm);
                Ok(Some((recv_info(&p2p::NOBODY), Ok(()))))
            }
            Ok(_) => Ok(None),
            Err(error) => {
                run.fail(comm, &error);
                Ok(Some(failed(error)))
            }
        },
    }
}

pub(super) fn failed(error: Error) -> Outcome {
    (dtl_recv_info_t { status: error.status(), ..recv_info(&p2p::NOBODY) }, Err(error))
}

/// Whether a handle still names a request.
#[inline]
pub(super) fn is_alive(handle: dtl_request_t) -> bool {
    TABLE.is_live(handle.id)
}

/// Tries to withdraw the operation; the request then completes through wait or test.
pub fn cancel(handle: dtl_request_t) -> Result<()> {
    look(handle, |request| match &request.life {
        Life::Active(Operation::Started(Started::Op(op) | Started::FromAny(op), _)) => {
            request.comm.link.transport.cancel(*op)
        }
        Life::Active(Operation::Started(..)) | Life::Over(_) => Ok(()),
        Life::AtRest => {
            fail!(DTL_ERROR_INVALID_STATE, "the request ({}) is not active", request.name())
        }
        Life::Active(Operation::Collective(_)) => fail!(
            DTL_ERROR_NOT_SUPPORTED,
            "a collective ({}) cannot be withdrawn: the other ranks are in it too",
            request.name()
        ),
    })
}

/// Ends a request: an operation in flight is withdrawn, or finishes first. The null handle: nothing.
pub fn destroy(handle: dtl_request_t) -> Result<()> {
    if handle.id == 0 {
        return Ok(());
    }
    let ended = TABLE.with(handle.id, |request| {
        if matches!(request.life, Life::Active(Operation::Collective(_))) {
            let name = request.name();
            return Then::Keep(fail!(
                DTL_ERROR_BUSY,
                "a collective ({name}) cannot be withdrawn: wait for it"
            ));
        }
        match request.take_back() {
            Ok(_) => Then::End(Ok(())),
            Err(error) => Then::Keep(Err(error)),
        }
    });
    ended.unwrap_or_else(|| Err(stale(handle)))
}

/// Refuses while a collective of the communicator runs that nobody can take back.
pub(super) fn check_revocable(comm: &Arc<Comm>) -> Result<()> {
    for id in TABLE.handles() {
        let stays = TABLE.with(id, |request| {
            let is_stuck = match &request.life {
                Life::Active(Operation::Collective(run)) => run.is_irrevocable(),
                _ => false,
            };
            Then::Keep((is_stuck && Arc::ptr_eq(&request.comm, comm)).then(|| request.name()))
        });
        if let Some(name) = stays.flatten() {
            return fail!(
                DTL_ERROR_BUSY,
                "a collective ({name}) that was started runs in {} and cannot be withdrawn: wait for it first",
                comm.kind_name()
            );
        }
    }
    Ok(())
}

/// Takes a communicator's operations back, so that no buffer is touched afterwards. The handles of its
/// requests become stale.
pub(super) fn withdraw_all(comm: &Arc<Comm>) -> Result<()> {
    for id in TABLE.handles() {
        let withdrawn = TABLE.with(id, |request| {
            if !Arc::ptr_eq(&request.comm, comm) {
                return Then::Keep(Ok(()));
            }
            match request.take_back() {
                Ok(_) => Then::End(Ok(())),
                Err(error) => Then::Keep(Err(error)),
            }
        });
        withdrawn.unwrap_or(Ok(()))?;
    }
    Ok(())
}

/// At finalize: requests go with their communicators.
pub fn destroy_all() {
    for id in TABLE.handles() {
        TABLE.with(id, |request| {
            drop(request.take_back());
            Then::End(())
        });
    }
}

/// In a forked child: the handles go.
pub fn forget_all() {
    TABLE.forget_all();
}
