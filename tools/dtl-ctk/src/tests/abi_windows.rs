//! Tests of the window functions of a comm table: incomplete function groups, tables of older
//! versions, invalid results, and the library's choice between these functions and its own
//! message-based implementation. The tests use a single rank, which accesses only its own windows.

use crate::api;
use crate::kit::prelude::*;
use crate::sample::{Parts, window, window_wrong};
use crate::tests::abi::{named, registered};
use std::mem::offset_of;

/// Defines tests that register function tables in which one function pointer of a group is NULL.
macro_rules! half {
    ($($slot:ident)+) => {
        &[$((
            concat!("abi.windows.", stringify!($slot), "_null_refused"),
            Body::Tables(|| {
                named(|parts| parts.comm.$slot = None, concat!("comm.", stringify!($slot)))
            }),
        )),+]
    };
}

pub(crate) const HALF: &[(&str, Body)] = half![
    win_create win_attach win_destroy win_put win_get win_flush
    win_atomics win_accumulate win_compare_and_swap
];

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Tables "abi.windows.":
        atomics_without_transfers_refused,
        both_groups_are_used = || goes(|_| (), OWN),
        transfers_alone_are_used = || {
            goes(|parts| window::transfers_only(&mut parts.comm), TRANSFERS)
        },
        none_means_messages = || goes(Parts::only_required, MESSAGES),
        older_table_means_messages = || goes(
            |parts| parts.comm.struct_size = offset_of!(dtl_comm_vtable_t, win_create) as u32,
            MESSAGES,
        ),
        create_that_fails = || {
            goes(|parts| parts.comm.win_create = Some(window_wrong::create_fails), MESSAGES)
        },
        create_that_answers_null = || {
            goes(|parts| parts.comm.win_create = Some(window_wrong::create_null), MESSAGES)
        },
        key_that_is_too_long = || {
            goes(|parts| parts.comm.win_create = Some(window_wrong::create_long_key), MESSAGES)
        },
        attach_that_fails = || {
            goes(|parts| parts.comm.win_attach = Some(window_wrong::attach_fails), MESSAGES)
        },
        unknown_status_is_native_backend,
        failed_put_is_told = || with_window(
            |parts| parts.comm.win_put = Some(window_wrong::put_fails),
            |win| says_why(win.put(&[1], 0, 0)),
        ),
        operation_that_ends_badly_is_told, no_room_is_tried_again;
];

const OWN: &str = "the backend's own put, get and atomics, locks by messages";
const TRANSFERS: &str = "the backend's own put and get, the rest by messages";
const MESSAGES: &str = "messages, served by whoever waits in this process";

/// Registers a backend whose function tables `change` has modified, opens a communicator of one
/// rank, and runs the check on a window of 64 bytes.
fn with_window(change: impl FnOnce(&mut Parts), check: impl FnOnce(&Win) -> Outcome) -> Outcome {
    registered(&Parts::with(change), |_| {
        let comm = api::open("ctk.abi", Some((0, 1)), 10_000_000_000)?;
        let rank = Rank::of(comm, "ctk.abi", 10_000_000_000, false)?;
        let win = Win::given(&rank, 64)?;
        win.lock_all()?;
        check(&win)?;
        win.unlock_all()?;
        win.end()?;
        Ok(rank.destroy()?)
    })
}

/// Checks that operations on a window use the implementation that `way` names, and that their
/// results are correct.
fn goes(change: impl FnOnce(&mut Parts), way: &str) -> Outcome {
    with_window(change, |win| {
        let is = win.way()?;
        ensure!(is == way, "operations go by \"{is}\", expected \"{way}\"");
        win.put(&7_i64.to_ne_bytes(), 0, 8)?;
        win.flush(0)?;
        let slot = win.fetch_op(DTL_OP_SUM, 3, 0, 8)?;
        let swapped = win.swap_now(50, 10, 0, 8)?;
        let got = win.get_and_wait(8, 0, 8)?;
        let seen = [win.integer(slot), swapped, win.integer(got), win.own_integer(8)];
        check!(seen == [7, 10, 50, 50], "put 7, add 3, swap 10 for 50: {seen:?}")
    })
}

fn atomics_without_transfers_refused() -> Outcome {
    let without = |parts: &mut Parts| {
        let table = &mut parts.comm;
        (table.win_create, table.win_attach, table.win_destroy) = (None, None, None);
        (table.win_put, table.win_get, table.win_flush) = (None, None, None);
    };
    named(without, "comm.win_create")
}

fn unknown_status_is_native_backend() -> Outcome {
    with_window(
        |parts| parts.comm.win_put = Some(window_wrong::put_nonsense),
        |win| {
            refused(win.put(&[1], 0, 0), DTL_ERROR_NATIVE_BACKEND, "a slot that answers 31337")?;
            Ok(win.flush(0)?)
        },
    )
}

/// Checks that a call has failed with DTL_ERROR_BACKEND, and that the error message contains
/// `window_wrong::TEXT`.
fn says_why<T>(result: Called<T>) -> Outcome {
    let Err(told) = result else { return refused(result, DTL_ERROR_BACKEND, "a slot that fails") };
    let is_told = told.status == DTL_ERROR_BACKEND && told.text.contains(window_wrong::TEXT);
    check!(is_told, "{} ({}) does not have the slot's text", told.text, told.status)
}

fn operation_that_ends_badly_is_told() -> Outcome {
    with_window(
        |parts| parts.comm.win_put = Some(window_wrong::put_ends_badly),
        |win| {
            win.put(&[1], 0, 0)?;
            refused(win.flush(0), DTL_ERROR_BACKEND, "the flush behind a put that failed")?;
            Ok(win.flush(0)?)
        },
    )
}

fn no_room_is_tried_again() -> Outcome {
    with_window(
        |parts| parts.comm.win_put = Some(window_wrong::put_is_busy),
        |win| {
            for at in 0..50 {
                win.put(&[at as u8 + 1], 0, at)?;
            }
            win.flush(0)?;
            let should: Vec<u8> = (1..=50).chain([0; 14]).collect();
            win.own_is(&should)
        },
    )
}
