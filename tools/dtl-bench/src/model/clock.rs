//! Completion time of a collective in the LogGP model. It is computed from the messages of all
//! ranks or, if there are too many messages, of some ranks. The partners of these ranks are then
//! assumed to progress at the same speed as these ranks.
//!
//! A rank's processor spends o for each message that it sends or receives. A message leaves through
//! the rank's send port, byte after byte (G), at least g after the previous message. After L its
//! first byte reaches the receiver's port, which accepts messages in the same way, in the order of
//! their arrival. A round ends when all of its messages are sent and received. Copies and
//! reductions cost nothing.

use super::count::{Counts, chosen};
use super::wanted::{MOST_RANKS, Network};
use crate::out::Outcome;
use dtl::tooling::schedules::{CollectivePlan, DryRunJob, PlanStep};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

/// All ranks are simulated if the total number of their messages is at most this limit.
const MOST_MESSAGES: u128 = 1 << 23;
// In a tree no rank is like the others, so none can be told from some.
const _: () = assert!(MOST_MESSAGES >= 2 * MOST_RANKS as u128);

/// Result of a simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Times {
    /// Nanoseconds until the last rank completes, if all begin at 0.
    pub(crate) ns: f64,
    /// Length of the longest chain of messages in which each depends on the one before.
    pub(crate) steps: u64,
    /// True if all ranks were simulated.
    pub(crate) is_exact: bool,
}

/// Costs of messages within and between nodes.
#[derive(Clone, Copy)]
pub(crate) struct Costs {
    pub(crate) network: Network,
    pub(crate) within: Network,
    /// Number of ranks on each node; 0 if each rank has a node of its own.
    pub(crate) per_node: i32,
}

impl Costs {
    fn between(&self, one: u32, other: u32) -> &Network {
        let each = self.per_node.unsigned_abs();
        if each > 0 && one / each == other / each { &self.within } else { &self.network }
    }
}

/// Computes the completion time of a collective from `plan`, the steps of all ranks. `counts`
/// contains the numbers of messages in the plan.
pub(crate) fn times(
    plan: &mut CollectivePlan,
    job: &DryRunJob,
    counts: &Counts,
    costs: &Costs,
) -> Outcome<Times> {
    // Where not even the counts are of all ranks, their lists are too long.
    match counts.is_exact && counts.messages <= MOST_MESSAGES {
        true => Ok(Times { is_exact: true, ..simulate(&Lists::new(plan, 0..job.ranks)?, costs)? }),
        false => estimate(plan, job, costs),
    }
}

/// Message to send or receive, in packed form.
#[derive(Clone, Copy)]
struct Op {
    /// Rank of the peer, and two flag bits.
    peer: u32,
    /// Index of the message's size in the list of sizes.
    size: u32,
}

const RECEIVES: u32 = 1 << 31;
const ENDS_ROUND: u32 = 1 << 30;

impl Op {
    fn peer(self) -> u32 {
        self.peer & !(RECEIVES | ENDS_ROUND)
    }

    fn receives(self) -> bool {
        self.peer & RECEIVES != 0
    }
}

/// List of the distinct sizes of messages.
#[derive(Default)]
struct Sizes {
    bytes: Vec<u64>,
    places: HashMap<u64, u32>,
}

impl Sizes {
    fn place(&mut self, bytes: u64) -> u32 {
        let next = self.bytes.len();
        *self.places.entry(bytes).or_insert_with(|| {
            self.bytes.push(bytes);
            u32::try_from(next).unwrap_or(u32::MAX)
        })
    }
}

/// Lists of the messages of some ranks, or of all ranks.
struct Lists {
    first_rank: u32,
    ops: Vec<Op>,
    /// Index in `ops` at which each rank's list begins, and the end (exclusive) of the last list.
    starts: Vec<usize>,
    sizes: Sizes,
}

impl Lists {
    fn new(plan: &mut CollectivePlan, ranks: Range<i32>) -> Outcome<Self> {
        let first_rank = ranks.start.unsigned_abs();
        let mut lists =
            Lists { first_rank, ops: Vec::new(), starts: vec![0], sizes: Sizes::default() };
        for rank in ranks {
            let Lists { ops, starts, sizes, .. } = &mut lists;
            let first = ops.len();
            let told = plan.for_each_step(rank, &mut |step| match step {
                PlanStep::Send { to, bytes } => {
                    ops.push(Op { peer: to.unsigned_abs(), size: sizes.place(bytes) });
                }
                PlanStep::Recv { from, bytes } => {
                    ops.push(Op { peer: from.unsigned_abs() | RECEIVES, size: sizes.place(bytes) });
                }
                PlanStep::Round if ops.len() > first => {
                    if let Some(last) = ops.last_mut() {
                        last.peer |= ENDS_ROUND;
                    }
                }
                PlanStep::Local | PlanStep::Round => {}
            });
            told.map_err(|error| error.to_string())?;
            starts.push(ops.len());
        }
        Ok(lists)
    }

