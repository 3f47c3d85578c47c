//! Tests of memory that operations do not release: a few bytes for each message are harmless in a
//! short run and fatal in a long one. Opening and closing is tested in `lifecycle` and
//! `comm_lifecycle`.

use crate::kit::malloc::malloc_bytes;
use crate::kit::prelude::*;
use crate::tests::comm_open::ranks_with;

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Ranks "comm.p2p.":
        small_messages_keep_no_memory = |p| keeps_nothing(p, 800, 40),
        large_messages_keep_no_memory = |p| keeps_nothing(p, 60, 20 << 10);
];

/// Largest number of rounds, and the number of first rounds that are ignored, because pools grow in
/// them.
const ROUNDS: usize = 14;
const WARM: usize = 2;
/// Number of each rank's messages in flight. Ranks that take turns on a core process a few of them
/// in each turn.
const TOGETHER: u32 = 20;
/// Growth for each message that is less than any leak: malloc's blocks have 32 bytes, and several
/// messages may travel as one.
const LEAST: u32 = 8;

/// Sends in rounds until memory has not grown in one of them. Growth in every round, in proportion
/// to the messages, is a leak: caches and pools reach their limits.
fn keeps_nothing(p: &Rank, messages: u32, bytes: u64) -> Outcome {
    let sent = vec![7; bytes as usize];
    let mut grown = Vec::new();
    for round in 0..ROUNDS {
        p.barrier()?;
        let before = malloc_bytes();
        (0..messages / TOGETHER).try_for_each(|_| some(p, &sent))?;
        p.barrier()?;
        let (Some(before), Some(after)) = (before, malloc_bytes()) else {
            skip!("this C library does not tell how much memory is taken");
        };
        grown.push(i64::from(after.wrapping_sub(before)));
        let is_calm = grown.iter().skip(WARM).any(|growth| *growth < i64::from(messages * LEAST));
        if round >= WARM && ranks_with(p, is_calm)? == p.size as usize {
            return Ok(());
        }
    }
    let least = grown.iter().copied().min().unwrap_or(0) / i64::from(messages);
    wrong!(
        "memory grows by {least} bytes or more with each message, on some rank: here {grown:?} \
         bytes in rounds of {messages}"
    )
}

/// Sends some messages to the next rank and receives as many from the previous one.
fn some(p: &Rank, bytes: &[u8]) -> Outcome {
    let sends: Vec<_> =
        (0..TOGETHER).map(|_| p.isend(bytes.to_vec(), p.next(), 1)).collect::<Result<_, _>>()?;
    for _ in 0..TOGETHER {
        p.recv(bytes.len() as u64, p.previous(), 1)?;
    }
    for send in sends {
        p.wait(send)?;
    }
    Ok(())
}
