//! Bare prototype of communication between two processes of a node, as a measure of what the memory
//! system allows.
//!
//! It has only the transfers: no matching of messages, no requests, no checks of arguments, no
//! handling of failures, no order between messages of different sizes, no more than two ranks, no
//! reduction but the sum of floats. Both ranks know the size of each message, and a rank that waits
//! polls. Data takes one of these ways:
//!
//! - up to 120 bytes: beside the flag, in a slot of two cache lines;
//! - up to 4 KiB: through a ring of cells in shared memory, by one copy in and one copy out;
//! - above: through a ring with smaller or larger cells, in which both copies overlap, or by copies
//!   of the kernel from both sides at once. The receiver reads the first half of a message with
//!   `process_vm_readv` while the sender writes the second half with `process_vm_writev`.
//!
//! Cells are filled by plain or by non-temporal stores, which are faster where a dirty line of the
//! other processor is slow to fetch.
//!
//! [`Bare::choose`] runs each way at first, for each row and distance of the processors, then the
//! fastest.

use super::endpoint::{ELEMENT, Endpoint};
use super::ours::Ours;
use super::test::Row;
use crate::out::Outcome;
use crate::probe::{self, wait_for};
use crate::stats::Regime;
use dtl::tooling::os::{SharedMapping, SharedWord};
use std::collections::{HashMap, VecDeque};
use std::hint::spin_loop;
use std::io::Error;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::{ptr, slice};
use subprocess::{allow_copies, read_memory, write_memory};

const KIB: usize = 1024;
/// Rings of one direction: number of slots (a power of 2), bytes of data in each, and offset of the
/// data from the flag of the slot.
const RINGS: [(usize, usize, usize); 3] = [(128, 120, 8), (32, 4 * KIB, 64), (64, 16 * KIB, 64)];
/// Number of the way by the kernel's copies. Ways 0 to 3 are two rings, each with plain and with
/// non-temporal stores.
const BOTH_SIDES: usize = 4;
/// Number of batches of each way before the fastest is kept.
const TRIALS: usize = 2;
/// Number of chunks that an exchange sends ahead of those that it receives.
const AHEAD: usize = 4;
/// Number of messages that the ranks can offer each other before one of them is complete.
const OFFERS: usize = 128;
/// Bytes of the peer's operand that a reduction reads at once. They stay in the level 2 cache.
const TILE: usize = 64 * KIB;
/// Distance of words that different ranks write, in bytes: processors prefetch pairs of lines.
const APART: usize = 128;
/// Bytes of shared memory for each rank.
const HALF: usize = 2 * KIB * KIB;

/// One end of a ring of slots between a sending and a receiving rank. A slot is full if its flag is
/// the number of the message (chunk) in it, counted from 1.
struct Ring {
    flags: Vec<SharedWord>,
    /// Addresses of the data of the slots.
    data: Vec<*mut u8>,
    /// Bytes of data in each slot.
    bytes: usize,
    /// Number of slots that the receiver has emptied; it is written now and then.
    emptied: SharedWord,
    /// Number of slots that this end has filled or emptied.
    count: u64,
    /// Value of `emptied` that the sender read last.
    seen: u64,
}

impl Ring {
    #[inline]
    fn put(&mut self, data: &[u8], is_streamed: bool) {
        while self.count - self.seen == self.flags.len() as u64 {
            spin_loop();
            self.seen = self.emptied.load(Acquire);
        }
        let slot = self.count as usize & (self.flags.len() - 1);
        let at = self.data[slot];
        // SAFETY: `data` is at most as long as the slot. The slot is empty (`seen`), so the receiver
        // does not access it before the flag is set below.
        let slot_data = unsafe { slice::from_raw_parts_mut(at, data.len()) };
        if is_streamed {
            stream(slot_data, data);
        } else {
            slot_data.copy_from_slice(data);
        }
        self.count += 1;
        self.flags[slot].store(self.count, Release);
    }

