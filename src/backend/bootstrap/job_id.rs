//! Pairs, across the ranks of a job, the calls that open communicators ("open calls"), and names
//! the job's UNIX sockets: the socket on which rank 0 listens, and one socket per rank, which
//! ensures that only one process joins as that rank.
//!
//! The n-th open call of a job on one rank is paired with the n-th open call on the other ranks,
//! whether or not earlier open calls succeeded. So all ranks must open communicators in the same
//! order, as for collective calls. The counter of a job's open calls is never freed, so an open
//! call is not counted if it is the only one under its job name.

use crate::abi::status::DTL_ERROR_BACKEND;
use crate::backend::os_error::os_error;
use crate::error::{Result, fail};
use crate::sys::memory::buf::fnv1a;
use crate::sys::os::{process, unix_socket};
use crate::sys::sync::lock::Mutex;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Weak};

/// Identity of one call that opens a communicator of a job; equal on all ranks.
pub(crate) struct JobId {
    /// Name of the UNIX socket on which rank 0 listens.
    pub(super) meeting: String,
    /// Hash of the job name, used in the names of the job's sockets.
    key: u64,
    /// Second hash of the job name, which distinguishes jobs whose `key` is equal.
    pub(super) cookie: u64,
}

/// Exclusive ownership of a rank of the job by this process. The owner binds a Unix socket to an
/// abstract address. The kernel permits only one socket at a time to be bound to an address, and
/// releases the address when the owner ends for any reason.
pub(crate) struct Claim {
    _listener: Option<UnixListener>,
}

struct Member {
    opens: u64,
    claim: Weak<Claim>,
    /// ID of the process that created this entry of `MEMBERS`: a forked child has a copy of
    /// `MEMBERS` but does not own the rank.
    pid: i32,
}

/// For each job (identified by a hash of its name) and each rank of this process: the number of
/// calls to open a communicator, and the ownership of the rank.
static MEMBERS: Mutex<BTreeMap<(u64, i32), Member>> = Mutex::new(BTreeMap::new());

/// Counts a call that opens a communicator for the job and rank `of`. Calls `with`, which can read
/// and replace the stored weak reference to the rank's [`Claim`]. Returns the number of the counted
/// call, starting at 1, and the result of `with`.
pub(super) fn count<R>(of: (u64, i32), with: impl FnOnce(&mut Weak<Claim>) -> R) -> (u64, R) {
    let new = || Member { opens: 0, claim: Weak::new(), pid: process::own_pid() };
    let mut members = MEMBERS.lock();
    let member = members.entry(of).or_insert_with(new);
    if member.pid != process::own_pid() {
        *member = new();
    }
    member.opens += 1;
    (member.opens, with(&mut member.claim))
}

/// Counts a call that opens a communicator, and takes ownership of `rank` for this process. If
/// `is_only_open` is true, the function neither counts the call nor stores the ownership. The
/// caller must keep the returned `Claim` while the communicator is open.
pub(crate) fn take(job: &[u8], rank: i32, is_only_open: bool) -> (JobId, Result<Arc<Claim>>) {
    let (uid, key) = (process::own_uid(), hash(job, 0));
    let claim = |held: &mut Weak<Claim>| match held.upgrade() {
        Some(claim) => Ok(claim),
        None => new_claim(key, rank).inspect(|claim| *held = Arc::downgrade(claim)),
    };
    let (open, claim) =
        if is_only_open { (1, claim(&mut Weak::new())) } else { count((key, rank), claim) };
    let meeting = format!("dtl-{uid}-{key:016x}-open{open}");
    (JobId { meeting, key, cookie: hash(job, 1) }, claim)
}

/// Returns an error message that names other users whose processes use the same job name; empty if
/// there are none.
pub(super) fn other_users(job_id: &JobId) -> String {
    let (own, of_job) = (process::own_uid().to_string(), format!("{:016x}-", job_id.key));
    let user_of = |name: &String| {
        let (uid, rest) = name.strip_prefix("dtl-")?.split_once('-')?;
        (rest.starts_with(&of_job) && uid != own).then(|| uid.to_owned())
    };
    let mut users: Vec<String> = unix_socket::abstract_names().iter().filter_map(user_of).collect();
    users.sort_unstable();
    users.dedup();
    if users.is_empty() {
        return String::new();
    }
    let users = users.join(", ");
    format!("; user {users} has ranks under this job name, but all must be one user's")
}

fn new_claim(key: u64, rank: i32) -> Result<Arc<Claim>> {
    let name = format!("dtl-{}-{key:016x}-rank{rank}", process::own_uid());
    match unix_socket::listen(&name) {
        Ok(listener) => Ok(Arc::new(Claim { _listener: Some(listener) })),
        Err(error) if error.kind() == ErrorKind::AddrInUse => match holder(&name) {
            // An earlier claim of this process, which a forked child still has open.
            Some(peer) if peer.pid == process::own_pid() => Ok(Arc::new(Claim { _listener: None })),
            Some(peer) => fail!(
                DTL_ERROR_ALREADY_EXISTS,
                "process {} (user {}) is rank {rank} of this job already; a program started by a \
                 rank inherits its environment: unset DTL_RANK (or the launcher's variables) for \
                 it, or name another job",
                peer.pid,
                peer.uid
            ),
            None => fail!(
                DTL_ERROR_ALREADY_EXISTS,
                "another process is rank {rank} of this job already"
            ),
        },
        Err(error) => Err(os_error(DTL_ERROR_BACKEND, &format!("socket \"@{name}\""), &error)),
    }
}

/// Returns the credentials of the process that listens on the UNIX socket `name`; `None` if no
/// process listens.
pub(super) fn holder(name: &str) -> Option<process::PeerCredentials> {
    let stream = unix_socket::connect(name).ok()?;
    process::peer_of(stream.as_raw_fd()).ok()
}

/// Hashes a job name. Security does not depend on the hash: the user ID reported by the OS kernel
/// decides who may connect, and the cookie distinguishes jobs with equal hashes.
fn hash(bytes: &[u8], seed: u8) -> u64 {
    fnv1a([seed].iter().chain(bytes))
}

#[cfg(test)]
#[path = "tests/job_id.rs"]
mod tests;
