//! Tasks in flight: tasks for which a resource has been selected and whose end has not been
//! detected yet. Each task occupies a slot of a table, with a ticket (the handle of the task),
//! scratch memory, and a `Watch`, the method of detecting the end of the task. Slots are reused.
//!
//! No user callback and no function of a backend is called while the lock of the table is held. A
//! thread that polls a task takes the `Watch` out of the slot, so only one thread polls a task at a
//! time. The thread puts the `Watch` back if the task has not ended.

use super::selector::ResourceChoice;
use super::streams::Events;
use crate::abi::devices::policy::dtl_waitable_fn_t;
use crate::abi::status::{DTL_ERROR_CANCELED, DTL_ERROR_TIMEOUT, DTL_SUCCESS, dtl_status_t};
use crate::error::{Result, fail};
use crate::last_error::Mark;
use crate::runtime::exec::event::{Event, EventGate};
use crate::sys::memory::buf::Addr;
use crate::sys::sync::lock::Mutex;
use crate::sys::sync::wait::TscTimer;
use std::collections::VecDeque;
use std::sync::Arc;

/// Method to detect the end of a task.
pub(super) enum Watch {
    /// The application reports the end of the task by a call to dtl_selection_end.
    Told,
    /// Event that the task returned; the task ends when the event completes.
    Record(EventGate),
    /// Wait function that the task returned, with the object to pass to the function.
    Call(dtl_waitable_fn_t, Addr),
    /// Events on the stream of the resource: `start` before the task's work (if the task is timed),
    /// and `stop` after the work.
    Stream { start: Option<Arc<Event>>, stop: Arc<Event> },
}

/// Outcome of a task.
pub(super) struct TaskOutcome {
    pub(super) status: dtl_status_t,
    /// Duration of the task in nanoseconds; `None` if it was not measured.
    pub(super) time_ns: Option<u64>,
    /// Number of library calls that had failed, in all threads, before the call that returned
    /// `status`. Used to find the error message that belongs to `status`.
    pub(super) before: Mark,
}

enum InFlightState {
    Free,
    /// Task in flight. The `Watch` is `None` while a thread polls the task.
    Running(Option<Watch>),
    /// Completed task with its status. The owner of the submission has not yet queried the status.
    Over(dtl_status_t),
}

struct InFlightSlot {
    /// Number of uses of the slot so far. Each ticket contains this number, so the ticket of an
    /// earlier task in the slot is invalid.
    generation: u32,
    state: InFlightState,
    /// True if the owner of the submission will query the status of the task.
    is_kept: bool,
    picked: ResourceChoice,
    scratch: Option<Box<[u128]>>,
}

/// Tickets (task handles) of those tasks in flight on one resource whose end is detected only by
/// polling.
#[derive(Default)]
struct ResourceTickets {
    /// Tickets of the tasks on the resource's stream. These tasks end in the order of submission.
    in_order: VecDeque<u64>,
    others: VecDeque<u64>,
}

#[derive(Default)]
struct Places {
    all: Vec<InFlightSlot>,
    free: Vec<u32>,
    running: usize,
    /// Tickets of the tasks that must be polled, indexed by resource.
    rows: Vec<ResourceTickets>,
}

/// Table of the tasks in flight, with their tickets (task handles) and scratch memory.
pub(super) struct Flights {
    places: Mutex<Places>,
    scratch_bytes: usize,
    /// Events that can be reused for tasks on stream resources, indexed by resource.
    events: Box<[Events]>,
}

/// Completion of a task, as reported to the policy that selected its resource.
pub(super) struct TaskCompletion {
    pub(super) picked: ResourceChoice,
    pub(super) ended: TaskOutcome,
    /// True if the task has failed and no caller will query its status. The policy must then record
    /// the failure.
    pub(super) is_unheard: bool,
}

impl Flights {
    /// Creates an empty table for this number of resources, with `scratch_bytes` bytes of scratch
    /// memory for each task.
    pub(super) fn new(resources: usize, scratch_bytes: u64) -> Self {
        let rows = (0..resources).map(|_| ResourceTickets::default()).collect();
        Flights {
            places: Mutex::new(Places { rows, ..Places::default() }),
            scratch_bytes: usize::try_from(scratch_bytes).unwrap_or(usize::MAX),
            events: (0..resources).map(|_| Events::default()).collect(),
        }
    }

    /// Returns the events that can be reused for tasks on the stream resource `index`.
    pub(super) fn events(&self, index: u32) -> Option<&Events> {
        self.events.get(index as usize)
    }

