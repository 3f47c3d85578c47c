//! Subcommand `select`: measures the submission of an empty task with each selection policy (rule
//! by which the library selects a resource for the task), by one thread and by two threads at once.
//! For two threads, the value is the time divided by the number of submissions of both threads
//! together, so a ratio (one thread / two threads) below 1 means that two threads together complete
//! fewer submissions per second than one thread.

use crate::library::{call, check};
use crate::local::{self, Case};
use crate::machine;
use crate::options::Call;
use crate::out::Outcome;
use dtl_sys::*;
use serde_json::json;
use std::ffi::{CStr, c_void};
use std::hint::{black_box, spin_loop};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Number of tasks that each thread submits in a batch.
const SUBMITS: u64 = 10_000;
/// Value of `Second::wanted` that makes the second thread exit.
const END: u64 = u64::MAX;

type Submit = unsafe extern "C" fn(
    dtl_policy_t,
    dtl_task_key_t,
    dtl_policy_task_fn_t,
    *mut c_void,
    u64,
    *mut dtl_submission_t,
) -> dtl_status_t;

extern "C" fn nothing(
    _: *const dtl_resource_t,
    _: *mut c_void,
    _: *mut dtl_waitable_t,
) -> dtl_status_t {
    DTL_SUCCESS
}

/// Row of the result table, for one selection policy (rule that determines which resource the
/// library selects for a task).
#[derive(Clone, Copy)]
struct Row {
    test: &'static str,
    name: &'static CStr,
    resources: u64,
    /// True if the policy measures its resources continuously.
    tunes: bool,
}

const ROWS: &[Row] = &[
    Row { test: "fixed", name: c"fixed", resources: 4, tunes: false },
    Row { test: "round_robin", name: c"round_robin", resources: 4, tunes: false },
    Row { test: "load_4", name: c"dynamic_load", resources: 4, tunes: false },
    Row { test: "load_16", name: c"dynamic_load", resources: 16, tunes: false },
    Row { test: "capacity", name: c"capacity", resources: 4, tunes: false },
    Row { test: "tuned", name: c"auto_tune", resources: 4, tunes: false },
    Row { test: "tuning", name: c"auto_tune", resources: 4, tunes: true },
];

fn policy(row: &Row) -> Outcome<dtl_policy_t> {
    let list: Vec<_> =
        (0..row.resources).map(|value| dtl_resource_t { value, user: ptr::null_mut() }).collect();
    let opts = dtl_policy_opts_t {
        kind: DTL_RESOURCES_INLINE,
        fixed_index: 1,
        capacity: 1,
        samples: if row.tunes { 1 << 16 } else { 1 },
        resample_submits: u64::from(row.tunes),
        ..DTL_POLICY_OPTS_INIT
    };
    let mut policy = DTL_POLICY_NULL;
    let (name, list, count) = (row.name.as_ptr(), list.as_ptr(), list.len() as u64);
    call!(dtl_policy_create(name, list, count, &raw const opts, &raw mut policy))?;
    submits(policy, 1000)?;
    Ok(policy)
}

fn submits(policy: dtl_policy_t, count: u64) -> Outcome {
    let submit = black_box(dtl_policy_submit as Submit);
    let task: dtl_policy_task_fn_t = black_box(Some(nothing));
    let key = dtl_task_key_t { task: 0, variant: 0 };
    for _ in 0..count {
        // SAFETY: a policy of this run; no output is wanted.
        let status = unsafe { submit(policy, key, task, ptr::null_mut(), 0, ptr::null_mut()) };
        check("dtl_policy_submit", status)?;
    }
    Ok(())
}

/// State that the main thread shares with the second thread, which submits a batch of tasks on
/// request.
#[derive(Default)]
struct Second {
    /// Id of the policy with which the second thread must submit a batch; 0 = no request; `END` =
    /// the thread must exit.
    wanted: AtomicU64,
    /// Number of batches that the second thread has completed.
    done: AtomicU64,
    /// Number of batches that have failed in the second thread.
    failed: AtomicU64,
}

impl Second {
    fn start() -> Arc<Second> {
        let second = Arc::new(Second::default());
        let there = Arc::clone(&second);
        std::thread::spawn(move || there.work());
        second
    }

    fn work(&self) {
        loop {
            match self.wanted.swap(0, Ordering::Acquire) {
                0 => pause(),
                END => return,
                id => {
                    if submits(dtl_policy_t { id }, SUBMITS).is_err() {
                        self.failed.fetch_add(1, Ordering::Relaxed);
                    }
                    self.done.fetch_add(1, Ordering::Release);
                }
            }
        }
    }

    /// Submits a batch in this thread while the second thread submits another one. Returns the
    /// elapsed time in nanoseconds divided by the total number of submissions of both threads.
    fn batch(&self, policy: dtl_policy_t) -> Outcome<f64> {
        let turns = self.done.load(Ordering::Acquire);
        self.wanted.store(policy.id, Ordering::Release);
        let begin = Instant::now();
        submits(policy, SUBMITS)?;
        while self.done.load(Ordering::Acquire) == turns {
            pause();
        }
        let time = begin.elapsed().as_nanos() as f64;
        match self.failed.load(Ordering::Relaxed) {
            0 => Ok(time / (2 * SUBMITS) as f64),
            _ => Err("the second thread's submits failed".to_owned()),
        }
    }
}

/// Pauses between two checks of the other thread's state. Yields the processor too, because there
/// may be only one.
fn pause() {
    (0..100).for_each(|_| spin_loop());
    std::thread::yield_now();
}

/// Runs the measurements of `select` that the command line selects.
pub(crate) fn run(wanted: &Call) -> Outcome {
    call!(dtl_init(ptr::null()))?;
    let second = Second::start(); // before this thread is pinned: it may run elsewhere
    let processors = machine::settle(&wanted.place);
    let policies = ROWS.iter().map(policy).collect::<Outcome<Vec<_>>>()?;
    let cases =
        ROWS.iter().zip(&policies).map(|(row, &policy)| case(row, policy, &second)).collect();
    let lines = local::measure(cases, &wanted.common, None)?;
    let more = json!({ "pinned": !wanted.place.no_pin, "peer": { "name": "both" } });
    local::show("select", lines, processors, &wanted.common, more);
    second.wanted.store(END, Ordering::Release);
    policies.into_iter().try_for_each(|policy| call!(dtl_policy_release(policy)))?;
    call!(dtl_finalize())
}

fn case<'a>(row: &Row, policy: dtl_policy_t, second: &Arc<Second>) -> Case<'a> {
    let alone = move || {
        let begin = Instant::now();
        submits(policy, SUBMITS)?;
        Ok(begin.elapsed().as_nanos() as f64 / SUBMITS as f64)
    };
    let second = Arc::clone(second);
    let both = move || second.batch(policy);
    Case::new(row.test, alone, ("both", both))
}
