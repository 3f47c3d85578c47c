//! Shrinking of a failing test case: a list of small changes, applied in order. The list is also
//! the argument of --shrink, so that a run of the smallest case can be repeated.

use crate::case::{Case, Group, Step};
use crate::data::{self, TYPES};
use crate::window::Schedule;
use dtl_sys::DTL_OP_SUM;
use std::fmt;
use std::str::FromStr;

/// One reduction of a test case. On the command line it is a letter, followed by a number for some
/// reductions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// d0, d1 ...: removes the step (one operation of the case) with this index.
    Drop(usize),
    /// r1, r2 ...: reduces the number of ranks to this number.
    Ranks(usize),
    /// w: uses the world communicator.
    World,
    /// h: halves every count.
    Halve,
    /// m0, m1 ...: removes the message with this index.
    Message(usize),
    /// b: uses only blocking calls.
    Blocking,
    /// i: does not use DTL_IN_PLACE.
    OutOfPlace,
    /// p: places blocks without gaps.
    Packed,
    /// t: changes the element type to int32 and, for reductions, the operation to the sum.
    Simple,
    /// o: changes every root to 0.
    Root,
    /// e0, e1 ...: removes the window epoch with this index.
    Epoch(usize),
    /// a0, a1 ...: removes the act (a group of operations on a window) with this index.
    Act(usize),
    /// k: performs each act (a group of operations on a window) only once.
    Once,
    /// x: removes the window calls that are required to fail.
    Proper,
}

/// Constructor of a [`Change`] that contains a number.
type Numbered = fn(usize) -> Change;

/// Changes that contain a number, each with its letter on the command line. `PLAIN` lists the
/// changes without a number.
const NUMBERED: [(char, Numbered); 5] = [
    ('d', Change::Drop),
    ('r', Change::Ranks),
    ('m', Change::Message),
    ('e', Change::Epoch),
    ('a', Change::Act),
];
const PLAIN: [(char, Change); 9] = [
    ('w', Change::World),
    ('h', Change::Halve),
    ('b', Change::Blocking),
    ('i', Change::OutOfPlace),
    ('p', Change::Packed),
    ('t', Change::Simple),
    ('o', Change::Root),
    ('k', Change::Once),
    ('x', Change::Proper),
];

/// Help text of --shrink.
pub(crate) const HELP: &str = "d0 d1 … drops a step, m0 m1 … a message; r1 r2 … keeps the first \
    ranks; h halves counts; \
w world; b blocking; i not in place; p packed blocks; t int32 and sum; o root 0; \
e0 e1 … drops an epoch of a window, a0 a1 … an act; k does acts once; x without misuse";

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if let Some((letter, _)) = PLAIN.iter().find(|(_, change)| change == self) {
            return write!(f, "{letter}");
        }
        let (Change::Drop(number)
        | Change::Ranks(number)
        | Change::Message(number)
        | Change::Epoch(number)
        | Change::Act(number)) = *self
        else {
            return Ok(());
        };
        let letter = NUMBERED.iter().find(|(_, change)| change(number) == *self);
        write!(f, "{}{number}", letter.map_or('?', |(letter, _)| *letter))
    }
}

impl FromStr for Change {
    type Err = String;

    fn from_str(text: &str) -> Result<Change, String> {
        let mut letters = text.chars();
        let (first, rest) = (letters.next(), letters.as_str());
        let plain = PLAIN.iter().find(|(letter, _)| Some(*letter) == first && rest.is_empty());
        let numbered = NUMBERED.iter().find(|(letter, _)| Some(*letter) == first);
        match (plain, numbered) {
            (Some((_, change)), _) => Ok(*change),
            (_, Some((_, change))) => {
                rest.parse().map(change).map_err(|_| format!("{rest:?} is no number"))
            }
            _ => Err(format!("{text:?} is no change: {HELP}")),
        }
    }
}

/// Applies the changes to the case, in the order of the list.
pub(crate) fn apply(case: &mut Case, changes: &[Change]) {
    for &change in changes {
        apply_one(case, change);
    }
}

