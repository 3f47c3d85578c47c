//! Choice of the method by which large messages are copied, from times measured on this machine.
//!
//! The fastest method depends on the processor, on the distance between the cores of the two ranks,
//! and on the message size. The receiver measures messages of each size class and chooses a method
//! per class. It publishes its choices in the ring from the sender (`ring`), where the sender reads
//! them. A choice affects only how bytes are copied, never their order or the results of a
//! reduction.
//!
//! A method without a measured time is tried first. Later, the slower methods are tried again
//! (`ClassTimes::due`), so that the choice follows a rank that moves to another core. A trial takes
//! several messages (`Trial`), because the first ones find the method's memory in no cache. All
//! pairs of ranks at one distance share their times: a pair needs no first trials if another pair
//! had them.

use super::copy_method::CopyMethod::{self, Cells, CellsNt, Get, Split};
use super::copy_method::LONG;
use super::transfer_times::AVERAGED;
use crate::backend::shm::memory::cells::{CELLS, FIRST_CELLS, SOME_CELLS};
use crate::sys::os::shm_segment::Span;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Methods of large messages, in the order of their first trials: for messages to the higher rank
/// of a pair, and to the lower one. Each rank takes over what the other one has measured. Both
/// begin with a kernel copy, which needs no warm cells, so that a much slower method is noticed at
/// once.
const METHODS: [CopyMethod; 4] = [Split, Cells, Get, CellsNt];
const METHODS_TO_LOWER: [CopyMethod; 4] = [Get, CellsNt, Split, Cells];
/// Methods of eager messages.
const EAGER_METHODS: [CopyMethod; 2] = [Cells, CellsNt];

/// Number of size classes of large messages. Class 0 is for less than 32 KiB, and each further
/// class for twice the size; the last one has no limit.
const LARGE: usize = 9;
/// Number of all size classes. The last ones are those of eager messages of up to 4, 8 and 16 KiB,
/// which are copied through the ring: by ordinary stores as with `Cells`, or by non-temporal stores
/// as with `CellsNt`.
const CLASSES: usize = LARGE + 3;
/// Maximum number of measured messages of a trial, below 2 MiB.
const TRIAL: u32 = AVERAGED;
/// Number of further messages of a trial whose method is at least about as fast as the fastest one.
const CLOSE_TRIAL: u32 = 32;
/// A trial ends after this many messages in a row that do not shorten its time by an eighth. If its
/// time is more than 1.5 times that of the fastest method, it ends with the first message that
/// counts. A first trial below 256 KiB, where a disturbance is not averaged out, ends with the next
/// message that does not shorten its time.
const MISSES: u32 = 2;
/// Outside trials, one in this many messages is timed: below 128 KiB, where reading the clock takes
/// a noticeable part of the time, and from 128 KiB.
const TIMED: (u16, u16) = (8, 3);
/// Multiplier that selects the groups of `AVERAGED` messages to time: the golden ratio in 16 bits.
/// Its multiples are spread evenly without a short period, so each message of a regular sequence is
/// timed now and then.
const STEP: u16 = 40503;
/// One of this many records is measured if it is an eager message. The number is prime, so that the
/// messages of a regular sequence are measured in turn.
pub(super) const EAGER_SAMPLE: u64 = 31;
/// Minimum and maximum number of messages of a size class between two trials of a method.
const RETRY: (u64, u64) = (128, 1 << 15);
/// Number of messages until the next trial, per message time that a trial has cost: the trials of a
/// method take about half a percent of the time.
const RETRY_COST: u64 = 200;
/// The next trial is due this many times earlier if the time of the fastest method has changed by
/// more than a quarter: the messages travel in another way, or a rank has moved.
const HASTE: u64 = 4;

/// Size of a message, and its size class.
#[derive(Clone, Copy)]
pub(crate) struct MessageSize {
    len: usize,
    class: usize,
}

impl MessageSize {
    /// Returns the size of a large message of `len` bytes.
    pub(crate) fn large(len: usize) -> MessageSize {
        let class = (len >> 15).checked_ilog2().map_or(0, |log| log as usize + 1);
        MessageSize { len, class: class.min(LARGE - 1) }
    }

