//! Conversion of the library's collectives to those of NCCL. Data that is moved but not reduced is
//! sent as bytes. A collective that NCCL does not have is executed as a group of NCCL's sends and
//! receives, if these have the same effect.

use super::symbols::*;
use crate::abi::word::*;
use crate::backend::cuda::external_stream::address;
use crate::runtime::comm::coll::{self, CollArgs};
use crate::runtime::component::Refusal;
use crate::runtime::types::{Reduction, describe, op_text};
use crate::sys::memory::buf::Region;
use std::ptr;

/// NCCL communicator and CUDA stream on which collectives are queued.
pub(super) struct NcclTarget {
    pub(super) calls: &'static Functions,
    pub(super) comm: *mut c_void,
    pub(super) stream: *mut c_void,
    pub(super) rank: i32,
    pub(super) size: i32,
}

/// Returns the reason why NCCL cannot execute a collective; `None` if NCCL can. The result is the
/// same on all ranks.
pub(super) fn refuses(args: &CollArgs) -> Option<Refusal> {
    match args.kind {
        coll::Kind::Reduce | coll::Kind::Allreduce => refuses_reduction(args),
        coll::Kind::ReduceScatter | coll::Kind::ReduceScatterBlock => {
            let blocks = args.send.ranges();
            let first = blocks.first().map(|block| block.len());
            let is_even = blocks.iter().all(|block| Some(block.len()) == first);
            let uneven = || "NCCL has blocks of one size only".into();
            refuses_reduction(args).or_else(|| (!is_even).then(uneven))
        }
        coll::Kind::Alltoall if args.in_place => Some("NCCL has none in place".into()),
        coll::Kind::Barrier
        | coll::Kind::Bcast
        | coll::Kind::Gather
        | coll::Kind::Scatter
        | coll::Kind::Allgather
        | coll::Kind::Alltoall => None,
        _ if args.row.is_varied() => Some(
            "NCCL has blocks of one size only, and a rank without data cannot tell where the \
             others' is"
                .into(),
        ),
        _ => Some("NCCL has none".into()),
    }
}

fn refuses_reduction(args: &CollArgs) -> Option<Refusal> {
    let by = args.reduction.as_ref()?;
    match (kind(by.dtype), operation(by.op)) {
        (None, _) => Some(format!("NCCL does not reduce {}", describe(by.dtype)).into()),
        (_, None) => Some(format!("NCCL has no {}", op_text(by.op)).into()),
        _ => None,
    }
}

/// Returns the NCCL datatype and operation of a supported reduction.
fn terms(by: &Reduction) -> (c_uint, c_uint) {
    (kind(by.dtype).unwrap_or(ncclUint8), operation(by.op).unwrap_or(ncclSum))
}

fn kind(dtype: dtl_dtype_t) -> Option<c_uint> {
    Some(match dtype {
        DTL_DTYPE_INT8 => ncclInt8,
        DTL_DTYPE_UINT8 => ncclUint8,
        DTL_DTYPE_INT32 => ncclInt32,
        DTL_DTYPE_UINT32 => ncclUint32,
        DTL_DTYPE_INT64 => ncclInt64,
        DTL_DTYPE_UINT64 => ncclUint64,
        DTL_DTYPE_FLOAT16 => ncclFloat16,
        DTL_DTYPE_BFLOAT16 => ncclBfloat16,
        DTL_DTYPE_FLOAT32 => ncclFloat32,
        DTL_DTYPE_FLOAT64 => ncclFloat64,
        _ => return None,
    })
}

fn operation(op: dtl_reduce_op_t) -> Option<c_uint> {
    Some(match op {
        DTL_OP_SUM => ncclSum,
        DTL_OP_PROD => ncclProd,
        DTL_OP_MIN => ncclMin,
        DTL_OP_MAX => ncclMax,
        _ => return None,
    })
}

/// Source and destination of the copy to queue after a collective; `None` if no copy is needed.
pub(super) type PostCopy = Option<(Region, Region)>;

/// Returns the block of `rank` among equal blocks of `len` bytes.
fn block(all: Region, rank: i32, len: usize) -> Region {
    all.part(rank.unsigned_abs() as usize * len, len)
}

impl NcclTarget {
    /// Queues a supported collective. Returns NCCL's result code, and the copy to queue after the
    /// collective.
    pub(super) fn queue(&self, args: &CollArgs) -> (ncclResult_t, PostCopy) {
        let (send, recv) = (args.send.whole(), args.recv.whole());
        let code = match (args.kind, &args.reduction) {
            (coll::Kind::Bcast, _) => self.broadcast(recv, args.root),
            (coll::Kind::Reduce, Some(by)) => self.reduce(args, by),
            (coll::Kind::Allreduce, Some(by)) => self.allreduce(args, by),
            (coll::Kind::ReduceScatter | coll::Kind::ReduceScatterBlock, Some(by)) => {
                return self.reduce_scatter(args, by);
            }
            (coll::Kind::Allgather, _) => self.allgather(send, recv),
            (coll::Kind::Gather, _) => {
                self.grouped(|| self.rooted(args, send, &args.recv, [Self::send, Self::recv]))
            }
            (coll::Kind::Scatter, _) => {
                self.grouped(|| self.rooted(args, recv, &args.send, [Self::recv, Self::send]))
            }
            (coll::Kind::Alltoall, _) => self.grouped(|| self.exchange(send, recv, args.bytes)),
            _ => ncclSuccess,
        };
        (code, None)
    }

