//! Communicators and requests of the tests: an error status becomes a failure.

use crate::kit::calls::Backend;
use crate::kit::outcome::{Called, Failure, call, name_of};
use dtl::tooling::launch;
pub(crate) use dtl_binding::Comm;
use dtl_binding::Open;
use dtl_sys::*;
use std::ptr;
use std::time::{Duration, Instant};

/// Returns a zeroed message envelope, for use as the output argument of a receive or probe.
pub(crate) fn no_info() -> dtl_recv_info_t {
    dtl_recv_info_t { source: 0, tag: 0, size_bytes: 0, status: 0, reserved0: 0, reserved1: 0 }
}

/// Returns the time limit, in nanoseconds, that is set when a communicator is opened.
pub(crate) fn limit_of(timeout_ns: u64, no_time_limit: bool) -> u64 {
    if no_time_limit { DTL_TIMEOUT_INFINITE } else { timeout_ns }
}

/// Returns true if a message that is longer than the receive buffer is truncated as dtl.h
/// specifies. Without a time limit, a communicator kind with the feature "comm.direct" forwards
/// messages unchanged to an underlying library such as MPI, which may behave differently.
pub(crate) fn cuts(kind: &str, no_time_limit: bool) -> bool {
    // Built-in kinds are no backends.
    let is_direct = || Backend::find(kind).and_then(|backend| backend.supports("comm.direct"));
    !no_time_limit || !is_direct().is_ok_and(|yes| yes != 0)
}

/// Selects a separate device for the calling thread's rank, because NCCL requires that each rank on
/// a node use a different device.
fn own_device(place: Option<(i32, i32)>) {
    let launched =
        || launch::from_environment().ok().flatten().map_or(0, |launch| launch.local_rank);
    let rank = place.map_or_else(launched, |(rank, _)| rank);
    // Opening the communicator reports that there is no device.
    let Ok(cuda) = Backend::find("cuda") else { return };
    let count = cuda.device_count().unwrap_or(0);
    if count > 0 {
        let _ = cuda.set_device(rank % count);
    }
}

/// Returns a job name for ranks that are threads of this process.
pub(crate) fn own_job() -> String {
    format!("dtl-ctk-{}", std::process::id())
}

/// Opens a communicator of the kind `kind`. `place` contains the rank and the size; if it is `None`,
/// the values set by the launcher are used.
pub(crate) fn open(kind: &str, place: Option<(i32, i32)>, timeout_ns: u64) -> Called<Comm> {
    let job = place.map(|_| own_job());
    open_as(job.as_deref(), kind, place, timeout_ns)
}

/// Opens a communicator under a job name; `None` selects the launcher's job.
pub(crate) fn open_as(
    job: Option<&str>,
    kind: &str,
    place: Option<(i32, i32)>,
    timeout_ns: u64,
) -> Called<Comm> {
    if kind == "nccl" {
        own_device(place);
    }
    Comm::open(&Open { kind, place, job, timeout_ns, ..Open::default() })
}

/// Converts the color of a case: a negative one makes this rank a member of no new communicator.
pub(crate) fn color_of(color: i32) -> Option<i32> {
    (color >= 0).then_some(color)
}

/// Gathers two numbers from every rank. Returns them in rank order.
pub(crate) fn gather_all(comm: &Comm, mine: [u64; 2], ranks: u64) -> Called<Vec<[u64; 2]>> {
    let mut all = vec![[0; 2]; ranks as usize];
    comm.allgather(&mine, all.as_flattened_mut())?;
    Ok(all)
}

/// Checks that a call has returned the expected status.
pub(crate) fn ended_with(expected: dtl_status_t, call: &str, ended: Called) -> Result<(), Failure> {
    match ended {
        Err(refused) if refused.status == expected => Ok(()),
        Ok(()) if expected != DTL_SUCCESS => {
            Err(Failure::wrong(format!("{call}: succeeded, expected {}", name_of(expected))))
        }
        other => Ok(other?),
    }
}

/// Waits for a request. Fails if the status is not the expected one.
pub(crate) fn wait(
    request: dtl_request_t,
    timeout_ns: u64,
    expected: dtl_status_t,
) -> Result<dtl_recv_info_t, Failure> {
    let mut info = no_info();
    let ended = call!(dtl_request_wait(request, timeout_ns, &raw mut info));
    ended_with(expected, "dtl_request_wait", ended).map(|()| info)
}

/// Completes all requests with the method that `how` selects.
pub(crate) fn finish(
    requests: &mut [dtl_request_t],
    how: u64,
    timeout_ns: u64,
) -> Result<(), Failure> {
    let (count, list, none) = (requests.len() as u64, requests.as_mut_ptr(), ptr::null_mut());
    match how {
        0 => Ok(call!(dtl_request_wait_all(list, count, timeout_ns, none))?),
        1 => {
            requests.iter().rev().try_for_each(|&one| wait(one, timeout_ns, DTL_SUCCESS).map(drop))
        }
        2 => (0..count).try_for_each(|_| {
            let mut index = 0;
            Ok(call!(dtl_request_wait_any(list, count, timeout_ns, &raw mut index, none))?)
        }),
        3 => finish_some(requests, timeout_ns),
        4 => poll("dtl_request_test_all", timeout_ns, |done| {
            call!(dtl_request_test_all(list, count, done, none))
        }),
        _ => requests.iter().try_for_each(|&one| {
            poll("dtl_request_test", timeout_ns, |done| call!(dtl_request_test(one, done, none)))
        }),
    }
}

/// Calls dtl_request_wait_some until all requests are complete.
fn finish_some(requests: &mut [dtl_request_t], timeout_ns: u64) -> Result<(), Failure> {
    let count = requests.len() as u64;
    let (mut indices, mut left) = (vec![0; requests.len()], count);
    while left > 0 {
        let mut some = 0;
        let (list, out, into) = (requests.as_mut_ptr(), &raw mut some, indices.as_mut_ptr());
        call!(dtl_request_wait_some(list, count, timeout_ns, out, into, ptr::null_mut()))?;
        if some == 0 || some > left {
            let text = format!("dtl_request_wait_some: {some} are done of {left}");
            return Err(Failure::wrong(text));
        }
        left -= some;
    }
    Ok(())
}

/// Repeats a call until its output reports that the operation is complete.
pub(crate) fn poll(
    call: &str,
    timeout_ns: u64,
    mut ask: impl FnMut(*mut i32) -> Called,
) -> Result<(), Failure> {
    let begin = Instant::now();
    loop {
        let mut done = 0;
        ask(&raw mut done)?;
        if done != 0 {
            return Ok(());
        }
        if begin.elapsed() > Duration::from_nanos(timeout_ns) {
            let text = format!("{call}: not done after {} s", timeout_ns / 1_000_000_000);
            return Err(Failure { text, out_of_step: true });
        }
        std::thread::yield_now();
    }
}