    /// Returns the size of an eager message of `len` bytes.
    pub(crate) fn eager(len: usize) -> MessageSize {
        let class = LARGE + usize::from(len > 4 << 10) + usize::from(len > 8 << 10);
        MessageSize { len, class }
    }

    /// Describes the sizes of the class.
    fn description(self) -> String {
        let kib = if self.class < LARGE { 16 << self.class } else { 2 << (self.class - LARGE) };
        match self.class + 1 {
            LARGE => format!("of {kib} KiB and more"),
            _ => format!("of {kib} to {} KiB", 2 * kib),
        }
    }
}

/// Methods for all size classes. The word is shared between processes. Per class it has two bits
/// for the chosen method, two for that of a trial, and one that is set if no trial is running.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CopyChoices(pub(crate) u64);

impl CopyChoices {
    /// Returns the method for a message of `len` bytes. Without a choice for any large messages,
    /// one of up to `LONG` bytes uses cells, so that its sender need not wait for the receiver.
    /// Larger ones do so if this rank cannot read the other one's memory: then the other one
    /// probably cannot read this rank's.
    pub(crate) fn method(self, len: usize, can_read: bool) -> CopyMethod {
        if self.0 & LARGE_BITS == 0 && (len <= LONG || !can_read) {
            return Cells;
        }
        CopyMethod::of(self.0 >> bit_of(MessageSize::large(len).class, true))
    }

    /// Returns the method for the next eager message of `len` bytes, which is record `number` of
    /// the ring, and true if the message is to be measured. Only these messages use a method that
    /// is being tried.
    pub(crate) fn eager(self, len: usize, number: u64) -> (CopyMethod, bool) {
        let is_sample = number % EAGER_SAMPLE == 0;
        let bit = bit_of(MessageSize::eager(len).class, is_sample);
        let method = Some(CopyMethod::of(self.0 >> bit)).filter(|&method| method == CellsNt);
        (method.unwrap_or(Cells), is_sample)
    }

    /// Returns true if the large message `number` between two ranks, which has `len` bytes, is to
    /// be timed. Both ranks evaluate it. All messages of a trial are timed.
    pub(crate) fn is_timed(self, len: usize, number: u16) -> bool {
        let is_tried = self.0 >> (SETTLED_BIT + MessageSize::large(len).class) & 1 == 0;
        let part = if len < 128 << 10 { TIMED.0 } else { TIMED.1 };
        is_tried || (number / AVERAGED as u16).wrapping_mul(STEP) < u16::MAX / part
    }

    fn set(&mut self, class: usize, best: CopyMethod, tried: Option<CopyMethod>) {
        let methods = best as u64 | (tried.unwrap_or(best) as u64) << 2;
        let (bit, settled_bit) = (bit_of(class, false), SETTLED_BIT + class);
        self.0 &= !(15 << bit | 1 << settled_bit);
        self.0 |= methods << bit | u64::from(tried.is_none()) << settled_bit;
    }
}

/// Position of the bit of the first class that is set if no method is being tried.
const SETTLED_BIT: usize = 4 * CLASSES;
/// Bits of the classes of large messages. One is set if there is a choice for any of them: either
/// no trial is running, or one of the two methods is not `Split`.
const LARGE_BITS: u64 = ((1 << (4 * LARGE)) - 1) | (((1 << LARGE) - 1) << SETTLED_BIT);

/// Returns the right shift of message counts in a size class: 0 for messages of up to 2 MiB, 1 for
/// up to 4 MiB, 2 for larger ones.
fn scale_of(class: usize) -> usize {
    if class < LARGE { class.saturating_sub(LARGE - 3) } else { 0 }
}

fn bit_of(class: usize, is_trial: bool) -> usize {
    4 * class + if is_trial { 2 } else { 0 }
}

/// Measured times of the messages from one rank.
pub(crate) struct CopyTimes {
    classes: [ClassTimes; CLASSES],
    /// Choices for the next messages.
    pub(crate) choices: CopyChoices,
    /// Memory for the times that are shared with other pairs of ranks: one word per size class and
    /// method, with nanoseconds for 1 MiB, or 0. No word depends on another one, so the loads and
    /// stores are relaxed.
    shared: Option<Span>,
}

