//! First stage of the tests of a comm table: calls the required functions of the table (open,
//! close, isend, irecv, test) directly, in the same way as the library calls them.

use crate::kit::prelude::*;
use crate::kit::slot_comm::{Op, SlotComm};
use std::collections::VecDeque;

pub(crate) const TESTS: &[(&str, Body)] = functions![
    SlotComm "comm.slots.":
        zero_bytes, to_itself, any_source, one_word_keeps_order, one_mib;
];

// Match words: each test has its own.
const ZERO: u64 = 0x11;
const ANY: u64 = 0x12;
const ORDER: u64 = 0x13;
const LARGE: u64 = 0x14;
const READY: u64 = 0x15;

fn zero_bytes(comm: &SlotComm) -> Outcome {
    let receive = comm.receive(8, comm.previous(), ZERO)?;
    let send = comm.send(&[], comm.next(), ZERO)?;
    let got = comm.wait(&receive)?;
    ensure!(got.size == 0, "a message of 0 bytes arrived with {}", got.size);
    ensure!(receive.buffer == [0xA5; 8], "a message of 0 bytes changed the buffer of its receive");
    comm.wait(&send).map(drop)
}

fn to_itself(comm: &SlotComm) -> Outcome {
    let receive = comm.receive(8, DTL_ANY_SOURCE, 0)?;
    let send = comm.send(&[], comm.rank, 0)?;
    let got = comm.wait(&receive)?;
    let (source, size) = (got.source, got.size);
    ensure!((source, size) == (comm.rank, 0), "{size} bytes from rank {source} arrived");
    comm.wait(&send).map(drop)
}

fn any_source(comm: &SlotComm) -> Outcome {
    let receives: Vec<Op> =
        comm.others().map(|_| comm.receive(8, DTL_ANY_SOURCE, ANY)).collect::<Outcome<_>>()?;
    let own = comm.rank.to_le_bytes();
    let sends: Vec<Op> =
        comm.others().map(|other| comm.send(&own, other, ANY)).collect::<Outcome<_>>()?;
    for receive in &receives {
        let got = comm.wait(receive)?;
        let (source, sent) = (got.source, &receive.buffer[..got.size]);
        let same = sent == source.to_le_bytes();
        ensure!(same, "test named source {source}; the message has {sent:?}");
    }
    sends.iter().try_for_each(|send| comm.wait(send).map(drop))
}

const MESSAGES: u64 = 200;
/// Maximum size in bytes of a frame, the unit in which the library sends its messages.
const FRAME: usize = 8192;
/// Maximum number of posted receives of a rank, and of its sends in flight to one other rank.
const AT_ONCE: usize = 8;

/// Returns the bytes of message `number` from rank `from`. The sizes cycle, so that short messages
/// follow long ones.
fn frame(from: i32, number: u64) -> Vec<u8> {
    let mut bytes =
        pattern((from as u64) << 32 | number, [8, FRAME as u64, 100, 4096][number as usize % 4]);
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// State of the sends from this rank to one other rank.
#[derive(Default)]
struct Sent {
    dest: i32,
    count: u64,
    flying: VecDeque<Op>,
}

impl Sent {
    fn go_on(&mut self, comm: &SlotComm) -> Outcome {
        while let Some(op) = self.flying.front() {
            match comm.test(op)? {
                Some(_) => drop(self.flying.pop_front()),
                None => break,
            }
        }
        while self.count < MESSAGES && self.flying.len() < AT_ONCE {
            let Some(op) = comm.try_send(frame(comm.rank, self.count), self.dest, ORDER)? else {
                break;
            };
            self.flying.push_back(op);
            self.count += 1;
        }
        Ok(())
    }
}

fn one_word_keeps_order(comm: &SlotComm) -> Outcome {
    let mut sends: Vec<Sent> = comm.others().map(|dest| Sent { dest, ..Sent::default() }).collect();
    let (mut arrived, total) = (vec![0_u64; comm.size as usize], MESSAGES * sends.len() as u64);
    let (mut posted, mut receives) = (0, VecDeque::new());
    let mut begin = Instant::now();
    while arrived.iter().sum::<u64>() < total || sends.iter().any(|sent| !sent.flying.is_empty()) {
        while posted < total && receives.len() < AT_ONCE {
            receives.push_back(comm.receive(FRAME, DTL_ANY_SOURCE, ORDER)?);
            posted += 1;
        }
        sends.iter_mut().try_for_each(|sent| sent.go_on(comm))?;
        let Some(got) = receives.front().map_or(Ok(None), |op| comm.test(op))? else {
            let so_far = || {
                format!("200 messages of each rank were sent; of them {arrived:?} arrived, no more")
            };
            comm.pause(begin, so_far)?;
            continue;
        };
        let (bytes, from) =
            (receives.pop_front().map(|op: Op| op.buffer).unwrap_or_default(), got.source);
        let expected = arrived[from as usize];
        check(&bytes[..got.size], from, expected)?;
        arrived[from as usize] += 1;
        begin = Instant::now();
    }
    Ok(())
}

/// Checks that a message received from rank `from` is the one with the number `expected`.
fn check(bytes: &[u8], from: i32, expected: u64) -> Outcome {
    let number = bytes.first_chunk().map_or(u64::MAX, |first| u64::from_le_bytes(*first));
    ensure!(
        number == expected || number >= MESSAGES,
        "message {number} of rank {from} was received where {expected} was next: messages under \
         one match word are received in the order sent, by receives in the order posted"
    );
    unspoilt(bytes, &frame(from, expected), &format!("message {expected} of rank {from}"))
}

/// Checks the bytes of a completed receive.
fn unspoilt(is: &[u8], should: &[u8], what: &str) -> Outcome {
    let text = "too early, or its bytes were changed";
    same!(is, should, "test completed the receive of {what} {text}: {}")
}

/// Transfers a large message as the library does: to a pre-posted receive, with match bits that no
/// other message in flight has.
fn one_mib(comm: &SlotComm) -> Outcome {
    let bytes = |rank: i32| pattern(rank as u64 + 1, 1 << 20);
    let receive = comm.receive(1 << 20, comm.previous(), LARGE)?;
    comm.meet(READY)?;
    let send = comm.send(&bytes(comm.rank), comm.next(), LARGE)?;
    let got = comm.wait(&receive)?;
    unspoilt(&receive.buffer[..got.size], &bytes(comm.previous()), "1 MiB")?;
    comm.wait(&send).map(drop)
}