fn apply_one(case: &mut Case, change: Change) {
    match change {
        Change::World => case.group = Group::World,
        Change::Drop(step) if step < case.steps.len() => _ = case.steps.remove(step),
        Change::Ranks(ranks) => {
            let color = |rank| if rank < ranks as u64 { 0 } else { -1 };
            case.group = Group::Split((0..case.ranks).map(|rank| (color(rank), 0)).collect());
        }
        Change::Halve => halve(case),
        Change::Message(message) => {
            for step in &mut case.steps {
                if message < step.messages.len() {
                    step.messages.remove(message);
                }
            }
        }
        _ => case.steps.iter_mut().for_each(|step| match change {
            Change::Blocking => step.nonblocking = false,
            Change::OutOfPlace if !step.op.is_p2p() => step.in_place = false,
            Change::Packed if !step.op.is_p2p() && !step.op.is_window() => {
                step.order.clear();
                step.gap = 0;
            }
            Change::Packed => step.window.pack(),
            Change::Root => step.root = 0,
            Change::Epoch(epoch) => step.window.drop_epoch(epoch),
            Change::Act(act) => step.window.drop_act(act),
            Change::Once => step.window.each_act(|act| act.repeats = 1),
            Change::Proper => step.window.epochs.iter_mut().for_each(|phase| phase.misuse.clear()),
            Change::Simple => {
                step.window.simplify();
                step.ty = TYPES[2];
                step.reduction = DTL_OP_SUM;
            }
            _ => {}
        }),
    }
}

fn halve(case: &mut Case) {
    for step in &mut case.steps {
        // -1 means that there is no edge.
        step.counts.iter_mut().filter(|count| **count > 0).for_each(|count| *count /= 2);
        step.window.each_act(|act| act.count /= 2);
        for message in &mut step.messages {
            let cut = message.room < message.count;
            message.count /= 2;
            message.room /= 2;
            if cut && message.room >= message.count {
                message.room = message.count.saturating_sub(1);
            }
        }
    }
}

/// Returns changes that make a case smaller, the most promising first.
pub(crate) fn candidates(case: &Case) -> Vec<Change> {
    let steps = &case.steps;
    let mut list: Vec<Change> = Vec::new();
    if steps.len() > 1 {
        list.extend((0..steps.len()).map(Change::Drop));
    }
    let members = match &case.group {
        Group::Split(places) => places.iter().filter(|(color, _)| *color == 0).count() as u64,
        _ => case.ranks,
    };
    let color = |rank| if rank < members { 0 } else { -1 };
    let in_order =
        |((color_of, key), rank): (&(i32, i32), u64)| (*color_of, *key) == (color(rank), 0);
    let is_prefix = match &case.group {
        Group::Split(places) => places.iter().zip(0..).all(in_order),
        _ => false,
    };
    let fewer = if is_prefix { members } else { case.ranks };
    list.extend((1..fewer as usize).map(Change::Ranks).take(8));
    if !is_prefix && case.group != Group::World {
        list.push(Change::World);
    }
    let messages = steps.iter().map(|step| step.messages.len()).max().unwrap_or(0);
    if messages > 1 {
        list.extend((0..messages).map(Change::Message));
    }
    let windows = || steps.iter().map(|step| &step.window);
    let epochs = windows().map(|window| window.epochs.len()).max().unwrap_or(0);
    let acts = windows().map(|window| window.acts().count()).max().unwrap_or(0);
    if epochs > 1 {
        list.extend((0..epochs).map(Change::Epoch));
    }
    if acts > 1 {
        list.extend((0..acts).map(Change::Act));
    }
    let has_counts = steps.iter().any(|step| {
        step.counts.iter().any(|&count| count > 0)
            || step.messages.iter().any(|message| message.count > 0)
            || step.window.acts().any(|act| act.count > 0)
    });
    let is_simple = |step: &Step| {
        let folds_simply = !step.op.reduces() || step.reduction == DTL_OP_SUM;
        step.ty == data::TYPES[2] && folds_simply && step.window.is_simple()
    };
    let more = [
        (Change::Proper, windows().any(Schedule::has_misuse)),
        (Change::Halve, has_counts),
        (Change::Once, windows().flat_map(Schedule::acts).any(|act| act.repeats > 1)),
        (Change::Blocking, steps.iter().any(|step| step.nonblocking)),
        (Change::OutOfPlace, steps.iter().any(|step| step.in_place && !step.op.is_p2p())),
        (
            Change::Packed,
            steps.iter().any(|step| !step.order.is_empty() || !step.window.is_packed()),
        ),
        (Change::Simple, !steps.iter().all(is_simple)),
        (Change::Root, steps.iter().any(|step| step.op.is_rooted() && step.root != 0)),
    ];
    list.extend(more.into_iter().filter(|(_, useful)| *useful).map(|(change, _)| change));
    list
}

#[cfg(test)]
mod tests;
