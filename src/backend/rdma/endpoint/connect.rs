//! Connection setup: two ranks connect when they first exchange data. Each rank sends the
//! attributes of its queue pairs over the control sockets and reports when its queue pairs are
//! connected. The other rank sends messages only after that report: a message that arrives before
//! the queue pairs are connected would be retransmitted for a long time. `reconnect` repeats these
//! steps for a broken connection.

use super::peer::{ConnectStage, Peer};
use crate::abi::status::DTL_ERROR_BUSY;
use crate::backend::bootstrap::liveness::{LONGEST, OobEvent};
use crate::backend::bootstrap::records::{bytes_of, text_of, text_words, words_of};
use crate::backend::op_table::{index_of, rank_of};
use crate::backend::rdma::config::Config;
use crate::backend::rdma::engine::RdmaEngine;
use crate::backend::rdma::verbs::errors::here;
use crate::backend::rdma::verbs::qp::{QpAttributes, Remote};
use crate::backend::rdma::verbs::types::Gid;
use crate::error::{Error, Result, fail};
use crate::runtime::log;

/// Kind of the setup message with queue pair attributes. Its 64-bit words: the kind; the generation
/// of the connection; the address and the remote key of the words to which the peer writes credits;
/// then, for each queue pair, one word with the numbers of received and consumed messages, and five
/// words of attributes.
const ENDS: u64 = 1;
const READY: u64 = 2;
/// Kind of the setup message in which a rank reports that it cannot establish its side of the
/// connection; a string with the reason follows.
const REFUSED: u64 = 3;
/// Kind of the setup message in which a rank reports that it has closed the connection; a string
/// with the reason follows.
const BROKEN: u64 = 4;
const END: usize = 6;
/// Maximum depth (number of posted receives) of the queue pair that connects a rank to itself. The
/// queue pair has room for four times as many atomic requests.
const OWN_DEPTH: u32 = 4;

/// Builds a setup message of kind `what` with the string `why`, truncated to the maximum size of a
/// message.
fn with_text(what: u64, why: &str) -> Vec<u64> {
    let mut words = [&[what], text_words(why).as_slice()].concat();
    words.truncate(LONGEST / 8 - 1);
    words
}

fn ends_of(peer: &Peer) -> Vec<u64> {
    let generation = u64::from(peer.repair.generation);
    let credits = peer.slab.credit_word(0).addr().get() as u64;
    let mut all = vec![ENDS, generation, credits, u64::from(peer.slab_key())];
    for lane in &peer.lanes {
        let end = lane.queue.end();
        let numbers = u64::from(end.number) | u64::from(end.first_packet) << 32;
        let limits = u64::from(end.lid) | u64::from(end.reads) << 32;
        let messages = u64::from(lane.received) | u64::from(lane.consumed) << 32;
        all.extend([messages, numbers, limits, u64::from(end.mtu)]);
        all.extend(words_of(&end.gid.0));
    }
    all
}

fn end_of(words: &[u64]) -> Option<QpAttributes> {
    let [_, numbers, limits, mtu, high, low] = *words.first_chunk::<END>()?;
    let gid = Gid(bytes_of(&[high, low]).try_into().ok()?);
    let (number, first_packet) = (numbers as u32, (numbers >> 32) as u32);
    let (lid, reads) = (limits as u16, (limits >> 32) as u8);
    Some(QpAttributes { number, first_packet, lid, reads, mtu: mtu as u32, gid })
}

impl RdmaEngine {
    /// Returns `Ok` if messages may be sent to `rank`; BUSY while the connection is being
    /// established.
    pub(crate) fn reach(&mut self, rank: usize) -> Result<()> {
        if self.stage(rank) == ConnectStage::Ready { Ok(()) } else { self.reach_first(rank) }
    }

    fn reach_first(&mut self, rank: usize) -> Result<()> {
        match self.stage(rank) {
            ConnectStage::Ready => Ok(()),
            ConnectStage::Gone => Err(self.is_gone(rank)),
            ConnectStage::Asked | ConnectStage::Connected | ConnectStage::Broken => Err(busy()),
            ConnectStage::None if rank == self.rank => self.connect_self(),
            ConnectStage::None => {
                self.make_peer(rank)?;
                self.send_ends(rank)?;
                Err(busy())
            }
        }
    }

