//! Generates random schedules: a window, and epochs with one-sided operations.

use super::{Act, Epoch, Kind, Schedule, Sync, misuse};
use crate::case::Op;
use crate::data::{self, Class, Random, Type};
use dtl_sys::*;

/// Displacement units in bytes from which the generator chooses.
const UNITS: [u64; 8] = [1, 1, 2, 4, 8, 8, 3, 24];
/// Maximum number of elements of an [`Act`] that accesses each element with a separate call.
const SINGLY: u64 = 8;

/// Generates a schedule (a window and its epochs) for a job of `ranks` ranks. `op` selects its
/// contents: see `case::OPS`.
pub(crate) fn schedule(random: &mut Random, op: Op, ranks: u64, max_bytes: u64) -> Schedule {
    let units = (0..ranks).map(|_| random.pick(&UNITS)).collect();
    let tails = (0..ranks).map(|_| if random.chance(50) { 0 } else { random.below(40) }).collect();
    let count = if op == Op::Window { 1 + random.below(3) } else { 1 };
    let epochs = (0..count).map(|_| epoch(random, op, ranks, max_bytes / count)).collect();
    Schedule { allocated: random.chance(50), units, tails, epochs }
}

fn epoch(random: &mut Random, op: Op, ranks: u64, max_bytes: u64) -> Epoch {
    let syncs = [Sync::Fence, Sync::LockAll, Sync::Each, Sync::Nested];
    // The loop of compare_and_swap has to see what it has found.
    let sync = random.pick(if op == Op::WindowMixed { &syncs[1..] } else { &syncs });
    let exclusive = sync != Sync::Fence && random.chance(30);
    let count = 1 + random.below(4);
    let acts = (0..count).map(|_| act(random, op, sync, ranks, max_bytes / count)).collect();
    let mut wrong = Vec::new();
    if op == Op::WindowMisuse {
        wrong = random.permutation(misuse::COUNT);
        wrong.truncate(1 + random.below(misuse::COUNT) as usize);
    }
    Epoch { sync, exclusive, stagger: random.below(3), misuse: wrong, acts }
}

fn act(random: &mut Random, op: Op, sync: Sync, ranks: u64, max_bytes: u64) -> Act {
    use Kind::*;
    let all = [Put, Put, Get, Accumulate, Accumulate, Accumulate, Ordered, Claim, Watch, Locked];
    let kinds = if sync == Sync::Each { &all[..] } else { &all[..9] };
    let kind = if op == Op::WindowMixed { Mixed } else { random.pick(kinds) };
    let is_integer = |ty: &Type| matches!(ty.class, Class::Signed | Class::Unsigned);
    let types: Vec<Type> = match kind {
        Locked | Mixed => data::TYPES.into_iter().filter(is_integer).collect(),
        Claim => {
            let swaps = |ty: &Type| is_integer(ty) || ty.class == Class::Byte;
            data::TYPES.into_iter().filter(swaps).collect()
        }
        Put | Get => data::TYPES.to_vec(),
        _ => data::TYPES.into_iter().filter(|ty| ty.class != Class::User).collect(),
    };
    let ty = random.pick(&types);
    let form = match kind {
        Get if ty.class != Class::User => random.below(3),
        Put | Get => random.below(2),
        _ => random.below(3),
    };
    let is_single = form == 2 && kind != Get || matches!(kind, Claim | Watch | Locked | Mixed);
    let elements = random.spread(max_bytes) / ty.size as u64;
    let is_only_ever_one =
        kind == Put && sync == Sync::Fence || kind == Watch && ty.class == Class::Bool;
    Act {
        kind,
        ty,
        op: operation(random, kind, ty),
        target: random.below(ranks),
        origin: random.below(ranks),
        count: if is_single { elements.clamp(1, SINGLY) } else { elements },
        repeats: if is_only_ever_one { 1 } else { 1 + random.below(4) },
        form,
        gap: random.below(9),
        aligned: random.chance(80),
        flush: if sync == Sync::Fence || random.chance(60) { 0 } else { 1 + random.below(4) },
    }
}

/// Returns an operation for an [`Act`] of this kind and element type. For kinds in which all ranks
/// change the same elements concurrently, the operation is commutative.
fn operation(random: &mut Random, kind: Kind, ty: Type) -> dtl_reduce_op_t {
    let fits = |op: &dtl_reduce_op_t| data::go_together(*op, ty.class);
    let ops: Vec<_> = data::REDUCTIONS.into_iter().map(|(op, _)| op).filter(fits).collect();
    match kind {
        Kind::Accumulate => {
            let commute: Vec<_> = ops.iter().copied().filter(|op| *op != DTL_OP_REPLACE).collect();
            random.pick(&commute)
        }
        Kind::Ordered => random.pick(&ops),
        _ => DTL_OP_SUM,
    }
}
