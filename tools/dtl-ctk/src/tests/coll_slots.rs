//! Tests that call the collective functions of a comm table (`coll_supports`, `coll_start`)
//! directly, in the same way as the library calls them. The results are compared with the serial
//! reference of the random cases. What `coll_supports` refuses is not started.

use crate::case::{OPS, Op};
use crate::data::{Class, TYPES};
use crate::kit::malloc::malloc_bytes;
use crate::kit::prelude::*;
use crate::kit::slot_comm::{Op as Message, SlotComm};
use crate::tests::coll_call::*;

pub(crate) const SUPPORTS: &[(&str, Body)] = functions![
    SlotComm "comm.coll_supports.":
        answers_yes_or_no, same_on_all_ranks, same_each_time, rank_local_arguments_do_not_matter;
];

/// Defines tests that each compare all forms of one collective with the reference.
macro_rules! each_is_right {
    ($($name:literal $op:ident),+) => {
        &[$((
            concat!("comm.coll_start.", $name, "_is_right"),
            Body::SlotComm(is_right::<{ Op::$op as usize }>),
        )),+]
    };
}

pub(crate) const RIGHT: &[(&str, Body)] = each_is_right![
    "barrier" Barrier, "bcast" Bcast, "reduce" Reduce, "allreduce" Allreduce, "gather" Gather,
    "gatherv" Gatherv, "scatter" Scatter, "scatterv" Scatterv, "allgather" Allgather,
    "allgatherv" Allgatherv, "alltoall" Alltoall, "alltoallv" Alltoallv,
    "reduce_scatter" ReduceScatter, "reduce_scatter_block" ReduceScatterBlock, "scan" Scan,
    "exscan" Exscan
];

pub(crate) const TESTS: &[(&str, Body)] = functions![
    SlotComm "comm.coll_start.":
        late_rank_is_waited_for, every_rank_takes_part, in_place_is_right,
        large_ones_are_there_when_done, nan_is_the_result, nothing_outside_is_written, send_buffer_stays,
        zero_counts, several_in_flight_in_order, contexts_are_apart, no_room_loses_nothing,
        messages_stay_apart, keep_no_memory, canceled_one_releases_its_buffer;
];

// Match words: each test has its own.
const ANSWERS: u64 = 0x21;
const MEETING: u64 = 0x22;
const BESIDE: u64 = 0x23;
const LEFT: u64 = 0x24;

/// Returns collectives for questions to `coll_supports`: each dtype and operation, and several
/// sizes, roots and contexts.
fn questions(size: i32) -> impl Iterator<Item = Form> {
    let plain = move |op: Op| {
        let mut forms: Vec<Form> = Vec::new();
        if op.reduces() {
            forms.extend(pairs().map(|(ty, reduction)| Form { ty, reduction, ..Form::new(op) }));
        } else {
            forms.extend(TYPES.map(|ty| Form { ty, ..Form::new(op) }));
        }
        let one = Form::new(op);
        forms.extend([0, 1, 600, 5000].map(|count| Form { count, ..one }));
        forms.extend([1, 7].map(|context| Form { context, ..one }));
        forms.extend(one.roots(size));
        forms
    };
    collectives()
        .flat_map(plain)
        .flat_map(|form| [false, true].map(|deterministic| Form { deterministic, ..form }))
}

fn answers(comm: &SlotComm) -> Outcome<Vec<u8>> {
    questions(comm.size)
        .map(|form| Ok(Collective::new(comm, form).is_supported()?.into()))
        .collect()
}

fn answers_yes_or_no(comm: &SlotComm) -> Outcome {
    answers(comm).map(drop)
}

/// Returns the first question that has another answer.
fn other_answer(size: i32, one: &[u8], other: &[u8]) -> Option<(Form, bool)> {
    let at = one.iter().zip(other).position(|(one, other)| one != other)?;
    questions(size).nth(at).map(|form| (form, one[at] == 1))
}

fn same_on_all_ranks(comm: &SlotComm) -> Outcome {
    let mine = answers(comm)?;
    let receive = comm.receive(mine.len(), comm.previous(), ANSWERS)?;
    comm.meet(MEETING)?;
    let send = comm.send(&mine, comm.next(), ANSWERS)?;
    comm.wait(&receive)?;
    comm.wait(&send)?;
    match other_answer(comm.size, &mine, &receive.buffer) {
        Some((form, yes)) => wrong!(
            "coll_supports answers {} to {} on rank {}, and {} on rank {}",
            u8::from(yes),
            form.text(),
            comm.rank,
            u8::from(!yes),
            comm.previous()
        ),
        None => Ok(()),
    }
}

