//! Checks that the fetched values, and the window memory after an epoch, agree with the rules of
//! `dtl.h`.

use super::act::{EpochRun, Held};
use super::layout::{At, Layout, folded, watched};
use super::{Act, Kind};
use crate::data::{self, FILLER, show};
use crate::kit::outcome::Failure;
use dtl_sys::DTL_OP_NO_OP;

/// Result of an epoch on one rank.
pub(super) struct EpochResult {
    /// Hash of those results of this rank that must be equal in every run of the test case on any
    /// backend.
    pub(super) hash: u64,
    /// For each [`Act`] of the epoch: value whose sum over all ranks must be zero (see
    /// `balance_of`).
    pub(super) balance: Vec<u64>,
    pub(super) wrong: Option<Failure>,
}

/// Checks a completed epoch. `is` contains the contents of this rank's window memory. `before` is
/// the hash of the results of the earlier epochs.
pub(super) fn check(run: &mut EpochRun, mut is: Vec<u8>, before: u64) -> EpochResult {
    let (layout, epoch) = (run.layout, run.epoch);
    let mut balance = vec![0_u64; layout.acts[epoch].len()];
    let mut wrong = run.wrong.take();
    let mut should = layout.after(epoch, layout.me());
    for (number, act) in layout.acts_of(epoch, layout.me()) {
        let place = layout.place((epoch, number));
        if act.folds() || act.kind == Kind::Watch {
            data::settle_padding(&mut is[place.clone()], &should[place.clone()], act.ty);
        }
        if act.fetches() {
            let was = layout.before(epoch, layout.me());
            let there = number_of(&is[place.clone()], act)
                .wrapping_sub(number_of(&was[place.clone()], act));
            balance[number] = balance[number].wrapping_add(there);
        }
        if act.is_a_race() {
            wrong = wrong.or_else(|| impossible_claim(layout, number, act, &is[place.clone()], 1));
            is[place.clone()].fill(0);
            should[place].fill(0);
        }
    }
    wrong = wrong.or_else(|| differs(layout, epoch, &is, &should));
    let mut hash = data::hash(before, &is);
    run.held.sort_by_key(|held| (held.number, held.repeat));
    for held in &mut run.held {
        let act = layout.act((epoch, held.number));
        if let Some(certain) = certain(layout, (epoch, held.number), held) {
            let result = held.result.get_or_insert_default();
            data::settle_padding(result, &certain, act.ty);
            hash = data::hash(hash, result);
            if *result != certain && wrong.is_none() {
                let text = first_difference(result, &certain, act);
                let text = format!("act {}, {}: {text}", held.number, act.describe());
                wrong = Some(Failure::wrong(text));
            }
        } else if act.fetches() {
            if let Some(result) = held.result.as_ref().filter(|_| act.is_a_race()) {
                wrong = wrong.or_else(|| impossible_claim(layout, held.number, act, result, 0));
            }
            balance[held.number] = balance[held.number].wrapping_add(balance_of(held, act));
        }
    }
    let late = (0..balance.len()).find_map(|number| unseen(run, number));
    EpochResult { hash, balance, wrong: wrong.or(late) }
}

/// Returns the value that an operation must have fetched; `None` if it does not fetch a value or if
/// the value depends on other ranks.
fn certain(layout: &Layout, at: At, held: &Held) -> Option<Vec<u8>> {
    held.result.as_ref()?;
    match layout.act(at).kind {
        Kind::Get => Some(layout.found(at, 0)),
        Kind::Ordered => Some(layout.found(at, held.repeat)),
        Kind::Accumulate if held.op == DTL_OP_NO_OP => Some(layout.found(at, 0)),
        _ => None,
    }
}

/// Detects an impossible value in an `Act` of the kind [`Kind::Claim`], where each rank r tries to
/// replace 0 by r + 1 with compare-and-swap. Each operation fetches 0 or a value r + 1, and the
/// element contains such a value r + 1 at the end. A compare-and-swap that does nothing passes the
/// check of `balance_of`, but not this one.
fn impossible_claim(
    layout: &Layout,
    number: usize,
    act: &Act,
    elements: &[u8],
    lowest: i64,
) -> Option<Failure> {
    let possible = lowest..=layout.ranks() as i64;
    let is_impossible = |element: &&[u8]| !possible.contains(&data::decode(element, act.ty));
    let element = elements.chunks_exact(act.ty.size).find(is_impossible)?;
    let (what, value) = (act.describe(), show(element, act.ty));
    Some(Failure::wrong(format!("act {number}, {what}: {value} is the number of no claim")))
}

