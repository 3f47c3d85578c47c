//! Tests of all collectives, blocking, in place, and in a scope, between ranks that are threads.
//!
//! Needs libdtl.so.0.2: DTL_LIB_DIR=$PWD/build/stage/lib cargo test -p dtl-binding.

#![allow(clippy::unwrap_used, reason = "a call that fails fails the test")]

use dtl_binding::{Blocks, Byte, Comm, Dtype, Error, MAX, Op, SUM, scope, sys};

const RANKS: usize = 3;

/// Runs `body` on each of three ranks, with its rank.
fn on_all_ranks(body: impl Fn(&Comm, u64) + Sync) {
    let ranks = Comm::threads(RANKS as i32, sys::DTL_TIMEOUT_INFINITE).unwrap();
    std::thread::scope(|threads| {
        for comm in &ranks {
            threads.spawn(|| body(comm, comm.rank().unwrap() as u64));
        }
    });
}

fn too_small(outcome: Result<(), Error>, parameter: &str) {
    let error = outcome.unwrap_err();
    assert_eq!(error.status, sys::DTL_ERROR_OUT_OF_BOUNDS, "{error}");
    assert!(error.text.starts_with(&format!("{parameter} has ")), "{error}");
}

#[test]
fn reductions() {
    on_all_ranks(|comm, rank| {
        let (mine, mut all) = ([rank, 10], [0; 2]);
        comm.allreduce(&mine, &mut all, SUM).unwrap();
        assert_eq!(all, [3, 30]);
        let mut all = mine;
        comm.allreduce_in_place(&mut all, MAX).unwrap();
        assert_eq!(all, [2, 10]);
        let mut one = 0;
        comm.allreduce(&rank, &mut one, SUM).unwrap();
        assert_eq!(one, 3);
        if rank == 1 {
            let mut at_root = mine;
            comm.reduce(&mine, &mut at_root, SUM, 1).unwrap();
            assert_eq!(at_root, [3, 30]);
            let mut at_root = mine;
            comm.reduce_in_place(&mut at_root, SUM, 1).unwrap();
            assert_eq!(at_root, [3, 30]);
        } else {
            comm.reduce(&mine, &mut [], SUM, 1).unwrap();
            comm.reduce(&mine, &mut [], SUM, 1).unwrap();
        }
        let mut prefix = [0; 2];
        comm.scan(&mine, &mut prefix, SUM).unwrap();
        assert_eq!(prefix, [rank * (rank + 1) / 2, 10 * (rank + 1)]);
        let mut prefix = mine;
        comm.scan_in_place(&mut prefix, SUM).unwrap();
        assert_eq!(prefix, [rank * (rank + 1) / 2, 10 * (rank + 1)]);
        let mut before = [77; 2];
        comm.exscan(&mine, &mut before, SUM).unwrap();
        assert_eq!(before[1], if rank == 0 { 77 } else { 10 * rank });
        let mut before = mine;
        comm.exscan_in_place(&mut before, SUM).unwrap();
        assert_eq!(before[1], 10 * rank.max(1));
    });
}

#[test]
fn scattered_reductions() {
    on_all_ranks(|comm, rank| {
        let (blocks, mut block) = ([0, 1, 2, 3, 4, 5], [0; 2]);
        comm.reduce_scatter_block(&blocks, &mut block, SUM).unwrap();
        assert_eq!(block, [6 * rank, 6 * rank + 3]);
        let mut buf = blocks;
        comm.reduce_scatter_block_in_place(&mut buf, SUM).unwrap();
        assert_eq!(buf[..2], block);
        let counts = [1, 2, 3];
        let first = [0, 1, 3][rank as usize];
        let mut mine = [0; 3];
        comm.reduce_scatter(&blocks, &mut mine, SUM, &counts).unwrap();
        assert_eq!(mine[0], 3 * first);
        let mut buf = blocks;
        comm.reduce_scatter_in_place(&mut buf, SUM, &counts).unwrap();
        assert_eq!(buf[0], 3 * first);
    });
}

