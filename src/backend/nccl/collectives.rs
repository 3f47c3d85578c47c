//! Our collectives in NCCL's terms. Data that is only moved travels as bytes; those that NCCL does
//! not have are groups of its sends and receives where these do the same.

use super::errors::SUCCESS;
use super::symbols::*;
use crate::abi::word::*;
use crate::backend::cuda::external_stream::address;
use crate::runtime::backend::Collective;
use crate::runtime::comm::types::{Reduction, describe, op_text};
use crate::sys::buf::Region;
use std::ptr;

/// Where calls go.
pub(super) struct Target {
    pub(super) calls: &'static Functions,
    pub(super) comm: Object,
    pub(super) stream: Object,
    pub(super) rank: i32,
    pub(super) size: i32,
}

/// Why NCCL does not run a collective; the same on all ranks.
pub(super) fn refuses(call: &Collective) -> Option<String> {
    match call {
        Collective::Reduce { by, .. } | Collective::Allreduce { by, .. } => refuses_reduction(by),
        Collective::ReduceScatter { blocks, by, .. } => {
            let first = blocks.first().map(|block| block.len());
            let is_even = blocks.iter().all(|block| Some(block.len()) == first);
            let uneven = || "NCCL has blocks of one size only".to_owned();
            refuses_reduction(by).or_else(|| (!is_even).then(uneven))
        }
        Collective::Alltoall { send: None, .. } => Some("NCCL has none in place".to_owned()),
        Collective::Scan { .. } => Some("NCCL has none".to_owned()),
        Collective::Gatherv { .. }
        | Collective::Scatterv { .. }
        | Collective::Allgatherv { .. }
        | Collective::Alltoallv { .. } => Some(
            "NCCL has blocks of one size only, and a rank without data cannot tell where the \
             others' is"
                .to_owned(),
        ),
        Collective::Barrier
        | Collective::Bcast { .. }
        | Collective::Gather { .. }
        | Collective::Scatter { .. }
        | Collective::Allgather { .. }
        | Collective::Alltoall { .. } => None,
    }
}

fn refuses_reduction(by: &Reduction) -> Option<String> {
    match (kind(by.dtype), operation(by.op)) {
        (None, _) => Some(format!("NCCL does not reduce {}", describe(by.dtype))),
        (_, None) => Some(format!("NCCL has no {}", op_text(by.op))),
        _ => None,
    }
}

fn kind(dtype: dtl_dtype_t) -> Option<Kind> {
    Some(match dtype {
        DTL_DTYPE_INT8 => INT8,
        DTL_DTYPE_UINT8 => UINT8,
        DTL_DTYPE_INT32 => INT32,
        DTL_DTYPE_UINT32 => UINT32,
        DTL_DTYPE_INT64 => INT64,
        DTL_DTYPE_UINT64 => UINT64,
        DTL_DTYPE_FLOAT16 => FLOAT16,
        DTL_DTYPE_BFLOAT16 => BFLOAT16,
        DTL_DTYPE_FLOAT32 => FLOAT32,
        DTL_DTYPE_FLOAT64 => FLOAT64,
        _ => return None,
    })
}

fn operation(op: dtl_reduce_op_t) -> Option<Kind> {
    Some(match op {
        DTL_OP_SUM => SUM,
        DTL_OP_PROD => PROD,
        DTL_OP_MIN => MIN,
        DTL_OP_MAX => MAX,
        _ => return None,
    })
}

/// What is left to do behind a call: a copy from, to.
pub(super) type Behind = Option<(Region, Region)>;

/// A block of one of several equal ones.
fn block(all: Region, rank: i32, len: usize) -> Region {
    all.part(rank.unsigned_abs() as usize * len, len)
}

impl Target {
    /// Queues one that is not refused.
    pub(super) fn queue(&self, call: &Collective) -> (Code, Behind) {
        let code = match call {
            Collective::Bcast { data, root } => self.broadcast(*data, *root),
            Collective::Reduce { .. } | Collective::Allreduce { .. } => self.reduce(call),
            Collective::ReduceScatter { send, blocks, recv, by } => {
                return self.reduce_scatter(*send, blocks, *recv, by);
            }
            Collective::Allgather { send, recv, len } => {
                self.allgather(send.unwrap_or(block(*recv, self.rank, *len)), *recv)
            }
            Collective::Gather { send, recv, len, root } => {
                self.grouped(|| self.gather(*send, *recv, *len, *root))
            }
            Collective::Scatter { send, recv, len, root } => {
                self.grouped(|| self.scatter(*send, *recv, *len, *root))
            }
            Collective::Alltoall { send: Some(send), recv, len } => {
                self.grouped(|| self.exchange(*send, *recv, *len))
            }
            _ => SUCCESS,
        };
        (code, None)
    }

    fn broadcast(&self, data: Region, root: i32) -> Code {
        let (at, comm, stream) = (address(data), self.comm, self.stream);
        // SAFETY: a communicator and a stream that are there; memory of the device until the
        // collective is over.
        unsafe { (self.calls.ncclBroadcast)(at, at, data.len(), UINT8, root, comm, stream) }
    }