    fn broadcast(&self, data: Region, root: i32) -> ncclResult_t {
        let (at, comm, stream) = (address(data), self.comm, self.stream);
        // SAFETY: communicator, stream and device memory are valid until the collective completes.
        unsafe { (self.calls.ncclBroadcast)(at, at, data.len(), ncclUint8, root, comm, stream) }
    }

    fn reduce(&self, args: &CollArgs, by: &Reduction) -> ncclResult_t {
        let (comm, stream, root, (kind, op)) = (self.comm, self.stream, args.root, terms(by));
        let recv = args.recv.whole();
        let into = if self.rank == root { address(recv) } else { ptr::null_mut() };
        let (from, count) = (address(args.send.whole()), args.bytes / args.element());
        // SAFETY: communicator, stream and device memory are valid until the collective completes.
        unsafe { (self.calls.ncclReduce)(from, into, count, kind, op, root, comm, stream) }
    }

    fn allreduce(&self, args: &CollArgs, by: &Reduction) -> ncclResult_t {
        let (comm, stream, (kind, op)) = (self.comm, self.stream, terms(by));
        let (from, into) = (address(args.send.whole()), address(args.recv.whole()));
        let count = args.bytes / args.element();
        // SAFETY: communicator, stream and device memory are valid until the collective completes.
        unsafe { (self.calls.ncclAllReduce)(from, into, count, kind, op, comm, stream) }
    }

    /// Queues a reduce_scatter. In an in-place call, NCCL writes a rank's result to the rank's
    /// block, but the library promises the result at the beginning of the buffer, so a copy
    /// follows.
    fn reduce_scatter(&self, args: &CollArgs, by: &Reduction) -> (ncclResult_t, PostCopy) {
        let block = |rank| args.send.block(rank, args.bytes);
        let (first, own, (kind, op)) = (block(0), block(self.rank), terms(by));
        let into = if args.in_place { own } else { args.recv.whole() };
        let count = own.len() / args.element();
        // SAFETY: communicator, stream and device memory are valid until the collective completes.
        let code = unsafe {
            let call = self.calls.ncclReduceScatter;
            call(address(first), address(into), count, kind, op, self.comm, self.stream)
        };
        let is_elsewhere = args.in_place && own != first;
        (code, is_elsewhere.then_some((own, first)))
    }

    fn allgather(&self, send: Region, recv: Region) -> ncclResult_t {
        let (from, into) = (address(send), address(recv));
        // SAFETY: communicator, stream and device memory are valid until the collective completes.
        unsafe {
            (self.calls.ncclAllGather)(from, into, send.len(), ncclUint8, self.comm, self.stream)
        }
    }

    /// Queues the sends and receives that `list` starts, as one NCCL group.
    fn grouped(&self, list: impl FnOnce() -> ncclResult_t) -> ncclResult_t {
        // SAFETY: the function has no parameters; the group is closed below.
        let begun = unsafe { (self.calls.ncclGroupStart)() };
        if begun != ncclSuccess {
            return begun;
        }
        let listed = list();
        // SAFETY: this thread has just opened the group.
        let ended = unsafe { (self.calls.ncclGroupEnd)() };
        if listed == ncclSuccess { ended } else { listed }
    }

    /// Posts the sends and receives of a gather or scatter. Each rank calls `with_root` to transfer
    /// `own` to or from the root, and the root calls `with_rank` to transfer each rank's block of
    /// `all`. In place, the root skips its own block.
    fn rooted(
        &self,
        args: &CollArgs,
        own: Region,
        all: &coll::Buffer,
        [with_root, with_rank]: [fn(&Self, Region, i32) -> ncclResult_t; 2],
    ) -> ncclResult_t {
        let root = args.root;
        // In place, the root's own block already has its position.
        let moved = if args.in_place { ncclSuccess } else { with_root(self, own, root) };
        if self.rank != root {
            return moved;
        }
        let others = (0..self.size).filter(|rank| *rank != root || !args.in_place);
        let block = |rank| all.block(rank, args.bytes);
        others.fold(moved, |code, rank| first(code, || with_rank(self, block(rank), rank)))
    }

    fn exchange(&self, send: Region, recv: Region, len: usize) -> ncclResult_t {
        (0..self.size).fold(ncclSuccess, |code, rank| {
            let code = first(code, || self.send(block(send, rank, len), rank));
            first(code, || self.recv(block(recv, rank, len), rank))
        })
    }

    fn send(&self, data: Region, to: i32) -> ncclResult_t {
        let (at, bytes) = (address(data), data.len());
        // SAFETY: communicator, stream and device memory are valid until the collective completes.
        unsafe { (self.calls.ncclSend)(at, bytes, ncclUint8, to, self.comm, self.stream) }
    }

    fn recv(&self, data: Region, from: i32) -> ncclResult_t {
        let (at, bytes) = (address(data), data.len());
        // SAFETY: communicator, stream and device memory are valid until the collective completes.
        unsafe { (self.calls.ncclRecv)(at, bytes, ncclUint8, from, self.comm, self.stream) }
    }
}

/// Returns `code` if it is an error, else the result of `next`.
fn first(code: ncclResult_t, next: impl FnOnce() -> ncclResult_t) -> ncclResult_t {
    if code == ncclSuccess { next() } else { code }
}
