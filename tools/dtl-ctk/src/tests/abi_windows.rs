//! Tests of what the library makes of a comm table's slots for windows: groups, older tables,
//! answers that make no sense, and which way operations go then. A rank alone, whose windows are
//! its own.

use crate::api::{Comm, name_of};
use crate::kit::catalog::{Group, tables};
use crate::kit::outcome::{Called, Outcome, Stop, ensure, refused};
use crate::kit::peer::Peer;
use crate::kit::win::Win;
use crate::sample::{Parts, window, window_wrong};
use crate::tests::abi::{named, registered};
use dtl_sys::*;
use std::mem::offset_of;

/// A table without one slot of a group.
macro_rules! half {
    ($slot:ident) => {
        tables(
            concat!("abi.windows.", stringify!($slot), "_null_refused"),
            "half a group is DTL_ERROR_INVALID_ARGUMENT, and the text names the slot",
            || {
                let mut parts = Parts::new();
                parts.comm.$slot = None;
                named(&mut parts, concat!("comm.", stringify!($slot)))
            },
        )
    };
}

pub(crate) const GROUPS: &[Group] = &[
    Group {
        slot: "slots for windows (groups)",
        needs: &[],
        rule: "Transfers (six slots) and atomics (three, which need the transfers) are whole or \
            absent; what is absent is \
               made of messages.",
        usually: "A slot was forgotten in the table.",
        tests: &[
            half!(win_create),
            half!(win_attach),
            half!(win_destroy),
            half!(win_put),
            half!(win_get),
            half!(win_flush),
            half!(win_atomics),
            half!(win_accumulate),
            half!(win_compare_and_swap),
            tables(
                "abi.windows.atomics_without_transfers_refused",
                "three slots without the six",
                atomics_alone,
            ),
            tables("abi.windows.both_groups_are_used", "dtl_win_info says so", both_groups),
            tables(
                "abi.windows.transfers_alone_are_used",
                "and messages for the rest",
                transfers_alone,
            ),
            tables("abi.windows.none_means_messages", "a table that leaves them NULL", none),
            tables("abi.windows.older_table_means_messages", "one that ends before them", older),
        ],
    },
    Group {
        slot: "slots for windows (answers)",
        needs: &[],
        rule: "Where win_create or win_attach fails, messages do it; a failure of an operation is \
            that of its call, or of \
               the flush behind it, with the slot's text.",
        usually: "The library and the header that the kit was built with do not belong together.",
        tests: &[
            tables("abi.windows.create_that_fails", "messages do it", create_fails),
            tables("abi.windows.create_that_answers_null", "the same", create_null),
            tables("abi.windows.key_that_is_too_long", "the same", long_key),
            tables("abi.windows.attach_that_fails", "the same", attach_fails),
            tables(
                "abi.windows.unknown_status_is_native_backend",
                "of win_put: 31337",
                put_nonsense,
            ),
            tables("abi.windows.failed_put_is_told", "by the call", put_fails),
            tables(
                "abi.windows.operation_that_ends_badly_is_told",
                "by the flush behind it, once",
                ends_badly,
            ),
            tables("abi.windows.no_room_is_tried_again", "BUSY from every other call", busy),
        ],
    },
];

const OWN: &str = "the backend's own put, get and atomics, locks by messages";
const TRANSFERS: &str = "the backend's own put and get, the rest by messages";
const MESSAGES: &str = "messages, served by whoever waits in this process";

/// Registers, opens a communicator of one rank, gives a window of 64 bytes to the check.
fn with_window(parts: &Parts, check: impl FnOnce(&Win) -> Outcome) -> Outcome {
    registered(parts, |_| {
        let failed = |failure: crate::api::Failure| Stop::Failed(failure.text);
        let comm = Comm::open("ctk.abi", Some((0, 1)), 10_000_000_000).map_err(failed)?;
        let peer = Peer::of(comm, "ctk.abi", 10_000_000_000, false)?;
        let win = Win::given(&peer, 64)?;
        win.lock_all()?;
        check(&win)?;
        win.unlock_all()?;
        win.end()?;
        Ok(peer.destroy()?)
    })
}

