//! First stage for a comm table: five slots, called in the way in which the library calls them.

use crate::kit::catalog::{Body, Group, Test};
use crate::kit::outcome::{Outcome, ensure};
use crate::kit::subject::{difference, pattern};
use crate::kit::wire::{Op, Wire};
use dtl_sys::DTL_ANY_SOURCE;
use std::collections::VecDeque;
use std::time::Instant;

const fn wires(
    least: i32,
    name: &'static str,
    what: &'static str,
    body: fn(&Wire) -> Outcome,
) -> Test {
    Test { name, what, body: Body::Wire(least, body), also: None }
}

pub(crate) const GROUPS: &[Group] = &[Group {
    slot: "comm.isend, irecv, test",
    needs: &[],
    rule: "Messages of one rank under one match word are received in the order sent, by receives \
        in the order posted, \
           whichever of them names its source. test completes a receive when all of its bytes are \
           there, with the \
           sender, the match word and the true size.",
    usually: "Everything else is built on these slots: later tests would report invalid frames, \
        lost messages and \
              silent ranks. They are not run.",
    tests: &[
        wires(
            2,
            "comm.slots.zero_bytes",
            "a message of 0 bytes (buf is NULL) arrives from a named rank",
            zero_bytes,
        ),
        wires(1, "comm.slots.to_itself", "a rank receives its own message of 0 bytes", to_itself),
        wires(2, "comm.slots.any_source", "a receive from any rank names the sender", any_source),
        wires(
            2,
            "comm.slots.one_word_keeps_order",
            "200 messages with one match word arrive complete and in order",
            in_order,
        ),
        wires(
            2,
            "comm.slots.one_mib",
            "1 MiB has arrived completely when test completes its receive",
            one_mib,
        ),
    ],
}];

// Match words: each test has its own.
const ZERO: u64 = 0x11;
const ANY: u64 = 0x12;
const ORDER: u64 = 0x13;
const LARGE: u64 = 0x14;
const READY: u64 = 0x15;

fn zero_bytes(wire: &Wire) -> Outcome {
    let receive = wire.receive(8, wire.previous(), ZERO)?;
    let send = wire.send(&[], wire.next(), ZERO)?;
    let got = wire.wait(&receive)?;
    ensure!(got.size == 0, "a message of 0 bytes arrived with {}", got.size);
    ensure!(receive.buffer == [0xA5; 8], "a message of 0 bytes changed the buffer of its receive");
    wire.wait(&send).map(drop)
}

fn to_itself(wire: &Wire) -> Outcome {
    let receive = wire.receive(8, DTL_ANY_SOURCE, 0)?;
    let send = wire.send(&[], wire.rank, 0)?;
    let got = wire.wait(&receive)?;
    ensure!(
        (got.source, got.size) == (wire.rank, 0),
        "{} bytes from rank {} arrived",
        got.size,
        got.source
    );
    wire.wait(&send).map(drop)
}

fn any_source(wire: &Wire) -> Outcome {
    let receives: Vec<Op> =
        wire.others().map(|_| wire.receive(8, DTL_ANY_SOURCE, ANY)).collect::<Outcome<_>>()?;
    let own = wire.rank.to_le_bytes();
    let sends: Vec<Op> =
        wire.others().map(|other| wire.send(&own, other, ANY)).collect::<Outcome<_>>()?;
    for receive in &receives {
        let got = wire.wait(receive)?;
        let sent = &receive.buffer[..got.size];
        ensure!(
            sent == got.source.to_le_bytes(),
            "test named source {}; the message has {sent:?}",
            got.source
        );
    }
    sends.iter().try_for_each(|send| wire.wait(send).map(drop))
}

const MESSAGES: u64 = 200;
/// The largest frame of the library's.
const FRAME: usize = 8192;
/// Receives that are posted, and sends of a rank that are in flight.
const AT_ONCE: usize = 8;

/// Sizes go round, so that short messages follow long ones.
fn frame(from: i32, number: u64) -> Vec<u8> {
    let mut bytes =
        pattern((from as u64) << 32 | number, [8, FRAME as u64, 100, 4096][number as usize % 4]);
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// What a rank has sent to another.
#[derive(Default)]
struct Sent {
    dest: i32,
    count: u64,
    flying: VecDeque<Op>,
}

impl Sent {
    fn go_on(&mut self, wire: &Wire) -> Outcome {
        while let Some(op) = self.flying.front() {
            match wire.test(op)? {
                Some(_) => drop(self.flying.pop_front()),
                None => break,
            }
        }
        while self.count < MESSAGES && self.flying.len() < AT_ONCE {
            let Some(op) = wire.try_send(frame(wire.rank, self.count), self.dest, ORDER)? else {
                break;
            };
            self.flying.push_back(op);
            self.count += 1;
        }
        Ok(())
    }
}

fn in_order(wire: &Wire) -> Outcome {
    let mut sends: Vec<Sent> = wire.others().map(|dest| Sent { dest, ..Sent::default() }).collect();
    let (mut arrived, total) = (vec![0_u64; wire.size as usize], MESSAGES * sends.len() as u64);
    let (mut posted, mut receives) = (0, VecDeque::new());
    let mut begin = Instant::now();
    while arrived.iter().sum::<u64>() < total || sends.iter().any(|sent| !sent.flying.is_empty()) {
        while posted < total && receives.len() < AT_ONCE {
            receives.push_back(wire.receive(FRAME, DTL_ANY_SOURCE, ORDER)?);
            posted += 1;
        }
        sends.iter_mut().try_for_each(|sent| sent.go_on(wire))?;
        let Some(got) = receives.front().map_or(Ok(None), |op| wire.test(op))? else {
            let so_far = || {
                format!("200 messages of each rank were sent; of them {arrived:?} arrived, no more")
            };
            wire.pause(begin, so_far)?;
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

/// Compares a message with the one that is next of its sender.
fn check(bytes: &[u8], from: i32, expected: u64) -> Outcome {
    let number = bytes.first_chunk().map_or(u64::MAX, |first| u64::from_le_bytes(*first));
    ensure!(
        number == expected || number >= MESSAGES,
        "message {number} of rank {from} was received where {expected} was next: messages under \
         one match word are \
         received in the order sent, by receives in the order posted"
    );
    let difference = difference(bytes, &frame(from, expected));
    ensure!(
        difference.is_none(),
        "test completed the receive of message {expected} of rank {from} too early, or its bytes \
         were changed: {}",
        difference.unwrap_or_default()
    );
    Ok(())
}

/// As large messages travel: under a word of their own, to a receive that is posted before.
fn one_mib(wire: &Wire) -> Outcome {
    let bytes = |rank: i32| pattern(rank as u64 + 1, 1 << 20);
    let receive = wire.receive(1 << 20, wire.previous(), LARGE)?;
    wire.meet(READY)?;
    let send = wire.send(&bytes(wire.rank), wire.next(), LARGE)?;
    let got = wire.wait(&receive)?;
    let difference = difference(&receive.buffer[..got.size], &bytes(wire.previous()));
    ensure!(
        difference.is_none(),
        "test completed the receive of 1 MiB too early, or its bytes were changed: {}",
        difference.unwrap_or_default()
    );
    wire.wait(&send).map(drop)
}
