//! Byte range of each [`Act`] (group of operations) of a schedule in the window memory of its
//! target, and the contents of the window before and after each epoch. This module does not call
//! any library function.

use super::{Act, Kind, Schedule};
use crate::data::{self, FILLER, Origin, Type};
use crate::plan::View;
use crate::reference::fold;
use dtl_sys::{DTL_OP_NO_OP, dtl_reduce_op_t};
use std::ops::Range;

/// Position of an [`Act`]: the index of its epoch, and its index in the epoch.
pub(super) type At = (usize, usize);

/// Rank number that stands for the origin of the initial contents. No rank has this number.
const NOBODY: u64 = 1000;

/// Memory layout of the window of a [`Schedule`] for the communicator in which the schedule runs.
pub(super) struct Layout<'a> {
    pub(super) schedule: &'a Schedule,
    view: View<'a>,
    /// Each [`Act`] of each epoch. Target and origin are ranks of the communicator.
    pub(super) acts: Vec<Vec<Act>>,
    /// Size of each rank's part of the window in bytes.
    pub(super) sizes: Vec<u64>,
    /// For each epoch and each [`Act`] in it: offset of the elements in the target's part of the
    /// window, in bytes.
    offsets: Vec<Vec<u64>>,
}

impl<'a> Layout<'a> {
    pub(super) fn new(view: View<'a>) -> Layout<'a> {
        let schedule = &view.step.window;
        let ranks = view.place.size;
        let here = |act: &Act| {
            let (target, origin) = (act.target % ranks, act.origin % ranks);
            // A call for each element can reach only the first if the next ones lie between steps.
            let reaches =
                !act.is_single() || act.ty.size as u64 % schedule.units[target as usize] == 0;
            let count = if reaches { act.count } else { act.count.min(1) };
            Act { target, origin, count, ..*act }
        };
        let acts: Vec<Vec<Act>> =
            schedule.epochs.iter().map(|epoch| epoch.acts.iter().map(here).collect()).collect();
        let mut sizes = schedule.tails[..ranks as usize].to_vec();
        let place = |acts: &Vec<Act>| {
            let mut ends = vec![0; ranks as usize];
            let place_one = |act: &Act| {
                let (target, size) = (act.target as usize, act.ty.size as u64);
                let is_there =
                    |at: &u64| at % schedule.units[target] == 0 && (!act.aligned || at % size == 0);
                let first = (ends[target] + act.gap..).find(is_there).unwrap_or(0);
                ends[target] = first + act.count * size;
                first
            };
            let offsets = acts.iter().map(place_one).collect();
            let with_tails = ends.iter().zip(&schedule.tails).map(|(end, tail)| end + tail);
            sizes.iter_mut().zip(with_tails).for_each(|(size, end)| *size = end.max(*size));
            offsets
        };
        let offsets = acts.iter().map(place).collect();
        Layout { schedule, view, acts, sizes, offsets }
    }

    pub(super) fn ranks(&self) -> u64 {
        self.view.place.size
    }

    pub(super) fn me(&self) -> u64 {
        self.view.place.rank
    }

    pub(super) fn act(&self, (epoch, number): At) -> &Act {
        &self.acts[epoch][number]
    }

    /// Returns the displacement of an [`Act`] in displacement units of its target.
    pub(super) fn disp(&self, at: At) -> u64 {
        self.offsets[at.0][at.1] / self.unit(at)
    }

    /// Returns the displacement unit, in bytes, of the target of an [`Act`].
    pub(super) fn unit(&self, at: At) -> u64 {
        self.schedule.units[self.act(at).target as usize]
    }

    /// Returns the operands of a rank in repetition `repeat` of an [`Act`].
    pub(super) fn input(&self, at: At, rank: u64, repeat: u64) -> Vec<u8> {
        let act = self.act(at);
        let constant = match act.kind {
            Kind::Claim => Some(1 + rank as i64),
            Kind::Watch => Some(watched(act.ty, 1 + repeat)),
            Kind::Locked | Kind::Mixed => Some(1),
            _ => None,
        };
        let mut bytes = vec![0; (act.count * act.ty.size as u64) as usize];
        match constant {
            Some(value) => {
                bytes.chunks_exact_mut(act.ty.size).for_each(|one| data::encode(one, act.ty, value))
            }
            None => self.fill(&mut bytes, act, rank, block(at, repeat)),
        }
        bytes
    }

    fn fill(&self, out: &mut [u8], act: &Act, source: u64, block: u64) {
        // All repeats of all ranks, and what was there: so many operands have their result exactly.
        let from = Origin { key: self.view.key, source, ranks: self.view.ranks * act.repeats + 1 };
        data::fill(out, act.ty, act.folds().then_some(act.op), from, block);
    }

    /// Returns the contents of a rank's part of the window before an epoch.
    pub(super) fn before(&self, epoch: usize, rank: u64) -> Vec<u8> {
        let mut image = vec![FILLER; self.sizes[rank as usize] as usize];
        for (number, act) in self.acts_of(epoch, rank) {
            let place = self.place((epoch, number));
            match act.kind {
                Kind::Put => {}
                Kind::Get | Kind::Accumulate | Kind::Ordered => {
                    self.fill(&mut image[place], act, NOBODY, block((epoch, number), 0));
                }
                _ => image[place].fill(0),
            }
        }
        image
    }

    /// Iterates over each [`Act`] of the epoch `epoch` whose target is the rank `rank`, with its
    /// index in the epoch.
    pub(super) fn acts_of(&self, epoch: usize, rank: u64) -> impl Iterator<Item = (usize, &Act)> {
        self.acts[epoch].iter().enumerate().filter(move |(_, act)| act.target == rank)
    }

    /// Returns the byte range of an [`Act`] in the target's part of the window.
    pub(super) fn place(&self, (epoch, number): At) -> Range<usize> {
        let act = self.act((epoch, number));
        let first = self.offsets[epoch][number] as usize;
        first..first + act.count as usize * act.ty.size
    }

    /// Returns the expected contents of a rank's part of the window after an epoch. For the range
    /// of an [`Act`] of the kind `Claim`, whose result depends on the order of the ranks, returns
    /// the contents before the epoch.
    pub(super) fn after(&self, epoch: usize, rank: u64) -> Vec<u8> {
        let mut image = self.before(epoch, rank);
        for (number, act) in self.acts_of(epoch, rank) {
            let there = &mut image[self.place((epoch, number))];
            let at = (epoch, number);
            let last = act.repeats - 1;
            match act.kind {
                Kind::Get | Kind::Claim => {}
                Kind::Put => there.copy_from_slice(&self.input(at, act.origin, last)),
                Kind::Watch => there.copy_from_slice(&self.input(at, 0, last)),
                Kind::Ordered => (0..act.repeats).for_each(|repeat| {
                    let operand = self.input(at, act.origin, repeat);
                    apply(there, &operand, act.ty, ordered_op(act, repeat));
                }),
                Kind::Accumulate | Kind::Locked | Kind::Mixed => {
                    for origin in 0..self.ranks() {
                        (0..act.repeats).for_each(|repeat| {
                            apply(there, &self.input(at, origin, repeat), act.ty, act.op)
                        });
                    }
                }
            }
        }
        image
    }

    /// Returns the values that an [`Act`] of the kind `Ordered` must fetch in repetition `repeat`.
    pub(super) fn found(&self, at: At, repeat: u64) -> Vec<u8> {
        let act = self.act(at);
        let mut there = vec![0; (act.count * act.ty.size as u64) as usize];
        self.fill(&mut there, act, NOBODY, block(at, 0));
        for earlier in 0..repeat {
            let operand = self.input(at, act.origin, earlier);
            apply(&mut there, &operand, act.ty, ordered_op(act, earlier));
        }
        there
    }
}

/// Returns the operation of an [`Act`] of the kind `Ordered` in repetition `repeat` (counted from
/// 0): DTL_OP_NO_OP in odd repetitions, otherwise `act.op`.
pub(super) fn ordered_op(act: &Act, repeat: u64) -> dtl_reduce_op_t {
    if repeat % 2 == 1 { DTL_OP_NO_OP } else { act.op }
}

/// Returns the value that the write with this number (the first is 1) in an [`Act`] of the kind
/// `Watch` stores in an element. Each part of a pair or complex number contains `number`.
pub(super) fn watched(ty: Type, number: u64) -> i64 {
    let number = number as i64;
    if matches!(ty.class, data::Class::Complex | data::Class::Pair) {
        data::join(number, number)
    } else {
        number
    }
}

fn block((epoch, number): At, repeat: u64) -> u64 {
    ((epoch as u64 * 64) + number as u64) * 16 + repeat
}

fn apply(there: &mut [u8], operand: &[u8], ty: Type, op: dtl_reduce_op_t) {
    for (left, right) in there.chunks_exact_mut(ty.size).zip(operand.chunks_exact(ty.size)) {
        let value = folded(left, right, ty, op);
        data::encode(left, ty, value);
    }
}

/// Returns the value of the element `there` after the reduction operation `op` with `operand`.
pub(super) fn folded(there: &[u8], operand: &[u8], ty: Type, op: dtl_reduce_op_t) -> i64 {
    fold(op, ty.class, data::decode(there, ty), data::decode(operand, ty))
}
