//! Test cases of one-sided communication: a window, and a sequence of epochs with operations whose
//! outcome the rules of `dtl.h` determine. `generate` generates the test cases, `layout` computes
//! addresses and expected contents, `act` and `run` call the library, `check` compares the results
//! with the expected contents, and `misuse` contains the calls that must fail.
//!
//! An [`Act`] is a group of operations on the same elements of one target. Each act of an epoch
//! accesses its own range, so the order of the acts does not matter. Within an act the order of
//! operations is fixed, or all ranks change the same elements with commutative operations.

mod act;
mod check;
mod generate;
mod layout;
mod memory;
mod misuse;
pub(crate) mod run;

pub(crate) use generate::schedule;
pub(crate) use misuse::COUNT as MISUSES;

use crate::data::{self, Class, TYPES, Type};
use dtl_sys::{DTL_OP_SUM, dtl_reduce_op_t};
use std::fmt::Write;

/// Method of opening and closing an epoch. The files of test cases contain the discriminants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sync {
    Fence,
    LockAll,
    /// Locks one target at a time, once for each [`Act`].
    Each,
    /// Locks all targets that a rank needs, and holds all these locks at the same time.
    Nested,
}

/// Kind of an [`Act`]: its operations and the ranks that perform them. The files of test cases
/// contain the discriminants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// One rank puts values repeatedly and gets them back.
    Put,
    /// All ranks get the same elements.
    Get,
    /// All ranks accumulate to the same elements.
    Accumulate,
    /// One rank repeatedly accumulates to the same elements and fetches them, without a flush in
    /// between.
    Ordered,
    /// All ranks try to replace a zero with their rank plus one, by compare_and_swap; exactly one
    /// of them succeeds.
    Claim,
    /// One rank overwrites elements with increasing values. The other ranks must never read a
    /// partially written value, or an older value after a newer one.
    Watch,
    /// All ranks add with get and put, under an exclusive lock.
    Locked,
    /// Half of the ranks add with fetch_op, half with compare_and_swap.
    Mixed,
}

pub(crate) const KINDS: [(Kind, &str); 8] = [
    (Kind::Put, "put"),
    (Kind::Get, "get"),
    (Kind::Accumulate, "accumulate"),
    (Kind::Ordered, "ordered"),
    (Kind::Claim, "claim"),
    (Kind::Watch, "watch"),
    (Kind::Locked, "locked"),
    (Kind::Mixed, "mixed"),
];

/// Operations, repeated `repeats` times, on the same elements of one target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Act {
    pub(crate) kind: Kind,
    pub(crate) ty: Type,
    pub(crate) op: dtl_reduce_op_t,
    /// Number that, modulo the number of ranks, is the target rank.
    pub(crate) target: u64,
    /// Number that, modulo the number of ranks, is the origin rank if only one rank writes.
    pub(crate) origin: u64,
    pub(crate) count: u64,
    /// Number of repetitions on each rank.
    pub(crate) repeats: u64,
    /// Form of the calls. For Put and Get: 0 is the plain call, 1 the call with a request; for Get,
    /// 2 is get_accumulate. For other kinds: 0 is a call that does not fetch, 1 is get_accumulate,
    /// 2 is fetch_op for each element.
    pub(crate) form: u64,
    /// Minimum number of unused bytes before the elements in the window.
    pub(crate) gap: u64,
    /// True if the byte offset in the window is a multiple of the element size.
    pub(crate) aligned: bool,
    /// Flush after each repetition: 0 is none, 1 flush, 2 flush_local, 3 flush_all, 4
    /// flush_local_all.
    pub(crate) flush: u64,
}

impl Act {
    /// Returns true if each element is accessed by a separate call.
    pub(crate) fn is_single(&self) -> bool {
        let calls_once = matches!(self.kind, Kind::Put | Kind::Get);
        matches!(self.kind, Kind::Claim | Kind::Locked | Kind::Mixed)
            || !calls_once && self.form == 2
    }

    /// Returns true if the calls fetch the previous values, which shows whether each call was
    /// atomic.
    pub(crate) fn fetches(&self) -> bool {
        matches!(self.kind, Kind::Claim | Kind::Mixed)
            || self.kind == Kind::Accumulate && self.form > 0
    }

    /// Returns true for kinds that accumulate values.
    pub(crate) fn folds(&self) -> bool {
        matches!(self.kind, Kind::Accumulate | Kind::Ordered)
    }

    /// Returns true if the result at the target depends on the order in which the ranks access it.
    pub(crate) fn is_a_race(&self) -> bool {
        self.kind == Kind::Claim
    }

    fn describe(&self) -> String {
        let name = KINDS[self.kind as usize].1;
        let op = if self.folds() {
            format!(" {}", data::reduction_name(self.op))
        } else {
            String::new()
        };
        let repeats =
            if self.repeats > 1 { format!(" {} times", self.repeats) } else { String::new() };
        format!(
            "{name} {}{op} count {}{repeats} to {} form {} flush {}",
            self.ty.name, self.count, self.target, self.form, self.flush
        )
    }

    /// Returns a copy with DTL_OP_SUM, aligned elements, and the dtype int32 unless the dtype is
    /// user-defined.
    fn simple(&self) -> Act {
        let ty = if self.ty.class == Class::User { self.ty } else { TYPES[2] };
        Act { ty, op: DTL_OP_SUM, aligned: true, ..*self }
    }
}

