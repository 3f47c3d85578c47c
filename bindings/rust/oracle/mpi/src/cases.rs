//! The cases: each is a message or a collective with random sizes and contents.

use crate::draw::Draw;
use dtl_binding::{
    BXOR, Blocks, BuiltinOp, Comm, Dtype, MAX, MIN, Request, SUM, scope, sys, wait_any,
};
use mpi::collective::SystemOperation;
use mpi::datatype::{Partition, PartitionMut};
use mpi::point_to_point::send_receive_into;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives, Destination, Equivalence, Root, Source};
use std::fmt::Debug;

/// Communicator of rsmpi, and that of libdtl over it.
pub(crate) struct Pair {
    /// Communicator of libdtl.
    pub(crate) comm: Comm,
    /// Communicator of rsmpi.
    pub(crate) world: SimpleCommunicator,
}

/// Element of the buffers.
pub(crate) trait Element: Dtype + Equivalence + Default + PartialEq + Debug {
    /// Returns an element with a small whole number, so that sums are exact in every type.
    fn small(number: u8) -> Self;
}

macro_rules! elements {
    ($($element:ty),+) => {$(
        impl Element for $element {
            fn small(number: u8) -> Self {
                number.into()
            }
        }
    )+};
}
elements! { u8, i32, i64, f32, f64 }

/// Returns a buffer for results. An empty one has memory, too: the address of an empty `Vec<u8>`
/// without is 1, which is MPI_IN_PLACE of Open MPI, and rsmpi passes it on.
fn zeros<T: Element>(count: usize) -> Vec<T> {
    let mut all = Vec::with_capacity(count.max(1));
    all.resize(count, T::default());
    all
}

/// Returns a buffer that differs between ranks.
fn buffer<T: Element>(draw: &mut Draw, rank: i32, count: usize) -> Vec<T> {
    let mut own = Draw::new(draw.next() ^ (rank as u64 + 1));
    let mut all = zeros(count);
    all.fill_with(|| T::small(own.below(16) as u8));
    all
}

/// Fails if the two results have different bytes. Small whole numbers have one representation.
fn equal<T: Element>(what: &str, by_dtl: &[T], by_mpi: &[T]) {
    assert_eq!(by_dtl, by_mpi, "{what}");
}

/// Runs a random case with elements of type `T`.
pub(crate) fn compare<T: Element>(pair: &Pair, draw: &mut Draw) {
    let count = match draw.below(8) {
        0 => 0,
        1 => 3000 + draw.below(20_000),
        _ => 1 + draw.below(40),
    } as usize;
    let is_request = draw.below(2) == 1;
    match draw.below(9) {
        0 => ring::<T>(pair, draw, count),
        1 => shuffled::<T>(pair, draw, count),
        2 => broadcast::<T>(pair, draw, count, is_request),
        3 => reductions::<T>(pair, draw, count, is_request),
        4 => prefixes::<T>(pair, draw, count, is_request),
        5 => gathers::<T>(pair, draw, count, is_request),
        6 => scatters::<T>(pair, draw, count, is_request),
        7 => exchanges::<T>(pair, draw, count, is_request),
        _ => varying::<T>(pair, draw, is_request),
    }
}

/// Waits for a collective of a scope.
fn done<B: ?Sized>(request: dtl_binding::Result<Request<'_, B>>) {
    request.unwrap().wait().unwrap();
}

/// Calls a collective of libdtl: as a request in a scope, or blocking.
macro_rules! call {
    ($pair:ident, $is_request:ident, $blocking:ident, $request:ident, $($argument:expr),*) => {
        if $is_request {
            scope(|s| done(s.$request(&$pair.comm, $($argument),*)));
        } else {
            $pair.comm.$blocking($($argument),*).unwrap();
        }
    };
}

fn root_of(pair: &Pair, draw: &mut Draw) -> i32 {
    draw.below(pair.world.size() as u64) as i32
}

/// A reduction operation of both.
fn operation<T: 'static>(draw: &mut Draw) -> (BuiltinOp, SystemOperation) {
    let is_float = [std::any::TypeId::of::<f32>(), std::any::TypeId::of::<f64>()]
        .contains(&std::any::TypeId::of::<T>());
    match draw.below(4) {
        0 => (MAX, SystemOperation::max()),
        1 => (MIN, SystemOperation::min()),
        2 if !is_float => (BXOR, SystemOperation::bitwise_xor()),
        _ => (SUM, SystemOperation::sum()),
    }
}

