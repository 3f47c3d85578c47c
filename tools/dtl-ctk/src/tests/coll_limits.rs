//! Tests of communicators whose backend executes collectives by `coll_start`, through the calls of
//! the library: determinism, the border between what the backend supports and the rest, time
//! limits, and ranks that are gone.

use crate::case::{Op, Place, Step};
use crate::case_run::compare;
use crate::collective;
use crate::data;
use crate::kit::prelude::*;
use crate::plan::{GUARD, View};
use crate::reference;
use crate::tests::coll_call::{Form, pairs};
use crate::tests::coll_slots::has_slots;
use crate::tests::lifecycle::{accepted, on_its_own};
use std::ffi::{CString, c_void};

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Ranks "comm.coll_supports.":
        deterministic_sums_have_the_librarys_bits, refused_ones_are_right;
    Ranks "comm.coll_start.":
        missing_rank_ends_in_time, closed_rank_ends_it;
];

/// Opens another communicator in the same job.
fn opened(p: &Rank, flags: u64, limit: Duration) -> Outcome<Rank> {
    has_slots()?;
    on_its_own(p)?;
    let kind = CString::new(p.kind.as_str()).unwrap_or_default();
    let desc = dtl_comm_desc_t {
        kind: kind.as_ptr(),
        flags,
        timeout_ns: limit.as_nanos() as u64,
        ..DTL_COMM_DESC_INIT
    };
    let opened = output!(DTL_COMM_NULL, dtl_comm_open(&raw const desc));
    accepted(p, opened.map(crate::api::Comm::from_raw))
}

/// Defines an operation of a program that adds numbers of a type.
macro_rules! adds {
    ($name:ident $number:ty) => {
        extern "C" fn $name(
            left: *const c_void,
            right: *mut c_void,
            count: u64,
            _dtype: dtl_dtype_t,
            _user: *mut c_void,
        ) {
            let (left, right) = (left.cast::<$number>(), right.cast::<$number>());
            for at in 0..count as usize {
                let (a, b) = (left.wrapping_add(at), right.wrapping_add(at));
                // SAFETY: dtl_op_fn_t: both arrays have `count` elements. The library aligns them
                // for no type in particular.
                let sum = unsafe { a.read_unaligned() + b.read_unaligned() };
                // SAFETY: as for the reads; nobody else uses `right` in this call.
                unsafe { b.write_unaligned(sum) };
            }
        }
    };
}

adds!(add_floats f32);
adds!(add_doubles f64);

/// Runs one of the reductions. Returns the bytes of the result.
fn reduced(
    p: &Rank,
    which: Op,
    values: &[u8],
    (dtype, element): (dtl_dtype_t, usize),
    op: dtl_reduce_op_t,
) -> Called<Vec<u8>> {
    let mut result = vec![0_u8; values.len()];
    let count = (values.len() / element) as u64;
    let (comm, from, into) = (p.comm.raw(), values.as_ptr().cast(), result.as_mut_ptr().cast());
    match which {
        Op::Allreduce => call!(dtl_comm_allreduce(comm, from, into, count, dtype, op)),
        Op::Reduce => call!(dtl_comm_reduce(comm, from, into, count, dtype, op, p.size - 1)),
        Op::Scan => call!(dtl_comm_scan(comm, from, into, count, dtype, op)),
        Op::Exscan => call!(dtl_comm_exscan(comm, from, into, count, dtype, op)),
        _ => {
            let block = count / p.size as u64;
            call!(dtl_comm_reduce_scatter_block(comm, from, into, block, dtype, op))
        }
    }?;
    Ok(result)
}

/// Compares sums of a deterministic communicator with those of an operation of the program, which
/// the library always executes by its own algorithms. The values differ so much in size that any
/// other order of the operands gives other bits.
fn deterministic_sums_have_the_librarys_bits(p: &Rank) -> Outcome {
    let other = opened(p, DTL_COMM_DETERMINISTIC, Duration::from_nanos(p.timeout_ns))?;
    let none = ptr::null_mut();
    let create = |add: dtl_op_fn_t| {
        output!(0, dtl_op_create(add, none, DTL_OP_COMMUTES, c"ctk add".as_ptr()))
    };
    let types = [
        ((DTL_DTYPE_FLOAT32, 4_usize), create(Some(add_floats))?),
        ((DTL_DTYPE_FLOAT64, 8), create(Some(add_doubles))?),
    ];
    for (ty, own) in types {
        for count in [6_u64, 240, 6000] {
            let count = count * other.size as u64;
            let number = |at: u64| {
                let bits = data::mix(at * 64 + other.rank as u64);
                let size = f64::from((bits >> 60) as i32 - 8).exp2();
                size * (1.0 + (bits & 0xFFFF_FFFF) as f64 / 7e9)
            };
            let values: Vec<u8> = (0..count)
                .flat_map(|at| match ty.1 {
                    4 => (number(at) as f32).to_ne_bytes().to_vec(),
                    _ => number(at).to_ne_bytes().to_vec(),
                })
                .collect();
            let all = [Op::Allreduce, Op::Reduce, Op::ReduceScatterBlock, Op::Scan, Op::Exscan];
            for which in all {
                let should = reduced(&other, which, &values, ty, own)?;
                let is = reduced(&other, which, &values, ty, DTL_OP_SUM)?;
                let (name, bits) = (which.name(), 8 * ty.1);
                let text = "sums of a deterministic communicator are not the library's";
                same!(&is, &should, "{name} of {count} {bits}-bit numbers: {text}: {}")?;
            }
        }
    }
    types.into_iter().try_for_each(|(_, own)| call!(dtl_op_destroy(own)))?;
    Ok(other.destroy()?)
}

