//! Frames on a control connection: hello and reply, then messages, notifications of ranks that died
//! or left, and the farewell from a leaving rank.

use super::super::records::{bytes_of, words_of};
use super::connection::{Connection, ConnectionStage, Frame, kind, unreached};
use super::{Oob, OobEvent, PeerLiveness};
use std::io::ErrorKind;

/// First word of a hello (first frame of a connection). Every incompatible change of the protocol
/// also changes this value.
const MAGIC: u64 = u64::from_be_bytes(*b"dtl-oob1");
/// Number of 64-bit words in a hello (first frame of a connection) and in the reply to it: magic
/// number, cookie of the job, source rank, destination rank, and 1 if the connection is short-lived
/// (`Connection::is_brief`).
pub(super) const HELLO_WORDS: usize = 5;

type Words = [u64; HELLO_WORDS];

impl Oob {
    fn words(&self, from: i32, to: i32, is_brief: bool) -> Words {
        [MAGIC, self.cookie, from as u64, to as u64, u64::from(is_brief)]
    }

    pub(super) fn send_hello(&self, one: &mut Connection) {
        one.channel.queue(kind::HELLO, &bytes_of(&self.words(self.rank, one.peer, one.is_brief)));
        one.stage = ConnectionStage::Unwelcome;
        if one.is_brief {
            // The frames are sent immediately, because this side may leave. They also stay queued
            // until the answer confirms that the peer is the right rank.
            one.waiting.iter().for_each(|(what, bytes)| one.channel.queue(*what, bytes));
        }
    }

    /// Handles a received frame. Returns an error message if the frame cannot be from a rank of
    /// this job.
    pub(super) fn take(
        &mut self,
        one: &mut Connection,
        (what, bytes): Frame,
    ) -> Result<(), String> {
        match (one.stage, what) {
            (ConnectionStage::Guest, kind::HELLO) => self.welcome(one, &words_of(&bytes)),
            (ConnectionStage::Unwelcome, kind::WELCOME)
                if words_of(&bytes) == self.words(one.peer, self.rank, one.is_brief) =>
            {
                one.stage = ConnectionStage::Open;
                let waiting = std::mem::take(&mut one.waiting);
                let to_send = waiting.iter().filter(|_| !one.is_brief);
                to_send.for_each(|(what, bytes)| one.channel.queue(*what, bytes));
                Ok(())
            }
            (ConnectionStage::Open, _) if self.life(one.peer) != PeerLiveness::Here => Ok(()),
            (ConnectionStage::Open, kind::MESSAGE) => {
                self.events.push_back(OobEvent::Message(one.peer, bytes));
                Ok(())
            }
            (ConnectionStage::Open, kind::GONE) => self.handle_gone(one.peer, &bytes),
            (ConnectionStage::Open, kind::BYE) => {
                self.handle_gone(one.peer, &bytes)?;
                self.read_others_of(one.peer);
                self.is_gone(one.peer, PeerLiveness::Left, "it has left");
                Ok(())
            }
            (stage, what) => Err(format!("a frame of kind {what} ({stage:?})")),
        }
    }

    fn welcome(&mut self, one: &mut Connection, words: &[u64]) -> Result<(), String> {
        let &[MAGIC, cookie, from, to, brief] = words else { return Err("no hello".to_owned()) };
        if cookie != self.cookie {
            return Err("another job's cookie".to_owned());
        }
        let from = i32::try_from(from).unwrap_or(-1);
        if to != self.rank as u64 || from == self.rank || self.life(from) != PeerLiveness::Here {
            return Err(format!("rank {from} for rank {to}, here is rank {}", self.rank));
        }
        (one.peer, one.stage, one.is_brief) = (from, ConnectionStage::Open, brief != 0);
        self.ring.suspects.retain(|suspect| suspect.rank != from);
        one.channel.queue(kind::WELCOME, &bytes_of(&self.words(self.rank, from, one.is_brief)));
        if one.is_brief {
            return Ok(());
        }
        if self.is_leaving {
            one.channel.queue(kind::BYE, &self.run());
        }
        let index = one.index;
        if let Some(rank) = self.rank_mut(from) {
            rank.link = rank.link.or(Some(index));
        }
        Ok(())
    }

    pub(super) fn has_talked_nonsense(&mut self, one: Connection, why: &str) {
        match one.stage {
            ConnectionStage::Guest => self.send_away(one, why),
            ConnectionStage::Open => {
                let peer = one.peer;
                self.discard(one);
                let why = format!("it sent what makes no sense: {why}");
                self.is_gone(peer, PeerLiveness::Dead, &why);
            }
            _ => {
                let why = one.on_its_way("somebody else is there");
                self.try_on(one, unreached(&why, ErrorKind::ConnectionRefused));
            }
        }
    }
}
