//! Runs and verifies one batch of a test. The library and the implementations that it is compared
//! with share this code.

use super::endpoint::{ELEMENT, Endpoint};
use super::test::{Row, Test};
use crate::out::Outcome;
use std::time::Instant;

/// Buffers of a rank.
pub(crate) struct Buffers {
    from: Vec<u8>,
    into: Vec<u8>,
}

/// Page size in bytes, to which the data in each buffer is aligned.
const PAGE: usize = 4096;

impl Buffers {
    /// Allocates send and receive buffers that are large enough for all tests in `rows`.
    pub(crate) fn new(rows: &[Row], ranks: usize) -> Buffers {
        let room = |part: fn((usize, usize)) -> usize| {
            rows.iter().map(|row| part(row.room(ranks))).max().unwrap_or(0) + 2 * PAGE
        };
        // Written to, so that the pages are allocated.
        Buffers { from: vec![1; room(|(from, _)| from)], into: vec![2; room(|(_, into)| into)] }
    }

    fn of(&mut self, row: Row, ranks: usize) -> (&mut [u8], &mut [u8]) {
        let (from, into) = row.room(ranks);
        (aligned(&mut self.from, from), aligned(&mut self.into, into))
    }
}

fn aligned(bytes: &mut [u8], length: usize) -> &mut [u8] {
    let skip = bytes.as_ptr().align_offset(PAGE);
    &mut bytes[skip..skip + length]
}

/// Rank of this process in the communicator under measurement, and number of ranks of the
/// communicator.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) rank: i32,
    pub(crate) ranks: i32,
    /// True if there are more ranks than processors, so that ranks take turns.
    pub(crate) is_oversubscribed: bool,
}

impl Place {
    /// Returns the peer in tests between two ranks: 1 on rank 0, 0 on rank 1.
    fn other(self) -> i32 {
        1 - self.rank
    }

    fn is_idle(self, row: Row) -> bool {
        row.test.is_of_two() && self.rank > 1
    }
}

/// Largest data size in bytes for which the caches still contain the data of the previous
/// repetition.
pub(crate) const WARMED: usize = 1 << 20;

/// Runs one batch of the test `row`. Returns nanoseconds per operation on this rank. For sizes up
/// to `WARMED`, first runs an untimed repetition to warm the caches, because a batch of another
/// implementation may have run immediately before.
pub(crate) fn batch<E: Endpoint>(
    end: &mut E,
    buffers: &mut Buffers,
    row: Row,
    place: Place,
) -> Outcome<f64> {
    let (from, into) = buffers.of(row, place.ranks as usize);
    let mut run = Repetition { end, from, into, row, place };
    if row.bytes <= WARMED {
        run.repeat(1)?;
    }
    run.repeat(row.repeats())
}

/// State of the repetitions of a test.
struct Repetition<'a, E> {
    end: &'a mut E,
    from: &'a mut [u8],
    into: &'a mut [u8],
    row: Row,
    place: Place,
}

impl<E: Endpoint> Repetition<'_, E> {
    fn repeat(&mut self, repeats: usize) -> Outcome<f64> {
        if self.row.test.is_of_two() {
            self.end.barrier()?;
        }
        if self.place.is_idle(self.row) {
            return Ok(0.0);
        }
        match self.row.test {
            Test::Latency => self.latency(repeats),
            Test::Bandwidth | Test::Rate => self.bandwidth(self.row.window()),
            Test::Bidirectional => self.bidirectional(self.row.window()),
            _ if self.place.is_oversubscribed => self.in_a_row(repeats),
            _ => self.collective(repeats),
        }
    }

    fn latency(&mut self, repeats: usize) -> Outcome<f64> {
        let Repetition { end, from, into, place, .. } = self;
        let begin = Instant::now();
        for _ in 0..repeats {
            if place.rank == 0 {
                end.send(from, 1)?;
                end.receive(into, 1)?;
            } else {
                end.receive(into, 0)?;
                end.send(from, 0)?;
            }
        }
        Ok(per(begin, 2 * repeats))
    }

    /// Measures the time of a window of nonblocking messages from rank 0 to rank 1. The measurement
    /// ends when rank 0 receives rank 1's confirmation that all messages of the window have
    /// arrived.
    fn bandwidth(&mut self, window: usize) -> Outcome<f64> {
        let Repetition { end, from, into, place, .. } = self;
        let mut word = [0_u8; 4];
        let begin = Instant::now();
        if place.rank == 0 {
            (0..window).try_for_each(|_| end.start_send(from, 1))?;
            end.finish()?;
            end.receive(&mut word, 1)?;
        } else {
            (0..window).try_for_each(|_| end.start_receive(into, 0))?;
            end.finish()?;
            end.send(&word, 0)?;
        }
        Ok(per(begin, window))
    }

    fn bidirectional(&mut self, window: usize) -> Outcome<f64> {
        let Repetition { end, from, into, place, .. } = self;
        let (other, mut word) = (place.other(), [0_u8; 4]);
        let begin = Instant::now();
        (0..window).try_for_each(|_| end.start_receive(into, other))?;
        (0..window).try_for_each(|_| end.start_send(from, other))?;
        end.finish()?;
        if place.rank == 0 {
            end.receive(&mut word, other)?;
        } else {
            end.send(&word, other)?;
        }
        Ok(per(begin, window))
    }

    /// Measures a collective operation. Each repetition begins with a barrier, which is not timed.
    fn collective(&mut self, repeats: usize) -> Outcome<f64> {
        let mut sum = 0.0;
        for _ in 0..repeats {
            self.end.barrier()?;
            let begin = Instant::now();
            self.once()?;
            sum += per(begin, 1);
        }
        Ok(sum / repeats as f64)
    }

    /// Measures a collective operation if there are more ranks than processors. A rank may then
    /// complete a repetition before others begin it, so all repetitions are timed together, up to
    /// the completion of the last rank.
    fn in_a_row(&mut self, repeats: usize) -> Outcome<f64> {
        self.end.barrier()?;
        let begin = Instant::now();
        for _ in 0..repeats {
            self.once()?;
        }
        if matches!(self.row.test, Test::Bcast | Test::Reduce) {
            self.end.barrier()?;
        }
        Ok(per(begin, repeats))
    }

    fn once(&mut self) -> Outcome {
        let Repetition { end, from, into, row, .. } = self;
        match row.test {
            Test::Allreduce => end.allreduce(from, into),
            Test::Bcast => end.bcast(from),
            Test::Reduce => end.reduce(from, into),
            Test::Allgather => end.allgather(from, into),
            Test::Alltoall => end.alltoall(from, into, row.bytes),
            _ => end.barrier(),
        }
    }
}

