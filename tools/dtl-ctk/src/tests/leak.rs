//! Tests for memory leaks in operations: a leak of a few bytes for each message is harmless in a
//! short run and fatal in a long one. Opening and closing communicators is tested in `lifecycle`
//! and `comm_lifecycle`.

use crate::kit::malloc::malloc_bytes;
use crate::kit::prelude::*;
use crate::tests::comm_open::ranks_with;

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Ranks "comm.p2p.":
        small_messages_keep_no_memory = |p| keeps_nothing(p, 800, 40),
        large_messages_keep_no_memory = |p| keeps_nothing(p, 60, 20 << 10);
];

/// Maximum number of rounds of [`keeps_nothing`].
const ROUNDS: usize = 14;
/// Number of initial rounds in which growth is ignored, because memory pools grow in these rounds.
const WARM: usize = 2;
/// Number of messages that each rank has in flight. With several in flight, ranks that share a core
/// process more than one message in each time slice.
const TOGETHER: u32 = 20;
/// Memory growth of less than this number of bytes per message does not count as a leak. A leaked
/// malloc block has 32 bytes or more, and one block may belong to several messages that are
/// transferred together.
const LEAST: u32 = 8;

/// Sends messages in rounds until memory does not grow during a round. Growth in every round, in
/// proportion to the number of messages, is a leak, because caches and pools stop growing at their
/// limits.
fn keeps_nothing(p: &Rank, messages: u32, bytes: u64) -> Outcome {
    let sent = vec![7; bytes as usize];
    let mut grown = Vec::new();
    for round in 0..ROUNDS {
        p.barrier()?;
        let before = malloc_bytes();
        (0..messages / TOGETHER).try_for_each(|_| some(p, &sent))?;
        p.barrier()?;
        let (Some(before), Some(after)) = (before, malloc_bytes()) else {
            skip!("this C library does not report how much memory is in use");
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

/// Sends `TOGETHER` messages to the next rank and receives as many from the previous one.
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
