//! Generator of random cases. A case depends only on the seed, its number, the number of ranks and
//! the options, so that all ranks generate the same case.

use crate::case::*;
use crate::data::{self, Class, Random, Type};
use crate::window::{Schedule, schedule};

/// Parameters and limits for the generation of test cases.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    pub(crate) seed: u64,
    pub(crate) ranks: u64,
    pub(crate) max_bytes: u64,
    pub(crate) ops: Vec<Op>,
}

/// Generates the case with the given number.
pub(crate) fn case(space: &Space, number: u64) -> Case {
    let mut random = Random::new(space.seed, number);
    let group = match random.below(100) {
        0..60 => Group::World,
        60..80 => Group::Dup,
        _ => {
            let place = |_| (random.below(4) as i32 - 1, random.below(3) as i32);
            Group::Split((0..space.ranks).map(place).collect())
        }
    };
    let count = if random.chance(50) { 1 } else { 2 + random.below(3) };
    let mut steps: Vec<Step> = Vec::new();
    for _ in 0..count {
        let mut op = random.pick(&space.ops);
        // They take longer than most others together.
        if op.is_window() && !space.ops.iter().all(|op| op.is_window()) && random.chance(70) {
            op = random.pick(&space.ops);
        }
        // Messages of two batches could meet.
        if op.is_p2p() && steps.iter().any(|step| step.op.is_p2p()) {
            continue;
        }
        let nonblocking =
            !op.is_p2p() && !op.is_window() && random.chance(if count > 1 { 70 } else { 40 });
        steps.push(step(&mut random, space, op, nonblocking));
    }
    Case { number, ranks: space.ranks, group, finish: random.below(6), steps }
}

fn step(random: &mut Random, space: &Space, op: Op, nonblocking: bool) -> Step {
    let (ty, reduction) =
        if op.reduces() { reduction(random) } else { (random.pick(&data::TYPES), 0) };
    let mut step = Step {
        op,
        ty,
        reduction,
        nonblocking,
        in_place: random.chance(30),
        root: random.below(space.ranks),
        gap: 0,
        order: Vec::new(),
        counts: Vec::new(),
        messages: Vec::new(),
        window: Schedule::default(),
    };
    let ranks = space.ranks;
    let elements = random.spread(space.max_bytes) / ty.size as u64;
    use Op::*;
    match op {
        Barrier => {}
        Bcast | Reduce | Allreduce | Scan | Exscan | Replace => step.counts = vec![elements as i64],
        Gather | Scatter | Allgather | Alltoall | ReduceScatterBlock => {
            step.counts = vec![elements.div_ceil(ranks) as i64];
        }
        Gatherv | Scatterv | Allgatherv | ReduceScatter | Sendrecv => {
            step.counts = (0..ranks).map(|_| block(random, elements / ranks)).collect();
        }
        Alltoallv | Neighbor => {
            step.counts = (0..ranks * ranks).map(|_| block(random, elements / ranks)).collect();
        }
        P2p | Ssend | Probe => step.messages = messages(random, op, ranks, elements),
        Window | WindowMixed | WindowMisuse => {
            step.window = schedule(random, op, ranks, space.max_bytes)
        }
    }
    if matches!(op, Gatherv | Scatterv | Allgatherv | Alltoallv | Neighbor) && random.chance(60) {
        step.order = random.permutation(ranks);
        step.gap = random.below(4);
    }
    match op {
        Neighbor => {
            step.in_place = false;
            for count in &mut step.counts {
                *count = if random.chance(40) { -1 } else { *count };
            }
        }
        Sendrecv | Replace => step.gap = random.below(1 << 28),
        Barrier | Bcast | P2p | Ssend | Probe | Window | WindowMixed | WindowMisuse => {
            step.in_place = false
        }
        _ => {}
    }
    step
}

/// Returns the number of elements of one block: 0 with a probability of 25%, otherwise a random
/// number that is about `mean` on average.
fn block(random: &mut Random, mean: u64) -> i64 {
    if random.chance(25) { 0 } else { random.below(2 * mean + 2) as i64 }
}

fn reduction(random: &mut Random) -> (Type, i32) {
    // What does not commute shows a wrong order of the operands.
    let op = if random.chance(20) { data::USER_MATRIX } else { random.pick(&data::REDUCTIONS).0 };
    let types: Vec<Type> =
        data::TYPES.into_iter().filter(|ty| data::go_together(op, ty.class)).collect();
    // Floating point is most of what people reduce.
    let floats: Vec<Type> = types.iter().copied().filter(|ty| ty.class == Class::Float).collect();
    let of = if !floats.is_empty() && random.chance(40) { &floats } else { &types };
    (random.pick(of), op)
}

