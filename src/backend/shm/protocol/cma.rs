//! Fragments that a receiver reads directly from the sender's memory by cross-memory attach (CMA,
//! process_vm_readv), starting at the end of the message.
//!
//! With the methods `Get` and `Split` (`copy_choice`), the receiver claims fragments as soon as the
//! message is matched. Copies through cells (shared buffers) require a running sender. So with
//! `Cells` the receiver claims fragments only while the sender is inactive: computing, or waiting
//! for a core. The send can complete only when the receiver has read all fragments that it has
//! claimed, so the receiver claims few fragments at a time.

use super::copy_method::CopyMethod;
use super::engine::{ControlRecord, Engine, ShmOperation, TakenOffer};
use super::pipeline::{FRAGMENT, fragments_of};
use super::rx::reduce_stored;
use crate::backend::shm::memory::ring::Consumer;
use crate::backend::shm::memory::segment::PeerState;
use crate::runtime::component::OpId;
use crate::runtime::explain;
use crate::sys::sync::wait::now_ns;

/// Number of polls without a new record from the sender before the receiver reads the clock. While
/// the sender is active, a new fragment arrives within fewer polls.
const LOOKS: u32 = 32;
/// Time, in nanoseconds, without a new record from the sender before the receiver claims fragments
/// that it then reads from the sender's memory. If ranks share cores, one poll may last that long,
/// because the waiting rank yields its core to other ranks.
const PATIENCE_NS: u64 = 20_000;
/// Maximum number of bytes that a receiver claims at a time while the sender may copy fragments.
/// A sender that becomes active again waits until at most that many bytes have been copied.
const STEP: usize = 256 << 10;
/// Maximum number of bytes that one system call reads. A call takes about as long as copying
/// 32 KiB, in addition to the copy.
const READ: usize = 1 << 20;
/// Number of fragments that a receiver reads at a time if it reduces them, so that they are in the
/// cache when they are reduced.
const REDUCED: u32 = 32;
/// Maximum number of reads per call to `progress`.
const READS: usize = 2;

/// Minimum number of fragments of a receiver's claim, except its first.
pub(super) const LAST: u32 = 4;

/// Returns the number of fragments that one side claims at a time for a copy by the kernel: half of
/// the `left` unclaimed ones, but at least `least` and at most `STEP` bytes.
pub(super) fn half(left: u32, least: u32) -> u32 {
    left.div_ceil(2).max(left.min(least)).min(fragments_of(STEP))
}

/// Result of one step of a receive that may read the sender's memory.
enum Looked {
    /// Nothing can be done now.
    Waits,
    Read,
    /// The receive reads no further fragments.
    Over,
}

impl Engine {
    pub(crate) fn help_on(&mut self) -> bool {
        let mut moved = false;
        for _ in 0..self.helping.len().min(READS) {
            let Some(id) = self.helping.pop_front() else { break };
            let looked = self.help(id);
            moved |= !matches!(looked, Looked::Waits);
            match looked {
                Looked::Waits => self.helping.push_back(id),
                Looked::Read => self.helping.push_front(id),
                Looked::Over => {}
            }
        }
        moved
    }

