//! Requests: operations in flight under a handle. A completed request's handle is stale, unless it is
//! persistent: then it rests until it is started again.

pub(super) use super::life::Standing;
use super::life::{Life, State};
use super::link::Class;
use super::message::{self, Message};
use super::p2p::{self, Data, Started};
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
use crate::sys::epoch::{self, Guard};
use crate::sys::slab::Table;
use std::sync::Arc;

/// Type byte of request handles.
pub const TAG: u8 = 7;

static TABLE: Table<Request> = Table::new(TAG, 0);

/// An operation in flight, or a persistent one at rest.
pub struct Request {
    comm: Arc<Comm>,
    kind: Kind,
    peer: i32,
    /// What `start` starts, of a persistent one.
    plan: Option<Plan>,
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

fn insert(request: Request) -> Result<dtl_request_t> {
    let request = Arc::new(request);
    if let Some(id) = TABLE.insert(Arc::clone(&request)) {
        return Ok(dtl_request_t { id });
    }
    // Nobody could wait for it: it is taken back, so that the buffer is the caller's again.
    drop(request.take_back());
    fail!(DTL_ERROR_LIMIT, "too many requests in flight: complete some first")
}

fn started(comm: Arc<Comm>, plan: &Plan, started: Started) -> Result<dtl_request_t> {
    let ticket = comm.recorder.begin(&plan.data.call(plan.kind, plan.peer, plan.tag));
    let life = Life::active(Operation::Started(started, ticket));
    insert(Request { comm, kind: plan.kind, peer: plan.peer, plan: None, life })
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
    insert(Request { comm, kind: plan.kind, peer: plan.peer, plan: Some(plan), life: Life::persistent() })
}

/// Starts a persistent request.
pub fn start(request: &Request) -> Result<()> {
    let Some(plan) = &request.plan else {
        return fail!(
            DTL_ERROR_INVALID_STATE,
            "the request ({}) is not persistent: it runs already",
            request.name()
        );
    };
    let begin = || {
        plan.check(&request.comm)?;
        let operation = plan.start(&request.comm)?;
        let ticket = request.comm.recorder.begin(&plan.data.call(plan.kind, plan.peer, plan.tag));
        Ok(Operation::Started(operation, ticket))
    };
    request.life.start(begin).unwrap_or_else(|| {
        fail!(DTL_ERROR_INVALID_STATE, "the request ({}) is active: wait for it first", request.name())
    })
}

/// Puts a collective under a handle.
pub fn collective(comm: Arc<Comm>, run: Run) -> Result<dtl_request_t> {
    let kind = run.kind();
    let (life, runs) = match run.start(&comm)? {
        None => (Life::over((recv_info(&p2p::NOBODY), Ok(()))), false),
        Some(run) => (Life::active(Operation::Collective(Box::new(run))), true),
    };
    let request = Arc::new(Request { comm, kind, peer: -1, plan: None, life });
    let Some(id) = TABLE.insert(Arc::clone(&request)) else {
        drop(request.take_back());
        return fail!(DTL_ERROR_LIMIT, "too many requests in flight: complete some first");
    };
    if runs {
        progress::add_running(&request);
    }
    Ok(dtl_request_t { id })
}

/// A share of a handle's request.
pub fn pin(inside: &Guard, handle: dtl_request_t) -> Result<Arc<Request>> {
    TABLE.pin(inside, handle.id).ok_or_else(|| invalid_handle("request", TAG, handle.id))
}

impl Request {
    /// Moves it on without waiting. Another thread that does so just now is not waited for.
    pub(super) fn settle(&self) -> Result<Standing> {
        self.life.settle(|operation| self.poll(operation))?.ok_or_else(|| self.completed_elsewhere())
    }

    fn poll(&self, operation: &mut Operation) -> Result<Option<Outcome>> {
        match operation {
            Operation::Started(started, ticket) => {
                let Some(done) = self.comm.poll(*started)? else { return Ok(None) };
                self.comm.recorder.end(*ticket);
                Ok(Some((recv_info(&done), self.outcome(&done))))
            }
            Operation::Collective(run) => match run.progress(&self.comm) {
                Ok(Advance::Done) => {
                    run.recycle(&self.comm);
                    Ok(Some((recv_info(&p2p::NOBODY), Ok(()))))
                }
                Ok(_) => Ok(None),
                Err(error) => {
                    run.fail(&self.comm, &error);
                    Ok(Some(failed(error)))
                }
            },
        }
    }

    /// The outcome of a request that is over; whoever takes it is the one to hear of it.
    pub(super) fn take_outcome(&self, handle: dtl_request_t) -> Result<Outcome> {
        let outcome = self.life.take_outcome().ok_or_else(|| self.completed_elsewhere())?;
        if self.plan.is_none() {
            forget(handle);
        }
        Ok(outcome)
    }

    /// The outcome, if the request is over and nobody has taken it.
    pub(super) fn take_if_over(&self, handle: dtl_request_t) -> Option<Outcome> {
        if !self.life.look(|state| matches!(state, State::Over(_))) {
            return None;
        }
        self.take_outcome(handle).ok()
    }

    pub(super) fn is_persistent(&self) -> bool {
        self.plan.is_some()
    }

    pub(super) fn is_collective(&self) -> bool {
        self.kind.is_collective()
    }

    pub(super) fn comm(&self) -> &Arc<Comm> {
        &self.comm
    }

