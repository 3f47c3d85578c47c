//! Measures the distance between two processors as the round-trip time of a cache line.
//!
//! The time is measured in shared memory, between ranks 0 and 1 of a communicator or between two
//! threads of this process. It is unknown between ranks on different nodes.

use dtl::tooling::os::{SharedMapping, SharedWord};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Instant;

const TRIPS: u64 = 60;
const TRIES: usize = 3;
/// Number of polls after which a thread that waits for its peer in a round trip yields the
/// processor, because the peer may need it.
const PATIENCE: u32 = 20_000;
/// Offset of the word `pong` in the shared memory, in bytes. The offset is two cache lines, because
/// processors prefetch pairs of lines.
const PONG: usize = 128;

/// Role of a thread in the measurement of round trips: `Ping` begins each round trip, `Pong`
/// answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Ping,
    Pong,
}

/// One end of the probe.
pub(crate) struct Probe {
    part: Part,
    ping: SharedWord,
    pong: SharedWord,
    turn: u64,
}

/// Allocates the shared memory through which the two threads that measure a round trip communicate.
pub(crate) fn memory() -> Result<Arc<SharedMapping>, String> {
    memory_of(4096)
}

/// Allocates `bytes` bytes of shared memory, which another process can open ([`open`]).
pub(crate) fn memory_of(bytes: usize) -> Result<Arc<SharedMapping>, String> {
    let make = || {
        let memory = SharedMapping::create(bytes)?;
        memory.commit(0, bytes)?;
        Ok(memory)
    };
    make().map_err(|error: std::io::Error| format!("shared memory: {error}"))
}

/// Returns the id of this process and the file descriptor of the shared memory. With these values,
/// another process of this node can open the memory ([`open`]).
pub(crate) fn address_of(memory: &SharedMapping) -> [u64; 2] {
    let descriptor =
        memory.descriptor().and_then(|it| u64::try_from(it.as_raw_fd()).ok()).unwrap_or(0);
    [u64::from(std::process::id()), descriptor]
}

/// Opens the shared memory that another process has allocated for the measurement of round trips
/// ([`memory`]). The argument is the result of [`address_of`] in that process.
pub(crate) fn open([process, descriptor]: [u64; 2]) -> Result<Arc<SharedMapping>, String> {
    let path = format!("/proc/{process}/fd/{descriptor}");
    let file = File::options().read(true).write(true).open(&path);
    file.and_then(|file| SharedMapping::attach(OwnedFd::from(file)))
        .map_err(|error| format!("{path}: {error}"))
}

impl Probe {
    pub(crate) fn new(memory: &Arc<SharedMapping>, part: Part) -> Option<Probe> {
        Some(Probe { part, ping: memory.word(0)?, pong: memory.word(PONG)?, turn: 0 })
    }

    /// Measures round trips in a few attempts and returns the shortest time of a round trip in
    /// nanoseconds. Both ends must call this function at the same time.
    pub(crate) fn round_trip(&mut self) -> f64 {
        (0..TRIES).map(|_| self.once()).fold(f64::INFINITY, f64::min)
    }

    fn once(&mut self) -> f64 {
        let begin = Instant::now();
        for _ in 0..TRIPS {
            self.turn += 1;
            if self.part == Part::Ping {
                self.ping.store(self.turn, Ordering::Release);
                wait_for(&self.pong, self.turn);
            } else {
                wait_for(&self.ping, self.turn);
                self.pong.store(self.turn, Ordering::Release);
            }
        }
        begin.elapsed().as_nanos() as f64 / TRIPS as f64
    }
}

/// Helper for measuring round trips between the calling thread and a second thread of this process,
/// which sleeps between measurements.
pub(crate) struct Helper {
    own: Probe,
    ask: Sender<()>,
}

impl Helper {
    /// Creates the second thread and the memory that it shares with the caller; returns `None` if
    /// there is only one processor, or if no shared memory can be allocated.
    pub(crate) fn new(processors: usize) -> Option<Helper> {
        let memory = memory().ok().filter(|_| processors > 1)?;
        let (own, mut other) = (Probe::new(&memory, Part::Ping)?, Probe::new(&memory, Part::Pong)?);
        let (ask, asked) = mpsc::channel();
        // It ends when nobody can ask any more.
        thread::spawn(move || {
            asked.iter().for_each(|()| {
                other.round_trip();
            })
        });
        Some(Helper { own, ask })
    }

    /// Measures a round trip between the calling thread and the thread of this helper; returns its
    /// duration in nanoseconds.
    pub(crate) fn round_trip(&mut self) -> Option<f64> {
        self.ask.send(()).ok()?;
        Some(self.own.round_trip())
    }
}

/// Polls until a word that only grows has at least this value.
#[inline]
pub(crate) fn wait_for(word: &SharedWord, value: u64) {
    let mut spins: u32 = 0;
    while word.load(Ordering::Acquire) < value {
        spins = spins.wrapping_add(1);
        if spins % PATIENCE == 0 {
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
#[path = "tests/probe.rs"]
mod tests;