/// Measured times of the messages of a size class.
#[derive(Clone, Copy, Default)]
struct ClassTimes {
    /// Methods that can copy messages of the class.
    methods: &'static [CopyMethod],
    messages: u64,
    /// Minimum number of messages between two trials of a method.
    retry: u64,
    /// Measured times, by method.
    times: [MethodTime; METHODS.len()],
    trial: Option<Trial>,
    /// Time of the fastest method when it last differed from the one before by more than a quarter.
    expected_ns: u64,
    /// Choice that `CopyTimes::new_choice` has returned last.
    reported: Option<CopyMethod>,
}

/// Measured time of a method.
#[derive(Clone, Copy)]
struct MethodTime {
    /// Time for 1 MiB in nanoseconds; `UNKNOWN` if the method was not measured or has failed.
    ns: u64,
    /// Value of `ClassTimes::messages` from which the method is tried again.
    retry_at: u64,
    /// Smallest value to which a change of the fastest time reduces `retry_at`.
    early_at: u64,
}

/// Messages in succession that use another method than the fastest one, to measure it. The trial
/// goes on while its messages become faster. If its shortest time is close to the smoothed time of
/// the fastest method, or shorter, the average of further messages counts: messages of one size can
/// take different times, for example those of the two parts of an allreduce.
#[derive(Clone, Copy)]
struct Trial {
    method: CopyMethod,
    /// Maximum number of further messages. Below 2 MiB, the times of the first messages, before the
    /// last `TRIAL` ones, do not count: they use memory that the trial has not used before.
    left: u32,
    /// Number of measured messages.
    used: u32,
    /// Shortest time of a message of the trial, for 1 MiB; in a close trial, the smoothed time.
    ns: u64,
    /// True if the method has no time yet.
    is_first: bool,
    /// Number of messages in a row that did not shorten `ns` by an eighth.
    misses: u32,
    /// Number of misses after which the trial ends if `ns` is more than 1.5 times the best time.
    slow_misses: u32,
    /// Number of messages that follow if the first ones are at least about as fast as the fastest
    /// method; 0 when they have begun.
    close: u32,
}

const UNKNOWN: u64 = u64::MAX;

impl Default for MethodTime {
    fn default() -> MethodTime {
        MethodTime { ns: UNKNOWN, retry_at: 0, early_at: 0 }
    }
}

impl Trial {
    /// Creates the trial of a method for messages of the size class `class`. `is_first` is true if
    /// the method has no time yet.
    fn new(method: CopyMethod, class: usize, is_first: bool) -> Trial {
        // The messages that use each cell for the first time, or when it is in no cache.
        let first_cells = if class < 4 { FIRST_CELLS } else { SOME_CELLS };
        let around = (u32::from(if is_first { first_cells } else { CELLS }) >> class).max(1);
        let left = (TRIAL >> scale_of(class)) + if method == Cells { around } else { 0 };
        let slow_misses = u32::from(is_first && around > 1);
        let (ns, close) = (UNKNOWN, CLOSE_TRIAL >> scale_of(class));
        Trial { method, left, used: 0, ns, is_first, misses: 0, slow_misses, close }
    }

    /// Adds `count` messages that took `ns` nanoseconds each for 1 MiB. `best` is the time of the
    /// fastest method.
    fn add(self, (ns, count): (u64, u32), best: u64) -> Trial {
        let left = self.left.saturating_sub(count);
        let next = Trial { left, used: self.used + count, ..self };
        if self.close == 0 {
            return Trial { ns: smoothed(self.ns, (ns, count)), ..next };
        }
        // The first messages change an average over many only a little.
        if self.left > TRIAL && count / 2 < self.left - TRIAL {
            return Trial { left: left.max(TRIAL), ..next };
        }
        let is_close = |ns: u64| !self.is_first && ns < best / 8 * 9;
        let misses = if ns > self.ns - self.ns / 8 { self.misses + 1 } else { 0 };
        // One time alone, of a window, may be that of a disturbance, unless it is much longer.
        let left = if self.ns == UNKNOWN && !self.is_first { left.max(1) } else { left };
        let next = Trial { left, ns: ns.min(self.ns), misses, ..next };
        let is_slow = next.ns / 3 * 2 > best;
        if misses < (if is_slow { self.slow_misses } else { MISSES }) && left > 0 {
            return next;
        }
        if is_close(next.ns) {
            return Trial { left: self.close.max(4 * count), ns: UNKNOWN, close: 0, ..next };
        }
        Trial { left: 0, ..next }
    }
}