#[test]
fn gathers_and_scatters() {
    on_all_ranks(|comm, rank| {
        let is_root = rank == 2;
        let mut all = if is_root { vec![0; 6] } else { vec![] };
        comm.gather(&[rank, 7], &mut all, 2).unwrap();
        assert!(!is_root || all == [0, 7, 1, 7, 2, 7]);
        if is_root {
            comm.gather_in_place(&mut all, 2).unwrap();
            assert_eq!(all, [0, 8, 1, 8, 2, 7]);
        } else {
            comm.gather(&[rank, 8], &mut [], 2).unwrap();
        }
        let mut part = [0; 2];
        comm.scatter(&all, &mut part, 2).unwrap();
        assert_eq!(part[0], rank);
        let mut everywhere = [0; 6];
        comm.allgather(&part, &mut everywhere).unwrap();
        assert_eq!(everywhere, [0, 8, 1, 8, 2, 7]);
        let (text, mut texts) = ([b'a' + rank as u8], [0; 3]);
        comm.allgather(Byte::of(&text), Byte::of_mut(&mut texts)).unwrap();
        assert_eq!(&texts, b"abc");
        let mut own = [9; 3];
        own[rank as usize] = rank;
        comm.allgather_in_place(&mut own).unwrap();
        assert_eq!(own, [0, 1, 2]);
    });
}

#[test]
fn gathers_and_scatters_of_varying_blocks() {
    on_all_ranks(|comm, rank| {
        // Rank r has r + 1 elements; the blocks of all are in reverse order, a gap between them.
        let (counts, displs) = ([1, 2, 3], [7, 4, 0]);
        let blocks = Blocks::at(&counts, &displs);
        let mine = vec![rank + 1; rank as usize + 1];
        let expected = [3, 3, 3, 0, 2, 2, 0, 1];
        let mut all = vec![0; 8];
        comm.allgatherv(&mine, &mut all, blocks).unwrap();
        assert_eq!(all, expected);
        comm.allgatherv_in_place(&mut all, blocks).unwrap();
        assert_eq!(all, expected);
        all.fill(0);
        if rank == 0 {
            comm.gatherv(&mine, &mut all, blocks, 0).unwrap();
            assert_eq!(all, expected);
        } else {
            comm.gatherv(&mine, &mut [], Blocks::packed(&[]), 0).unwrap();
        }
        let mut part = vec![0; mine.len()];
        comm.scatterv(&all, &mut part, if rank == 0 { blocks } else { Blocks::packed(&[]) }, 0)
            .unwrap();
        assert_eq!(part, mine);
    });
}

#[test]
fn exchanges() {
    on_all_ranks(|comm, rank| {
        let to_all = [10 * rank, 10 * rank + 1, 10 * rank + 2];
        let expected = [rank, 10 + rank, 20 + rank];
        let mut from_all = [0; 3];
        comm.alltoall(&to_all, &mut from_all).unwrap();
        assert_eq!(from_all, expected);
        let mut buf = to_all;
        comm.alltoall_in_place(&mut buf).unwrap();
        assert_eq!(buf, expected);
        let ones = Blocks::packed(&[1, 1, 1]);
        let reversed = Blocks::at(&[1, 1, 1], &[2, 1, 0]);
        comm.alltoallv(&to_all, &mut from_all, ones, reversed).unwrap();
        assert_eq!(from_all, [20 + rank, 10 + rank, rank]);
        let mut buf = to_all;
        comm.alltoallv_in_place(&mut buf, ones).unwrap();
        assert_eq!(buf, expected);
        let (next, previous) =
            ([(rank as i32 + 1) % 3], [(rank as i32 + 2) % 3, sys::DTL_PROC_NULL]);
        let mut from = [0; 3];
        let (one, two) = (Blocks::packed(&[2]), Blocks::packed(&[2, 1]));
        comm.neighbor_alltoallv(&to_all, &mut from, (&next, one), (&previous, two)).unwrap();
        assert_eq!(from, [10 * previous[0] as u64, 10 * previous[0] as u64 + 1, 0]);
    });
}