fn per(begin: Instant, count: usize) -> f64 {
    begin.elapsed().as_nanos() as f64 / count as f64
}

/// Runs the operation of a test once without timing and verifies every received byte.
pub(crate) fn verify<E: Endpoint>(
    end: &mut E,
    buffers: &mut Buffers,
    row: Row,
    place: Place,
) -> Outcome {
    let ranks = place.ranks as usize;
    let (from, into) = buffers.of(row, ranks);
    fill(from, row, place.rank);
    into.fill(0xee);
    end.barrier()?;
    if place.is_idle(row) {
        return Ok(());
    }
    match row.test {
        // All message tests use one of these two.
        Test::Latency if place.rank == 0 => end.send(from, 1).and_then(|()| end.receive(into, 1)),
        Test::Latency => end.receive(into, 0).and_then(|()| end.send(from, 0)),
        Test::Bandwidth | Test::Rate | Test::Bidirectional => {
            end.start_receive(into, place.other())?;
            end.start_send(from, place.other())?;
            end.finish()
        }
        _ => Repetition { end, from, into, row, place }.once(),
    }?;
    let arrived = if row.test == Test::Bcast { from } else { into };
    if row.test == Test::Reduce && place.rank != 0 {
        return Ok(());
    }
    match arrived.iter().enumerate().find(|&(at, &byte)| byte != expected(row, place, at)) {
        None => Ok(()),
        Some((at, byte)) => Err(format!(
            "{} of {} bytes over {}: rank {} got {byte:#04x} as byte {at}, expected {:#04x}: a bug \
             of that communicator, no value would mean anything",
            row.test.name(),
            row.bytes,
            end.name(),
            place.rank,
            expected(row, place, at)
        )),
    }
}

/// Fills the send buffer of a rank with bytes that depend on the rank and the position or, for
/// reductions, with floats that are small integers.
fn fill(from: &mut [u8], row: Row, rank: i32) {
    if matches!(row.test, Test::Allreduce | Test::Reduce) {
        for (index, element) in from.chunks_exact_mut(ELEMENT).enumerate() {
            element.copy_from_slice(&number(index, rank).to_ne_bytes());
        }
    } else {
        from.iter_mut().enumerate().for_each(|(at, byte)| *byte = pattern(at, rank));
    }
}

fn pattern(at: usize, rank: i32) -> u8 {
    (at.wrapping_mul(31) >> 3) as u8 ^ (at as u8).wrapping_add(17 * rank as u8)
}

fn number(index: usize, rank: i32) -> f32 {
    (index % 1000) as f32 + rank as f32
}

/// Returns the byte that a rank must have received at the offset `at`.
fn expected(row: Row, place: Place, at: usize) -> u8 {
    let bytes = row.bytes.max(1);
    match row.test {
        Test::Bcast => pattern(at, 0),
        Test::Allgather => pattern(at % bytes, (at / bytes) as i32),
        // The block of rank r for this rank is at `rank * bytes` in its data.
        Test::Alltoall => pattern(place.rank as usize * bytes + at % bytes, (at / bytes) as i32),
        Test::Allreduce | Test::Reduce => {
            let ranks = (0..place.ranks).map(|rank| number(at / ELEMENT, rank));
            ranks.sum::<f32>().to_ne_bytes()[at % ELEMENT]
        }
        _ => pattern(at, place.other()),
    }
}

#[cfg(test)]
#[path = "tests/batch.rs"]
mod tests;