/// Returns the smoothed time of a method whose next `count` messages took `ns` nanoseconds each.
fn smoothed(known: u64, (ns, count): (u64, u32)) -> u64 {
    let part = if count < AVERAGED { 8 } else { 4 };
    // Disturbances only lengthen a transfer: a much longer time counts less.
    let change = ns.abs_diff(known).min(known / 2) / part;
    match known {
        UNKNOWN => ns,
        known if ns < known => known - change,
        known => known + change,
    }
}

/// Returns the word of a time that is shared with other pairs of ranks, if there is memory for it.
fn shared_time(shared: &Option<Span>, class: usize, method: CopyMethod) -> Option<&AtomicU64> {
    shared.as_ref()?.word(8 * (class * METHODS.len() + method as usize))
}

impl CopyTimes {
    /// Creates the times of a pair of ranks that shares its times in the memory `shared`.
    /// `is_lower` is true if this rank, the receiver, is the lower one.
    pub(crate) fn new((shared, is_lower): (Option<Span>, bool)) -> CopyTimes {
        let mut classes = [ClassTimes::default(); CLASSES];
        let large = if is_lower { &METHODS_TO_LOWER } else { &METHODS };
        for (index, class) in (0..).zip(&mut classes) {
            class.retry = RETRY.0 >> scale_of(index);
            class.methods = if index < LARGE { large } else { &EAGER_METHODS };
        }
        CopyTimes { classes, choices: CopyChoices::default(), shared }
    }

    /// Counts `count` messages.
    pub(crate) fn count(&mut self, size: MessageSize, count: u64) {
        let Some(class) = self.classes.get_mut(size.class) else { return };
        if class.messages == 0 {
            class.begin_trial(size.class, &self.shared);
        }
        class.messages += count;
    }

    /// Records the time of messages that have been counted, in nanoseconds each, and their number.
    /// Large messages take from their first to their last byte, eager ones as long as their copies.
    pub(crate) fn record(&mut self, size: MessageSize, method: CopyMethod, time: (u64, u32)) {
        let (ns, count) = (time.0.saturating_mul(1 << 20) / size.len.max(1) as u64, time.1);
        self.update(size.class, |class| class.record(method, (ns, count)));
        let known = self.classes.get(size.class).map_or(UNKNOWN, |class| class.time(method).ns);
        let word = shared_time(&self.shared, size.class, method).filter(|_| known != UNKNOWN);
        // A store fetches the cache line from another rank, and later stores wait for it.
        if let Some(word) = word.filter(|word| word.load(Relaxed).abs_diff(known) > known / 8) {
            word.store(known, Relaxed);
        }
    }

    /// Records that `method` failed for a message.
    pub(crate) fn fail(&mut self, size: MessageSize, method: CopyMethod) {
        self.update(size.class, |class| {
            class.trial = class.trial.filter(|trial| trial.method != method);
            let retry_at = class.messages + RETRY.1;
            class.set(method, MethodTime { ns: UNKNOWN, retry_at, early_at: retry_at });
        })
    }

    /// Returns a description of the choice for messages of a size class if all methods have been
    /// tried and the choice has changed since the last call: the sizes of the messages, and the
    /// method with the measured rates.
    pub(crate) fn new_choice(&mut self, size: MessageSize) -> Option<(String, String)> {
        let class = self.classes.get_mut(size.class)?;
        let (best, _) = class.best();
        let is_tried = class.methods.iter().all(|&method| class.is_tried(method));
        if !is_tried || class.reported.replace(best) == Some(best) {
            return None;
        }
        let rate = |method: &CopyMethod| match class.time(*method).ns {
            UNKNOWN => format!("{} failed", method.name()),
            ns => format!("{} {:.1} GB/s", method.name(), (1 << 20) as f64 / ns as f64),
        };
        let others = class.methods.iter().filter(|&&method| method != best).map(rate);
        let others = others.collect::<Vec<_>>().join(", ");
        Some((size.description(), format!("{} ({others})", rate(&best))))
    }

