//! What a rank knows of another: its ring ends, what is queued for it, whether it lives, and whether
//! its memory can be read.

use super::ring::{Consumer, Producer};
use super::segment::{Segment, State};
use crate::error::{Result, fail};
use crate::runtime::backend::OpId;
use crate::sys::buf::{Region, Scratch};
use crate::sys::process::{self, PidFd};
use std::collections::VecDeque;
use std::io;

/// See the module's text.
pub(super) struct Peer {
    /// As settled here: everything that had to end because of it has ended.
    pub(super) state: State,
    pub(super) producer: Option<Producer>,
    pub(super) consumer: Option<Consumer>,
    /// Sends that found no room, in their order.
    pub(super) starts: VecDeque<OpId>,
    /// Receives that have a control record to send.
    pub(super) answers: VecDeque<OpId>,
    /// Sends whose bytes go through the ring, taking turns.
    pub(super) streams: VecDeque<OpId>,
    /// Whether something is queued and the rank is in the engine's list.
    pub(super) is_listed: bool,
    pid: i32,
    process: Option<PidFd>,
    /// Whether its memory can be read, as tried at the start.
    pub(super) readable: bool,
}

impl Peer {
    /// A rank of this process id; `None` for the own one, which needs no watching.
    pub(super) fn new(pid: i32, process: Option<PidFd>) -> Peer {
        Peer {
            state: State::Present,
            producer: None,
            consumer: None,
            starts: VecDeque::new(),
            answers: VecDeque::new(),
            streams: VecDeque::new(),
            is_listed: false,
            pid,
            process,
            readable: false,
        }
    }

    pub(super) fn process(&self) -> Option<&PidFd> {
        self.process.as_ref()
    }

    /// Copies from its memory. Ok(0): it is not there any more.
    pub(super) fn read(&self, address: u64, into: Region) -> io::Result<usize> {
        let alive = || self.process.as_ref().is_some_and(|process| !process.exited());
        if !alive() {
            return Ok(0);
        }
        let count = process::read_memory(self.pid, address, into)?;
        // Alive afterwards too: so the id was its own all the time, and the bytes are its own.
        Ok(if alive() { count } else { 0 })
    }

    fn read_word(&self, address: u64, into: &mut u64) -> io::Result<usize> {
        // SAFETY: the word is valid for writes as long as the call runs.
        let region = unsafe { Region::new(std::ptr::from_mut(into).cast(), size_of::<u64>()) };
        self.read(address, region)
    }

    pub(super) fn has_work(&self) -> bool {
        !(self.starts.is_empty() && self.answers.is_empty() && self.streams.is_empty())
    }

    pub(super) fn forget_work(&mut self) {
        self.starts.clear();
        self.answers.clear();
        self.streams.clear();
    }
}

/// What DTL_CMA asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    /// Read others' memory where the system lets us.
    Auto,
    /// Also tell the Yama module that others may read ours.
    Allow,
    /// Never.
    Off,
}

impl Mode {
    pub(super) fn parse(text: Option<&str>) -> Result<Mode> {
        match text {
            None | Some("" | "auto") => Ok(Mode::Auto),
            Some("allow") => Ok(Mode::Allow),
            Some("off") => Ok(Mode::Off),
            Some(other) => fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "environment variable DTL_CMA=\"{other}\": \"auto\", \"allow\" or \"off\" expected; correct or unset it"
            ),
        }
    }
}

/// A word of this process that others try to read at the start. Lives as long as the communicator.
pub(super) struct Probe(#[allow(dead_code, reason = "others read it")] Scratch);

impl Probe {
    /// Publishes it. An address of 0 tells others not to try.
    pub(super) fn publish(segment: &Segment, rank: usize, mode: Mode) -> Result<Probe> {
        // Any byte will do that is not what an untouched page holds.
        let Some(word) = Scratch::new(8) else {
            return fail!(DTL_ERROR_OUT_OF_MEMORY, "no memory for 8 bytes; free some");
        };
        let value = process::random_u64().unwrap_or(1) | 1;
        let byte = value.to_le_bytes()[0];
        word.region().fill(byte);
        let address = if mode == Mode::Off { 0 } else { word.region().addr().get() as u64 };
        segment.set_probe(rank, address, u64::from_le_bytes([byte; 8]));
        Ok(Probe(word))
    }

    /// Tries to read a peer's; why not, if not.
    pub(super) fn read(segment: &Segment, rank: usize, peer: &Peer) -> std::result::Result<(), String> {
        let (address, value) = segment.probe(rank);
        if address == 0 {
            return Err(format!("DTL_CMA=off on rank {rank}"));
        }
        let mut found = 0_u64;
        match peer.read_word(address, &mut found) {
            Ok(8) if found == value => Ok(()),
            Ok(_) => Err(format!("rank {rank} gave other bytes")),
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                Err("not permitted (EPERM)".to_string())
            }
            Err(error) => Err(error.to_string()),
        }
    }
}