    #[inline(never)] // row: shm_message_8
    fn help(&mut self, id: OpId) -> Looked {
        let Some(ShmOperation::Receive(receive)) = self.operations.get_mut(id) else {
            return Looked::Over;
        };
        let (into, is_reduced) = (receive.into, receive.action.is_some());
        let Some(taken) = &mut receive.taken else { return Looked::Over };
        if taken.answer != ControlRecord::None {
            // The answer is not sent yet: either Clear is pending, or the receive is complete.
            return Looked::Waits;
        }
        let source = taken.source;
        let Some(consumer) = self.peers.consumer(source) else { return Looked::Over };
        if taken.help.first == taken.help.from && !claim_fragments(taken, consumer, is_reduced) {
            // With cells, the sender may become inactive later. Else all fragments are claimed.
            let may_claim_later = taken.help.method.uses_cells();
            return if may_claim_later { Looked::Waits } else { Looked::Over };
        }
        let Some(peer) = self.peers.get_mut(source) else { return Looked::Over };
        let help = &mut taken.help;
        let fragment = into.part(help.next, READ.min(help.from - help.next));
        match peer.read(taken.offer.address.wrapping_add(help.next as u64), fragment) {
            // The sender's process has ended; the next round of progress handles that.
            Ok(0) => {
                self.segment.mark(source, PeerState::Dead);
                return Looked::Waits;
            }
            Ok(count) => help.next += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => return Looked::Waits,
            Err(error) => {
                peer.readable &= error.raw_os_error() != Some(libc::EPERM);
                explain_denial(source, &error);
                if let Some(link) = self.peers.link_mut(source) {
                    link.method_failed(taken.want, help.method);
                    link.consumer.iter().for_each(|consumer| return_fragments(taken, consumer));
                }
                self.answer_or_queue(source, id);
                return Looked::Over;
            }
        }
        if help.next < help.from {
            return Looked::Read;
        }
        let (first, len) = (help.first, help.from - help.first);
        help.from = first;
        let is_complete = taken.is_complete();
        reduce_stored(receive, first, len);
        if is_complete {
            self.end_fragments(id);
        }
        Looked::Read
    }
}

/// Records for `dtl_explain` that access to the memory of rank `peer` failed.
#[cold]
pub(super) fn explain_denial(peer: usize, error: &std::io::Error) {
    let topic = format!("copies of large messages with rank {peer}");
    explain::chose(&topic, &format!("through shared memory: access to its memory: {error}"));
}

/// Claims fragments of a matched message that the receiver then reads from the sender's memory;
/// with method `Cells`, only if the sender is inactive. Returns false if no fragment is claimed.
fn claim_fragments(taken: &mut TakenOffer, consumer: &Consumer, is_reduced: bool) -> bool {
    let help = &mut taken.help;
    if help.is_alone {
        let most = if is_reduced { REDUCED } else { u32::MAX };
        return claim_more(taken, consumer, |left| left.min(most));
    }
    if !help.method.uses_cells() {
        // The last fragments are claimed together, to save system calls. The sender has half of the
        // first ones in any case.
        let least = if help.from == taken.want { 1 } else { LAST };
        return claim_more(taken, consumer, |left| half(left, least));
    }
    if help.seen != consumer.count() {
        (help.seen, help.quiet) = (consumer.count(), 0);
        return false;
    }
    help.quiet = help.quiet.saturating_add(1);
    if help.quiet < LOOKS {
        return false;
    }
    let now = now_ns();
    if help.quiet == LOOKS {
        help.since_ns = now;
    }
    if now.saturating_sub(help.since_ns) < PATIENCE_NS {
        return false;
    }
    let is_claimed = claim_more(taken, consumer, |left| left.min(fragments_of(STEP)));
    if !is_claimed {
        taken.help.quiet = 0; // the sender has taken the last fragments
    }
    is_claimed
}

/// Claims as many fragments as `count` returns for the number of unclaimed ones. Returns false if
/// there are none.
fn claim_more(taken: &mut TakenOffer, consumer: &Consumer, count: impl Fn(u32) -> u32) -> bool {
    let help = &mut taken.help;
    let range = consumer.offers.take_fragments(taken.offer.claim, count);
    help.first = range.map_or(help.first, |range| range.start as usize * FRAGMENT);
    help.next = help.first;
    help.first < help.from
}

/// Returns claimed fragments to the sender after a failed read (CMA is not permitted, or the memory
/// is not readable).
fn return_fragments(taken: &mut TakenOffer, consumer: &Consumer) {
    let help = &mut taken.help;
    consumer.offers.return_fragments(taken.offer.claim, fragments_of(help.from - help.first));
    help.first = help.from;
    // Clear is sent again, because the sender may have no other work left for this message.
    (taken.help.method, taken.help.is_alone) = (CopyMethod::Cells, false);
    taken.answer = ControlRecord::Clear;
}
