//! Tasks in flight: selected, and not known to have ended. Each has a place with its ticket, its
//! scratch memory and how its end is learnt; places are used again and again.
//!
//! Nothing foreign is called while the lock is held: a thread that polls whether a task has ended
//! takes its `Watch` out, so that one thread polls at a time, and puts it back if the task has not
//! ended.

use super::ResourceChoice;
use crate::abi::devices::policy::dtl_waitable_fn_t;
use crate::abi::status::{DTL_ERROR_CANCELED, DTL_ERROR_TIMEOUT, DTL_SUCCESS, dtl_status_t};
use crate::error::{Result, fail};
use crate::last_error::Mark;
use crate::runtime::exec::event::{Event, EventGate};
use crate::sys::memory::buf::Addr;
use crate::sys::sync::lock::Mutex;
use crate::sys::sync::tsc::TscTimer;
use std::collections::VecDeque;
use std::sync::Arc;

/// How the end of a task is learnt.
pub(super) enum Watch {
    /// By a call of dtl_selection_end.
    Told,
    /// An event of the task's own.
    Record(EventGate),
    /// A function of the task's own.
    Call(dtl_waitable_fn_t, Addr),
    /// Events on the resource's stream, before (if it is timed) and behind the task's work.
    Stream { start: Option<Arc<Event>>, stop: Arc<Event> },
}

/// How a task has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaskOutcome {
    pub(super) status: dtl_status_t,
    /// How long it took, if that is known.
    pub(super) time_ns: Option<u64>,
    /// Taken in this thread before the call that returned the status.
    pub(super) before: Mark,
}

enum InFlightState {
    Free,
    /// The watch is `None` while a thread looks.
    Running(Option<Watch>),
    /// Kept for the owner of the submission, who queries the status later.
    Over(dtl_status_t),
}

struct InFlightSlot {
    /// In tickets, so that an old one leads nowhere.
    generation: u32,
    state: InFlightState,
    /// The submission has an owner, who will query the status.
    is_kept: bool,
    picked: ResourceChoice,
    scratch: Option<Box<[u128]>>,
}

/// Tickets of one resource.
#[derive(Default)]
struct ResourceTickets {
    /// On its stream: they end as they were submitted.
    in_order: VecDeque<u64>,
    others: VecDeque<u64>,
}

#[derive(Default)]
struct Places {
    all: Vec<InFlightSlot>,
    free: Vec<u32>,
    running: usize,
    /// By resource: what has to be looked at.
    rows: Vec<ResourceTickets>,
}

/// Table of the tasks in flight, with their tickets and scratch memory.
pub(super) struct Flights {
    places: Mutex<Places>,
    scratch_bytes: usize,
}

/// A task that has just ended, as reported to its policy.
pub(super) struct TaskCompletion {
    pub(super) picked: ResourceChoice,
    pub(super) ended: TaskOutcome,
    /// The status goes to no other caller, so the policy keeps a failure.
    pub(super) is_unheard: bool,
}

impl Flights {
    /// None yet, on so many resources.
    #[must_use]
    pub(super) fn new(resources: usize, scratch_bytes: u64) -> Self {
        let rows = (0..resources).map(|_| ResourceTickets::default()).collect();
        Flights {
            places: Mutex::new(Places { rows, ..Places::default() }),
            scratch_bytes: usize::try_from(scratch_bytes).unwrap_or(usize::MAX),
        }
    }

    /// A new one: its ticket, and the address of its scratch memory.
    pub(super) fn begin(
        &self,
        picked: ResourceChoice,
        watch: Watch,
        is_kept: bool,
    ) -> Result<(u64, Addr)> {
        let is_in_order = match watch {
            Watch::Told => None,
            Watch::Stream { .. } => Some(true),
            Watch::Record(_) | Watch::Call(..) => Some(false),
        };
        let mut places = self.places.lock();
        let at = match places.free.pop() {
            Some(at) => at as usize,
            None if places.all.len() < u32::MAX as usize - 1 => {
                let scratch = scratch(self.scratch_bytes)?;
                places.all.push(InFlightSlot {
                    generation: 0,
                    state: InFlightState::Free,
                    is_kept,
                    picked,
                    scratch,
                });
                places.all.len() - 1
            }
            None => return fail!(DTL_ERROR_LIMIT, "too many tasks in flight: wait for some"),
        };
        places.running += 1;
        let Some(place) = places.all.get_mut(at) else { return Ok((0, Addr::NULL)) };
        (place.state, place.is_kept, place.picked) =
            (InFlightState::Running(Some(watch)), is_kept, picked);
        let ticket = u64::from(place.generation) << 32 | (at as u64 + 1);
        let memory = place
            .scratch
            .as_mut()
            .map_or(Addr::NULL, |memory| Addr::new(memory.as_mut_ptr().cast()));
        let rows = places.rows.get_mut(picked.index as usize);
        if let (Some(is_in_order), Some(rows)) = (is_in_order, rows) {
            if is_in_order { &mut rows.in_order } else { &mut rows.others }.push_back(ticket);
        }
        Ok((ticket, memory))
    }

