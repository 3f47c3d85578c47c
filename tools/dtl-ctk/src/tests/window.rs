//! Tests of windows: counters that all ranks fetch and increment concurrently, and fixed sequences
//! of epochs (`crate::window`) with every dtype and operation on all targets, every kind of epoch,
//! and every erroneous call. The test `random_cases` runs small random cases.

use crate::case::{Op, Place, Step};
use crate::data::{self, Class, REDUCTIONS, TYPES, Type};
use crate::kit::prelude::*;
use crate::plan::View;
use crate::tests::collective::random;
use crate::window::{self, Act, Epoch, Kind, MISUSES, Schedule, Sync};

/// Number of values that each rank fetches from a counter.
const EACH: u64 = 150;
/// Number of acts (groups of window operations) in one epoch.
const AT_ONCE: usize = 40;

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Ranks "comm.window.":
        counters_are_exact, counters_in_memory_of_the_program, every_dtype_and_operation,
        every_dtype_and_operation_fetched, every_epoch, fetch_op_and_compare_and_swap,
        misuse_is_refused, random_cases = random::<{ Op::Window as usize }>;
];

fn counters_are_exact(p: &Rank) -> Outcome {
    let (mut win, mut base) = (DTL_WIN_NULL, ptr::null_mut());
    call!(dtl_win_allocate(p.comm.raw(), 16, 4, &raw mut base, &raw mut win))?;
    count_up(p, win)
}

fn counters_in_memory_of_the_program(p: &Rank) -> Outcome {
    let mut memory = Box::new([0_u64; 2]);
    let mut win = DTL_WIN_NULL;
    call!(dtl_win_create(p.comm.raw(), ptr::from_mut(&mut *memory).cast(), 16, 4, &raw mut win))?;
    count_up(p, win).inspect_err(|_| std::mem::forget(memory))
}

/// Repeatedly fetches and increments two counters in the window memory of the last rank: one of 4
/// bytes and one of 8 bytes. Checks that all ranks together fetch each number exactly once.
fn count_up(p: &Rank, win: dtl_win_t) -> Outcome {
    let all = EACH * p.size as u64;
    let mut seen = vec![0_u8; all as usize * 2];
    let target = p.size - 1;
    call!(dtl_win_lock_all(win))?;
    let mut last = [-1_i64; 2];
    for _ in 0..EACH {
        let (one, mut small, mut large) = (1_u64, 0_i32, 0_i64);
        let from = ptr::from_ref(&one).cast();
        let (int, long, sum) = (DTL_DTYPE_INT32, DTL_DTYPE_INT64, DTL_OP_SUM);
        call!(dtl_win_fetch_op(win, from, ptr::from_mut(&mut small).cast(), int, target, 1, sum))?;
        call!(dtl_win_fetch_op(win, from, ptr::from_mut(&mut large).cast(), long, target, 2, sum))?;
        call!(dtl_win_flush(win, target))?;
        for (which, value) in [i64::from(small), large].into_iter().enumerate() {
            let in_range = value > last[which] && (value as u64) < all;
            ensure!(in_range, "fetched {value} after {}; {all} are given", last[which]);
            last[which] = value;
            seen[which * all as usize + value as usize] += 1;
        }
    }
    call!(dtl_win_unlock_all(win))?;
    call!(dtl_win_destroy(win))?;
    let (from, into) = (crate::collective::in_place().cast_const(), seen.as_mut_ptr().cast());
    let count = seen.len() as u64;
    call!(dtl_comm_allreduce(p.comm.raw(), from, into, count, DTL_DTYPE_UINT8, DTL_OP_SUM))?;
    match seen.iter().position(|times| *times != 1) {
        Some(value) => wrong!("{} was given {} times", value as u64 % all, seen[value]),
        None => Ok(()),
    }
}

/// Runs these epochs on all ranks: once with window memory that the library allocates, once with
/// window memory that the test program allocates.
fn run_epochs(p: &Rank, epochs: Vec<Epoch>) -> Outcome {
    for allocated in [true, false] {
        let ranks = 0..p.size as u64;
        let units = ranks.clone().map(|rank| [1, 4, 3, 8][rank as usize % 4]).collect();
        let tails = ranks.map(|rank| 5 * (rank % 3)).collect();
        let step = Step {
            op: Op::Window,
            ty: TYPES[2],
            reduction: DTL_OP_SUM,
            nonblocking: false,
            in_place: false,
            root: 0,
            gap: 0,
            order: Vec::new(),
            counts: Vec::new(),
            messages: Vec::new(),
            window: Schedule { allocated, units, tails, epochs: epochs.clone() },
        };
        let place = Place { rank: p.rank as u64, size: p.size as u64, color: 0 };
        let view = View { step: &step, place, ranks: p.size as u64, key: 7 };
        let told = window::run::run(p.comm.raw(), view, u64::from(allocated), p.timeout_ns);
        told.map_err(|failure| Stop::Failed(failure.text))?;
    }
    Ok(())
}

