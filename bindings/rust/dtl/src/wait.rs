//! Waiting for the first of several requests of a scope.

use crate::error::Status;
use crate::lend::lent;
use crate::message::EMPTY;
use crate::scope::{Completed, Request};
use crate::{Error, Result, sys};
use std::fmt;

/// Operation that [`wait_any`] or [`wait_some`] has found complete.
pub struct Outcome<'scope, B: ?Sized> {
    /// Index of the request in the list that was passed.
    pub index: usize,
    /// Result of the operation, with its buffer. After a failure the buffer can be accessed when the
    /// scope has ended.
    pub result: Result<Completed<'scope, B>>,
}

impl<B: ?Sized> fmt::Debug for Outcome<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.result.as_ref().err().map(|error| error.status);
        f.debug_struct("Outcome").field("index", &self.index).field("failure", &status).finish()
    }
}

/// Returns the handles of requests; null for those that are complete.
fn handles<B: ?Sized>(requests: &[Request<'_, B>]) -> Vec<sys::dtl_request_t> {
    requests.iter().map(Request::raw).collect()
}

/// Waits until one of the requests is complete, for at most `timeout_ns` nanoseconds. Requests whose
/// completion was returned before are skipped. Returns `None` if all are complete.
///
/// Requests stay in the thread of their scope. All requests must have the same type;
/// [`Request::without_buffer`] converts them to one. Equivalent: MPI_Waitany.
///
/// ```
/// # use dtl_binding::{Comm, sys};
/// # fn main() -> dtl_binding::Result {
/// let comm = Comm::world()?;
/// let (rank, mut halos) = (comm.rank()?, [[0; 8]; 3]);
/// dtl_binding::scope(|s| {
///     let mut receives = Vec::new();
///     for (tag, halo) in halos.iter_mut().enumerate() {
///         receives.push(s.irecv(&comm, halo, rank, tag as i32)?);
///     }
///     for tag in [2, 0, 1] {
///         s.isend(&comm, &[7; 8], rank, tag)?.wait()?;
///     }
///     while let Some(first) = dtl_binding::wait_any(&mut receives, sys::DTL_TIMEOUT_INFINITE)? {
///         println!("halo {} has {:?}", first.index, first.result?.buffer);
///     }
///     Ok(())
/// })
/// # }
/// ```
///
/// The buffers of the other requests stay borrowed:
///
/// ```compile_fail,E0502
/// # use dtl_binding::{Comm, Result, sys};
/// # fn wrong(comm: &Comm) -> Result {
/// let (mut first, mut second) = ([0; 8], [0; 8]);
/// dtl_binding::scope(|s| {
///     let mut both = [s.irecv(comm, &mut first, 0, 1)?, s.irecv(comm, &mut second, 0, 2)?];
///     dtl_binding::wait_any(&mut both, sys::DTL_TIMEOUT_INFINITE)?;
///     println!("{}", second[0]);
///     Ok(())
/// })
/// # }
/// ```
///
/// A buffer that it returns cannot leave the scope:
///
/// ```compile_fail
/// # use dtl_binding::{Comm, Result, sys};
/// # fn wrong(comm: &Comm) -> Result {
/// let mut buf = [0; 8];
/// let outcome = dtl_binding::scope(|s| {
///     let mut all = [s.irecv(comm, &mut buf, 0, 1)?];
///     dtl_binding::wait_any(&mut all, sys::DTL_TIMEOUT_INFINITE)
/// })?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// See `dtl_request_wait_any`. DTL_ERROR_TIMEOUT: none is complete, and all continue. The failure of
/// an operation is in [`Outcome::result`].
pub fn wait_any<'scope, B: ?Sized>(
    requests: &mut [Request<'scope, B>],
    timeout_ns: u64,
) -> Result<Option<Outcome<'scope, B>>> {
    const CALL: &str = "dtl_request_wait_any";
    let (mut left, mut index, mut info) = (handles(requests), sys::DTL_NO_INDEX, EMPTY);
    let (at, count) = (left.as_mut_ptr(), left.len() as u64);
    let (out_index, out_info) = (&raw mut index, &raw mut info);
    // SAFETY: `count` handles, which the call replaces; the outputs are locals.
    let status = unsafe { sys::dtl_request_wait_any(at, count, timeout_ns, out_index, out_info) };
    let outcome = lent(CALL, status);
    let at = usize::try_from(index).unwrap_or(usize::MAX);
    let (Some(request), Some(handle)) = (requests.get_mut(at), left.get(at)) else {
        return outcome.map(|()| None);
    };
    let result = request.take(*handle, outcome.map(|()| info));
    Ok(Some(Outcome { index: at, result }))
}

