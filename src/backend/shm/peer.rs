//! A rank's state for the others: for each one whether it lives and whether its memory can be read;
//! for those that it exchanges messages with, the ring ends and the queues.

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

/// All ranks. One without a message in either direction costs its `Peer`, nothing else.
pub(super) struct Peers {
    all: Vec<Peer>,
    links: Vec<Link>,
}

impl Peers {
    pub(super) fn new(all: Vec<Peer>) -> Peers {
        Peers { all, links: Vec::new() }
    }

    /// Number of ranks, with this one.
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

    /// Returns the link to another rank, if they have exchanged messages.
    #[inline]
    pub(super) fn link(&self, rank: usize) -> Option<&Link> {
        self.links.get(usize::from(self.all.get(rank)?.link).wrapping_sub(1))
    }

    #[inline]
    pub(super) fn link_mut(&mut self, rank: usize) -> Option<&mut Link> {
        self.links.get_mut(usize::from(self.all.get(rank)?.link).wrapping_sub(1))
    }

    /// Returns the link to another rank, and makes it if there is none; `None`: there is no such
    /// rank.
    pub(super) fn make_link(&mut self, rank: usize) -> Option<&mut Link> {
        let peer = self.all.get_mut(rank)?;
        if peer.link == 0 {
            self.links.push(Link::default());
            peer.link = u16::try_from(self.links.len()).unwrap_or(0);
        }
        self.link_mut(rank)
    }
}

/// State of every rank: 12 bytes (`MOST_RANKS` of them at most, so 16 bits identify the link).
pub(super) struct Peer {
    process: Option<PidFd>,
    pid: i32,
    /// One more than the index of its link; 0 = none.
    link: u16,
    /// As settled here: everything that had to end because of it has ended.
    pub(super) state: PeerState,
    /// Whether its memory can be read, as tried at the start.
    pub(super) readable: bool,
}

/// Link between this rank and one that it has exchanged messages with.
#[derive(Default)]
pub(super) struct Link {
    pub(super) producer: Option<Producer>,
    pub(super) consumer: Option<Consumer>,
    /// Its cells, once it has sent one.
    pub(super) cells: Option<PeerCells>,
    /// The message that it is sending unrequested.
    pub(super) long: Option<PipelineReceive>,
    /// Sends that found no room, in their order.
    pub(super) starts: VecDeque<OpId>,
    /// Receives that have a control record to send.
    pub(super) answers: VecDeque<OpId>,
    /// Sends that copy their pieces, taking turns.
    pub(super) streams: VecDeque<OpId>,
    /// Whether something is queued and the rank is in the engine's list.
    pub(super) is_listed: bool,
}

impl Peer {
    /// A rank of this process id; `None` for the own one, which is not held.
    pub(super) fn new(pid: i32, process: Option<PidFd>) -> Peer {
        Peer { process, pid, link: 0, state: PeerState::Present, readable: false }
    }

    /// Copies from its memory. Ok(0): it is not there any more.
    pub(super) fn read(&self, address: u64, into: Region) -> io::Result<usize> {
        let alive = || self.process.as_ref().is_some_and(|process| !process.exited());
        if !alive() {
            return Ok(0);
        }
        let count = process::read_memory(self.pid, [(address, into)])?;
        // Alive afterwards too: so the id was its own all the time, and the bytes are its own.
        Ok(if alive() { count } else { 0 })
    }

    /// Its process id when the communicator was opened.
    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    fn read_word(&self, address: u64, into: &mut u64) -> io::Result<usize> {
        // SAFETY: the word is valid for writes as long as the call runs.
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
    /// Read others' memory where the system lets us.
    Auto,
    /// Also allow others to read ours, by the Yama module.
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
                "environment variable DTL_CMA=\"{other}\": \"auto\", \"allow\" or \"off\" \
                 expected; correct or unset it"
            ),
        }
    }
}

/// A word of this process that others try to read at the start. Lives as long as the communicator.
pub(super) struct Probe(#[allow(dead_code, reason = "others read it")] Scratch);

impl Probe {
    /// Publishes it. With an address of 0 others do not try.
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

    /// Tries to read a peer's; why not, if not.
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
