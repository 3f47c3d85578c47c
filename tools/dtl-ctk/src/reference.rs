//! Serial reference implementation: computes, with simple loops over all ranks' inputs, the
//! expected contents of a rank's receive buffer after one operation of a random case. It does not
//! call any library function.

use crate::case::Op;
use crate::data::{self, Class, USER_SUM};
use crate::plan::{GUARD, Plan, View, stacked};
use dtl_sys::*;

/// Expected result of one operation of a random case.
pub(crate) struct Expected {
    /// Contents of the receive buffer.
    pub(crate) recv: Vec<u8>,
    /// Number of bytes at the beginning of the receive buffer that are compared. With DTL_IN_PLACE,
    /// the remaining bytes are input that the call may overwrite.
    pub(crate) compared: usize,
    /// Number of bytes at the beginning of the receive buffer that the hash of the outputs
    /// includes: those that are equal for all correct implementations.
    pub(crate) digested: usize,
}

/// Returns the expected contents of the receive buffer in `plan` after the call.
pub(crate) fn expected(view: &View, plan: &Plan) -> Expected {
    use Op::*;
    let mut recv = plan.recv.clone();
    let size = view.step.ty.size;
    let me = view.place.rank;
    let mut digested = recv.len();
    let mut compared = recv.len();
    match view.step.op {
        Barrier | P2p | Ssend | Probe | Window | WindowMixed | WindowMisuse => {}
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
                let (first, count) =
                    (layout.displs[source as usize], layout.counts[source as usize]);
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

/// Reduces the inputs of the first `ranks` ranks: `count` elements of each, starting at index
/// `first`. Writes the result to the beginning of `recv`.
fn put_fold(view: &View, recv: &mut [u8], first: u64, count: u64, ranks: u64) {
    let ty = view.step.ty;
    let from = first as usize * ty.size;
    let bytes = count as usize * ty.size;
    let mut result = view.input(0, 0, first + count);
    for source in 1..ranks {
        let operand = view.input(source, 0, first + count);
        let pairs =
            result[from..].chunks_exact_mut(ty.size).zip(operand[from..].chunks_exact(ty.size));
        for (left, right) in pairs {
            let (a, b) = (data::decode(left, ty), data::decode(right, ty));
            let value = fold(view.step.reduction, ty.class, a, b);
            data::encode(left, ty, value);
        }
    }
    recv[..bytes].copy_from_slice(&result[from..]);
}

/// Returns the result of a reduction operation on two values.
pub(crate) fn fold(op: dtl_reduce_op_t, class: Class, left: i64, right: i64) -> i64 {
    let ((a, b), (c, d)) = (data::parts(left), data::parts(right));
    match (class, op) {
        (_, DTL_OP_REPLACE) => return right,
        (_, DTL_OP_NO_OP) => return left,
        (Class::Complex, DTL_OP_SUM) => return data::join(a + c, b + d),
        (Class::Complex, _) => return data::join(a * c - b * d, a * d + b * c),
        (Class::Pair, DTL_OP_MINLOC) => return if (a, b) <= (c, d) { left } else { right },
        (Class::Pair, _) => return if (-a, b) <= (-c, d) { left } else { right },
        (Class::User, _) => return fold_user(op, left.to_le_bytes(), right.to_le_bytes()),
        _ => {}
    }
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

/// Combines two elements of the user-defined type, each of six numbers, modulo 251. The sum adds
/// corresponding numbers. The matrix operation multiplies the first four numbers as 2 x 2 matrices,
/// adds the fifth numbers, and takes the sixth number from the right operand, which is from the
/// higher rank.
fn fold_user(op: dtl_reduce_op_t, left: [u8; 8], right: [u8; 8]) -> i64 {
    let (l, r) = (left.map(u32::from), right.map(u32::from));
    let mut result = [0; 8];
    for at in 0..6 {
        let (row, column) = (at / 2 * 2, at % 2);
        let number = match (op, at) {
            (USER_SUM, _) | (_, 4) => l[at] + r[at],
            (_, 5) => r[5],
            _ => l[row] * r[column] + l[row + 1] * r[column + 2],
        };
        result[at] = (number % 251) as u8;
    }
    i64::from_le_bytes(result)
}