fn epoch(sync: Sync, acts: Vec<Act>) -> Epoch {
    Epoch { sync, exclusive: false, stagger: 1, misuse: Vec::new(), acts }
}

fn act(kind: Kind, ty: Type, op: dtl_reduce_op_t, number: usize) -> Act {
    Act {
        kind,
        ty,
        op,
        target: number as u64,
        origin: number as u64 / 2,
        count: 1 + number as u64 % 3,
        repeats: 2,
        form: 0,
        gap: number as u64 % 4,
        aligned: number % 5 != 0,
        flush: 0,
    }
}

/// Returns an [`Act`] (group of operations on a window) for each valid pair of dtype and operation.
/// All ranks perform each act concurrently, or only one rank performs it if the order of the
/// operations matters.
fn pairs(form: impl Fn(usize) -> u64) -> Vec<Act> {
    let types = TYPES.into_iter().filter(|ty| ty.class != Class::User);
    let pairs = types.flat_map(|ty| REDUCTIONS.map(|(op, _)| (ty, op)));
    let pairs = pairs.filter(|(ty, op)| data::go_together(*op, ty.class));
    let act = |(number, (ty, op)): (usize, (Type, dtl_reduce_op_t))| {
        let kind = if op == DTL_OP_REPLACE { Kind::Ordered } else { Kind::Accumulate };
        Act { form: form(number), ..act(kind, ty, op, number) }
    };
    pairs.enumerate().map(act).collect()
}

fn every_dtype_and_operation(p: &Rank) -> Outcome {
    let acts = pairs(|_| 0);
    run_epochs(p, acts.chunks(AT_ONCE).map(|acts| epoch(Sync::Fence, acts.to_vec())).collect())
}

fn every_dtype_and_operation_fetched(p: &Rank) -> Outcome {
    let acts = pairs(|number| 1 + number as u64 % 2);
    run_epochs(p, acts.chunks(AT_ONCE).map(|acts| epoch(Sync::LockAll, acts.to_vec())).collect())
}

fn every_epoch(p: &Rank) -> Outcome {
    use Kind::*;
    let kinds = [Put, Get, Accumulate, Ordered, Claim, Watch, Locked];
    let acts = |sync: Sync| -> Vec<Act> {
        let numbered = kinds.into_iter().cycle().take(21).enumerate();
        let acts = numbered.map(|(number, kind)| {
            let ty = TYPES[if kind == Watch { 15 } else { number % 4 }];
            let form = number as u64 / 7 % if matches!(kind, Put) { 2 } else { 3 };
            let repeats = if sync == Sync::Fence && kind == Put { 1 } else { 3 };
            let flush = if sync == Sync::Fence { 0 } else { number as u64 % 5 };
            Act { form, repeats, flush, ..act(kind, ty, DTL_OP_SUM, number) }
        });
        acts.filter(|act| sync == Sync::Each || act.kind != Locked).collect()
    };
    let syncs = [Sync::Each, Sync::Fence, Sync::LockAll, Sync::Nested, Sync::Fence];
    let mut epochs: Vec<Epoch> = syncs.map(|sync| epoch(sync, acts(sync))).into();
    for sync in [Sync::Each, Sync::Nested] {
        epochs.push(Epoch { exclusive: true, ..epoch(sync, acts(sync)) });
    }
    run_epochs(p, epochs)
}

fn fetch_op_and_compare_and_swap(p: &Rank) -> Outcome {
    let types =
        [DTL_DTYPE_INT32, DTL_DTYPE_UINT64, DTL_DTYPE_INT8].map(|dtype| TYPES[dtype as usize]);
    let acts = types.into_iter().enumerate().map(|(number, ty)| Act {
        repeats: 8,
        form: 2,
        ..act(Kind::Mixed, ty, DTL_OP_SUM, number)
    });
    run_epochs(p, vec![epoch(Sync::LockAll, acts.collect())])
}

fn misuse_is_refused(p: &Rank) -> Outcome {
    let acts = |sync| {
        vec![act(Kind::Put, TYPES[2], DTL_OP_SUM, 1), act(Kind::Accumulate, sync, DTL_OP_SUM, 0)]
    };
    let all = |sync, ty| Epoch { misuse: (0..MISUSES).collect(), ..epoch(sync, acts(ty)) };
    let put_once = |mut epoch: Epoch| {
        epoch.acts[0].repeats = 1;
        epoch
    };
    run_epochs(
        p,
        vec![
            all(Sync::LockAll, TYPES[3]),
            put_once(all(Sync::Fence, TYPES[9])),
            all(Sync::Nested, TYPES[15]),
            all(Sync::Each, TYPES[0]),
        ],
    )
}