    /// Takes the operation back; `None` = withdrawn. A collective is given up, for all ranks.
    pub(super) fn take_back(&self) -> Result<Option<Outcome>> {
        self.life.take_back((recv_info(&p2p::NOBODY), Ok(())), |operation| match operation {
            Operation::Started(started, ticket) => {
                let done = self.comm.take_back(*started)?;
                self.comm.recorder.end(*ticket);
                Ok(done.map(|done| (recv_info(&done), self.outcome(&done))))
            }
            Operation::Collective(run) => {
                let error = Error::new(DTL_ERROR_CANCELED, "it was given up before it was over");
                run.fail(&self.comm, &error);
                Ok(None)
            }
        })
    }

    #[cold]
    fn completed_elsewhere(&self) -> Error {
        if !self.comm.is_open() {
            return self.comm.ended();
        }
        Error::new(DTL_ERROR_INVALID_HANDLE, "the request was completed by another thread meanwhile")
    }

    fn what(&self) -> &'static str {
        if self.kind == Kind::Recv { "receive from" } else { "send to" }
    }

    /// What it is, for error texts.
    pub(super) fn name(&self) -> String {
        if self.kind.is_collective() {
            self.kind.name().to_owned()
        } else if self.peer == DTL_ANY_SOURCE {
            format!("{} any rank", self.what())
        } else {
            format!("{} rank {}", self.what(), self.peer)
        }
    }

    fn outcome(&self, done: &Done) -> Result<()> {
        self.comm.check_done(done, self.what(), self.peer)
    }
}

pub(super) fn failed(error: Error) -> Outcome {
    (dtl_recv_info_t { status: error.status(), ..recv_info(&p2p::NOBODY) }, Err(error))
}

pub(super) fn forget(handle: dtl_request_t) {
    drop(TABLE.remove(&epoch::enter(), handle.id));
}

/// Whether a handle still names a request.
pub(super) fn is_alive(handle: dtl_request_t) -> bool {
    TABLE.get(&epoch::enter(), handle.id).is_some()
}

/// Tries to withdraw the operation; the request then completes through wait or test.
pub fn cancel(request: &Request) -> Result<()> {
    request.life.look(|state| match state {
        State::Active(Operation::Started(Started::Op(op) | Started::FromAny(op), _)) => {
            request.comm.link.transport.cancel(*op)
        }
        State::Active(Operation::Started(..)) | State::Over(_) => Ok(()),
        State::AtRest => fail!(DTL_ERROR_INVALID_STATE, "the request ({}) is not active", request.name()),
        State::Active(Operation::Collective(_)) => fail!(
            DTL_ERROR_NOT_SUPPORTED,
            "a collective ({}) cannot be withdrawn: the other ranks are in it too",
            request.name()
        ),
        State::Gone => Err(request.completed_elsewhere()),
    })
}

/// A share of a request for `end` to end. `None`: the null handle.
pub fn to_end(inside: &Guard, handle: dtl_request_t) -> Result<Option<Arc<Request>>> {
    if handle.id == 0 {
        return Ok(None);
    }
    let request = pin(inside, handle)?;
    if request.life.look(|state| matches!(state, State::Active(Operation::Collective(_)))) {
        return fail!(DTL_ERROR_BUSY, "a collective ({}) cannot be withdrawn: wait for it", request.name());
    }
    Ok(Some(request))
}

/// Ends a request: an operation in flight is withdrawn, or finishes first. Of two that end one, one hears
/// that the handle is stale.
pub fn end(request: Option<Arc<Request>>, handle: dtl_request_t) -> Result<()> {
    let Some(request) = request else { return Ok(()) };
    request.take_back()?;
    match TABLE.remove(&epoch::enter(), handle.id) {
        Some(_) => Ok(()),
        None => Err(invalid_handle("request", TAG, handle.id)),
    }
}

/// The live requests of a communicator.
fn of(comm: &Arc<Comm>) -> impl Iterator<Item = (u64, Arc<Request>)> {
    let is_its = |request: &Arc<Request>| Arc::ptr_eq(&request.comm, comm);
    let all = TABLE.handles().into_iter();
    all.filter_map(move |id| Some((id, TABLE.pin(&epoch::enter(), id).filter(is_its)?)))
}

/// Refuses while a collective of the communicator runs that nobody can take back.
pub(super) fn check_revocable(comm: &Arc<Comm>) -> Result<()> {
    let stays = |state: &State<Operation, Outcome>| match state {
        State::Active(Operation::Collective(run)) => run.is_irrevocable(),
        _ => false,
    };
    match of(comm).find(|(_, request)| request.life.look(stays)) {
        Some((_, request)) => fail!(
            DTL_ERROR_BUSY,
            "a collective ({}) that was started runs in {} and cannot be withdrawn: wait for it first",
            request.name(),
            comm.kind_name()
        ),
        None => Ok(()),
    }
}

/// Takes the requests' operations back, so that no buffer is touched afterwards. Their handles
/// become stale.
pub(super) fn withdraw_all(comm: &Arc<Comm>) -> Result<()> {
    for (id, request) in of(comm) {
        request.take_back()?;
        forget(dtl_request_t { id });
    }
    Ok(())
}

/// At finalize: requests go with their communicators.
pub fn destroy_all() {
    let inside = epoch::enter();
    for id in TABLE.handles() {
        if let Some(request) = TABLE.remove(&inside, id) {
            drop(request.take_back());
        }
    }
}

/// In a forked child: the handles go.
pub fn forget_all() {
    let inside = epoch::enter();
    for id in TABLE.handles() {
        std::mem::forget(TABLE.remove(&inside, id));
    }
}
