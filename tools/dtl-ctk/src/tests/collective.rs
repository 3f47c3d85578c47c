//! Tests of collectives. The named ones aim at one fault each; those called `random` run small
//! cases of the generator (`crate::generate`) for one operation against its serial reference.

use crate::case::{OPS, Op};
use crate::collective::in_place as in_place_word;
use crate::kit::catalog::{Group, Test, ranks, tests_of_ranks};
use crate::kit::outcome::{Called, Outcome, call, ensure, wrong};
use crate::kit::peer::{Peer, message};
use crate::options::{Choice, Run};
use crate::rank::Rank;
use crate::tests::p2p::{done, ring};
use dtl_sys::*;
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

/// A test of random cases of one operation.
macro_rules! random {
    ($name:literal, $op:ident) => {
        ranks(
            1,
            concat!("comm.coll.", $name, "_random_cases"),
            "12 random cases of both forms against a serial reference, gaps and ends compared",
            random::<{ Op::$op as usize }>,
            None,
        )
    };
}

const RANDOM: &[Test] = &[
    random!("bcast", Bcast),
    random!("reduce", Reduce),
    random!("allreduce", Allreduce),
    random!("gather", Gather),
    random!("gatherv", Gatherv),
    random!("scatter", Scatter),
    random!("scatterv", Scatterv),
    random!("allgather", Allgather),
    random!("allgatherv", Allgatherv),
    random!("alltoall", Alltoall),
    random!("alltoallv", Alltoallv),
    random!("reduce_scatter", ReduceScatter),
    random!("reduce_scatter_block", ReduceScatterBlock),
    random!("scan", Scan),
    random!("exscan", Exscan),
    random!("neighbor_alltoallv", Neighbor),
    random!("p2p", P2p),
    random!("sendrecv", Sendrecv),
    random!("sendrecv_replace", Replace),
    random!("ssend", Ssend),
    random!("probe", Probe),
];

pub(crate) const GROUPS: &[Group] = &[
    Group {
        slot: "comm.isend, irecv, test under collectives",
        needs: &[],
        rule: "Collectives are made of the transport's messages: each is as in MPI, on every \
            communicator.",
        usually: "Messages are lost or reordered where many go between the same ranks at once; see \
            the comm.p2p \
                  and comm.match tests first.",
        tests: tests_of_ranks![
            2 "comm.coll.barrier_holds_everybody": "nobody leaves before the last has \
                come" => barrier_holds;
            1 "comm.coll.barriers_500_times": "one after another" => barriers;
            1 "comm.coll.bcast_from_every_root": "each root's bytes reach all" => bcast_roots;
            1 "comm.coll.bcast_sizes": "0 bytes to 3 MiB" => bcast_sizes;
            1 "comm.coll.allreduce_sum": "1 to 70 000 numbers" => allreduce_sum;
            1 "comm.coll.allreduce_same_bits_everywhere": "sums of doubles have the same bits on \
                all ranks" => allreduce_bits;
            1 "comm.coll.allreduce_200_times": "different values each time" => allreduce_often;
            1 "comm.coll.allgather_keeps_places": "each rank's block is at its \
                place" => allgather_places;
            1 "comm.coll.alltoall_keeps_places": "block i of rank j is block j of rank \
                i" => alltoall_places;
            1 "comm.coll.scan_in_rank_order": "each rank has the sum up to itself" => scan_order;
            1 "comm.coll.two_in_flight": "two started collectives, waited for in \
                reverse" => two_in_flight;
            1 "comm.coll.twenty_in_flight": "twenty started allreduces" => twenty_in_flight;
            2 "comm.coll.a_late_rank_does_no_harm": "one rank comes 30 ms late to ten collectives \
                in turn" => late_rank;
            1 "comm.coll.messages_between_collectives": "sends and receives under way \
                meanwhile" => messages_between;
            1 "comm.coll.on_several_communicators_at_once": "four threads with a duplicate \
                each" => threads;
            2 "comm.coll.on_halves_at_once": "both halves of a split at the same time" => halves;
            1 "comm.coll.large_blocks": "an allgather and an alltoall of 200 KB \
                blocks" => large_blocks;
            1 "comm.coll.reduce_scatter_to_some": "only the last rank gets a block, or the last a \
                long one; also in place" => scatter_to_some;
            1 "comm.coll.empty_ones_succeed": "0 elements in every operation used here" => empty;
        ],
    },
    Group {
        slot: "comm.isend, irecv, test under collectives",
        needs: &[],
        rule: "Every byte is what a serial reference computes; what lies outside of the blocks \
            stays.",
        usually: "A fault of the transport that only certain sizes, counts or orders show; \
            `dtl-ctk run --kind K \
                  --cases 1000 --only OP` makes the case small.",
        tests: RANDOM,
    },
];