    /// A task has ended. `None`: it had before, or there is no such task.
    pub(super) fn end(&self, ticket: u64, ended: TaskOutcome) -> Option<TaskCompletion> {
        let mut places = self.places.lock();
        let place = places.running(ticket)?;
        let (picked, is_kept) = (place.picked, place.is_kept);
        place.state = InFlightState::Over(ended.status);
        places.running -= 1;
        if !is_kept {
            places.release(ticket);
        }
        let is_unheard = !is_kept && ended.status != DTL_SUCCESS;
        Some(TaskCompletion { picked, ended, is_unheard })
    }

    /// The task was not taken: as if it had never been.
    pub(super) fn cancel(&self, ticket: u64) -> Option<ResourceChoice> {
        let mut places = self.places.lock();
        let picked = places.running(ticket)?.picked;
        places.running -= 1;
        places.release(ticket);
        Some(picked)
    }

    /// How a kept task has ended, once, and its place is free again. `Ok(None)`: it runs.
    /// `Err(())`: no such task.
    pub(super) fn take(&self, ticket: u64) -> std::result::Result<Option<dtl_status_t>, ()> {
        let mut places = self.places.lock();
        let place = places.place(ticket).ok_or(())?;
        match place.state {
            InFlightState::Over(status) => {
                places.release(ticket);
                Ok(Some(status))
            }
            InFlightState::Running(_) if place.is_kept => Ok(None),
            _ => Err(()),
        }
    }

    /// Gives up the status of a task. False: there is no such task.
    pub(super) fn let_go(&self, ticket: u64) -> bool {
        let mut places = self.places.lock();
        let Some(place) = places.place(ticket).filter(|place| place.is_kept) else { return false };
        place.is_kept = false;
        if matches!(place.state, InFlightState::Over(_)) {
            places.release(ticket);
        }
        true
    }

    /// Tasks that run.
    #[must_use]
    pub(super) fn running(&self) -> usize {
        self.places.lock().running
    }

    /// Looks whether one task has ended. `None`: not yet, or another thread looks.
    pub(super) fn look(
        &self,
        ticket: u64,
        timeout_ns: u64,
        events: &dyn Fn(u32, Arc<Event>),
    ) -> Option<TaskCompletion> {
        let (watch, index) = {
            let mut places = self.places.lock();
            let place = places.running(ticket)?;
            let InFlightState::Running(watch) = &mut place.state else { return None };
            if matches!(watch, Some(Watch::Told)) {
                return None;
            }
            (watch.take()?, place.picked.index)
        };
        match watch.ended(timeout_ns) {
            Some(ended) => {
                watch.recycle(index, events);
                self.end(ticket, ended)
            }
            None => {
                if let Some(InFlightSlot { state: InFlightState::Running(place), .. }) =
                    self.places.lock().running(ticket)
                {
                    *place = Some(watch);
                }
                None
            }
        }
    }