/// Reduces each dtype with each operation, in both forms of the call and in place, whether
/// coll_supports accepts it or not.
fn refused_ones_are_right(p: &Rank) -> Outcome {
    has_slots()?;
    let (rank, size) = (p.rank as u64, p.size as u64);
    for (number, (ty, reduction)) in pairs().enumerate() {
        for op in [Op::Allreduce, Op::Reduce, Op::ReduceScatterBlock, Op::Scan] {
            let form = Form {
                ty,
                reduction,
                in_place: number % 3 == 1,
                root: number as i32 % p.size,
                ..Form::new(op)
            };
            let step = Step { nonblocking: number % 2 == 1, ..form.step(size) };
            let place = Place { rank, size, color: 0 };
            let view = View { step: &step, place, ranks: size, key: number as u64 };
            let mut plan = view.plan();
            let expected = reference::expected(&view, &plan);
            if let Some(request) = collective::call(p.comm.raw(), &step, &mut plan)? {
                call!(dtl_request_wait(request, p.timeout_ns, ptr::null_mut()))?;
            }
            let end = plan.recv.len().saturating_sub(GUARD);
            data::settle_padding(&mut plan.recv[..end], &expected.recv, ty);
            compare(&step, &plan, &expected.recv[..expected.compared])
                .map_err(|failure| failure.within(&form.text()))?;
        }
    }
    Ok(())
}

const LIMIT: Duration = Duration::from_secs(2);

/// Returns the failure of a call on which all ranks but the last wait for the last one.
fn waited(other: &Rank) -> Outcome<Error> {
    let begin = Instant::now();
    let mut sum = 0_i64;
    let (one, into) = (1_i64, (&raw mut sum).cast());
    let (comm, from) = (other.comm.raw(), (&raw const one).cast());
    let ended = call!(dtl_comm_allreduce(comm, from, into, 1, DTL_DTYPE_INT64, DTL_OP_SUM));
    let took = begin.elapsed();
    let Err(failure) = ended else {
        wrong!("an allreduce is done, and rank {} has not called it", other.size - 1)
    };
    let text = format!("with a limit of {LIMIT:?} it ends after {took:?}: {failure}");
    ensure!(took < 3 * LIMIT, "{text}");
    ensure!(!failure.text.contains("has not given the buffer back"), "{text}");
    Ok(failure)
}

fn has_cancel() -> Outcome {
    let table = crate::kit::vtables::tables().and_then(|all| all.tables.comm);
    if table.is_some_and(|table| table.cancel.is_none()) {
        skip!("the comm table has no cancel: a collective that has begun cannot end early");
    }
    Ok(())
}

fn missing_rank_ends_in_time(p: &Rank) -> Outcome {
    has_cancel()?;
    let other = opened(p, 0, LIMIT)?;
    p.meet(1)?;
    if p.rank != p.size - 1 {
        let failure = waited(&other)?;
        let is_timeout = failure.status == DTL_ERROR_TIMEOUT;
        ensure!(is_timeout, "expected DTL_ERROR_TIMEOUT: {failure}");
    }
    p.meet(2)?;
    Ok(other.destroy()?)
}

/// The last rank closes its communicator instead of calling the collective, as if it had died.
fn closed_rank_ends_it(p: &Rank) -> Outcome {
    has_cancel()?;
    let other = opened(p, 0, LIMIT)?;
    p.meet(1)?;
    if p.rank == p.size - 1 {
        other.destroy()?;
        return p.meet(2);
    }
    let failure = waited(&other)?;
    let known = [DTL_ERROR_TIMEOUT, DTL_ERROR_RANK_FAILURE].contains(&failure.status.0);
    ensure!(known, "expected DTL_ERROR_RANK_FAILURE or DTL_ERROR_TIMEOUT: {failure}");
    p.meet(2)?;
    Ok(other.destroy()?)
}