/// Random cases of one operation on a duplicate.
pub(crate) fn random<const OP: usize>(p: &Peer) -> Outcome {
    let run = Run {
        kind: p.kind.clone(),
        ranks: p.size as u64,
        choice: Choice { seed: 7, cases: 12, max_bytes: 32 << 10, only: vec![OPS[OP].0] },
        timeout: Duration::from_nanos(p.timeout_ns),
        digest: None,
        case: None,
        shrink: Vec::new(),
        no_shrink: true,
        no_time_limit: p.no_time_limit,
        launcher: None,
        worker: true,
        progress: None,
    };
    let comm = p.dup()?.comm;
    let (rank, ranks) = (p.rank as u64, p.size as u64);
    let rank = Rank { run: &run, rank, ranks, comm, cuts: p.cuts(), progress: None };
    match rank.go() {
        Ok(true) => Ok(()),
        Ok(false) => wrong!("another rank found the fault"),
        Err(failed) => wrong!("{}", failed.text),
    }
}

fn allreduce(p: &Peer, values: &[u64]) -> Called<Vec<u64>> {
    let mut sums = vec![0; values.len()];
    let (from, into, count) =
        (values.as_ptr().cast(), sums.as_mut_ptr().cast(), values.len() as u64);
    call!(dtl_comm_allreduce(p.comm.handle, from, into, count, DTL_DTYPE_UINT64, DTL_OP_SUM))?;
    Ok(sums)
}

/// The sum over ranks of (rank + 1) times a number of the place.
fn expected(p: &Peer, count: usize) -> Vec<u64> {
    let ranks: u64 = (1..=p.size as u64).sum();
    (0..count as u64).map(|index| ranks * (index + 3)).collect()
}

/// An allreduce of so many numbers, compared.
pub(crate) fn sum_all(p: &Peer, count: usize) -> Outcome {
    let values: Vec<u64> =
        (0..count as u64).map(|index| (p.rank as u64 + 1) * (index + 3)).collect();
    let (is, should) = (allreduce(p, &values)?, expected(p, count));
    match is.iter().zip(&should).position(|(is, should)| is != should) {
        Some(at) => wrong!("sum {at} of {count} is {}, expected {}", is[at], should[at]),
        None => Ok(()),
    }
}

fn barrier_holds(p: &Peer) -> Outcome {
    for late in 0..p.size.min(4) {
        // Before the ranks meet: so before the late one goes to sleep, however long this one is
        // kept from running.
        let begin = Instant::now();
        p.meet(1)?;
        if p.rank == late {
            thread::sleep(Duration::from_millis(40));
            p.barrier()?;
        } else {
            p.barrier()?;
            let waited = begin.elapsed();
            ensure!(
                waited >= Duration::from_millis(40),
                "left the barrier after {waited:?}; rank {late} came after 40 ms"
            );
        }
    }
    Ok(())
}

fn barriers(p: &Peer) -> Outcome {
    (0..500).try_for_each(|_| p.barrier()).map_err(Into::into)
}

fn bcast(p: &Peer, root: i32, size: u64) -> Outcome {
    let should = message(root, 99, size, size);
    let mut bytes = if p.rank == root { should.clone() } else { vec![0xA5; size as usize] };
    call!(dtl_comm_bcast(p.comm.handle, bytes.as_mut_ptr().cast(), size, DTL_DTYPE_BYTE, root))?;
    match crate::kit::subject::difference(&bytes, &should) {
        Some(difference) => wrong!("{size} bytes of root {root}: {difference}"),
        None => Ok(()),
    }
}

fn bcast_roots(p: &Peer) -> Outcome {
    (0..p.size).try_for_each(|root| bcast(p, root, 1000).and_then(|()| bcast(p, root, 30_000)))
}

fn bcast_sizes(p: &Peer) -> Outcome {
    [0, 1, 7, 1000, 8192, 70_000, 3 << 20].iter().try_for_each(|size| bcast(p, 0, *size))
}

fn allreduce_sum(p: &Peer) -> Outcome {
    [1, 2, 3, 10, 100, 1000, 8191, 70_000].iter().try_for_each(|count| sum_all(p, *count))
}