fn same_each_time(comm: &SlotComm) -> Outcome {
    let first = answers(comm)?;
    for _ in 0..2 {
        run_each(comm, Form::each(comm.size))?;
        if let Some((form, yes)) = other_answer(comm.size, &first, &answers(comm)?) {
            let (before, after) = (u8::from(yes), u8::from(!yes));
            wrong!("coll_supports answers {before} to {}, and later {after}", form.text());
        }
    }
    Ok(())
}

/// Compares the answers for arguments that differ only in what may differ between ranks: addresses,
/// DTL_IN_PLACE, and counts of collectives that have counts for each rank.
fn rank_local_arguments_do_not_matter(comm: &SlotComm) -> Outcome {
    for form in Form::each(comm.size) {
        let (one, text) = (Collective::new(comm, form), form.text());
        let yes = one.is_supported()?;
        for shift in [1, 2, 8, 64, 4096] {
            let is = one.is_supported_at(shift)?;
            let what = "buffers at other addresses";
            differs(yes, is, &text, what)?;
        }
        let mut others = Vec::new();
        if form.can_be_in_place() {
            others.push(("DTL_COLL_IN_PLACE", Form { in_place: true, ..form }));
        }
        if is_varied(form.op) {
            let counts = [0, 1, 700, 5000].map(|count| Form { count, ..form });
            others.extend(counts.map(|other| ("other counts", other)));
        }
        for (what, other) in others {
            let is = Collective::new(comm, other).is_supported()?;
            differs(yes, is, &text, what)?;
        }
    }
    Ok(())
}

fn differs(yes: bool, is: bool, text: &str, what: &str) -> Outcome {
    let (before, with) = (u8::from(yes), u8::from(is));
    check!(before == with, "coll_supports answers {before} to {text}, and {with} with {what}")
}

/// Returns all forms of a collective that a test of its result runs: each dtype with each
/// operation, every root, and several counts.
fn forms(op: Op, size: i32) -> impl Iterator<Item = Form> {
    let reducing = pairs().map(move |(ty, reduction)| Form { ty, reduction, ..Form::new(op) });
    let moving = TYPES.into_iter().map(move |ty| Form { ty, ..Form::new(op) });
    let counts = [0, 1, 2, 3, 100, 1000].map(move |count| Form { count, ..Form::new(op) });
    let all: Vec<Form> = match op {
        Op::Barrier => vec![Form::new(op); 20],
        op if op.reduces() => reducing.chain(counts).collect(),
        _ => moving.chain(counts).collect(),
    };
    let turn = move |(number, form): (usize, Form)| {
        let root = (number as i32 + 1) % size;
        Form { root, key: number as u64, ..form }
    };
    all.into_iter().enumerate().map(turn).chain(Form::new(op).roots(size))
}

fn is_right<const OP: usize>(comm: &SlotComm) -> Outcome {
    run_each(comm, forms(OPS[OP].0, comm.size))
}

const LATE: Duration = Duration::from_millis(40);

/// Returns the root for a collective in which rank `late` comes late, and whether rank `me` has to
/// wait for that rank. `None`: the data of the late rank does not go to all others or to the root.
fn late(op: Op, me: i32, late: i32, size: i32) -> Option<(i32, bool)> {
    use Op::*;
    match op {
        Bcast | Scatter | Scatterv => Some((late, me != late)),
        Reduce | Gather | Gatherv => {
            let root = (late + 1) % size;
            Some((root, me == root))
        }
        Scan | Exscan => Some((0, me > late)),
        // Blocks between some pairs of ranks are empty.
        Alltoallv => None,
        _ => Some((0, me != late)),
    }
}

fn late_rank_is_waited_for(comm: &SlotComm) -> Outcome {
    for form in supported(comm, collectives().map(Form::new))? {
        for late_one in [0, comm.size - 1] {
            let who = late(form.op, comm.rank, late_one, comm.size);
            let Some((root, waits)) = who else { continue };
            let mut one = Collective::new(comm, Form { root, ..form });
            // Before the ranks meet: so before the late one goes to sleep, however long this one is
            // kept from running.
            let begin = Instant::now();
            comm.meet(MEETING)?;
            if comm.rank == late_one {
                thread::sleep(LATE);
            }
            one.start()?;
            one.wait()?;
            let (waited, text) = (begin.elapsed(), one.form.text());
            let after = format!("rank {late_one} started it after {LATE:?}");
            ensure!(waited >= LATE || !waits, "{text}: done after {waited:?}; {after}");
        }
    }
    Ok(())
}