    fn update(&mut self, index: usize, change: impl FnOnce(&mut ClassTimes)) {
        let Some(class) = self.classes.get_mut(index) else { return };
        let before = class.best().0;
        change(class);
        class.begin_trial(index, &self.shared);
        let (best, ns) = class.best();
        let is_much_faster = ns < class.time(before).ns / 4 * 3;
        self.choices.set(index, best, class.trial.map(|trial| trial.method));
        if is_much_faster {
            self.classes.iter_mut().for_each(|class| class.renew(best));
        }
    }
}

impl ClassTimes {
    fn time(&self, method: CopyMethod) -> MethodTime {
        self.times.get(method as usize).copied().unwrap_or_default()
    }

    fn set(&mut self, method: CopyMethod, time: MethodTime) {
        self.times.get_mut(method as usize).into_iter().for_each(|slot| *slot = time);
    }

    /// Returns the time `ns` of a method after a trial of `used` messages. What the trial has cost
    /// postpones the next one.
    fn tried(&self, ns: u64, used: u32) -> MethodTime {
        let best = self.best().1;
        let lost = ns.saturating_sub(best).saturating_mul(u64::from(used));
        let cost = (lost.saturating_mul(RETRY_COST) / best.max(1)).clamp(self.retry, RETRY.1);
        let early_at = self.messages + (cost / HASTE).max(self.retry);
        MethodTime { ns, retry_at: self.messages + cost, early_at }
    }

    /// Begins the next trial of a method if one is due and none is in progress. First takes over
    /// the times of methods that only other pairs have measured. `index` is that of the class.
    fn begin_trial(&mut self, index: usize, shared: &Option<Span>) {
        for &method in self.methods {
            let word = shared_time(shared, index, method).map_or(0, |word| word.load(Relaxed));
            if word > 0 && !self.is_tried(method) {
                self.set(method, self.tried(word, MISSES + 1));
            }
        }
        let new = |due| Trial::new(due, index, self.time(due).ns == UNKNOWN);
        self.trial = self.trial.or_else(|| self.due().map(new));
    }

    /// Returns true if the method was measured, or has failed and is not due.
    fn is_tried(&self, method: CopyMethod) -> bool {
        let time = self.time(method);
        time.ns != UNKNOWN || time.retry_at > self.messages
    }

    /// Returns the fastest method and its time.
    fn best(&self) -> (CopyMethod, u64) {
        let times = self.methods.iter().map(|&method| (method, self.time(method).ns));
        let known = times.filter(|&(_, ns)| ns != UNKNOWN);
        known.min_by_key(|&(_, ns)| ns).unwrap_or((Cells, UNKNOWN))
    }

    /// Returns a method whose next trial is due, other than the fastest one.
    fn due(&self) -> Option<CopyMethod> {
        let (best, ns) = self.best();
        let is_other = |method| method != best || ns == UNKNOWN;
        let is_due = |method| is_other(method) && self.time(method).retry_at <= self.messages;
        let due = self.methods.iter().copied().filter(|&method| is_due(method));
        due.min_by_key(|&method| self.time(method).retry_at)
    }

    /// Makes the next trial of a method due, because it has become faster for another size.
    fn renew(&mut self, method: CopyMethod) {
        let known = self.time(method);
        self.set(method, MethodTime { retry_at: known.retry_at.min(self.messages), ..known });
    }

    /// Records the time of `count` messages for 1 MiB each.
    fn record(&mut self, method: CopyMethod, (ns, count): (u64, u32)) {
        let best = self.best().1;
        let known = self.time(method);
        if let Some(trial) = self.trial.filter(|trial| trial.method == method) {
            let trial = trial.add((ns, count), best);
            self.trial = (trial.left > 0).then_some(trial);
            if trial.left > 0 {
                return;
            }
            // The time of the trial replaces the recorded one.
            self.set(method, self.tried(trial.ns, trial.used));
        } else if known.ns != UNKNOWN || self.trial.is_none() {
            self.set(method, MethodTime { ns: smoothed(known.ns, (ns, count)), ..known });
        }
        let best = self.best().1;
        if best.abs_diff(self.expected_ns) > self.expected_ns / 4 {
            self.expected_ns = best;
            for time in &mut self.times {
                time.retry_at = time.retry_at.min(time.early_at.max(self.messages));
            }
        }
    }
}

#[cfg(test)]
#[path = "tests/copy_choice.rs"]
mod tests;
