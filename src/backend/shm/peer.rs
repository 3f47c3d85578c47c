//! State of the other ranks. For each rank: whether it is alive and whether its memory can be read.
//! For ranks with messages also: ring ends and queues.

use super::memory::cells::PeerCells;
use super::memory::ring::{Consumer, Producer};
use super::memory::segment::{PeerState, Segment};
use super::protocol::rx::PipelineReceive;
use crate::error::{Result, fail};
use crate::runtime::component::OpId;
use crate::sys::memory::buf::{Region, Scratch};
use crate::sys::os::process::{self, PidFd};
use std::collections::VecDeque;
use std::io;

/// All ranks. A rank without messages in either direction costs only its `Peer`.
pub(super) struct Peers {
    all: Vec<Peer>,
    links: Vec<Link>,
}

impl Peers {
    pub(super) fn new(all: Vec<Peer>) -> Peers {
        Peers { all, links: Vec::new() }
    }

    /// Returns the number of ranks, including this rank.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn all(&self) -> &[Peer] {
        &self.all
    }

    #[inline]
    pub(super) fn get(&self, rank: usize) -> Option<&Peer> {
        self.all.get(rank)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, rank: usize) -> Option<&mut Peer> {
        self.all.get_mut(rank)
    }

    /// Returns the link to `rank`, if the two ranks have exchanged messages.
    #[inline]
    pub(super) fn link(&self, rank: usize) -> Option<&Link> {
        self.links.get(usize::from(self.all.get(rank)?.link).wrapping_sub(1))
    }

    #[inline]
    pub(super) fn link_mut(&mut self, rank: usize) -> Option<&mut Link> {
        self.links.get_mut(usize::from(self.all.get(rank)?.link).wrapping_sub(1))
    }

    /// Returns the link to `rank`, creating it if necessary; `None` if there is no such rank.
    pub(super) fn make_link(&mut self, rank: usize) -> Option<&mut Link> {
        let peer = self.all.get_mut(rank)?;
        if peer.link == 0 {
            self.links.push(Link::default());
            peer.link = u16::try_from(self.links.len()).unwrap_or(0);
        }
        self.link_mut(rank)
    }
}

/// State of one rank: 12 bytes (there are at most `MOST_RANKS` ranks, so 16 bits identify the
/// link).
pub(super) struct Peer {
    process: Option<PidFd>,
    pid: i32,
    /// Index of the rank's link plus 1; 0 means no link.
    link: u16,
    /// State of the rank as handled by this process: operations that had to end because of that
    /// state have ended.
    pub(super) state: PeerState,
    /// True if the rank's memory can be read, as tested when the communicator was opened.
    pub(super) readable: bool,
}

/// Link between this rank and a rank with which it has exchanged messages.
#[derive(Default)]
pub(super) struct Link {
    pub(super) producer: Option<Producer>,
    pub(super) consumer: Option<Consumer>,
    /// Cells of the other rank, once it has sent one.
    pub(super) cells: Option<PeerCells>,
    /// Message of which the other rank is sending unrequested pieces.
    pub(super) long: Option<PipelineReceive>,
    /// Sends that found no room in the ring, in their order.
    pub(super) starts: VecDeque<OpId>,
    /// Receives that have a control record to send.
    pub(super) answers: VecDeque<OpId>,
    /// Sends that copy their pieces, in turns.
    pub(super) streams: VecDeque<OpId>,
    /// True if a queue is not empty and the rank is in the engine's list.
    pub(super) is_listed: bool,
}

impl Peer {
    /// Creates the state of a rank with process id `pid`. `process` is `None` for this rank itself,
    /// which needs no process descriptor.
    pub(super) fn new(pid: i32, process: Option<PidFd>) -> Peer {
        Peer { process, pid, link: 0, state: PeerState::Present, readable: false }
    }

    /// Copies from the rank's memory. Returns Ok(0) if the process has ended.
    pub(super) fn read(&self, address: u64, into: Region) -> io::Result<usize> {
        let alive = || self.process.as_ref().is_some_and(|process| !process.exited());
        if !alive() {
            return Ok(0);
        }
        let count = process::read_memory(self.pid, [(address, into)])?;
        // The process is alive afterwards too, so the process id referred to it all the time, and
        // the bytes are from its memory.
        Ok(if alive() { count } else { 0 })
    }

    /// Returns the rank's process id when the communicator was opened.
    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    fn read_word(&self, address: u64, into: &mut u64) -> io::Result<usize> {
        // SAFETY: the word is valid for writes for the duration of the call.
        let region = unsafe { Region::new(std::ptr::from_mut(into).cast(), size_of::<u64>()) };
        self.read(address, region)
    }
}

impl Link {
    pub(super) fn has_work(&self) -> bool {
        !(self.starts.is_empty() && self.answers.is_empty() && self.streams.is_empty())
    }

    pub(super) fn forget_work(&mut self) {
        self.starts.clear();
        self.answers.clear();
        self.streams.clear();
    }
}

/// Modes of DTL_CMA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    /// Read the memory of other ranks if the operating system permits it.
    Auto,
    /// Also permit other ranks to read this process' memory, through the Yama module.
    Allow,
    /// Never read the memory of other ranks.
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
                "environment variable DTL_CMA=\"{other}\": \"auto\", \"allow\" or \"off\" \
                 expected; correct or unset it"
            ),
        }
    }
}

/// Word of this process that other ranks try to read when the communicator is opened. Lives as long
/// as the communicator.
pub(super) struct Probe(#[allow(dead_code, reason = "others read it")] Scratch);

impl Probe {
    /// Publishes the address and value of the word. With address 0 other ranks do not try to read.
    pub(super) fn publish(segment: &Segment, rank: usize, mode: Mode) -> Result<Probe> {
        // Random, so that no other process has the value at this address; not 0, the value of an
        // untouched page.
        let value = process::random_u64().unwrap_or(1) | 1;
        let Some(word) = Scratch::of_words(&[value]) else {
            return fail!(DTL_ERROR_OUT_OF_MEMORY, "no memory for 8 bytes; free some");
        };
        let address = if mode == Mode::Off { 0 } else { word.region().addr().get() as u64 };
        segment.set_probe(rank, address, value);
        Ok(Probe(word))
    }

    /// Tries to read the published word of `peer`; returns the reason for a failure.
    pub(super) fn read(
        segment: &Segment,
        rank: usize,
        peer: &Peer,
    ) -> std::result::Result<(), String> {
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