/// The way is this one, and what the window is for works.
fn goes(parts: &Parts, way: &str) -> Outcome {
    with_window(parts, |win| {
        let is = win.way()?;
        ensure!(is == way, "operations go by \"{is}\", expected \"{way}\"");
        win.put(&7_i64.to_ne_bytes(), 0, 8)?;
        win.flush(0)?;
        let slot = win.fetch_op(DTL_OP_SUM, 3, 0, 8)?;
        let swapped = win.swap_now(50, 10, 0, 8)?;
        let got = win.get_and_wait(8, 0, 8)?;
        let seen = [win.integer(slot), swapped, win.integer(got), win.own_integer(8)];
        ensure!(seen == [7, 10, 50, 50], "put 7, add 3, swap 10 for 50: {seen:?}");
        Ok(())
    })
}

fn atomics_alone() -> Outcome {
    let mut parts = Parts::new();
    let table = &mut parts.comm;
    (table.win_create, table.win_attach, table.win_destroy) = (None, None, None);
    (table.win_put, table.win_get, table.win_flush) = (None, None, None);
    named(&mut parts, "comm.win_create")
}

fn both_groups() -> Outcome {
    goes(&Parts::new(), OWN)
}

fn transfers_alone() -> Outcome {
    let mut parts = Parts::new();
    window::transfers_only(&mut parts.comm);
    goes(&parts, TRANSFERS)
}

fn none() -> Outcome {
    let mut parts = Parts::new();
    parts.only_required();
    goes(&parts, MESSAGES)
}

fn older() -> Outcome {
    let mut parts = Parts::new();
    parts.comm.struct_size = offset_of!(dtl_comm_vtable_t, win_create) as u32;
    goes(&parts, MESSAGES)
}

fn create_fails() -> Outcome {
    let mut parts = Parts::new();
    parts.comm.win_create = Some(window_wrong::create_fails);
    goes(&parts, MESSAGES)
}

fn create_null() -> Outcome {
    let mut parts = Parts::new();
    parts.comm.win_create = Some(window_wrong::create_null);
    goes(&parts, MESSAGES)
}

fn long_key() -> Outcome {
    let mut parts = Parts::new();
    parts.comm.win_create = Some(window_wrong::create_long_key);
    goes(&parts, MESSAGES)
}

fn attach_fails() -> Outcome {
    let mut parts = Parts::new();
    parts.comm.win_attach = Some(window_wrong::attach_fails);
    goes(&parts, MESSAGES)
}

fn put_nonsense() -> Outcome {
    let mut parts = Parts::new();
    parts.comm.win_put = Some(window_wrong::put_nonsense);
    with_window(&parts, |win| {
        refused(win.put(&[1], 0, 0), DTL_ERROR_NATIVE_BACKEND, "a slot that answers 31337")?;
        Ok(win.flush(0)?)
    })
}

fn put_fails() -> Outcome {
    let mut parts = Parts::new();
    parts.comm.win_put = Some(window_wrong::put_fails);
    with_window(&parts, |win| says_why(win.put(&[1], 0, 0)))
}

/// The failure is BACKEND, with the slot's text.
fn says_why<T>(result: Called<T>) -> Outcome {
    let Err(told) = result else { return refused(result, DTL_ERROR_BACKEND, "a slot that fails") };
    let is_told = told.status == DTL_ERROR_BACKEND && told.text.contains(window_wrong::TEXT);
    ensure!(is_told, "{} ({}) does not have the slot's text", told.text, name_of(told.status));
    Ok(())
}

fn ends_badly() -> Outcome {
    let mut parts = Parts::new();
    parts.comm.win_put = Some(window_wrong::put_ends_badly);
    with_window(&parts, |win| {
        win.put(&[1], 0, 0)?;
        refused(win.flush(0), DTL_ERROR_BACKEND, "the flush behind a put that failed")?;
        Ok(win.flush(0)?)
    })
}

fn busy() -> Outcome {
    let mut parts = Parts::new();
    parts.comm.win_put = Some(window_wrong::put_is_busy);
    with_window(&parts, |win| {
        for at in 0..50 {
            win.put(&[at as u8 + 1], 0, at)?;
        }
        win.flush(0)?;
        let should: Vec<u8> = (1..=50).chain([0; 14]).collect();
        win.own_is(&should)
    })
}