    fn reduce(&self, call: &Collective) -> Code {
        let (comm, stream) = (self.comm, self.stream);
        let terms =
            |by: &Reduction| (kind(by.dtype).unwrap_or(UINT8), operation(by.op).unwrap_or(SUM));
        match call {
            Collective::Reduce { send, recv, root, by } => {
                let (from, (kind, op)) = (send.unwrap_or(*recv), terms(by));
                let into = if self.rank == *root { address(*recv) } else { ptr::null_mut() };
                let count = from.len() / by.element.max(1);
                // SAFETY: as in `broadcast`.
                unsafe {
                    (self.calls.ncclReduce)(
                        address(from),
                        into,
                        count,
                        kind,
                        op,
                        *root,
                        comm,
                        stream,
                    )
                }
            }
            Collective::Allreduce { send, recv, by } => {
                let (from, (kind, op)) = (address(send.unwrap_or(*recv)), terms(by));
                let count = recv.len() / by.element.max(1);
                // SAFETY: as in `broadcast`.
                unsafe {
                    (self.calls.ncclAllReduce)(from, address(*recv), count, kind, op, comm, stream)
                }
            }
            _ => SUCCESS,
        }
    }

    /// In place, NCCL leaves a rank's result where its block was; ours lies at the beginning.
    fn reduce_scatter(
        &self,
        send: Option<Region>,
        blocks: &[Region],
        recv: Region,
        by: &Reduction,
    ) -> (Code, Behind) {
        let own = usize::try_from(self.rank).ok().and_then(|rank| blocks.get(rank)).copied();
        let (Some(first), Some(own)) = (blocks.first(), own) else { return (SUCCESS, None) };
        let into = if send.is_some() { recv } else { own };
        let (Some(kind), Some(op)) = (kind(by.dtype), operation(by.op)) else {
            return (SUCCESS, None);
        };
        let count = own.len() / by.element.max(1);
        // SAFETY: as in `broadcast`.
        let code = unsafe {
            let call = self.calls.ncclReduceScatter;
            call(address(*first), address(into), count, kind, op, self.comm, self.stream)
        };
        let is_elsewhere = send.is_none() && own != *first;
        (code, is_elsewhere.then_some((own, *first)))
    }

    fn allgather(&self, send: Region, recv: Region) -> Code {
        let (from, into) = (address(send), address(recv));
        // SAFETY: as in `broadcast`.
        unsafe { (self.calls.ncclAllGather)(from, into, send.len(), UINT8, self.comm, self.stream) }
    }

    /// Sends and receives that go at once.
    fn grouped(&self, list: impl FnOnce() -> Code) -> Code {
        // SAFETY: takes nothing; ended below.
        let begun = unsafe { (self.calls.ncclGroupStart)() };
        if begun != SUCCESS {
            return begun;
        }
        let listed = list();
        // SAFETY: ends what has just been begun, by this thread.
        let ended = unsafe { (self.calls.ncclGroupEnd)() };
        if listed == SUCCESS { ended } else { listed }
    }

    fn gather(&self, send: Option<Region>, recv: Region, len: usize, root: i32) -> Code {
        // In place, the root's own block is where it belongs.
        let sent = send.map_or(SUCCESS, |send| self.send(send, root));
        if self.rank != root {
            return sent;
        }
        let others = (0..self.size).filter(|rank| *rank != root || send.is_some());
        others.fold(sent, |code, rank| first(code, || self.recv(block(recv, rank, len), rank)))
    }

    fn scatter(&self, send: Region, recv: Option<Region>, len: usize, root: i32) -> Code {
        let received = recv.map_or(SUCCESS, |recv| self.recv(recv, root));
        if self.rank != root {
            return received;
        }
        let others = (0..self.size).filter(|rank| *rank != root || recv.is_some());
        others.fold(received, |code, rank| first(code, || self.send(block(send, rank, len), rank)))
    }

    fn exchange(&self, send: Region, recv: Region, len: usize) -> Code {
        (0..self.size).fold(SUCCESS, |code, rank| {
            let code = first(code, || self.send(block(send, rank, len), rank));
            first(code, || self.recv(block(recv, rank, len), rank))
        })
    }

    fn send(&self, data: Region, to: i32) -> Code {
        // SAFETY: as in `broadcast`.
        unsafe {
            (self.calls.ncclSend)(address(data), data.len(), UINT8, to, self.comm, self.stream)
        }
    }

    fn recv(&self, data: Region, from: i32) -> Code {
        // SAFETY: as in `broadcast`.
        unsafe {
            (self.calls.ncclRecv)(address(data), data.len(), UINT8, from, self.comm, self.stream)
        }
    }
}

/// The first result that is no success.
fn first(code: Code, next: impl FnOnce() -> Code) -> Code {
    if code == SUCCESS { next() } else { code }
}