/// Properties that all receives of one rank have in common.
#[derive(Clone, Copy)]
struct Receiver {
    early: bool,
    /// 0: each receive specifies a source. 1: all receives use DTL_ANY_SOURCE, and all messages
    /// have the tag `tag`. 2: all receives use DTL_ANY_SOURCE and DTL_ANY_TAG.
    any: u64,
    tag: i32,
}

/// Generates a batch of several messages between some pairs of ranks. Three rules make its outcome
/// deterministic. The receives for a pair of ranks are posted in the order in which its messages
/// are sent, or in another order if their tags differ. If one receive of a rank uses
/// DTL_ANY_SOURCE, all receives of this rank use it. A blocking send goes only to a rank that posts
/// its receives before its sends.
fn messages(random: &mut Random, op: Op, ranks: u64, elements: u64) -> Vec<Message> {
    let receivers: Vec<Receiver> = (0..ranks)
        .map(|_| Receiver {
            early: random.chance(if op == Op::Probe { 20 } else { 60 }),
            any: if random.chance(40) { 1 + random.below(2) } else { 0 },
            tag: tag(random),
        })
        .collect();
    let pairs = 1 + random.below(5);
    let mut list: Vec<Message> = Vec::new();
    for pair in 0..pairs {
        let (source, dest) = (random.below(ranks), random.below(ranks));
        if list.iter().any(|message| (message.source, message.dest) == (source, dest)) {
            continue;
        }
        let how = receivers[dest as usize];
        let reversed = how.any == 0 && random.chance(25);
        for index in 0..1 + random.below(4) {
            let count = random.spread((elements / pairs).max(1));
            let mut message = message(random, op, how, (source, dest, count));
            if reversed {
                // Different tags, the receives from the last to the first.
                message.tag = (index * 7 + pair) as i32;
                message.any_tag = false;
                message.order = 100 - index;
            }
            list.push(message);
        }
    }
    // Those of a pair keep their order: rounds over the pairs.
    let starts = random.permutation(pairs);
    list.sort_by_key(|message| starts[(message.source + message.dest) as usize % starts.len()]);
    widen(&mut list);
    list
}

fn message(
    random: &mut Random,
    op: Op,
    how: Receiver,
    (source, dest, count): (u64, u64, u64),
) -> Message {
    use RecvKind::*;
    use SendKind::*;
    let room = match random.below(100) {
        0..8 => count + random.below(20),
        8..16 if count > 0 => random.below(count),
        _ => count,
    };
    let send = match (op, how.early) {
        (Op::Ssend, true) => random.pick(&[Ssend, Issend, Send]),
        (Op::Ssend, false) => random.pick(&[Issend, Isend]),
        (_, true) => random.pick(&[Send, Isend, SendKind::Persistent]),
        (_, false) => random.pick(&[Isend, SendKind::Persistent]),
    };
    let recv = match (op, how.early) {
        (_, true) => random.pick(&[Irecv, RecvKind::Persistent]),
        (Op::Probe, false) => random.pick(&[Probe, Mprobe, Iprobe, Improbe]),
        (_, false) => Recv,
    };
    Message {
        source,
        dest,
        tag: if how.any == 1 || random.chance(40) { how.tag } else { tag(random) },
        count,
        room,
        send,
        recv,
        any_tag: how.any == 2
            || (how.any == 1 && how.tag % 2 == 0)
            || (how.any == 0 && random.chance(30)),
        any_source: how.any > 0,
        order: 0,
    }
}

fn tag(random: &mut Random) -> i32 {
    random.pick(&[0, 1, 5, 1 << 20, dtl_sys::DTL_TAG_MAX])
}

/// Enlarges the buffers of receives from any source, so that each has room for every message to its
/// rank.
fn widen(list: &mut [Message]) {
    let most = |message: &Message| {
        list.iter().filter(|other| other.dest == message.dest).map(|other| other.count).max()
    };
    let rooms: Vec<u64> = list.iter().map(|message| most(message).unwrap_or(0)).collect();
    for (message, room) in list.iter_mut().zip(rooms) {
        if message.any_source {
            message.room = room;
        }
    }
}