fn ring<T: Element>(pair: &Pair, draw: &mut Draw, count: usize) {
    let (rank, size) = (pair.world.rank(), pair.world.size());
    let (right, left) = ((rank + 1) % size, (rank + size - 1) % size);
    let mine = buffer::<T>(draw, rank, count);
    let (mut first, mut second) = (zeros::<T>(count), zeros::<T>(count));
    let received = pair.comm.sendrecv(&mine, right, 5, &mut first, left, 5).unwrap();
    let (to, from) = (pair.world.process_at_rank(right), pair.world.process_at_rank(left));
    let status = send_receive_into(&mine[..], &to, &mut second[..], &from);
    assert_eq!(received.source, status.source_rank());
    assert_eq!(received.count::<T>() as i32, status.count(T::equivalent_datatype()));
    equal("sendrecv", &first, &second);
}

/// Messages that arrive in an order that the receiver does not know.
fn shuffled<T: Element>(pair: &Pair, draw: &mut Draw, count: usize) {
    let (rank, size, root) = (pair.world.rank(), pair.world.size(), root_of(pair, draw));
    let mine = buffer::<T>(draw, rank, count);
    if rank != root {
        pair.comm.send(&mine, root, rank).unwrap();
        pair.world.process_at_rank(root).send(&mine[..]);
        return;
    }
    let others = (0..size).filter(|other| *other != root).collect::<Vec<_>>();
    let mut all = others.iter().map(|_| zeros::<T>(count)).collect::<Vec<_>>();
    scope(|s| {
        let mut requests = Vec::new();
        for (buffer, other) in all.iter_mut().zip(&others) {
            requests.push(s.irecv(&pair.comm, buffer, *other, *other).unwrap());
        }
        let mut over = 0;
        while let Some(ended) = wait_any(&mut requests, sys::DTL_TIMEOUT_INFINITE).unwrap() {
            let completed = ended.result.unwrap();
            assert_eq!(completed.received.source, others[ended.index]);
            assert_eq!(completed.received.count::<T>(), count);
            over += 1;
        }
        assert_eq!(over, others.len());
    });
    for (buffer, other) in all.iter().zip(&others) {
        let mut expected = zeros::<T>(count);
        pair.world.process_at_rank(*other).receive_into(&mut expected[..]);
        equal("wait_any", buffer, &expected);
    }
}

fn broadcast<T: Element>(pair: &Pair, draw: &mut Draw, count: usize, is_request: bool) {
    let root = root_of(pair, draw);
    let (mut first, same) = (buffer::<T>(draw, pair.world.rank(), count), is_request);
    let mut second = zeros(count);
    second.copy_from_slice(&first);
    call!(pair, same, bcast, ibcast, &mut first, root);
    pair.world.process_at_rank(root).broadcast_into(&mut second[..]);
    equal("bcast", &first, &second);
}

fn reductions<T: Element>(pair: &Pair, draw: &mut Draw, count: usize, is_request: bool) {
    let (op, system) = operation::<T>(draw);
    let (rank, root) = (pair.world.rank(), root_of(pair, draw));
    let mine = buffer::<T>(draw, rank, count);
    let (mut first, mut second) = (zeros::<T>(count), zeros::<T>(count));
    call!(pair, is_request, allreduce, iallreduce, &mine, &mut first, op);
    pair.world.all_reduce_into(&mine[..], &mut second[..], system);
    equal("allreduce", &first, &second);
    first.fill(T::default());
    second.fill(T::default());
    call!(pair, is_request, reduce, ireduce, &mine, &mut first, op, root);
    let process = pair.world.process_at_rank(root);
    if rank == root {
        process.reduce_into_root(&mine[..], &mut second[..], system);
    } else {
        process.reduce_into(&mine[..], system);
    }
    equal("reduce", &first, &second);
    let blocks = buffer::<T>(draw, rank, count * pair.world.size() as usize);
    call!(pair, is_request, reduce_scatter_block, ireduce_scatter_block, &blocks, &mut first, op);
    pair.world.reduce_scatter_block_into(&blocks[..], &mut second[..], system);
    equal("reduce_scatter_block", &first, &second);
}