    fn ranks(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the position of the message list of a rank among all lists; `None` if the rank is
    /// not simulated.
    fn place(&self, rank: u32) -> Option<usize> {
        let place = rank.checked_sub(self.first_rank)? as usize;
        (place < self.ranks()).then_some(place)
    }
}

/// Message in flight.
#[derive(Clone, Copy)]
struct Message {
    /// Time in nanoseconds at which the first byte arrives.
    first: f64,
    /// Rank of the sender. The cost at the receiver depends on whether the sender is on the same
    /// node.
    from: u32,
    size: u32,
    /// Length of the longest chain of messages that ends with this message.
    steps: u32,
}

/// Simulated time of a rank, the times at which its send and receive ports become free, and the
/// length of its longest chain of messages.
#[derive(Clone, Default)]
struct Clock {
    now: f64,
    out_free: f64,
    in_free: f64,
    steps: u32,
}

impl Clock {
    /// Sends a message. Returns the times in nanoseconds at which the first byte leaves and the
    /// last byte has left.
    fn send(&mut self, by: &Network, bytes: u64) -> (f64, f64) {
        self.now += by.overhead;
        let first = self.now.max(self.out_free);
        let last = first + by.stream(bytes);
        self.out_free = last + by.gap;
        (first, last)
    }

    fn receive(&mut self, by: &Network, first: f64, bytes: u64) {
        let last = first.max(self.in_free) + by.stream(bytes);
        self.in_free = last + by.gap;
        self.now = self.now.max(last) + by.overhead;
    }
}

/// Position of a rank in its list of messages.
#[derive(Clone, Default)]
struct Place {
    clock: Clock,
    /// Indices of the first message of the current round (`round`), and of the next message to
    /// receive (`next`).
    round: usize,
    next: usize,
    has_sent: bool,
    /// Time in nanoseconds at which the last byte of this round's messages has left.
    sent: f64,
    /// Value of `clock` at the beginning of the current round.
    begun: Clock,
    /// Messages of this round that have arrived.
    come: Vec<Message>,
}

impl Place {
    /// Returns a message from a rank that is not simulated. Its arrival time is computed as if the
    /// sender had begun this round at the same time as this rank.
    fn of_another(&self, op: Op, by: &Network) -> Message {
        let first = (self.begun.now + by.overhead).max(self.begun.out_free) + by.latency;
        Message { first, from: op.peer(), size: op.size, steps: self.begun.steps + 1 }
    }
}

/// Messages that have not been received, keyed by sender and receiver.
#[derive(Default)]
struct Mail {
    first: HashMap<u64, Message, BuildHasherDefault<Mixer>>,
    more: HashMap<u64, VecDeque<Message>>,
}

fn key(from: u32, to: u32) -> u64 {
    u64::from(from) << 32 | u64::from(to)
}

impl Mail {
    fn put(&mut self, key: u64, message: Message) {
        match self.first.entry(key) {
            Entry::Vacant(free) => {
                free.insert(message);
            }
            Entry::Occupied(_) => self.more.entry(key).or_default().push_back(message),
        }
    }

    fn take(&mut self, key: u64) -> Option<Message> {
        let message = self.first.remove(&key)?;
        if let Some(next) = self.more.get_mut(&key).and_then(VecDeque::pop_front) {
            self.first.insert(key, next);
        }
        Some(message)
    }
}

/// Hasher for pairs of small numbers.
#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ mixed >> 32;
    }
}

/// Simulation of the message lists of several ranks.
struct Simulation<'a> {
    lists: &'a Lists,
    costs: &'a Costs,
    places: Vec<Place>,
    mail: Mail,
    /// For each rank: key in `mail` of the message for which the rank waits; `NONE` if it does not
    /// wait for a message.
    awaited: Vec<u64>,
    ready: Vec<u32>,
}

const NONE: u64 = u64::MAX;