fn allreduce_bits(p: &Peer) -> Outcome {
    for count in [1usize, 1000, 20_000] {
        let values: Vec<f64> =
            (0..count).map(|index| 1.0 / (1.0 + index as f64 + p.rank as f64 * 0.37)).collect();
        let mut sums = vec![0u64; count];
        let (from, into) = (values.as_ptr().cast(), sums.as_mut_ptr().cast());
        call!(dtl_comm_allreduce(
            p.comm.handle,
            from,
            into,
            count as u64,
            DTL_DTYPE_FLOAT64,
            DTL_OP_SUM
        ))?;
        let (mut low, mut high) = (vec![0u64; count], vec![0u64; count]);
        let own = sums.as_ptr().cast();
        call!(dtl_comm_allreduce(
            p.comm.handle,
            own,
            low.as_mut_ptr().cast(),
            count as u64,
            DTL_DTYPE_UINT64,
            DTL_OP_MIN
        ))?;
        call!(dtl_comm_allreduce(
            p.comm.handle,
            own,
            high.as_mut_ptr().cast(),
            count as u64,
            DTL_DTYPE_UINT64,
            DTL_OP_MAX
        ))?;
        ensure!(low == high, "{count} sums of doubles do not have the same bits on all ranks");
    }
    Ok(())
}

fn allreduce_often(p: &Peer) -> Outcome {
    for round in 0..200u64 {
        let is = allreduce(p, &[round * (p.rank as u64 + 1)])?[0];
        let should = round * (1..=p.size as u64).sum::<u64>();
        ensure!(is == should, "round {round}: {is}, expected {should}");
    }
    Ok(())
}

fn allgather(p: &Peer, size: u64) -> Outcome {
    let mine = message(p.rank, 50, size, size);
    let mut all = vec![0xA5u8; (size * p.size as u64) as usize];
    call!(dtl_comm_allgather(
        p.comm.handle,
        mine.as_ptr().cast(),
        size,
        all.as_mut_ptr().cast(),
        DTL_DTYPE_BYTE
    ))?;
    let should: Vec<u8> = (0..p.size).flat_map(|rank| message(rank, 50, size, size)).collect();
    match crate::kit::subject::difference(&all, &should) {
        Some(difference) => wrong!("blocks of {size} bytes: {difference}"),
        None => Ok(()),
    }
}

fn allgather_places(p: &Peer) -> Outcome {
    [1, 10, 5000].iter().try_for_each(|size| allgather(p, *size))
}

fn alltoall(p: &Peer, size: u64) -> Outcome {
    let mine: Vec<u8> = (0..p.size).flat_map(|to| message(p.rank, to, size, size)).collect();
    let mut all = vec![0xA5u8; mine.len()];
    call!(dtl_comm_alltoall(
        p.comm.handle,
        mine.as_ptr().cast(),
        size,
        all.as_mut_ptr().cast(),
        DTL_DTYPE_BYTE
    ))?;
    let should: Vec<u8> = (0..p.size).flat_map(|from| message(from, p.rank, size, size)).collect();
    match crate::kit::subject::difference(&all, &should) {
        Some(difference) => wrong!("blocks of {size} bytes: {difference}"),
        None => Ok(()),
    }
}

fn alltoall_places(p: &Peer) -> Outcome {
    [1, 10, 5000].iter().try_for_each(|size| alltoall(p, *size))
}

fn scan_order(p: &Peer) -> Outcome {
    for count in [1u64, 1000] {
        let values: Vec<u64> =
            (0..count).map(|index| (p.rank as u64 + 1) << (index % 30)).collect();
        let mut sums = vec![0u64; count as usize];
        let (from, into) = (values.as_ptr().cast(), sums.as_mut_ptr().cast());
        call!(dtl_comm_scan(p.comm.handle, from, into, count, DTL_DTYPE_UINT64, DTL_OP_SUM))?;
        let ranks: u64 = (1..=p.rank as u64 + 1).sum();
        let wrong = (0..count).find(|index| sums[*index as usize] != ranks << (index % 30));
        ensure!(wrong.is_none(), "sum {wrong:?} is not that of ranks 0 to {}", p.rank);
    }
    Ok(())
}

/// A started allreduce with its buffers.
struct Started {
    handle: dtl_request_t,
    _values: Vec<u64>,
    sums: Vec<u64>,
    number: u64,
}

fn start(p: &Peer, number: u64, count: usize) -> Called<Started> {
    let values = vec![number * (p.rank as u64 + 1); count];
    let mut started =
        Started { handle: DTL_REQUEST_NULL, _values: values, sums: vec![0; count], number };
    let (from, into) = (started._values.as_ptr().cast(), started.sums.as_mut_ptr().cast());
    let (size, out) = (count as u64, &raw mut started.handle);
    call!(dtl_comm_iallreduce(p.comm.handle, from, into, size, DTL_DTYPE_UINT64, DTL_OP_SUM, out))?;
    Ok(started)
}

