//! The serial reference: what should be in a rank's receive buffer after a step, by simple loops over
//! all ranks' inputs. It calls nothing of the library.

use crate::case::Op;
use crate::data;
use crate::plan::{GUARD, Plan, View, stacked};
use dtl::abi::word::*;

/// What a step should leave.
pub(crate) struct Expected {
    /// The receive buffer.
    pub(crate) recv: Vec<u8>,
    /// Bytes of it that are compared (behind it, in place, the input is overwritten as it comes).
    pub(crate) compared: usize,
    /// Bytes of it that count for the digest: those that every correct implementation agrees on.
    pub(crate) digested: usize,
}

/// What the plan's receive buffer should be after the call.
pub(crate) fn expected(view: &View, plan: &Plan) -> Expected {
    use Op::*;
    let mut recv = plan.recv.clone();
    let size = view.step.ty.size;
    let me = view.place.rank;
    let mut digested = recv.len();
    let mut compared = recv.len();
    match view.step.op {
        Barrier | P2p | Ssend | Probe => {}
        Bcast => view.put_input(view.part(&mut recv, 0, plan.count), view.root(), 0),
        Reduce | Allreduce if recv.is_empty() => {}
        Reduce | Allreduce => put_fold(view, &mut recv, 0, plan.count, view.place.size),
        Scan => put_fold(view, &mut recv, 0, plan.count, me + 1),
        Exscan if me == 0 => digested = 0,
        Exscan => put_fold(view, &mut recv, 0, plan.count, me),
        ReduceScatter | ReduceScatterBlock => {
            let first = plan.rcounts[..me as usize].iter().sum();
            let count = plan.rcounts[me as usize];
            put_fold(view, &mut recv, first, count, view.place.size);
            if plan.send_in_place {
                compared = count as usize * size;
                digested = compared;
            }
        }
        Gather | Gatherv | Allgather | Allgatherv => collect(view, plan, &mut recv),
        Scatter | Scatterv if plan.recv_in_place => {}
        Scatter | Scatterv => view.put_input(view.part(&mut recv, 0, plan.count), view.root(), me),
        Alltoall | Alltoallv => {
            let layout = view.layout(plan.rcounts.clone());
            for source in 0..view.place.size {
                let (first, count) = (layout.displs[source as usize], layout.counts[source as usize]);
                view.put_input(view.part(&mut recv, first, count), source, me);
            }
        }
        Neighbor => {
            let layout = stacked(plan.rcounts.clone(), view.step.gap);
            for (index, source) in view.neighbors(false).into_iter().enumerate() {
                let (first, count) = (layout.displs[index], layout.counts[index]);
                view.put_input(view.part(&mut recv, first, count), source, me);
            }
        }
        Sendrecv | Replace => {
            if let Some(source) = view.shifted(false) {
                let count = (recv.len() - GUARD) / size;
                view.put_input(view.part(&mut recv, 0, count as u64), source, 0);
            }
        }
    }
    Expected { recv, compared, digested }
}

fn collect(view: &View, plan: &Plan, recv: &mut [u8]) {
    if recv.is_empty() {
        return;
    }
    let layout = view.layout(plan.rcounts.clone());
    for source in 0..view.place.size {
        let (first, count) = (layout.displs[source as usize], layout.counts[source as usize]);
        view.put_input(view.part(recv, first, count), source, 0);
    }
}

/// Folds elements `first` … of the first `ranks` ranks into the beginning of `recv`.
fn put_fold(view: &View, recv: &mut [u8], first: u64, count: u64, ranks: u64) {
    let ty = view.step.ty;
    let from = first as usize * ty.size;
    let bytes = count as usize * ty.size;
    let mut result = view.input(0, 0, first + count);
    for source in 1..ranks {
        let operand = view.input(source, 0, first + count);
        let pairs = result[from..].chunks_exact_mut(ty.size).zip(operand[from..].chunks_exact(ty.size));
        for (left, right) in pairs {
            let value = fold(view.step.reduction, data::decode(left, ty), data::decode(right, ty));
            data::encode(left, ty, value);
        }
    }
    recv[..bytes].copy_from_slice(&result[from..]);
}

fn fold(op: dtl_reduce_op_t, left: i64, right: i64) -> i64 {
    let (a, b) = (left != 0, right != 0);
    match op {
        DTL_OP_SUM => left.wrapping_add(right),
        DTL_OP_PROD => left.wrapping_mul(right),
        DTL_OP_MIN => left.min(right),
        DTL_OP_MAX => left.max(right),
        DTL_OP_LAND => (a && b).into(),
        DTL_OP_LOR => (a || b).into(),
        DTL_OP_LXOR => (a != b).into(),
        DTL_OP_BAND => left & right,
        DTL_OP_BOR => left | right,
        _ => left ^ right,
    }
}
