//! Simulates the step lists of all ranks in one thread, without a transport, for tests of the steps
//! that algorithms generate.

use super::{Schedule, Step};
use crate::sys::memory::buf::Scratch;
use std::collections::{BTreeMap, VecDeque};

/// Checks that a reduction directly after the receive of one of its operands may run before the
/// other steps of its round: it writes nothing that the round sends, and no earlier step of the
/// round is a local one.
fn check_early_reductions(schedule: &Schedule) {
    let round: Vec<Step> = schedule.round_steps().collect();
    for (index, pair) in round.windows(2).enumerate() {
        let [Step::Recv { data, .. }, next] = pair else { continue };
        let (into, from) = match *next {
            Step::Reduce { into, from } => (into, from),
            Step::ReduceToRight { left, right } => (right, left),
            _ => continue,
        };
        if *data != into && *data != from {
            continue;
        }
        for (other, step) in round.iter().enumerate() {
            match step {
                Step::Send { data, .. } => assert!(!into.overlaps(*data), "sent data is reduced"),
                Step::Recv { .. } => {}
                _ => assert!(other > index, "a local step precedes the reduction"),
            }
        }
    }
}

/// Runs the schedules to completion. Returns the sender, the receiver and the size in bytes of each
/// message. Panics on deadlock, if sizes do not match, or if messages remain unreceived.
pub(crate) fn simulate(all: &mut [Schedule]) -> Vec<(i32, i32, usize)> {
    let (mut sent, mut wires) = (Vec::new(), BTreeMap::<(i32, i32), VecDeque<Scratch>>::new());
    loop {
        let mut moved = false;
        for (rank, schedule) in (0..).zip(all.iter_mut()) {
            while schedule.at < schedule.steps.len() {
                if !schedule.is_started {
                    for step in schedule.round_steps() {
                        if let Step::Send { to, data } = step {
                            sent.push((rank, to, data.len()));
                            wires
                                .entry((rank, to))
                                .or_default()
                                .push_back(Scratch::copy_of(data).unwrap());
                        }
                    }
                    check_early_reductions(schedule);
                    schedule.is_started = true;
                }
                let mut wanted = BTreeMap::<i32, usize>::new();
                for step in schedule.round_steps() {
                    if let Step::Recv { from, .. } = step {
                        *wanted.entry(from).or_default() += 1;
                    }
                }
                let there = |(from, count): (&i32, &usize)| {
                    wires.get(&(*from, rank)).is_some_and(|wire| wire.len() >= *count)
                };
                if !wanted.iter().all(there) {
                    break;
                }
                for step in schedule.round_steps() {
                    if let Step::Recv { from, data } = step {
                        let message = wires.get_mut(&(from, rank)).unwrap().pop_front().unwrap();
                        assert_eq!(message.region().len(), data.len(), "from {from} to {rank}");
                        data.copy_from(message.region());
                    }
                }
                schedule.finish_round();
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    assert!(
        all.iter().all(|schedule| schedule.at >= schedule.steps.len()),
        "they wait for each other"
    );
    assert!(wires.values().all(VecDeque::is_empty), "messages are left");
    sent
}
