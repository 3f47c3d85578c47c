//! Tests of collectives. Each test in `TESTS` detects one kind of fault. The tests in `RANDOM` run
//! small random cases from `crate::generate` for one operation and compare the results with a
//! serial reference implementation.

use crate::case::{OPS, Op};
use crate::case_run::CaseRun;
use crate::collective::in_place as in_place_word;
use crate::kit::prelude::*;
use crate::options::Run;
use crate::tests::p2p::ring;

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Ranks "comm.coll.":
        barrier_holds_everybody,
        barriers_500_times = |p| (0..500).try_for_each(|_| p.barrier()).map_err(Into::into),
        bcast_from_every_root, bcast_sizes, allreduce_sum, allreduce_same_bits_everywhere,
        allreduce_200_times,
        allgather_keeps_places = |p| [1, 10, 5000].iter().try_for_each(|size| allgather(p, *size)),
        alltoall_keeps_places = |p| [1, 10, 5000].iter().try_for_each(|size| alltoall(p, *size)),
        scan_in_rank_order, two_in_flight, twenty_in_flight, a_late_rank_does_no_harm,
        messages_between_collectives, on_several_communicators_at_once, on_halves_at_once,
        large_blocks, reduce_scatter_to_some, empty_ones_succeed;
];

/// Defines tests that each run random cases of one operation.
macro_rules! random {
    ($($name:literal $op:ident),+) => {
        &[$((
            concat!("comm.coll.", $name, "_random_cases"),
            Body::Ranks(random::<{ Op::$op as usize }>),
        )),+]
    };
}

pub(crate) const RANDOM: &[(&str, Body)] = random![
    "bcast" Bcast, "reduce" Reduce, "allreduce" Allreduce, "gather" Gather, "gatherv" Gatherv,
    "scatter" Scatter, "scatterv" Scatterv, "allgather" Allgather, "allgatherv" Allgatherv,
    "alltoall" Alltoall, "alltoallv" Alltoallv, "reduce_scatter" ReduceScatter,
    "reduce_scatter_block" ReduceScatterBlock, "scan" Scan, "exscan" Exscan,
    "neighbor_alltoallv" Neighbor, "p2p" P2p, "sendrecv" Sendrecv, "sendrecv_replace" Replace,
    "ssend" Ssend, "probe" Probe
];

/// Runs random cases of one operation on a duplicate of the communicator.
pub(crate) fn random<const OP: usize>(p: &Rank) -> Outcome {
    let run = Run::of(&format!(
        "--kind={} --ranks={} --seed=7 --cases=12 --max-bytes=32KiB --only={} --timeout={}ms",
        p.kind,
        p.size,
        OPS[OP].1,
        p.timeout_ns / 1_000_000
    ));
    let comm = p.dup()?.comm;
    let (rank, ranks) = (p.rank as u64, p.size as u64);
    let rank = CaseRun { run: &run, rank, ranks, comm, cuts: p.cuts(), progress: None };
    match rank.go() {
        Ok(true) => Ok(()),
        Ok(false) => wrong!("another rank found the fault"),
        Err(failed) => wrong!("{}", failed.text),
    }
}

/// Runs an allreduce of 8-byte elements. Returns the bits of each result as an integer.
fn allreduce<T>(p: &Rank, values: &[T], dtype: i32, op: i32) -> Called<Vec<u64>> {
    let mut all = vec![0; values.len()];
    let (from, into) = (values.as_ptr().cast(), all.as_mut_ptr().cast());
    call!(dtl_comm_allreduce(p.comm.raw(), from, into, values.len() as u64, dtype, op))?;
    Ok(all)
}

/// Runs an allreduce with the operation sum on `count` elements, and checks the result.
pub(crate) fn sum_all(p: &Rank, count: usize) -> Outcome {
    let values = |by: u64| -> Vec<u64> { (0..count as u64).map(|at| by * (at + 3)).collect() };
    let is = allreduce(p, &values(p.rank as u64 + 1), DTL_DTYPE_UINT64, DTL_OP_SUM)?;
    let should = values(ranks(p));
    match is.iter().zip(&should).position(|(is, should)| is != should) {
        Some(at) => wrong!("sum {at} of {count} is {}, expected {}", is[at], should[at]),
        None => Ok(()),
    }
}

fn barrier_holds_everybody(p: &Rank) -> Outcome {
    const LATE: Duration = Duration::from_millis(40);
    for late in 0..p.size.min(4) {
        // Before the ranks meet: so before the late one goes to sleep, however long this one is
        // kept from running.
        let begin = Instant::now();
        p.meet(1)?;
        if p.rank == late {
            thread::sleep(LATE);
        }
        p.barrier()?;
        let waited = begin.elapsed();
        ensure!(waited >= LATE, "left the barrier after {waited:?}; rank {late} came after 40 ms");
    }
    Ok(())
}