/// Returns the sum of the hashes of all elements, each of which is hashed together with its index.
/// Equal sets of (index, element) pairs have equal sums, regardless of the order of addition.
fn number_of(bytes: &[u8], act: &Act) -> u64 {
    let values = bytes.chunks_exact(act.ty.size).map(|element| data::decode(element, act.ty));
    values.zip(1..).fold(0, |sum, (value, index)| sum.wrapping_add(weight(index, value)))
}

fn weight(index: u64, value: i64) -> u64 {
    data::hash_number(data::mix(index), value as u64)
}

/// Returns the sum of the hashes of the fetched values minus the sum of the hashes of the values
/// that the operations left in the elements. Each operation fetches the value that another
/// operation left, except the first, which fetches the initial value. The value that the last
/// operation left is the final value. Therefore, the sum of these differences over all ranks, plus
/// the hashes of the final values and minus the hashes of the initial values at the target, is
/// zero.
fn balance_of(held: &Held, act: &Act) -> u64 {
    let size = act.ty.size;
    let Some(result) = &held.result else { return 0 };
    let mut sum = 0_u64;
    for (at, index) in (0..result.len()).step_by(size).zip(1..) {
        let (found, operand) = (&result[at..at + size], &held.input[at..at + size]);
        let was = data::decode(found, act.ty);
        let left = match &held.expected {
            Some(expected) if expected[at..at + size] == *found => data::decode(operand, act.ty),
            Some(_) => was,
            None => data_cut(folded(found, operand, act.ty, held.op), act),
        };
        sum = sum.wrapping_add(weight(index, was)).wrapping_sub(weight(index, left));
    }
    sum
}

/// Truncates a value to the width of the element type of the `Act`.
fn data_cut(value: i64, act: &Act) -> i64 {
    let mut element = vec![0; act.ty.size];
    data::encode(&mut element, act.ty, value);
    data::decode(&element, act.ty)
}

/// Returns a failure if this rank, as a reader in an `Act` of the kind [`Kind::Watch`], has fetched
/// a value that never existed, or an older value after a newer one.
fn unseen(run: &EpochRun, number: usize) -> Option<Failure> {
    let act = run.layout.act((run.epoch, number));
    if act.kind != Kind::Watch || act.origin == run.layout.me() {
        return None;
    }
    let mut last = vec![0; act.count as usize];
    for held in run.held.iter().filter(|held| held.number == number) {
        let elements = held.result.iter().flat_map(|result| result.chunks_exact(act.ty.size));
        for (element, last) in elements.zip(&mut last) {
            let value = data::decode(element, act.ty);
            let is_known = |version: &u64| watched(act.ty, *version) == value;
            let version = (0..=act.repeats).find(is_known);
            if version.is_none_or(|version| version < *last) {
                let (what, seen) = (act.describe(), show(element, act.ty));
                let text = format!("act {number}, {what}: saw {seen} after version {last}");
                return Some(Failure::wrong(text));
            }
            *last = version.unwrap_or(*last);
        }
    }
    None
}

/// Compares the contents of this rank's window memory with the expected contents. Returns the first
/// difference.
fn differs(layout: &Layout, epoch: usize, is: &[u8], should: &[u8]) -> Option<Failure> {
    let at = is.iter().zip(should).position(|(is, should)| is != should)?;
    let whose = layout
        .acts_of(epoch, layout.me())
        .find(|(number, _)| layout.place((epoch, *number)).contains(&at));
    let text = match whose {
        None => {
            let what = "which belongs to no act, expected";
            format!("byte {at} of this rank's part is {}, {what} {FILLER}", is[at])
        }
        Some((number, act)) => {
            let place = layout.place((epoch, number));
            let text = first_difference(&is[place.clone()], &should[place], act);
            format!("act {number}, {}, at its target: {text}", act.describe())
        }
    };
    Some(Failure::wrong(text))
}

fn first_difference(is: &[u8], should: &[u8], act: &Act) -> String {
    let size = act.ty.size;
    let pairs = is.chunks(size).zip(should.chunks(size)).zip(0_u64..);
    match pairs.into_iter().find(|((is, should), _)| is != should) {
        None => "lengths differ".to_owned(),
        Some(((is, should), at)) => {
            format!("element {at} is {}, expected {}", show(is, act.ty), show(should, act.ty))
        }
    }
}