    pub(crate) fn stage(&self, rank: usize) -> ConnectStage {
        self.peers.get(rank).map_or(ConnectStage::None, |peer| peer.stage)
    }

    fn generation(&self, rank: usize) -> u32 {
        self.peers.get(rank).map_or(0, |peer| peer.repair.generation)
    }

    /// Notifies a peer, which may still be alive, that this side of the connection is closed.
    pub(crate) fn notify_broken(&mut self, rank: usize, why: &str) {
        drop(self.say_over_socket(rank, &with_text(BROKEN, why)));
    }

    /// Sends the attributes of this side's queue pairs to a peer.
    pub(crate) fn send_ends(&mut self, rank: usize) -> Result<()> {
        let Some(peer) = self.peers.get_mut(rank) else { return Ok(()) };
        let words = ends_of(peer);
        peer.lanes.iter_mut().for_each(|lane| lane.reported = lane.consumed);
        self.say_over_socket(rank, &words)
    }

    fn say_over_socket(&mut self, rank: usize, words: &[u64]) -> Result<()> {
        if rank == self.rank {
            self.handle_message(rank, words);
            return Ok(());
        }
        self.oob.send(rank_of(rank), &bytes_of(words))
    }

    fn make_peer(&mut self, rank: usize) -> Result<()> {
        self.check_devices()?;
        let mut on = Vec::new();
        for rail in 0..self.rails.len() {
            for _ in 0..self.config.queues {
                on.push((rail, self.completions(rail)?));
            }
        }
        let made = Peer::make(rank, &on, &self.config)?;
        self.put_peer(rank, made)?;
        self.connecting += 1;
        Ok(())
    }

    fn put_peer(&mut self, rank: usize, made: Peer) -> Result<()> {
        let Some(peer) = self.peers.make(rank) else {
            return fail!(DTL_ERROR_OUT_OF_MEMORY, "no memory for a connection to rank {rank}");
        };
        *peer = made;
        Ok(())
    }

    /// Connects a queue pair to itself, so that this rank's network card can execute atomic
    /// operations on the rank's own memory. This queue pair does not carry messages.
    fn connect_self(&mut self) -> Result<()> {
        let config = Config { depth: self.config.depth.min(OWN_DEPTH), ..self.config.clone() };
        let mut made = Peer::make(self.rank, &[(0, self.completions(0)?)], &config)?;
        for lane in &made.lanes {
            lane.queue.connect(&lane.queue.end(), &config)?;
        }
        made.stage = ConnectStage::Ready;
        self.put_peer(self.rank, made)
    }

    /// Polls the devices' asynchronous events and the control sockets, runs the watchdog, and
    /// continues reconnections.
    pub(crate) fn look_around(&mut self) {
        self.poll_devices();
        self.watch();
        let mut events = Vec::new();
        self.oob.poll(&mut |event| events.push(event));
        for event in events {
            match event {
                OobEvent::Message(rank, bytes) => {
                    self.handle_message(index_of(rank), &words_of(&bytes))
                }
                OobEvent::Gone(rank, _, why) => self.fail(index_of(rank), &why),
            }
        }
        if !self.mending.is_empty() {
            self.mend();
        }
    }

    fn handle_message(&mut self, rank: usize, words: &[u64]) {
        let outcome = match words {
            [ENDS, generation, ends @ ..] => self.handle_ends(rank, *generation as u32, ends),
            [READY, generation] => {
                // A READY of an earlier generation is for a broken connection, so it is ignored.
                if *generation as u32 == self.generation(rank) {
                    self.ready(rank);
                }
                Ok(())
            }
            [BROKEN, why @ ..] => fail!(
                DTL_ERROR_CONNECTION_LOST,
                "it has given up the connection to this rank; it says: {}",
                text_of(why)
            ),
            [REFUSED, why @ ..] => fail!(
                DTL_ERROR_CONNECTION_LOST,
                "it could not make its end of the connection; it says: {}",
                text_of(why)
            ),
            _ => fail!(
                DTL_ERROR_COMMUNICATION,
                "what it says over the socket is nothing of this library"
            ),
        };
        if let Err(error) = outcome {
            self.fail(rank, error.text());
        }
    }