/// Rounds with data of other values each time, so that a rank that is left out, or whose data of an
/// earlier round is used, shows.
fn every_rank_takes_part(comm: &SlotComm) -> Outcome {
    let rounds = (0..30).flat_map(|key| Form::each(comm.size).map(move |form| (key, form)));
    run_each(comm, rounds.map(|(key, form)| Form { key: 100 + key, count: 3 + key % 5, ..form }))
}

fn in_place_is_right(comm: &SlotComm) -> Outcome {
    let forms = Form::each(comm.size).filter(Form::can_be_in_place);
    let of = |form: Form| [1, 5, 1000].map(|count| Form { in_place: true, count, ..form });
    run_each(comm, forms.flat_map(of))
}

/// Sizes at which a transport has not sent everything when the collective is started.
fn large_ones_are_there_when_done(comm: &SlotComm) -> Outcome {
    let forms = collectives().filter(|op| *op != Op::Barrier).map(Form::new);
    let of = |form: Form| {
        [(2000, false), (20_000, false), (20_000, true)].map(|(count, in_place)| Form {
            count,
            in_place,
            ..form
        })
    };
    let forms = forms.flat_map(of).filter(|form| !form.in_place || form.can_be_in_place());
    run_each(comm, forms)
}

/// Blocks with gaps between them, in another order than the ranks.
fn nothing_outside_is_written(comm: &SlotComm) -> Outcome {
    let forms = Form::each(comm.size);
    run_each(
        comm,
        forms.flat_map(|form| {
            [(1, 1), (7, 3)].map(|(count, gap)| Form { ty: TYPES[0], count, gap, ..form })
        }),
    )
}

fn nan_is_the_result(comm: &SlotComm) -> Outcome {
    let floats = TYPES.into_iter().filter(|ty| ty.class == Class::Float);
    let ops = [DTL_OP_SUM, DTL_OP_PROD, DTL_OP_MIN, DTL_OP_MAX];
    let forms = floats
        .flat_map(|ty| ops.map(|reduction| Form { ty, reduction, ..Form::new(Op::Allreduce) }));
    for form in supported(comm, forms)? {
        for from in [0, comm.size - 1] {
            let mut one = Collective::new(comm, form);
            one.put_nan(from);
            one.start()?;
            one.wait()?;
        }
    }
    Ok(())
}

fn send_buffer_stays(comm: &SlotComm) -> Outcome {
    let of = |form: Form| [4, 1000].map(|count| Form { count, ..form });
    run_each(comm, Form::each(comm.size).flat_map(of))
}

fn zero_counts(comm: &SlotComm) -> Outcome {
    let of = |form: Form| [false, true].map(|in_place| Form { count: 0, in_place, ..form });
    run_each(comm, Form::each(comm.size).flat_map(of))
}

fn several_in_flight_in_order(comm: &SlotComm) -> Outcome {
    let forms = supported(comm, Form::each(comm.size))?;
    for round in 0..4 {
        let numbered = forms.iter().cycle().zip(0..).skip(round).take(12);
        let mut all: Vec<Collective> = numbered
            .map(|(form, key)| Collective::new(comm, Form { key, count: 3, ..*form }))
            .collect();
        run_together(comm, &mut all)?;
    }
    // Alike, so that only the order tells them apart.
    for form in forms {
        let mut all: Vec<Collective> =
            (0..4).map(|key| Collective::new(comm, Form { key, ..form })).collect();
        run_together(comm, &mut all)?;
    }
    Ok(())
}

/// Starts the collectives of two contexts in an order that differs between the ranks.
fn contexts_are_apart(comm: &SlotComm) -> Outcome {
    let forms = Form::each(comm.size).map(|form| Form { context: 3, ..form });
    for form in supported(comm, forms)? {
        let contexts = if comm.rank % 2 == 0 { [0, 3] } else { [3, 0] };
        let one = |context: u32| {
            Collective::new(comm, Form { context, key: 50 + u64::from(context), ..form })
        };
        let mut all = contexts.map(one);
        if all.iter().all(|one| one.is_supported().unwrap_or(false)) {
            run_together(comm, &mut all)?;
        }
    }
    Ok(())
}