fn simulate(lists: &Lists, costs: &Costs) -> Outcome<Times> {
    let ranks = lists.ranks();
    let place = |rank: usize| Place {
        round: lists.starts[rank],
        next: lists.starts[rank],
        ..Place::default()
    };
    let mut all = Simulation {
        lists,
        costs,
        places: (0..ranks).map(place).collect(),
        mail: Mail::default(),
        awaited: vec![NONE; ranks],
        ready: (0..ranks as u32).rev().collect(),
    };
    while let Some(at) = all.ready.pop() {
        while all.round(at as usize) {}
    }
    let ended =
        all.places.iter().zip(lists.starts.iter().skip(1)).all(|(place, end)| place.round == *end);
    if !ended || !all.mail.first.is_empty() {
        return Err("the steps of the ranks do not fit together: a bug of the library".to_owned());
    }
    let ns = all.places.iter().map(|place| place.clock.now).fold(0.0, f64::max);
    let steps = all.places.iter().map(|place| place.clock.steps).max().unwrap_or(0);
    Ok(Times { ns, steps: steps.into(), is_exact: false })
}

impl Simulation<'_> {
    /// Simulates one round of the rank whose list has the position `at`. Returns false if the rank
    /// has completed or waits for a message.
    fn round(&mut self, at: usize) -> bool {
        let rank = self.lists.first_rank + at as u32;
        let end = self.lists.starts[at + 1];
        if self.places[at].round == end {
            return false;
        }
        if !self.places[at].has_sent {
            self.send(at, end);
        }
        loop {
            let place = &mut self.places[at];
            let Some(op) = self.lists.ops.get(place.next) else { break };
            if op.receives() {
                let key = key(op.peer(), rank);
                let message = match self.lists.place(op.peer()) {
                    Some(_) => self.mail.take(key),
                    None => Some(place.of_another(*op, self.costs.between(rank, op.peer()))),
                };
                let Some(message) = message else {
                    self.awaited[at] = key;
                    return false;
                };
                place.come.push(message);
            }
            place.next += 1;
            if op.peer & ENDS_ROUND != 0 || place.next == end {
                break;
            }
        }
        self.finish(at);
        true
    }

    fn send(&mut self, at: usize, end: usize) {
        let rank = self.lists.first_rank + at as u32;
        let place = &mut self.places[at];
        (place.has_sent, place.sent, place.begun) = (true, 0.0, place.clock.clone());
        for op in &self.lists.ops[place.round..end] {
            let to = op.peer();
            if !op.receives() {
                let by = self.costs.between(rank, to);
                let (first, last) = place.clock.send(by, self.lists.sizes.bytes[op.size as usize]);
                place.sent = place.sent.max(last);
                let steps = place.clock.steps + 1;
                let message =
                    Message { first: first + by.latency, from: rank, size: op.size, steps };
                if let Some(there) = self.lists.place(to) {
                    let key = key(rank, to);
                    self.mail.put(key, message);
                    if self.awaited[there] == key {
                        self.awaited[there] = NONE;
                        self.ready.push(there as u32);
                    }
                }
            }
            if op.peer & ENDS_ROUND != 0 {
                break;
            }
        }
    }

    fn finish(&mut self, at: usize) {
        let rank = self.lists.first_rank + at as u32;
        let place = &mut self.places[at];
        place.come.sort_by(|a, b| a.first.total_cmp(&b.first));
        for message in place.come.drain(..) {
            let by = self.costs.between(rank, message.from);
            place.clock.receive(by, message.first, self.lists.sizes.bytes[message.size as usize]);
            place.clock.steps = place.clock.steps.max(message.steps);
        }
        place.clock.now = place.clock.now.max(place.sent);
        (place.round, place.has_sent) = (place.next, false);
    }
}

/// Estimates the completion time and the number of steps from a simulation of some ranks. If the
/// steps depend on the nodes, each rank is simulated together with the other ranks of its node,
/// otherwise alone. Other ranks are assumed to have begun each round at the same time as the rank
/// that receives from them.
fn estimate(plan: &mut CollectivePlan, job: &DryRunJob, costs: &Costs) -> Outcome<Times> {
    let each = if plan.is_two_level() { job.per_node } else { 1 };
    let mut most = Times { ns: 0.0, steps: 0, is_exact: false };
    let mut done = 0;
    for rank in chosen(job) {
        let first = rank / each * each;
        if first < done {
            continue;
        }
        done = job.ranks.min(first + each);
        let times = simulate(&Lists::new(plan, first..done)?, costs)?;
        (most.ns, most.steps) = (most.ns.max(times.ns), most.steps.max(times.steps));
    }
    Ok(most)
}

#[cfg(test)]
mod tests;
