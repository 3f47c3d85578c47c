//! Repeated polling of many descriptors, with one system call per poll (epoll).
//! `process::wait_readable` waits once for a few descriptors.

use super::process::{self, timespec};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Events of a descriptor that a poller reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Data to read, or end of the stream.
    Reading,
    /// Data to read, end of the stream, or buffer space for a write.
    Both,
    /// Data to read, or end of the stream. Only the first event is reported (EPOLLONESHOT). Used
    /// for pidfds, because a process exits only once.
    Once,
}

impl Interest {
    fn flags(self) -> EventFlags {
        match self {
            Interest::Reading => EventFlags::IN,
            Interest::Both => EventFlags::IN | EventFlags::OUT,
            Interest::Once => EventFlags::IN | EventFlags::ONESHOT,
        }
    }
}

/// Set of descriptors that are polled with one system call (epoll). The kernel stores the set.
pub struct Poller(OwnedFd);

impl Poller {
    /// Creates an empty set of descriptors to poll.
    pub fn new() -> io::Result<Self> {
        process::keep_fd(epoll::create(CreateFlags::CLOEXEC)?).map(Poller)
    }

    /// Adds a descriptor. [`Poller::ready`] returns `number` (user data) once it is ready.
    pub fn add(&self, what: BorrowedFd<'_>, number: u64, wanted: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.0, what, EventData::new_u64(number), wanted.flags())?)
    }

    /// Changes the events for which a descriptor is polled.
    pub fn change(&self, what: BorrowedFd<'_>, number: u64, wanted: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.0, what, EventData::new_u64(number), wanted.flags())?)
    }

    /// Removes a descriptor. Call this before closing the descriptor: the kernel automatically
    /// removes a closed descriptor only when no forked child has a copy of it.
    pub fn remove(&self, what: BorrowedFd<'_>) {
        // Fails only for a descriptor that is not in the set.
        let _ = epoll::delete(&self.0, what);
    }

    /// Waits until at least one descriptor is ready, for at most `timeout_ns` nanoseconds
    /// (`u64::MAX`: without limit). Returns the numbers of at most `MOST` ready descriptors, as
    /// passed to [`Poller::add`]. Makes one system call.
    pub fn ready(&self, timeout_ns: u64) -> ReadySet {
        let mut entries = [NO_EVENT; MOST];
        // Rounded up to the kernel's milliseconds, or the last millisecond would be spent spinning.
        let millis = timeout_ns.div_ceil(1_000_000).min(i32::MAX as u64);
        let limit = (timeout_ns != u64::MAX).then(|| timespec(millis * 1_000_000));
        // An error is a signal that interrupted the wait: the next call reports the events.
        let count = epoll::wait(&self.0, &mut entries, limit.as_ref()).unwrap_or(0);
        ReadySet { entries, count }
    }
}

/// Returns the epoll descriptor, which is readable while one of the polled descriptors is ready.
impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Maximum number of descriptors that one call to [`Poller::ready`] returns.
const MOST: usize = 32;
const NO_EVENT: Event = Event { flags: EventFlags::empty(), data: EventData::new_u64(0) };

/// User data of the ready descriptors: the values passed as `number` to [`Poller::add`].
pub struct ReadySet {
    entries: [Event; MOST],
    count: usize,
}

impl ReadySet {
    /// Returns the numbers of the ready descriptors.
    pub fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.entries.iter().take(self.count).map(|entry| entry.data.u64())
    }

    /// Returns true if more descriptors may be ready, because this set contains `MOST` events, the
    /// maximum.
    pub fn there_may_be_more(&self) -> bool {
        self.count == MOST
    }
}
