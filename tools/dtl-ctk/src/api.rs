//! The library as this program calls it: statuses become failures, handles end when dropped.

use crate::kit::calls::Backend;
use dtl::tooling::launch;
use dtl_sys::*;
use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::time::{Duration, Instant};

/// Why a case failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) text: String,
    /// A call failed: the other ranks may wait for this one for ever.
    pub(crate) out_of_step: bool,
}

impl Failure {
    /// A call succeeded, but its outcome is wrong.
    pub(crate) fn wrong(text: String) -> Failure {
        Failure { text, out_of_step: false }
    }

    pub(crate) fn within(self, what: &str) -> Failure {
        Failure { text: format!("{what}: {}", self.text), ..self }
    }
}

/// A status as a result: the failure has the call, the library's text and the status' name.
pub(crate) fn check(call: &str, status: dtl_status_t) -> Result<(), Failure> {
    if status == DTL_SUCCESS {
        return Ok(());
    }
    let text = format!("{call}: {} ({})", text_of(dtl_last_error()), name_of(status));
    Err(Failure { text, out_of_step: true })
}

/// The name of a status.
pub(crate) fn name_of(status: dtl_status_t) -> String {
    text_of(dtl_status_name(status))
}

fn text_of(text: *const c_char) -> String {
    // SAFETY: the library's texts end with NUL and live at least until the next call.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// An info to be written.
pub(crate) fn no_info() -> dtl_recv_info_t {
    dtl_recv_info_t { source: 0, tag: 0, size_bytes: 0, status: 0, reserved0: 0, reserved1: 0 }
}

/// The time limit to open communicators with.
pub(crate) fn limit_of(timeout_ns: u64, no_time_limit: bool) -> u64 {
    if no_time_limit { DTL_TIMEOUT_INFINITE } else { timeout_ns }
}

/// Whether a message longer than its buffer is cut as the header says. A kind with the feature
/// "comm.direct" hands messages to another library as they are if there is no time limit, and that
/// one may do otherwise.
pub(crate) fn cuts(kind: &str, no_time_limit: bool) -> bool {
    let (mut backend, mut is_direct) = (DTL_BACKEND_NULL, 0);
    let Ok(name) = CString::new(kind) else { return true };
    // SAFETY: the name ends with NUL; `backend` is a local. Built-in kinds are no backends.
    let found =
        no_time_limit && unsafe { dtl_backend_get(name.as_ptr(), &raw mut backend) } == DTL_SUCCESS;
    // SAFETY: the name ends with NUL; `is_direct` is a local.
    let told = found
        && unsafe { dtl_backend_supports(backend, c"comm.direct".as_ptr(), &raw mut is_direct) }
            == DTL_SUCCESS;
    !told || is_direct == 0
}

/// Sets the calling thread's device: NCCL needs a device for each rank of a node.
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

/// The job of ranks that are threads of this process.
pub(crate) fn own_job() -> CString {
    CString::new(format!("dtl-ctk-{}", std::process::id())).unwrap_or_default()
}

/// A communicator of this program's own; it ends with its owner.
pub(crate) struct Comm {
    pub(crate) handle: dtl_comm_t,
}

impl Comm {
    /// Opens one of a kind. `place` is rank and size, if they are not the launcher's matter.
    pub(crate) fn open(
        kind: &str,
        place: Option<(i32, i32)>,
        timeout_ns: u64,
    ) -> Result<Comm, Failure> {
        let job = place.map(|_| own_job());
        Comm::open_as(job.as_deref(), kind, place, timeout_ns)
    }

    /// The same under a job's name; `None`: the launcher's.
    pub(crate) fn open_as(
        job: Option<&CStr>,
        kind: &str,
        place: Option<(i32, i32)>,
        timeout_ns: u64,
    ) -> Result<Comm, Failure> {
        let (rank, size) = place.unwrap_or((0, 0));
        if kind == "nccl" {
            own_device(place);
        }
        let kind = CString::new(kind).map_err(|error| Failure::wrong(error.to_string()))?;
        let desc = dtl_comm_desc_t {
            struct_size: size_of::<dtl_comm_desc_t>() as u32,
            flags: 0,
            kind: kind.as_ptr(),
            rank,
            size,
            job: job.map_or(ptr::null(), CStr::as_ptr),
            timeout_ns,
            native: ptr::null_mut(),
            over: DTL_COMM_NULL,
        };
        let mut handle = DTL_COMM_NULL;
        // SAFETY: the description and what it points to live through the call.
        check("dtl_comm_open", unsafe { dtl_comm_open(&raw const desc, &raw mut handle) })?;
        Ok(Comm { handle })
    }

    /// All ranks of kind "threads".
    pub(crate) fn threads(ranks: u64, timeout_ns: u64) -> Result<Vec<Comm>, Failure> {
        let mut handles = vec![DTL_COMM_NULL; ranks as usize];
        // SAFETY: there is room for `ranks` handles.
        let status = unsafe { dtl_comm_threads(ranks as i32, timeout_ns, handles.as_mut_ptr()) };
        check("dtl_comm_threads", status)?;
        Ok(handles.into_iter().map(|handle| Comm { handle }).collect())
    }

    pub(crate) fn dup(&self) -> Result<Comm, Failure> {
        let mut handle = DTL_COMM_NULL;
        // SAFETY: `handle` is a local.
        check("dtl_comm_dup", unsafe { dtl_comm_dup(self.handle, &raw mut handle) })?;
        Ok(Comm { handle })
    }

    /// `None`: this rank is in none.
    pub(crate) fn split(&self, color: i32, key: i32) -> Result<Option<Comm>, Failure> {
        let mut handle = DTL_COMM_NULL;
        let color = if color < 0 { DTL_UNDEFINED } else { color };
        // SAFETY: `handle` is a local.
        check("dtl_comm_split", unsafe {
            dtl_comm_split(self.handle, color, key, &raw mut handle)
        })?;
        Ok((handle != DTL_COMM_NULL).then_some(Comm { handle }))
    }

    /// Everybody's numbers, in the order of ranks.
    pub(crate) fn gather_all(&self, mine: [u64; 2], ranks: u64) -> Result<Vec<[u64; 2]>, Failure> {
        let mut all = vec![[0; 2]; ranks as usize];
        let (from, into) = (mine.as_ptr().cast(), all.as_mut_ptr().cast());
        // SAFETY: `mine` has 2 numbers, `all` 2 for each rank.
        let status =
            unsafe { dtl_comm_allgather(self.handle, from, 2, into, dtl_sys::DTL_DTYPE_UINT64) };
        check("dtl_comm_allgather", status)?;
        Ok(all)
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        let _ = dtl_comm_destroy(self.handle);
    }
}

/// Waits for a request; the outcome is a failure only if it is not the expected one.
pub(crate) fn wait(
    request: dtl_request_t,
    timeout_ns: u64,
    expected: dtl_status_t,
) -> Result<dtl_recv_info_t, Failure> {
    let mut info = no_info();
    // SAFETY: `info` is a local.
    let status = unsafe { dtl_request_wait(request, timeout_ns, &raw mut info) };
    if status == expected {
        return Ok(info);
    }
    check("dtl_request_wait", status)?;
    Err(Failure::wrong(format!("dtl_request_wait: succeeded, expected {}", name_of(expected))))
}

/// Waits for all requests, in one of six ways.
pub(crate) fn finish(
    requests: &mut [dtl_request_t],
    how: u64,
    timeout_ns: u64,
) -> Result<(), Failure> {
    let count = requests.len() as u64;
    match how {
        0 => {
            // SAFETY: `count` requests.
            let status = unsafe {
                dtl_request_wait_all(count, requests.as_mut_ptr(), timeout_ns, ptr::null_mut())
            };
            check("dtl_request_wait_all", status)
        }
        1 => requests
            .iter()
            .rev()
            .try_for_each(|&one| wait(one, timeout_ns, DTL_SUCCESS).map(|_| ())),
        2 => {
            for _ in 0..count {
                let mut index = 0;
                let (list, out) = (requests.as_mut_ptr(), &raw mut index);
                // SAFETY: `count` requests; `index` is a local.
                let status =
                    unsafe { dtl_request_wait_any(count, list, timeout_ns, out, ptr::null_mut()) };
                check("dtl_request_wait_any", status)?;
            }
            Ok(())
        }
        3 => finish_some(requests, timeout_ns),
        4 => poll("dtl_request_test_all", timeout_ns, |done| {
            // SAFETY: `count` requests; `done` is the caller's local.
            unsafe { dtl_request_test_all(count, requests.as_mut_ptr(), done, ptr::null_mut()) }
        }),
        _ => requests.iter().try_for_each(|&one| {
            poll("dtl_request_test", timeout_ns, |done| {
                // SAFETY: `done` is the caller's local.
                unsafe { dtl_request_test(one, done, ptr::null_mut()) }
            })
        }),
    }
}

/// Waits for some until there is none.
fn finish_some(requests: &mut [dtl_request_t], timeout_ns: u64) -> Result<(), Failure> {
    let count = requests.len() as u64;
    let (mut indices, mut left) = (vec![0; requests.len()], count);
    while left > 0 {
        let mut some = 0;
        let (list, out, into) = (requests.as_mut_ptr(), &raw mut some, indices.as_mut_ptr());
        // SAFETY: `count` requests and as many indices; `some` is a local.
        let status =
            unsafe { dtl_request_wait_some(count, list, timeout_ns, out, into, ptr::null_mut()) };
        check("dtl_request_wait_some", status)?;
        if some == 0 || some > left {
            return Err(Failure::wrong(format!(
                "dtl_request_wait_some: {some} are done of {left}"
            )));
        }
        left -= some;
    }
    Ok(())
}

/// Asks until it is done.
pub(crate) fn poll(
    call: &str,
    timeout_ns: u64,
    mut ask: impl FnMut(*mut i32) -> dtl_status_t,
) -> Result<(), Failure> {
    let begin = Instant::now();
    loop {
        let mut done = 0;
        check(call, ask(&raw mut done))?;
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