    /// Records that the peer's queue pairs are connected. If this side's queue pairs are connected
    /// too, the connection becomes ready.
    pub(crate) fn ready(&mut self, rank: usize) {
        let Some(peer) = self.peers.get_mut(rank) else { return };
        peer.repair.is_other_ready = true;
        if peer.stage != ConnectStage::Connected {
            return;
        }
        peer.stage = ConnectStage::Ready;
        self.connecting -= 1;
        let is_again = peer.repair.generation > 0;
        if let (true, Err(error)) = (is_again, self.resume(rank)) {
            self.fail(rank, error.text());
        }
    }

    /// Handles the queue pair attributes that the peer has sent.
    fn handle_ends(&mut self, rank: usize, generation: u32, ends: &[u64]) -> Result<()> {
        match self.stage(rank) {
            ConnectStage::Gone => return Ok(()),
            ConnectStage::None if rank != self.rank => {
                let made = self.make_peer(rank).and_then(|()| self.send_ends(rank));
                if let Err(error) = made {
                    log::warning!("a connection that rank {rank} wants: {error}");
                    self.say_over_socket(rank, &with_text(REFUSED, error.text()))?;
                    return Err(here(error));
                }
            }
            ConnectStage::Connected | ConnectStage::Ready => self.broke_there(rank),
            // The peer was connected before this side was, and the peer's side has broken since.
            ConnectStage::Asked if self.generation(rank).wrapping_add(1) == generation => {
                self.broke_there(rank);
            }
            _ => {}
        }
        let Some(peer) = self.peers.get_mut(rank).filter(|peer| peer.failing.is_none()) else {
            return Ok(());
        };
        if (generation.wrapping_sub(peer.repair.generation) as i32) < 0 {
            return Ok(()); // the peer has not detected yet that the connection has broken
        }
        if generation != peer.repair.generation || ends.len() != 2 + END * peer.lanes.len() {
            return fail!(
                DTL_ERROR_COMMUNICATION,
                "it tells {} words of connection {generation}, this rank has {} queue pairs of \
                 connection {}: all need the same configuration",
                ends.len(),
                peer.lanes.len(),
                peer.repair.generation
            );
        }
        peer.repair.answered = Some(ends.to_vec());
        if peer.stage == ConnectStage::Asked { self.connect(rank) } else { Ok(()) }
    }

    /// Connects this side if the peer's queue pair attributes have arrived. A failed attempt is
    /// repeated until the time limit for reconnection (`Config::reconnect_ms`) has elapsed.
    pub(crate) fn connect(&mut self, rank: usize) -> Result<()> {
        let Some(peer) = self.peers.get_mut(rank) else { return Ok(()) };
        let Some(ends) = peer.repair.answered.take() else { return Ok(()) };
        if let Err(error) = peer.connect(&ends, &self.config) {
            if !peer.repair.tries_again(self.config.reconnect_ns()) {
                return Err(here(error));
            }
            log::debug!("rdma: rank {rank} is not connected yet: {error}");
            peer.repair.answered = Some(ends);
            self.mending.push(rank);
            return Ok(());
        }
        let is_other_ready = peer.repair.is_other_ready;
        let generation = u64::from(peer.repair.generation);
        self.say_over_socket(rank, &[READY, generation])?;
        if is_other_ready {
            self.ready(rank);
        }
        Ok(())
    }
}

impl Peer {
    /// Connects the local queue pairs to the peer's queue pairs, whose attributes the peer has
    /// sent.
    fn connect(&mut self, peer_consumed: &[u64], config: &Config) -> Result<()> {
        let [told_at, key, ends @ ..] = peer_consumed else { return Ok(()) };
        for (lane, words) in self.lanes.iter_mut().zip(ends.chunks_exact(END)) {
            let (Some(end), Some(messages)) = (end_of(words), words.first()) else { continue };
            if !lane.mending.is_connected {
                lane.queue.connect(&end, config)?;
            }
            (lane.mending.is_connected, lane.mending.arrived) = (true, *messages as u32);
            lane.add_credits((*messages >> 32) as u32);
        }
        self.tell = Some(Remote { addr: *told_at, rkey: *key as u32 });
        self.stage = ConnectStage::Connected;
        Ok(())
    }
}

/// Creates the BUSY error, after which the caller can retry the call.
pub(crate) fn busy() -> Error {
    Error::new(DTL_ERROR_BUSY, "no room now")
}