    #[inline]
    fn take(&mut self, into: &mut [u8], operand: Option<&[u8]>) {
        let slot = self.count as usize & (self.flags.len() - 1);
        let at = self.data[slot];
        wait_for(&self.flags[slot], self.count + 1);
        // SAFETY: the sender has filled the slot with as many bytes, because both ranks know the
        // size of a message, and does not write to it before `emptied` covers it.
        let data = unsafe { slice::from_raw_parts(at, into.len()) };
        match operand {
            Some(operand) => add(into, operand, data),
            None => into.copy_from_slice(data),
        }
        self.count += 1;
        if self.count & (self.flags.len() as u64 / 8 - 1) == 0 {
            self.emptied.store(self.count, Release);
        }
    }
}

/// Copies by non-temporal stores, as far as there are whole cache lines.
#[cfg(target_arch = "x86_64")]
fn stream(into: &mut [u8], data: &[u8]) {
    use std::arch::x86_64::{_mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    let streamed = if into.as_ptr().addr() % 16 == 0 { data.len() / 64 * 64 } else { 0 };
    let words = into[..streamed].chunks_exact_mut(16).zip(data.chunks_exact(16));
    for (into, data) in words {
        // SAFETY: reads 16 bytes of `data`, at any alignment.
        let word = unsafe { _mm_loadu_si128(data.as_ptr().cast()) };
        // SAFETY: writes the 16 bytes of `into`, whose address is a multiple of 16.
        unsafe { _mm_stream_si128(into.as_mut_ptr().cast(), word) };
    }
    into[streamed..].copy_from_slice(&data[streamed..]);
    // SAFETY: orders stores; it accesses no memory. The flag of the slot is set after the data.
    unsafe { _mm_sfence() };
}

#[cfg(not(target_arch = "x86_64"))]
fn stream(into: &mut [u8], data: &[u8]) {
    into.copy_from_slice(data);
}

fn failure(error: &Error) -> String {
    format!("copy between the processes: {error}")
}

/// Returns the size of a message of which one or both ends are here.
fn bytes_of(from: Option<&[u8]>, into: Option<&[u8]>) -> usize {
    from.or(into).map_or(0, <[u8]>::len)
}

/// Writes the sums of floats `a` + `b`, which have the same length.
#[inline]
fn add(into: &mut [u8], a: &[u8], b: &[u8]) {
    let float = |bytes: &[u8]| f32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let operands = a.chunks_exact(ELEMENT).zip(b.chunks_exact(ELEMENT));
    for (sum, (a, b)) in into.chunks_exact_mut(ELEMENT).zip(operands) {
        sum.copy_from_slice(&(float(a) + float(b)).to_ne_bytes());
    }
}

/// Part of the shared memory that one rank writes, except `emptied` of its rings.
struct Half {
    rings: Vec<Ring>,
    /// Offers: the number of the message, and the addresses of the data to send and of the space
    /// for data to receive.
    offers: Vec<[SharedWord; 3]>,
    /// Number of messages whose parts this rank has copied.
    copied: SharedWord,
    /// Number of the barriers at which the rank has arrived.
    arrived: SharedWord,
}

impl Half {
    fn new(memory: &Arc<SharedMapping>, rank: usize) -> Option<Half> {
        let mut end = rank * HALF;
        let mut next = |bytes: usize| {
            end += bytes;
            end - bytes
        };
        let ring = |(slots, bytes, skip): (usize, usize, usize)| {
            let emptied = memory.word(next(APART))?;
            let offsets: Vec<usize> = (0..slots).map(|_| next(skip + bytes)).collect();
            let flags = offsets.iter().map(|&slot| memory.word(slot)).collect::<Option<_>>()?;
            let base = memory.base().ptr().cast::<u8>();
            let data = offsets.iter().map(|slot| base.wrapping_add(slot + skip)).collect();
            Some(Ring { flags, data, bytes, emptied, count: 0, seen: 0 })
        };
        let rings = RINGS.into_iter().map(ring).collect::<Option<_>>()?;
        let [copied, arrived] = [memory.word(next(APART))?, memory.word(next(APART))?];
        let offer = |at| Some([memory.word(at)?, memory.word(at + 8)?, memory.word(at + 16)?]);
        let offers = (0..OFFERS).map(|_| offer(next(64))).collect::<Option<_>>()?;
        Some(Half { rings, offers, copied, arrived })
    }
}

/// Rank of the prototype.
pub(crate) struct Bare {
    rank: usize,
    /// Process of the other rank.
    peer: u32,
    _memory: Arc<SharedMapping>,
    own: Half,
    other: Half,
    /// Number of messages that this rank has offered, and of those that it has begun to copy.
    offered: u64,
    accepted: u64,
    barriers: u64,
    receives: VecDeque<(*mut u8, usize)>,
    tile: Vec<u8>,
    /// Ways of large messages, and the one in use.
    pub(crate) ways: Range<usize>,
    pub(crate) way: usize,
    /// Number of batches and shortest time of each way.
    times: HashMap<(Row, Regime, usize), (usize, f64)>,
}

impl Bare {
    /// Creates both ranks of the prototype. Collective operation.
    pub(crate) fn open(ours: &Ours) -> Outcome<Bare> {
        if ours.size != 2 {
            return Err(format!("--vs prototype: it has 2 ranks, not {}", ours.size));
        }
        allow_copies();
        let rank = ours.rank as usize;
        let made = if rank == 0 { Some(probe::memory_of(2 * HALF)?) } else { None };
        let address = made.as_ref().map_or([0, 0], |memory| probe::address_of(memory));
        let address = ours.bcast_words(address, 0)?;
        let memory = made.map_or_else(|| probe::open(address), Ok)?;
        let [second] = ours.bcast_words([u64::from(std::process::id())], 1)?;
        let half = |rank| Half::new(&memory, rank).ok_or("the prototype's memory is too small");
        let mut bare = Bare {
            rank,
            peer: if rank == 0 { second } else { address[0] } as u32,
            own: half(rank)?,
            other: half(1 - rank)?,
            _memory: memory,
            offered: 0,
            accepted: 0,
            barriers: 0,
            receives: VecDeque::new(),
            tile: vec![0; TILE],
            ways: 0..BOTH_SIDES,
            way: 0,
            times: HashMap::new(),
        };
        // Does the system permit each rank to read the memory of the other?
        bare.offer(bare.tile.as_ptr(), ptr::null_mut());
        let [from, _] = bare.accept();
        let can = u64::from(read_memory(bare.peer, from, &mut bare.tile[..1]).is_ok());
        bare.close();
        if (ours.bcast_words([can], 0)?, ours.bcast_words([can], 1)?) == ([1], [1]) {
            bare.ways.end += 1;
        }
        Ok(bare)
    }

    /// Selects the way of the next batch: each in turn at first, then the fastest at this distance
    /// of the processors. Rank 0 decides. Collective operation.
    pub(crate) fn choose(&mut self, row: Row, regime: Regime) {
        let mut way = [0];
        if self.rank == 0 {
            let time = |way: usize| match self.times.get(&(row, regime, way)) {
                Some(&(TRIALS.., best)) => best,
                _ => 0.0,
            };
            let best = self.ways.clone().min_by(|&a, &b| time(a).total_cmp(&time(b)));
            way = [best.unwrap_or(0) as u8];
            self.own.rings[0].put(&way, false);
        } else {
            self.other.rings[0].take(&mut way, None);
        }
        self.way = usize::from(way[0]);
    }

    /// Records the time of a batch after [`Bare::choose`].
    pub(crate) fn record(&mut self, row: Row, regime: Regime, time: f64) {
        let entry = self.times.entry((row, regime, self.way));
        let (count, best) = entry.or_insert((0, f64::INFINITY));
        *count += 1;
        *best = best.min(time);
    }

    /// Returns the ring of a message, or `None` for copies from both sides.
    fn ring_of(&self, bytes: usize) -> Option<usize> {
        let fits = RINGS[..2].iter().position(|ring| bytes <= ring.1);
        fits.or((self.way < BOTH_SIDES).then_some(1 + self.way / 2))
    }

    /// Sends `from` and receives into `into` through a ring of cells; one of them may be missing.
    /// With `operand`, stores the sum of it and the received data.
    fn cells(
        &mut self,
        ring: usize,
        from: Option<&[u8]>,
        mut into: Option<&mut [u8]>,
        operand: Option<&[u8]>,
    ) {
        let bytes = bytes_of(from, into.as_deref());
        let (to_peer, from_peer) = (&mut self.own.rings[ring], &mut self.other.rings[ring]);
        let chunk = to_peer.bytes;
        let chunks = bytes.div_ceil(chunk).max(1);
        let part = |index: usize| index * chunk..bytes.min((index + 1) * chunk);
        for index in 0..chunks + AHEAD {
            if let Some(from) = from.filter(|_| index < chunks) {
                to_peer.put(&from[part(index)], ring > 0 && self.way % 2 == 1);
            }
            // Without a send, receives at once.
            let index = if from.is_some() { index.checked_sub(AHEAD) } else { Some(index) };
            if let (Some(into), Some(index)) = (&mut into, index.filter(|&index| index < chunks)) {
                from_peer.take(&mut into[part(index)], operand.map(|all| &all[part(index)]));
            }
        }
    }

    fn offer(&mut self, from: *const u8, into: *mut u8) {
        let [number, data, space] = &self.own.offers[self.offered as usize % OFFERS];
        self.offered += 1;
        data.store(from.addr() as u64, Release);
        space.store(into.addr() as u64, Release);
        number.store(self.offered, Release);
    }

    /// Waits for the peer's next offer. Returns the addresses in it.
    fn accept(&mut self) -> [u64; 2] {
        let [number, data, space] = &self.other.offers[self.accepted as usize % OFFERS];
        self.accepted += 1;
        wait_for(number, self.accepted);
        [data.load(Acquire), space.load(Acquire)]
    }

    /// Waits until the other rank has copied its part of all messages.
    fn close(&self) {
        self.own.copied.store(self.accepted, Release);
        wait_for(&self.other.copied, self.accepted);
    }

    /// Copies this rank's part of the next message: all that it receives in an exchange, else half.
    fn halves(&mut self, from: Option<&[u8]>, into: Option<&mut [u8]>) -> Outcome {
        let [data, space] = self.accept();
        let copied = match (from, into) {
            (Some(_), Some(into)) => read_memory(self.peer, data, into),
            (None, Some(into)) => {
                let half = into.len() / 2;
                read_memory(self.peer, data, &mut into[..half])
            }
            (from, None) => {
                let from = from.unwrap_or_default();
                let half = from.len() / 2;
                write_memory(self.peer, &from[half..], space + half as u64)
            }
        };
        copied.map_err(|error| failure(&error))
    }

    /// Reduces a part of the data on each rank, tile by tile, for rank 0 or for both ranks. If the
    /// result is for rank 0, rank 1 copies twice, and so reduces less.
    fn reduce_halves(&mut self, data: &[u8], into: &mut [u8], for_both: bool) -> Outcome {
        self.offer(data.as_ptr(), into.as_mut_ptr());
        let [theirs, space] = self.accept();
        let eighths = if for_both { 4 } else { 5 };
        let first = data.len() / 8 * eighths / ELEMENT * ELEMENT;
        let own = if self.rank == 0 { 0..first } else { first..data.len() };
        for at in own.clone().step_by(TILE) {
            let part = at..own.end.min(at + TILE);
            let tile = &mut self.tile[..part.len()];
            read_memory(self.peer, theirs + at as u64, tile).map_err(|error| failure(&error))?;
            let sums = &mut into[part.clone()];
            add(sums, &data[part], tile);
            if for_both || self.rank == 1 {
                write_memory(self.peer, sums, space + at as u64)
                    .map_err(|error| failure(&error))?;
            }
        }
        self.close();
        Ok(())
    }

    /// Reduces data for rank 0 or for both ranks.
    fn sum(&mut self, data: &[u8], into: &mut [u8], for_both: bool) -> Outcome {
        match self.ring_of(data.len()) {
            None => return self.reduce_halves(data, into, for_both),
            Some(ring) => {
                let sends = for_both || self.rank == 1;
                let receives = for_both || self.rank == 0;
                self.cells(ring, sends.then_some(data), receives.then_some(into), Some(data));
            }
        }
        Ok(())
    }

    /// Exchanges blocks of the same size: `own` stays, and `data` goes to the other rank.
    fn exchange(&mut self, own: &[u8], data: &[u8], into: &mut [u8]) -> Outcome {
        let (first, second) = into.split_at_mut(own.len());
        let (mine, other) = if self.rank == 0 { (first, second) } else { (second, first) };
        self.transfer(Some(data), Some(other))?;
        mine.copy_from_slice(own);
        self.finish()
    }

    fn transfer(&mut self, from: Option<&[u8]>, mut into: Option<&mut [u8]>) -> Outcome {
        let bytes = bytes_of(from, into.as_deref());
        if self.ring_of(bytes).is_none() {
            let into = into.as_mut().map_or(ptr::null_mut(), |into| into.as_mut_ptr());
            self.offer(from.map_or(ptr::null(), <[u8]>::as_ptr), into);
        }
        self.offered_transfer(from, into)
    }

    /// Transfers a message that is already offered if it goes the way that needs an offer.
    fn offered_transfer(&mut self, from: Option<&[u8]>, into: Option<&mut [u8]>) -> Outcome {
        match self.ring_of(bytes_of(from, into.as_deref())) {
            None => return self.halves(from, into),
            Some(ring) => self.cells(ring, from, into, None),
        }
        Ok(())
    }
}

impl Endpoint for Bare {
    fn name(&self) -> &'static str {
        super::PROTOTYPE
    }

    fn send(&mut self, data: &[u8], _: i32) -> Outcome {
        self.transfer(Some(data), None)?;
        self.finish()
    }

    fn receive(&mut self, into: &mut [u8], _: i32) -> Outcome {
        self.transfer(None, Some(into))?;
        self.finish()
    }

    /// Sends now. The other rank receives at the same time, or sends as well: then it has started as
    /// many receives as this rank.
    fn start_send(&mut self, data: &[u8], _: i32) -> Outcome {
        let into = self.receives.pop_front().map(|(at, bytes)| {
            // SAFETY: the caller keeps the buffer of a receive alive and unused until `finish`.
            unsafe { slice::from_raw_parts_mut(at, bytes) }
        });
        self.transfer(Some(data), into)
    }

    fn start_receive(&mut self, into: &mut [u8], _: i32) -> Outcome {
        self.receives.push_back((into.as_mut_ptr(), into.len()));
        Ok(())
    }

    fn finish(&mut self) -> Outcome {
        let mut receives = std::mem::take(&mut self.receives);
        for &(at, bytes) in &receives {
            if self.ring_of(bytes).is_none() {
                self.offer(ptr::null(), at);
            }
        }
        for (at, bytes) in receives.drain(..) {
            // SAFETY: the caller keeps the buffer of a receive alive and unused until `finish`.
            let into = unsafe { slice::from_raw_parts_mut(at, bytes) };
            self.offered_transfer(None, Some(into))?;
        }
        self.receives = receives;
        if self.own.copied.load(Acquire) < self.accepted {
            self.close();
        }
        Ok(())
    }

    fn barrier(&mut self) -> Outcome {
        self.barriers += 1;
        self.own.arrived.store(self.barriers, Release);
        wait_for(&self.other.arrived, self.barriers);
        Ok(())
    }

    fn bcast(&mut self, data: &mut [u8]) -> Outcome {
        if self.rank == 0 { self.send(data, 1) } else { self.receive(data, 0) }
    }

    fn reduce(&mut self, data: &[u8], into: &mut [u8]) -> Outcome {
        self.sum(data, into, false)
    }

    fn allreduce(&mut self, data: &[u8], into: &mut [u8]) -> Outcome {
        self.sum(data, into, true)
    }

    fn allgather(&mut self, data: &[u8], into: &mut [u8]) -> Outcome {
        self.exchange(data, data, into)
    }

    fn alltoall(&mut self, data: &[u8], into: &mut [u8], bytes: usize) -> Outcome {
        let blocks = [&data[..bytes], &data[bytes..]];
        self.exchange(blocks[self.rank], blocks[1 - self.rank], into)
    }
}

#[cfg(test)]
#[path = "tests/bare.rs"]
mod tests;