fn no_room_loses_nothing(comm: &SlotComm) -> Outcome {
    let forms = supported(comm, collectives().map(Form::new))?;
    let numbered = forms.iter().cycle().zip(0..).take(150);
    let mut all: Vec<Collective> =
        numbered.map(|(form, key)| Collective::new(comm, Form { key, ..*form })).collect();
    run_together(comm, &mut all)
}

/// Messages are sent before a collective and received after it.
fn messages_stay_apart(comm: &SlotComm) -> Outcome {
    for form in supported(comm, Form::each(comm.size))? {
        let bytes = |rank: i32| pattern(form.key + rank as u64, 300);
        let receives: Vec<Message> =
            (0..3).map(|_| comm.receive(300, comm.previous(), BESIDE)).collect::<Outcome<_>>()?;
        let mut one = Collective::new(comm, form);
        one.start()?;
        let sends: Vec<Message> = (0..3)
            .map(|_| comm.send(&bytes(comm.rank), comm.next(), BESIDE))
            .collect::<Outcome<_>>()?;
        one.wait()?;
        for receive in receives {
            comm.wait(&receive)?;
            let text = one.form.text();
            same!(&receive.buffer, &bytes(comm.previous()), "a message beside {text}: {}")?;
        }
        sends.iter().try_for_each(|send| comm.wait(send).map(drop))?;
    }
    Ok(())
}

/// Runs collectives in rounds until the memory that malloc has given does not grow in a round.
fn keep_no_memory(comm: &SlotComm) -> Outcome {
    const EACH: i32 = 20;
    let forms = supported(comm, collectives().map(Form::new))?;
    let mut grown = Vec::new();
    for _ in 0..5 {
        comm.meet(MEETING)?;
        let before = malloc_bytes();
        for _ in 0..EACH {
            run_each(comm, forms.iter().copied())?;
        }
        comm.meet(MEETING)?;
        let (Some(before), Some(after)) = (before, malloc_bytes()) else {
            skip!("this C library does not report how much memory is in use");
        };
        grown.push(after.wrapping_sub(before));
    }
    // A leaked block of malloc has 32 bytes or more.
    let least = grown.iter().skip(2).copied().min().unwrap_or(0);
    let count = forms.len() as i32 * EACH;
    check!(least < 8 * count, "memory grows with {count} collectives, by {grown:?} bytes")
}

/// All ranks but the last start a collective and cancel it. The last test: a transport need not
/// support collectives of that context afterwards.
fn canceled_one_releases_its_buffer(comm: &SlotComm) -> Outcome {
    if !comm.can_cancel() {
        skip!("the comm table has no cancel: a collective that has begun cannot end early");
    }
    let ops = [Op::Allreduce, Op::Allgather, Op::Alltoall, Op::Barrier];
    let forms = [9, 0].into_iter().flat_map(|context| {
        ops.map(|op| Form { context, ty: TYPES[DTL_DTYPE_INT32 as usize], ..Form::new(op) })
    });
    let form = supported(comm, forms)?[0];
    let mut one = Collective::new(comm, form);
    if comm.rank != comm.size - 1 {
        one.start()?;
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(30) {
            let status = one.status()?;
            let text = one.form.text();
            ensure!(status.is_none(), "{text} is done, and the last rank has not started it");
        }
        one.cancel()?;
        let (begin, limit) = (Instant::now(), Duration::from_secs(5).min(comm.limit / 2));
        let status = loop {
            if let Some(status) = one.status()? {
                break status;
            }
            let (waited, text) = (begin.elapsed(), one.form.text());
            ensure!(waited < limit, "{text} is not done {waited:?} after comm.cancel");
            thread::sleep(Duration::from_micros(100));
        };
        let text = one.form.text();
        ensure!(
            status != DTL_SUCCESS && dtl::tooling::is_status(status),
            "{text} was canceled before all ranks had started it, and ended with {status}"
        );
        one.reuse(0x5A);
    }
    // Calls in which the transport makes progress.
    (0..20).try_for_each(|_| comm.meet(LEFT))?;
    let is_free = comm.rank == comm.size - 1 || one.is_filled_with(0x5A);
    check!(is_free, "{}: its buffer was written after it had ended", one.form.text())
}

/// Returns whether the backend under test executes collectives with `coll_start`.
pub(crate) fn has_slots() -> Outcome {
    let table = crate::kit::vtables::tables().and_then(|all| all.tables.comm);
    let Some(table) = table else { skip!("the kind has no comm table that the kit can read") };
    if table.coll_start.is_none() {
        skip!("the comm table has no coll_start");
    }
    Ok(())
}