fn bcast(p: &Rank, root: i32, size: u64) -> Outcome {
    let should = message(root, 99, size, size);
    let mut bytes = if p.rank == root { should.clone() } else { vec![0xA5; size as usize] };
    call!(dtl_comm_bcast(p.comm.raw(), bytes.as_mut_ptr().cast(), size, DTL_DTYPE_BYTE, root))?;
    same!(&bytes, &should, "{size} bytes of root {root}: {}")
}

fn bcast_from_every_root(p: &Rank) -> Outcome {
    (0..p.size).try_for_each(|root| bcast(p, root, 1000).and_then(|()| bcast(p, root, 30_000)))
}

fn bcast_sizes(p: &Rank) -> Outcome {
    [0, 1, 7, 1000, 8192, 70_000, 3 << 20].iter().try_for_each(|size| bcast(p, 0, *size))
}

fn allreduce_sum(p: &Rank) -> Outcome {
    [1, 2, 3, 10, 100, 1000, 8191, 70_000].iter().try_for_each(|count| sum_all(p, *count))
}

fn allreduce_same_bits_everywhere(p: &Rank) -> Outcome {
    for count in [1usize, 1000, 20_000] {
        let values: Vec<f64> =
            (0..count).map(|index| 1.0 / (1.0 + index as f64 + p.rank as f64 * 0.37)).collect();
        let sums = allreduce(p, &values, DTL_DTYPE_FLOAT64, DTL_OP_SUM)?;
        let low = allreduce(p, &sums, DTL_DTYPE_UINT64, DTL_OP_MIN)?;
        let high = allreduce(p, &sums, DTL_DTYPE_UINT64, DTL_OP_MAX)?;
        ensure!(low == high, "{count} sums of doubles do not have the same bits on all ranks");
    }
    Ok(())
}

fn allreduce_200_times(p: &Rank) -> Outcome {
    for round in 0..200u64 {
        let own = [round * (p.rank as u64 + 1)];
        let is = allreduce(p, &own, DTL_DTYPE_UINT64, DTL_OP_SUM)?[0];
        let should = round * ranks(p);
        ensure!(is == should, "round {round}: {is}, expected {should}");
    }
    Ok(())
}

fn allgather(p: &Rank, size: u64) -> Outcome {
    let (comm, mine) = (p.comm.raw(), message(p.rank, 50, size, size));
    let mut all = vec![0xA5u8; (size * p.size as u64) as usize];
    let (from, into) = (mine.as_ptr().cast(), all.as_mut_ptr().cast());
    call!(dtl_comm_allgather(comm, from, size, into, DTL_DTYPE_BYTE))?;
    let should: Vec<u8> = (0..p.size).flat_map(|rank| message(rank, 50, size, size)).collect();
    same!(&all, &should, "blocks of {size} bytes: {}")
}

fn alltoall(p: &Rank, size: u64) -> Outcome {
    let mine: Vec<u8> = (0..p.size).flat_map(|to| message(p.rank, to, size, size)).collect();
    let (comm, mut all) = (p.comm.raw(), vec![0xA5u8; mine.len()]);
    let (from, into) = (mine.as_ptr().cast(), all.as_mut_ptr().cast());
    call!(dtl_comm_alltoall(comm, from, size, into, DTL_DTYPE_BYTE))?;
    let should: Vec<u8> = (0..p.size).flat_map(|from| message(from, p.rank, size, size)).collect();
    same!(&all, &should, "blocks of {size} bytes: {}")
}

fn scan_in_rank_order(p: &Rank) -> Outcome {
    for count in [1u64, 1000] {
        let values: Vec<u64> =
            (0..count).map(|index| (p.rank as u64 + 1) << (index % 30)).collect();
        let mut sums = vec![0u64; count as usize];
        let (from, into) = (values.as_ptr().cast(), sums.as_mut_ptr().cast());
        call!(dtl_comm_scan(p.comm.raw(), from, into, count, DTL_DTYPE_UINT64, DTL_OP_SUM))?;
        let ranks: u64 = (1..=p.rank as u64 + 1).sum();
        let wrong = (0..count).find(|index| sums[*index as usize] != ranks << (index % 30));
        ensure!(wrong.is_none(), "sum {wrong:?} is not that of ranks 0 to {}", p.rank);
    }
    Ok(())
}

/// Nonblocking allreduce in progress, with its buffers.
struct Started {
    handle: dtl_request_t,
    _values: Vec<u64>,
    sums: Vec<u64>,
    number: u64,
}

