//! Events of a device: completion events, which wake a sleeping thread, and asynchronous events,
//! which report the failure of a port, a queue pair or the device.
//!
//! A waiting thread calls `RdmaEngine::sleep_mode` while it holds the engine's lock. That call
//! consumes earlier events, arms the completion queues and then polls them once more, so no
//! completion that arrives in between is missed. The thread sleeps without the lock, on one poller
//! for the descriptors of the completion queues, of the devices and of the control sockets.

use super::engine::RdmaEngine;
use super::verbs::errors::last_failed;
use super::verbs::functions::*;
use super::verbs::rail::{Completions, Rail};
use super::verbs::types::*;
use crate::abi::status::DTL_ERROR_BACKEND;
use crate::backend::bootstrap::liveness::Oob;
use crate::backend::os_error::os_error;
use crate::backend::p2p_protocol::SleepMode;
use crate::backend::rdma::endpoint::peer::Peer;
use crate::error::{Result, fail};
use crate::from_c::text_at;
use crate::runtime::log;
use crate::sys::os::poller::{Interest, Poller};
use crate::sys::os::process;
use crate::sys::sync::wait::now_ns;
use std::ffi::c_int;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Interval, in nanoseconds, at which a waiting rank polls its devices for failures.
const LOOK_NS: u64 = 10_000_000;

impl Rail {
    /// Makes the device's asynchronous event descriptor nonblocking; if `sleeps` is true, also
    /// creates a completion channel.
    pub(crate) fn listen(&mut self, sleeps: bool) -> Result<()> {
        let failed = |error| os_error(DTL_ERROR_BACKEND, "the descriptor of its events", &error);
        if let Some(events) = self.events_fd() {
            process::set_nonblocking(events).map_err(failed)?;
        }
        if !sleeps {
            return Ok(());
        }
        // SAFETY: the context is an opened device.
        self.channel = unsafe { (self.calls.ibv_create_comp_channel)(self.context) };
        match self.channel_fd() {
            Some(channel) => process::set_nonblocking(channel).map_err(failed),
            None => Err(last_failed("ibv_create_comp_channel")),
        }
    }

    fn events_fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the context is an opened device.
        let number = unsafe { (*self.context).async_fd };
        // SAFETY: the descriptor is open as long as the device, which this rail owns.
        (number >= 0).then(|| unsafe { BorrowedFd::borrow_raw(number) })
    }

    fn channel_fd(&self) -> Option<BorrowedFd<'_>> {
        if self.channel.is_null() {
            return None;
        }
        // SAFETY: this rail created the channel.
        let number = unsafe { (*self.channel).fd };
        // SAFETY: the descriptor belongs to the channel, which is open as long as this rail exists.
        Some(unsafe { BorrowedFd::borrow_raw(number) })
    }

    /// Consumes and acknowledges all events of the rail's completion queues.
    fn take_told(&self) {
        if self.channel.is_null() {
            return;
        }
        let (mut cq, mut user) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: this rail created the channel, whose descriptor is non-blocking; both pointers
        // refer to local variables with room for the results.
        while unsafe { (self.calls.ibv_get_cq_event)(self.channel, &raw mut cq, &raw mut user) }
            == 0
        {
            // SAFETY: `cq` is a completion queue that this library created; `ibv_get_cq_event` has
            // just returned one event of it, which is acknowledged once.
            unsafe { (self.calls.ibv_ack_cq_events)(cq, 1) };
        }
    }

    /// Returns the device's next asynchronous event, and its description from libibverbs; returns
    /// `None` if there is no event.
    fn next_news(&self) -> Option<(AsyncEvent, String)> {
        self.events_fd()?;
        let mut event = AsyncEvent::zeroed();
        // SAFETY: an opened device with a non-blocking event descriptor; `event` has room for one.
        if unsafe { (self.calls.ibv_get_async_event)(self.context, &raw mut event) } != 0 {
            return None;
        }
        // SAFETY: the function takes a number and returns a text that is never freed.
        let text =
            self.calls.ibv_event_type_str.map(|text_of| unsafe { text_of(event.event_type) });
        // SAFETY: libibverbs returned the text, which is null or NUL-terminated.
        let description = text.and_then(|text| unsafe { text_at(text) });
        let description = description.unwrap_or_else(|| format!("event {}", event.event_type));
        // SAFETY: `event` is the event returned by `ibv_get_async_event`; from here on only the
        // address of its objects is used.
        unsafe { (self.calls.ibv_ack_async_event)(&raw mut event) };
        Some((event, description))
    }
}

impl Completions {
    /// Arms the completion queue, so that the next completion raises an event.
    fn arm(&self) -> Result<()> {
        // SAFETY: this library created the completion queue, which has a channel.
        match unsafe { (self.rail.req_notify)(self.cq, 0) } {
            0 => Ok(()),
            _ => Err(last_failed("ibv_req_notify_cq").within(&self.rail.name)),
        }
    }
}