fn finish(p: &Peer, started: Started) -> Outcome {
    call!(dtl_request_wait(started.handle, p.timeout_ns, ptr::null_mut()))?;
    let should = started.number * (1..=p.size as u64).sum::<u64>();
    let wrong = started.sums.iter().find(|sum| **sum != should);
    ensure!(wrong.is_none(), "allreduce {}: a sum is {wrong:?}, expected {should}", started.number);
    Ok(())
}

fn two_in_flight(p: &Peer) -> Outcome {
    for count in [1, 5000] {
        let (one, other) = (start(p, 1, count)?, start(p, 2, count)?);
        finish(p, other)?;
        finish(p, one)?;
    }
    Ok(())
}

fn twenty_in_flight(p: &Peer) -> Outcome {
    let started: Vec<Started> =
        (0..20).map(|number| start(p, number, 500)).collect::<Result<_, _>>()?;
    started.into_iter().try_for_each(|one| finish(p, one))
}

fn late_rank(p: &Peer) -> Outcome {
    for round in 0..10 {
        if p.rank == round % p.size {
            thread::sleep(Duration::from_millis(5));
        }
        sum_all(p, 100)?;
        bcast(p, round % p.size, 2000)?;
    }
    Ok(())
}

fn messages_between(p: &Peer) -> Outcome {
    let mut sends = Vec::new();
    for number in 0..10 {
        sends.push(p.isend(message(p.rank, p.next(), number, 20_000), p.next(), 3)?);
        sum_all(p, 2000)?;
        allgather(p, 100)?;
    }
    for number in 0..10 {
        p.barrier()?;
        p.expect(&message(p.previous(), p.rank, number, 20_000), p.previous(), 3)?;
    }
    done(p, sends)
}

fn threads(p: &Peer) -> Outcome {
    let dups: Vec<Peer> = (0..4).map(|_| p.dup()).collect::<Result<_, _>>()?;
    crate::tests::device::in_threads(4, |thread| {
        let dup = &dups[thread as usize];
        (0..10)
            .try_for_each(|round| sum_all(dup, 10 + 100 * round).and_then(|()| allgather(dup, 50)))
    })
}

fn halves(p: &Peer) -> Outcome {
    let Some(half) = p.split(p.rank % 2, 0)? else { wrong!("no communicator for this rank") };
    for round in 1..20 {
        sum_all(&half, round * 50)?;
        ring(&half, 100, 1)?;
    }
    sum_all(p, 100)
}

fn large_blocks(p: &Peer) -> Outcome {
    allgather(p, 200_000)?;
    alltoall(p, 200_000)
}

/// A reduce_scatter where rank r gets `counts[r]` numbers.
fn reduce_scatter(p: &Peer, counts: &[u64], in_place: bool) -> Outcome {
    let rank = p.rank as usize;
    let (first, own): (u64, u64) = (counts[..rank].iter().sum(), counts[rank]);
    let mut all: Vec<u64> =
        (0..counts.iter().sum()).map(|at| (p.rank as u64 + 1) * (at + 3)).collect();
    let mut part = vec![0u64; own as usize];
    let (from, into) = if in_place {
        (in_place_word().cast_const(), all.as_mut_ptr())
    } else {
        (all.as_ptr().cast(), part.as_mut_ptr())
    };
    let (into, counts) = (into.cast(), counts.as_ptr());
    call!(dtl_comm_reduce_scatter(
        p.comm.handle,
        from,
        into,
        counts,
        DTL_DTYPE_UINT64,
        DTL_OP_SUM
    ))?;
    let sums = if in_place { &all[..own as usize] } else { &part[..] };
    let ranks: u64 = (1..=p.size as u64).sum();
    let wrong = sums.iter().zip(first..).find(|(sum, at)| **sum != ranks * (at + 3));
    ensure!(wrong.is_none(), "in place {in_place}: sum and its place are {wrong:?}");
    Ok(())
}

fn scatter_to_some(p: &Peer) -> Outcome {
    let last = p.size as usize - 1;
    for (count, others) in [(1, 0), (5000, 0), (100_000, 0), (5000, 1), (100_000, 3)] {
        let mut counts = vec![others; p.size as usize];
        counts[last] = count;
        reduce_scatter(p, &counts, false)?;
        reduce_scatter(p, &counts, true)?;
    }
    Ok(())
}

fn empty(p: &Peer) -> Outcome {
    sum_all(p, 0)?;
    bcast(p, 0, 0)?;
    allgather(p, 0)?;
    alltoall(p, 0)?;
    ring(p, 10, 1)
}