fn start(p: &Rank, number: u64, count: usize) -> Called<Started> {
    let values = vec![number * (p.rank as u64 + 1); count];
    let mut started =
        Started { handle: DTL_REQUEST_NULL, _values: values, sums: vec![0; count], number };
    let (from, into) = (started._values.as_ptr().cast(), started.sums.as_mut_ptr().cast());
    let (size, out) = (count as u64, &raw mut started.handle);
    call!(dtl_comm_iallreduce(p.comm.raw(), from, into, size, DTL_DTYPE_UINT64, DTL_OP_SUM, out))?;
    Ok(started)
}

fn finish(p: &Rank, started: Started) -> Outcome {
    call!(dtl_request_wait(started.handle, p.timeout_ns, ptr::null_mut()))?;
    let should = started.number * ranks(p);
    let wrong = started.sums.iter().find(|sum| **sum != should);
    check!(wrong.is_none(), "allreduce {}: a sum is {wrong:?}, expected {should}", started.number)
}

fn two_in_flight(p: &Rank) -> Outcome {
    for count in [1, 5000] {
        let (one, other) = (start(p, 1, count)?, start(p, 2, count)?);
        finish(p, other)?;
        finish(p, one)?;
    }
    Ok(())
}

fn twenty_in_flight(p: &Rank) -> Outcome {
    let started: Vec<Started> =
        (0..20).map(|number| start(p, number, 500)).collect::<Result<_, _>>()?;
    started.into_iter().try_for_each(|one| finish(p, one))
}

fn a_late_rank_does_no_harm(p: &Rank) -> Outcome {
    for round in 0..10 {
        if p.rank == round % p.size {
            thread::sleep(Duration::from_millis(5));
        }
        sum_all(p, 100)?;
        bcast(p, round % p.size, 2000)?;
    }
    Ok(())
}

fn messages_between_collectives(p: &Rank) -> Outcome {
    let mut sends = Vec::new();
    for number in 0..10 {
        sends.push(p.start(number, 20_000, 3)?);
        sum_all(p, 2000)?;
        allgather(p, 100)?;
    }
    for number in 0..10 {
        p.barrier()?;
        p.take(number, 20_000, 3)?;
    }
    p.done(sends)
}

fn on_several_communicators_at_once(p: &Rank) -> Outcome {
    let dups: Vec<Rank> = (0..4).map(|_| p.dup()).collect::<Result<_, _>>()?;
    in_threads(4, |thread| {
        let dup = &dups[thread as usize];
        (0..10)
            .try_for_each(|round| sum_all(dup, 10 + 100 * round).and_then(|()| allgather(dup, 50)))
    })
}

fn on_halves_at_once(p: &Rank) -> Outcome {
    let Some(half) = p.split(p.rank % 2, 0)? else { wrong!("no communicator for this rank") };
    for round in 1..20 {
        sum_all(&half, round * 50)?;
        ring(&half, 100, 1)?;
    }
    sum_all(p, 100)
}

fn large_blocks(p: &Rank) -> Outcome {
    allgather(p, 200_000)?;
    alltoall(p, 200_000)
}

/// Runs and checks a reduce_scatter in which rank r receives `counts[r]` numbers.
fn reduce_scatter(p: &Rank, counts: &[u64], in_place: bool) -> Outcome {
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
    let (comm, into, counts) = (p.comm.raw(), into.cast(), counts.as_ptr());
    call!(dtl_comm_reduce_scatter(comm, from, into, counts, DTL_DTYPE_UINT64, DTL_OP_SUM))?;
    let sums = if in_place { &all[..own as usize] } else { &part[..] };
    let wrong = sums.iter().zip(first..).find(|(sum, at)| **sum != ranks(p) * (at + 3));
    check!(wrong.is_none(), "in place {in_place}: sum and its place are {wrong:?}")
}

fn reduce_scatter_to_some(p: &Rank) -> Outcome {
    let last = p.size as usize - 1;
    for (count, others) in [(1, 0), (5000, 0), (100_000, 0), (5000, 1), (100_000, 3)] {
        let mut counts = vec![others; p.size as usize];
        counts[last] = count;
        reduce_scatter(p, &counts, false)?;
        reduce_scatter(p, &counts, true)?;
    }
    Ok(())
}

fn empty_ones_succeed(p: &Rank) -> Outcome {
    sum_all(p, 0)?;
    bcast(p, 0, 0)?;
    allgather(p, 0)?;
    alltoall(p, 0)?;
    ring(p, 10, 1)
}

/// Returns the sum of `rank + 1` over all ranks.
fn ranks(p: &Rank) -> u64 {
    (1..=p.size as u64).sum()
}
