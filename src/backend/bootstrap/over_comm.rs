//! Allgather of a few 64-bit words per rank over an open transport, while a communicator is opened.
//! It serves only the bootstrap, not application data, and precedes all other messages.

use crate::abi::status::*;
use crate::error::{Error, Result, fail};
use crate::runtime::component::{Completion, Exchange, OpId, Selector, SendMode, Transport};
use crate::sys::memory::buf::{Region, Scratch};
use crate::sys::sync::wait::{self, Deadline};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Match bits that no communicator uses. A rank that has finished the exchange may already send
/// messages on a communicator. These messages must not match the receives of the exchange on other
/// ranks.
const MEETING: u64 = 0xF << 28;
/// Maximum number of rounds per exchange. Each round has its own match bits, so this is also the
/// distance between the match bits of successive exchanges.
const ROUNDS: u64 = 64;
/// Maximum time, in nanoseconds, that the transport may take to release a buffer after a
/// cancellation.
const LET_GO_NS: u64 = 1_000_000_000;

/// Allgather over an open transport. All ranks must call `allgather` the same number of times.
pub(crate) struct OverTransport<'a> {
    over: &'a dyn Transport,
    pub(crate) limit_ns: u64,
    /// Number of the next exchange, which determines its match bits.
    next: AtomicU64,
}

impl<'a> OverTransport<'a> {
    pub(crate) fn new(over: &'a dyn Transport, limit_ns: u64) -> Self {
        OverTransport { over, limit_ns, next: AtomicU64::new(0) }
    }
}

impl Exchange for OverTransport<'_> {
    fn rank(&self) -> i32 {
        self.over.rank()
    }

    fn size(&self) -> i32 {
        self.over.size()
    }

    /// Exchanges the words of all ranks by Bruck's algorithm: in each round, every rank doubles its
    /// number of blocks.
    fn allgather(&self, mine: &[u64]) -> Result<Vec<u64>> {
        let deadline = Deadline::after(self.limit_ns);
        let (rank, size, len) = (self.rank(), self.size(), size_of_val(mine));
        let (Some(own), Some(all)) =
            (Scratch::of_words(mine), Scratch::new(len * size.unsigned_abs() as usize))
        else {
            return fail!(DTL_ERROR_OUT_OF_MEMORY, "no memory for a few words of each rank");
        };
        let blocks = |first: i32, count: i32| {
            let of = |blocks: i32| blocks.unsigned_abs() as usize * len;
            all.region().part(of(first), of(count))
        };
        blocks(0, 1).copy_from(own.region());
        let (mut have, mut word) = (1, MEETING + self.next.fetch_add(1, Relaxed) * ROUNDS);
        while have < size {
            let more = have.min(size - have);
            let (to, from) = ((rank - have).rem_euclid(size), (rank + have) % size);
            let (out, into) = ((blocks(0, more), to), (blocks(have, more), from));
            if let Err((error, has_let_go)) = step(self.over, word, out, into, deadline) {
                if !has_let_go {
                    std::mem::forget(all);
                }
                return Err(error);
            }
            have *= 2;
            word += 1;
        }
        let mut words = all.words();
        words.rotate_right(rank.unsigned_abs() as usize * mine.len());
        Ok(words)
    }
}

/// Sends to one rank and receives from another. On failure, returns an error and a flag that is
/// true if the transport no longer accesses the buffers.
fn step(
    over: &dyn Transport,
    word: u64,
    (out, to): (Region, i32),
    (into, from): (Region, i32),
    deadline: Deadline,
) -> Result<(), (Error, bool)> {
    let receive = over
        .irecv(into, Selector { source: from, match_bits: word, ignore: 0 })
        .map_err(|error| (error, true))?;
    let sent = over.isend(out, to, word, SendMode::Standard);
    let send = sent.map_err(|error| (error, cancel(over, receive)))?;
    let wait = |op| wait::poll(deadline, || over.outcome(op));
    let sent = wait(send).and_then(|done| check(done, to, "send to", out.len()));
    if let Err(error) = sent {
        let both = [cancel(over, send), cancel(over, receive)];
        return Err((error, both == [true, true]));
    }
    let received = wait(receive).and_then(|done| check(done, from, "receive from", into.len()));
    received.map_err(|error| (error, cancel(over, receive)))
}

fn check(done: Option<Completion>, peer: i32, what: &str, len: usize) -> Result<()> {
    match done {
        Some(Completion { status: DTL_SUCCESS, size, .. })
            if what != "receive from" || size == len as u64 =>
        {
            Ok(())
        }
        Some(Completion { status: DTL_ERROR_RANK_FAILURE, .. }) => {
            fail!(DTL_ERROR_RANK_FAILURE, "rank {peer} ended while the communicator was opened")
        }
        Some(Completion { status, size, .. }) => fail!(
            DTL_ERROR_COMMUNICATION,
            "could not {what} rank {peer} while the communicator was opened: {} ({size} bytes)",
            crate::error::status_message(status).to_string_lossy()
        ),
        None => fail!(
            DTL_ERROR_TIMEOUT,
            "nothing from rank {peer} while the communicator was opened: it did not come so far; \
             see its own output"
        ),
    }
}

/// Cancels an operation. Returns true if the transport has released the buffer. An error from the
/// transport also counts as a release, because it means that the operation has already completed.
fn cancel(over: &dyn Transport, op: OpId) -> bool {
    let released =
        wait::poll(Deadline::after(LET_GO_NS), || over.cancel(op).and_then(|()| over.outcome(op)));
    !matches!(released, Ok(None))
}