fn prefixes<T: Element>(pair: &Pair, draw: &mut Draw, count: usize, is_request: bool) {
    let (op, system) = operation::<T>(draw);
    let mine = buffer::<T>(draw, pair.world.rank(), count);
    let (mut first, mut second) = (zeros::<T>(count), zeros::<T>(count));
    call!(pair, is_request, scan, iscan, &mine, &mut first, op);
    pair.world.scan_into(&mine[..], &mut second[..], system);
    equal("scan", &first, &second);
    if pair.world.rank() == 0 {
        // MPI does not define the result.
        first.fill(T::default());
    }
    call!(pair, is_request, exscan, iexscan, &mine, &mut first, op);
    pair.world.exclusive_scan_into(&mine[..], &mut second[..], system);
    if pair.world.rank() > 0 {
        equal("exscan", &first, &second);
    } else {
        equal("exscan of rank 0", &first, &zeros::<T>(count));
    }
}

fn gathers<T: Element>(pair: &Pair, draw: &mut Draw, count: usize, is_request: bool) {
    let (rank, root) = (pair.world.rank(), root_of(pair, draw));
    let mine = buffer::<T>(draw, rank, count);
    let room = count * pair.world.size() as usize;
    let (mut first, mut second) = (zeros::<T>(room), zeros::<T>(room));
    call!(pair, is_request, allgather, iallgather, &mine, &mut first);
    pair.world.all_gather_into(&mine[..], &mut second[..]);
    equal("allgather", &first, &second);
    first.fill(T::default());
    second.fill(T::default());
    call!(pair, is_request, gather, igather, &mine, &mut first, root);
    let process = pair.world.process_at_rank(root);
    if rank == root {
        process.gather_into_root(&mine[..], &mut second[..]);
    } else {
        process.gather_into(&mine[..]);
    }
    equal("gather", &first, &second);
}

fn scatters<T: Element>(pair: &Pair, draw: &mut Draw, count: usize, is_request: bool) {
    let (rank, root) = (pair.world.rank(), root_of(pair, draw));
    let blocks = buffer::<T>(draw, rank, count * pair.world.size() as usize);
    let (mut first, mut second) = (zeros::<T>(count), zeros::<T>(count));
    call!(pair, is_request, scatter, iscatter, &blocks, &mut first, root);
    let process = pair.world.process_at_rank(root);
    if rank == root {
        process.scatter_into_root(&blocks[..], &mut second[..]);
    } else {
        process.scatter_into(&mut second[..]);
    }
    equal("scatter", &first, &second);
}

fn exchanges<T: Element>(pair: &Pair, draw: &mut Draw, count: usize, is_request: bool) {
    let room = count * pair.world.size() as usize;
    let blocks = buffer::<T>(draw, pair.world.rank(), room);
    let (mut first, mut second) = (zeros::<T>(room), zeros::<T>(room));
    call!(pair, is_request, alltoall, ialltoall, &blocks, &mut first);
    pair.world.all_to_all_into(&blocks[..], &mut second[..]);
    equal("alltoall", &first, &second);
}

/// Blocks of a different size for each rank, with gaps between them.
fn varying<T: Element>(pair: &Pair, draw: &mut Draw, is_request: bool) {
    let (rank, size) = (pair.world.rank(), pair.world.size() as usize);
    let counts = (0..size).map(|_| draw.below(30)).collect::<Vec<_>>();
    let gap = draw.below(3);
    let mut displs = Vec::new();
    let mut end = 0;
    for count in &counts {
        displs.push(end);
        end += count + gap;
    }
    let small = |numbers: &[u64]| numbers.iter().map(|number| *number as i32).collect::<Vec<_>>();
    let (mpi_counts, mpi_displs) = (small(&counts), small(&displs));
    let mine = buffer::<T>(draw, rank, counts[rank as usize] as usize);
    let (mut first, mut second) = (zeros::<T>(end as usize), zeros::<T>(end as usize));
    let blocks = Blocks::at(&counts, &displs);
    call!(pair, is_request, allgatherv, iallgatherv, &mine, &mut first, blocks);
    let mut parts = PartitionMut::new(&mut second[..], &mpi_counts[..], &mpi_displs[..]);
    pair.world.all_gather_varcount_into(&mine[..], &mut parts);
    equal("allgatherv", &first, &second);
    let root = root_of(pair, draw);
    let from = buffer::<T>(draw, root, end as usize);
    let (mut got, mut expected) = (zeros::<T>(mine.len()), zeros::<T>(mine.len()));
    call!(pair, is_request, scatterv, iscatterv, &from, &mut got, blocks, root);
    let process = pair.world.process_at_rank(root);
    if rank == root {
        let parts = Partition::new(&from[..], &mpi_counts[..], &mpi_displs[..]);
        process.scatter_varcount_into_root(&parts, &mut expected[..]);
    } else {
        process.scatter_varcount_into(&mut expected[..]);
    }
    equal("scatterv", &got, &expected);
}