    /// Looks at tasks of a resource: those on its stream up to the first that runs, and so many of
    /// the others.
    pub(super) fn look_at_some(
        &self,
        index: usize,
        others: usize,
        events: &dyn Fn(u32, Arc<Event>),
        landed: &mut dyn FnMut(TaskCompletion),
    ) {
        while let Some((ticket, ended)) = self.look_at_first(index, events) {
            let mut places = self.places.lock();
            let runs = places.running(ticket).is_some();
            let queue = places.rows.get_mut(index).map(|rows| &mut rows.in_order);
            // It stays while it is looked at, so that threads that look at once leave the order as
            // it is.
            if let Some(queue) = queue.filter(|queue| !runs && queue.front() == Some(&ticket)) {
                queue.pop_front();
            }
            drop(places);
            ended.into_iter().for_each(&mut *landed);
            if runs {
                break;
            }
        }
        for _ in 0..others {
            let next =
                self.places.lock().rows.get_mut(index).and_then(|rows| rows.others.pop_front());
            let Some(ticket) = next else { return };
            if let Some(ended) = self.look(ticket, 0, events) {
                landed(ended);
                continue;
            }
            let mut places = self.places.lock();
            // Unless another thread has seen its end.
            if places.running(ticket).is_some() {
                places
                    .rows
                    .get_mut(index)
                    .into_iter()
                    .for_each(|rows| rows.others.push_back(ticket));
            }
        }
    }

    fn look_at_first(
        &self,
        index: usize,
        events: &dyn Fn(u32, Arc<Event>),
    ) -> Option<(u64, Option<TaskCompletion>)> {
        let first =
            self.places.lock().rows.get(index).and_then(|rows| rows.in_order.front().copied())?;
        Some((first, self.look(first, 0, events)))
    }

    /// Tasks of a resource, not on its stream, that have to be looked at.
    #[must_use]
    pub(super) fn others(&self, index: usize) -> usize {
        self.places.lock().rows.get(index).map_or(0, |rows| rows.others.len())
    }
}

impl Places {
    fn place(&mut self, ticket: u64) -> Option<&mut InFlightSlot> {
        let at = (ticket & u64::from(u32::MAX)).checked_sub(1)?;
        let place = self.all.get_mut(at as usize)?;
        let is_there = u64::from(place.generation) == ticket >> 32
            && !matches!(place.state, InFlightState::Free);
        is_there.then_some(place)
    }

    fn running(&mut self, ticket: u64) -> Option<&mut InFlightSlot> {
        self.place(ticket).filter(|place| matches!(place.state, InFlightState::Running(_)))
    }

    fn release(&mut self, ticket: u64) {
        if let Some(place) = self.place(ticket) {
            place.state = InFlightState::Free;
            place.generation = place.generation.wrapping_add(1);
            self.free.push((ticket as u32) - 1);
        }
    }
}

fn scratch(bytes: usize) -> Result<Option<Box<[u128]>>> {
    if bytes == 0 {
        return Ok(None);
    }
    let mut memory = Vec::new();
    let words = bytes.div_ceil(size_of::<u128>());
    if memory.try_reserve_exact(words).is_err() {
        return fail!(
            DTL_ERROR_OUT_OF_MEMORY,
            "no {bytes} bytes of scratch memory for a selection"
        );
    }
    memory.resize(words, 0);
    Ok(Some(memory.into_boxed_slice()))
}

impl Watch {
    /// How the task has ended; `None` = not yet.
    fn ended(&self, timeout_ns: u64) -> Option<TaskOutcome> {
        let before = Mark::now();
        let of = |outcome: Result<bool>| match outcome {
            Ok(false) => None,
            Ok(true) => Some(DTL_SUCCESS),
            Err(error) => Some(error.status()),
        };
        let status = match self {
            Watch::Told => return None,
            Watch::Record(gate) => of(gate.is_open())?,
            Watch::Call(Some(wait), object) => match wait(object.ptr(), timeout_ns) {
                DTL_ERROR_TIMEOUT => return None,
                status => status,
            },
            Watch::Call(None, _) => DTL_ERROR_CANCELED, // never made
            Watch::Stream { stop, .. } => of(stop.query())?,
        };
        let time_ns = match self {
            Watch::Stream { start: Some(start), stop } => start.elapsed_ns(stop).ok(),
            _ => None,
        };
        Some(TaskOutcome { status, time_ns, before })
    }

    /// Gives events back that are used again.
    fn recycle(self, index: u32, events: &dyn Fn(u32, Arc<Event>)) {
        if let Watch::Stream { start, stop } = self {
            start.into_iter().chain([stop]).for_each(|event| events(index, event));
        }
    }
}

/// Time since a task was picked; `None` if it is not timed.
#[must_use]
pub(super) fn time_since(picked: &ResourceChoice) -> Option<u64> {
    picked.started.map(TscTimer::elapsed_ns)
}