/// Epoch with its acts.
#[derive(Clone, Debug)]
pub(crate) struct Epoch {
    pub(crate) sync: Sync,
    /// True if the locks are exclusive.
    pub(crate) exclusive: bool,
    /// Distance between the starting positions of consecutive ranks in `acts`: a rank begins with
    /// the act whose index is the rank times this number, modulo the number of acts.
    pub(crate) stagger: u64,
    /// Numbers of the tests in the module `misuse`. Each test is a call that must fail; every rank
    /// makes these calls before the operations of `acts`.
    pub(crate) misuse: Vec<u64>,
    pub(crate) acts: Vec<Act>,
}

/// Window and its sequence of epochs.
#[derive(Clone, Default, Debug)]
pub(crate) struct Schedule {
    /// True if dtl_win_allocate creates the window.
    pub(crate) allocated: bool,
    /// Displacement unit of each rank in bytes.
    pub(crate) units: Vec<u64>,
    /// Number of unused bytes at the end of each rank's part of the window.
    pub(crate) tails: Vec<u64>,
    pub(crate) epochs: Vec<Epoch>,
}

impl Schedule {
    /// Appends the window and its epochs to `line` as decimal numbers, without `stagger` and
    /// `misuse`. Appends only 0 if there is no epoch.
    pub(crate) fn put(&self, line: &mut String) {
        let mut put = |number: u64| _ = write!(line, "{number} ");
        put(self.epochs.len() as u64);
        if self.epochs.is_empty() {
            return;
        }
        put(u64::from(self.allocated));
        put(self.units.len() as u64);
        self.units.iter().chain(&self.tails).for_each(|&number| put(number));
        for epoch in &self.epochs {
            put(epoch.sync as u64);
            put(u64::from(epoch.exclusive));
            put(epoch.acts.len() as u64);
            for act in &epoch.acts {
                let (dtype, op) = (act.ty.dtype.unsigned_abs(), act.op.unsigned_abs());
                let ends =
                    [act.kind as u64, dtype.into(), op.into(), act.target, act.origin, act.count];
                let rest = [act.repeats, act.form, act.gap, u64::from(act.aligned), act.flush];
                ends.into_iter().chain(rest).for_each(&mut put);
            }
        }
    }

    /// In words.
    pub(crate) fn describe(&self) -> String {
        let mut text = if self.allocated { " allocated".to_owned() } else { String::new() };
        let acts: usize = self.epochs.iter().map(|epoch| epoch.acts.len()).sum();
        if acts > 3 {
            let _ = write!(text, " {} epochs, {acts} acts", self.epochs.len());
            return text;
        }
        for epoch in &self.epochs {
            let name = match (epoch.sync, epoch.exclusive) {
                (Sync::Fence, _) => "fence",
                (Sync::LockAll, _) => "lock_all",
                (Sync::Each, false) => "lock",
                (Sync::Each, true) => "exclusive lock",
                (Sync::Nested, false) => "locks",
                (Sync::Nested, true) => "exclusive locks",
            };
            let acts: Vec<String> = epoch.acts.iter().map(Act::describe).collect();
            let _ = write!(text, " {name} [{}]", acts.join(", "));
            if !epoch.misuse.is_empty() {
                let numbers: Vec<String> = epoch.misuse.iter().map(u64::to_string).collect();
                let _ = write!(text, " misuse {}", numbers.join(" "));
            }
        }
        text
    }

    pub(crate) fn acts(&self) -> impl Iterator<Item = &Act> {
        self.epochs.iter().flat_map(|epoch| &epoch.acts)
    }

    pub(crate) fn has_misuse(&self) -> bool {
        self.epochs.iter().any(|epoch| !epoch.misuse.is_empty())
    }

    /// Removes the [`Act`] with this index, counted across all epochs.
    pub(crate) fn drop_act(&mut self, number: usize) {
        let mut before = 0;
        for epoch in &mut self.epochs {
            let count = epoch.acts.len();
            if (before..before + count).contains(&number) {
                epoch.acts.remove(number - before);
                return;
            }
            before += count;
        }
    }

    /// Removes an epoch, unless it is the only one.
    pub(crate) fn drop_epoch(&mut self, number: usize) {
        if self.epochs.len() > 1 && number < self.epochs.len() {
            self.epochs.remove(number);
        }
    }

    pub(crate) fn each_act(&mut self, change: impl Fn(&mut Act)) {
        self.epochs.iter_mut().flat_map(|epoch| &mut epoch.acts).for_each(change);
    }

    /// Places elements without gaps, with a displacement unit of one byte.
    pub(crate) fn pack(&mut self) {
        self.units.fill(1);
        self.tails.fill(0);
        self.each_act(|act| act.gap = 0);
    }

    pub(crate) fn is_packed(&self) -> bool {
        let is_plain = |unit: &u64| *unit == 1;
        self.units.iter().all(is_plain)
            && self.tails.iter().all(|tail| *tail == 0)
            && self.acts().all(|act| act.gap == 0)
    }

    pub(crate) fn simplify(&mut self) {
        self.each_act(|act| *act = act.simple());
    }

    pub(crate) fn is_simple(&self) -> bool {
        self.acts().all(|act| {
            let simple = act.simple();
            (simple.ty, simple.op, simple.aligned) == (act.ty, act.op, act.aligned)
        })
    }
}