#[test]
fn buffers_that_are_too_small_are_refused() {
    on_all_ranks(|comm, rank| {
        let (six, mut two, mut none) = ([1_u64; 6], [5_u64; 2], [0_u64; 0]);
        too_small(comm.allreduce(&six, &mut two, SUM), "rbuf");
        too_small(comm.allgather(&six, &mut two), "rbuf");
        too_small(comm.gather(&six, &mut two, rank as i32), "rbuf");
        too_small(comm.scatter(&two, &mut [0; 2], rank as i32), "sbuf");
        too_small(comm.reduce_scatter_block(&six, &mut none, SUM), "rbuf");
        too_small(comm.alltoall(&six, &mut two), "rbuf");
        let far = Blocks::at(&[0, 0, 1], &[0, u64::MAX, 2]);
        too_small(comm.allgatherv(&two[..0], &mut [0; 2], far), "rbuf");
        let huge = Blocks::packed(&[u64::MAX, 1, 1]);
        too_small(comm.alltoallv(&six, &mut two, huge, far), "sbuf");
        assert_eq!(two, [5; 2]);
        let error = comm.alltoall_in_place(&mut two).unwrap_err();
        assert!(error.text.contains("no multiple of the 3 ranks"), "{error}");
        let error = comm.allgatherv(&two, &mut [0; 6], Blocks::packed(&[2, 2])).unwrap_err();
        assert_eq!(error.status, sys::DTL_ERROR_INVALID_ARGUMENT, "{error}");
        assert!(error.text.contains("counts has 2 elements: pass 3"), "{error}");
        let (mut small, big) = ([0_u64; 2], [0_u64; 6]);
        scope(|s| too_small(s.iallreduce(comm, &big, &mut small, SUM).map(drop), "rbuf"));
        // The communicator is as it was.
        comm.barrier().unwrap();
    });
}

#[test]
fn collectives_in_a_scope() {
    on_all_ranks(|comm, rank| {
        let (mut all, mut sum, mut value, mut swapped) = ([0; 3], 0, [rank; 2], [rank; 3]);
        scope(|s| {
            let barrier = s.ibarrier(comm)?;
            let gather = s.iallgather(comm, &rank, &mut all)?;
            let reduce = s.iallreduce(comm, &rank, &mut sum, SUM)?;
            let bcast = s.ibcast(comm, &mut value, 2)?;
            // Not waited for: the end of the scope completes it.
            std::mem::forget(s.ialltoall_in_place(comm, &mut swapped)?);
            assert_eq!(*bcast.wait()?.buffer, [2; 2]);
            assert_eq!(*reduce.wait()?.buffer, 3);
            assert_eq!(*gather.wait()?.buffer, [0, 1, 2]);
            barrier.wait().map(drop)
        })
        .unwrap();
        assert_eq!((all, sum, value, swapped), ([0, 1, 2], 3, [2; 2], [0, 1, 2]));
    });
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Dtype)]
#[repr(C)]
struct Extreme {
    value: f64,
    rank: u64,
}

#[test]
fn operations_from_functions() {
    let largest = Op::new("largest", true, |low: &Extreme, high: &mut Extreme| {
        if low.value >= high.value {
            *high = *low;
        }
    })
    .unwrap();
    // The operands keep the order of the ranks.
    let ordered = Op::new("first", false, |low: &i64, high: &mut i64| *high = *low).unwrap();
    on_all_ranks(|comm, rank| {
        let mine = Extreme { value: -(rank as f64 - 1.0).abs(), rank };
        let mut result = Extreme::default();
        comm.allreduce(&mine, &mut result, &largest).unwrap();
        assert_eq!(result, Extreme { value: 0.0, rank: 1 });
        let mut first = [rank as i64 + 5; 100];
        scope(|s| s.iallreduce_in_place(comm, &mut first, &ordered)?.wait().map(drop)).unwrap();
        assert_eq!(first, [5; 100]);
        // A built-in operation does not apply to a struct.
        let error = comm.allreduce(&mine, &mut result, SUM).unwrap_err();
        assert_eq!(error.status, sys::DTL_ERROR_TYPE, "{error}");
    });
    let error = Op::new("", true, |_: &u8, _: &mut u8| {}).unwrap_err();
    assert_eq!(error.status, sys::DTL_ERROR_INVALID_ARGUMENT);
}