    /// Enters a new task into the table. Returns the task's ticket and the address of its scratch
    /// memory. Fails with LIMIT or OUT_OF_MEMORY if no slot of the table can be allocated.
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

    /// Marks the task `ticket` as ended and returns its completion. Returns `None` if the task has
    /// already ended or does not exist.
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

    /// Removes the task `ticket`, whose start has failed. Returns its resource choice; `None` if no
    /// such task is in flight.
    pub(super) fn cancel(&self, ticket: u64) -> Option<ResourceChoice> {
        let mut places = self.places.lock();
        let picked = places.running(ticket)?.picked;
        places.running -= 1;
        places.release(ticket);
        Some(picked)
    }

    /// Returns the status of the completed task `ticket` and frees its slot. Returns `Ok(None)`
    /// while the task runs. Returns `Err(())` if there is no such task, or if its `is_kept` is
    /// false.
    pub(super) fn take(&self, ticket: u64) -> Result<Option<dtl_status_t>, ()> {
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

    /// Discards the status of the task `ticket`. Returns false if there is no such task, or if its
    /// `is_kept` is false.
    pub(super) fn let_go(&self, ticket: u64) -> bool {
        let mut places = self.places.lock();
        let Some(place) = places.place(ticket).filter(|place| place.is_kept) else { return false };
        place.is_kept = false;
        if matches!(place.state, InFlightState::Over(_)) {
            places.release(ticket);
        }
        true
    }

    /// Returns the number of running tasks.
    pub(super) fn running(&self) -> usize {
        self.places.lock().running
    }

    /// Polls the task `ticket` for at most `timeout_ns` nanoseconds. Returns its completion; `None`
    /// if the task is still running or another thread is polling it.
    pub(super) fn look(&self, ticket: u64, timeout_ns: u64) -> Option<TaskCompletion> {
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
                watch.recycle(self.events(index));
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

    /// Polls tasks on the resource `index`: the tasks on the resource's stream up to the first that
    /// is still running, and at most `others` of the other tasks. Passes each completion to
    /// `landed`.
    pub(super) fn look_at_some(
        &self,
        index: usize,
        others: usize,
        landed: &mut dyn FnMut(TaskCompletion),
    ) {
        while let Some((ticket, ended)) = self.look_at_first(index) {
            let mut places = self.places.lock();
            let runs = places.running(ticket).is_some();
            let queue = places.rows.get_mut(index).map(|rows| &mut rows.in_order);
            // The ticket stays at the front of the queue while its task is polled, so that
            // concurrent polls do not change the order.
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
            if let Some(ended) = self.look(ticket, 0) {
                landed(ended);
                continue;
            }
            let mut places = self.places.lock();
            // Not queued again if another thread has detected the end.
            if places.running(ticket).is_some() {
                places
                    .rows
                    .get_mut(index)
                    .into_iter()
                    .for_each(|rows| rows.others.push_back(ticket));
            }
        }
    }

    fn look_at_first(&self, index: usize) -> Option<(u64, Option<TaskCompletion>)> {
        let first =
            self.places.lock().rows.get(index).and_then(|rows| rows.in_order.front().copied())?;
        Some((first, self.look(first, 0)))
    }

    /// Returns the number of tasks on the resource `index` that are not queued on its stream and
    /// must be polled.
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
    /// Polls the task for at most `timeout_ns` nanoseconds. Returns its outcome; `None` if the task
    /// is still running.
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
            // cannot happen: no watch is created without a function
            Watch::Call(None, _) => DTL_ERROR_CANCELED,
            Watch::Stream { stop, .. } => of(stop.query())?,
        };
        let time_ns = match self {
            Watch::Stream { start: Some(start), stop } => start.elapsed_ns(stop).ok(),
            _ => None,
        };
        Some(TaskOutcome { status, time_ns, before })
    }

    /// Adds the events of this `Watch` to `unused`, the events of the resource that can be reused.
    fn recycle(self, unused: Option<&Events>) {
        if let (Watch::Stream { start, stop }, Some(unused)) = (self, unused) {
            start.into_iter().chain([stop]).for_each(|event| unused.keep(event));
        }
    }
}

/// Returns the time in nanoseconds since the resource was selected for the task; `None` if the task
/// is not timed.
pub(super) fn time_since(picked: &ResourceChoice) -> Option<u64> {
    picked.started.map(TscTimer::elapsed_ns)
}