/// Waits until at least one of the requests is complete, for at most `timeout_ns` nanoseconds.
/// Returns all that are complete, in the order of the list. Requests whose completion was returned
/// before are skipped. Returns an empty list if all are complete.
///
/// Requests stay in the thread of their scope. Equivalent: MPI_Waitsome.
///
/// ```
/// # use dtl_binding::{Comm, sys};
/// # fn main() -> dtl_binding::Result {
/// let comm = Comm::world()?;
/// let (rank, mut numbers, mut flag) = (comm.rank()?, [0.0; 4], 0_u8);
/// dtl_binding::scope(|s| {
///     let mut receives = [
///         s.irecv(&comm, &mut numbers, rank, 1)?.without_buffer(),
///         s.irecv(&comm, &mut flag, rank, 2)?.without_buffer(),
///     ];
///     s.isend(&comm, &[0.5; 4], rank, 1)?.wait()?;
///     s.isend(&comm, &9_u8, rank, 2)?.wait()?;
///     let mut complete = 0;
///     while complete < receives.len() {
///         for outcome in dtl_binding::wait_some(&mut receives, sys::DTL_TIMEOUT_INFINITE)? {
///             outcome.result?;
///             complete += 1;
///         }
///     }
///     Ok(())
/// })?;
/// assert_eq!((numbers, flag), ([0.5; 4], 9));
/// # Ok(())
/// # }
/// ```
///
/// A buffer that a request has given up can be accessed after the scope only:
///
/// ```compile_fail,E0502
/// # use dtl_binding::{Comm, Result, sys};
/// # fn wrong(comm: &Comm) -> Result {
/// let mut flag = 0_u8;
/// dtl_binding::scope(|s| {
///     let mut all = [s.irecv(comm, &mut flag, 0, 1)?.without_buffer()];
///     dtl_binding::wait_some(&mut all, sys::DTL_TIMEOUT_INFINITE)?;
///     println!("{flag}");
///     Ok(())
/// })
/// # }
/// ```
///
/// # Errors
/// See `dtl_request_wait_some`. DTL_ERROR_TIMEOUT: none is complete, and all continue. The failures
/// of operations are in [`Outcome::result`]; the library has the text of the first only.
pub fn wait_some<'scope, B: ?Sized>(
    requests: &mut [Request<'scope, B>],
    timeout_ns: u64,
) -> Result<Vec<Outcome<'scope, B>>> {
    const CALL: &str = "dtl_request_wait_some";
    let (mut left, mut complete) = (handles(requests), 0_u64);
    let (mut indices, mut infos) = (vec![0_u64; left.len()], vec![EMPTY; left.len()]);
    let (at, count) = (left.as_mut_ptr(), left.len() as u64);
    let (at_indices, at_infos) = (indices.as_mut_ptr(), infos.as_mut_ptr());
    // SAFETY: `count` handles, which the call replaces, and room for as many outputs.
    let status = unsafe {
        sys::dtl_request_wait_some(at, count, timeout_ns, &raw mut complete, at_indices, at_infos)
    };
    let mut first = lent(CALL, status).err();
    if complete == 0 {
        return first.map_or_else(|| Ok(Vec::new()), Err);
    }
    let mut all = Vec::new();
    for (index, info) in indices.into_iter().zip(infos).take(complete as usize) {
        let index = index as usize;
        let (Some(request), Some(handle)) = (requests.get_mut(index), left.get(index)) else {
            continue;
        };
        let outcome = match info.status {
            sys::DTL_SUCCESS => Ok(info),
            status => Err(first.take().unwrap_or_else(|| later(CALL, status, index))),
        };
        all.push(Outcome { index, result: request.take(*handle, outcome) });
    }
    Ok(all)
}

/// Returns the error of an operation whose text the library has not kept.
fn later(call: &'static str, status: sys::dtl_status_t, index: usize) -> Error {
    let text = format!("requests[{index}] failed, after the request whose error has the text");
    Error { call, status: Status(status), text }
}