/// Creates the poller that waiting threads sleep on.
pub(crate) fn bell(rails: &[Arc<Rail>], oob: &Oob) -> Result<Arc<Poller>> {
    let failed = |error| os_error(DTL_ERROR_BACKEND, "what waiting threads sleep on", &error);
    let bell = Poller::new().map_err(failed)?;
    let of_rails = rails.iter().flat_map(|rail| [rail.channel_fd(), rail.events_fd()]).flatten();
    for (number, one) in (0..).zip(of_rails.chain([oob.fd()])) {
        bell.add(one.as_fd(), number, Interest::Reading).map_err(failed)?;
    }
    Ok(Arc::new(bell))
}

impl RdmaEngine {
    /// Prepares a thread to sleep: arms the completion queues, polls once more, and returns the
    /// poller to sleep on. Returns `SleepMode::No` while an operation waits for room in a send
    /// queue (no event reports this) or a reconnection waits for its next step.
    pub(crate) fn sleep_mode(&mut self, seen: &mut u64) -> Result<SleepMode> {
        let Some(bell) = self.bell.as_ref().map(Arc::clone) else { return Ok(SleepMode::No) };
        if !self.unfinished.is_empty() || !self.listed.is_empty() || !self.mending.is_empty() {
            return Ok(SleepMode::No);
        }
        if *seen == self.happened {
            self.look_at_devices();
            self.look_around();
            self.rails.iter().for_each(|rail| rail.take_told());
            self.polling.queues.iter().try_for_each(|queue| queue.completions.arm())?;
            self.progress()?;
        }
        if *seen != self.happened || !self.arrived.is_empty() || !self.lost.is_empty() {
            *seen = self.happened;
            return Ok(SleepMode::News);
        }
        Ok(SleepMode::On(bell, self.oob.due_in_ns().min(self.watch_due_ns())))
    }

    /// Polls the devices' asynchronous events if at least `LOOK_NS` have elapsed since the previous
    /// poll.
    pub(crate) fn poll_devices(&mut self) {
        let now = now_ns();
        if now >= self.hear_at {
            self.hear_at = now.saturating_add(LOOK_NS);
            self.look_at_devices();
        }
    }

    /// Polls the devices for asynchronous events and handles them.
    #[cold]
    pub(crate) fn look_at_devices(&mut self) {
        for rail in self.rails.clone() {
            while let Some((event, description)) = rail.next_news() {
                self.handle_device_event(&rail, &event, &description);
            }
        }
    }

    fn handle_device_event(&mut self, rail: &Rail, event: &AsyncEvent, description: &str) {
        let name = format!("{}:{}", rail.name, rail.port);
        // SAFETY: the element is a union, whose first bytes are the port number for port events.
        let port = unsafe { (&raw const event.element).cast::<c_int>().read() };
        let is_its_port = port == c_int::from(rail.port);
        match event.event_type {
            // The device or one of its completion queues has failed.
            EVENT_DEVICE_FATAL | EVENT_CQ_ERR => {
                let why = format!(
                    "device {} of this rank has failed ({description}): dmesg may tell why",
                    rail.name
                );
                log::error!("rdma: {why}");
                // Every connection has a queue pair on every rail.
                for rank in 0..self.peers.ranks() {
                    if self.peers.get(rank).is_some_and(|peer| !peer.lanes.is_empty()) {
                        self.fail(rank, &why);
                    }
                }
                self.dead_device = Some(why);
            }
            EVENT_QP_FATAL | EVENT_QP_REQ_ERR | EVENT_QP_ACCESS_ERR => {
                let qp = event.element.cast();
                let is_its = |peer: &&Peer| peer.lanes.iter().any(|lane| lane.queue.is(qp));
                let of = self.peers.values().find(is_its).map(|peer| peer.rank);
                let why = format!("its queue pair on {name} has failed ({description})");
                match of {
                    // A work request causes the other two events.
                    Some(rank) if event.event_type == EVENT_QP_FATAL => self.broke(rank, &why),
                    Some(rank) => self.fail(rank, &why),
                    None => {}
                }
            }
            EVENT_PORT_ERR if is_its_port && !rail.is_down.swap(true, Ordering::Relaxed) => {
                log::warning!(
                    "rdma: port {name} is down ({description}): what is under way is tried again \
                     for as long as DTL_RDMA_TIMEOUT and DTL_RDMA_RETRIES say"
                )
            }
            EVENT_PORT_ACTIVE if is_its_port => {
                rail.is_down.store(false, Ordering::Relaxed);
                log::info!("rdma: port {name} is active again");
            }
            _ => log::debug!("rdma: {name}: {description}"),
        }
    }

    /// Returns DEVICE_LOST if a device has failed.
    pub(crate) fn check_devices(&self) -> Result<()> {
        match &self.dead_device {
            None => Ok(()),
            Some(why) => {
                fail!(DTL_ERROR_DEVICE_LOST, "{why}; open another communicator when it is back")
            }
        }
    }
}
