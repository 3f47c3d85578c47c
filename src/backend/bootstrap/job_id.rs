//! Pairing of the opens of a job across ranks, and the names of its UNIX sockets: the one at which
//! rank 0 listens, and the ones that claim a rank for a process.
//!
//! The n-th open of a job on one rank is paired with the n-th open on the other ranks, whether or
//! not earlier opens succeeded. So all ranks must open in the same order, as for collective calls.
//! A counter lives as long as the process, so the open of a job name that serves only one open is
//! not counted.

use crate::abi::status::DTL_ERROR_BACKEND;
use crate::backend::os_error::os_error;
use crate::error::{Result, fail};
use crate::sys::{
    memory::buf::fnv1a,
    os::{process, unix_socket},
    sync::lock::Mutex,
};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Weak};

/// Identity of one open of a job, equal on all ranks.
pub(crate) struct JobId {
    /// Name of the socket at which rank 0 listens.
    pub(super) meeting: String,
    /// Hash of the job name, used in the names of its sockets.
    key: u64,
    /// Value that only processes of this job have.
    pub(super) cookie: u64,
}

/// Claim of this process to a rank of the job: an abstract socket name that the OS kernel assigns
/// to one socket at a time and releases when the owner ends for any reason.
pub(crate) struct Claim {
    _listener: Option<UnixListener>,
}

struct Member {
    opens: u64,
    claim: Weak<Claim>,
    /// Process that created the entry: a forked child has a copy of this table but does not own the
    /// rank.
    pid: i32,
}

/// Open counters and claims of this process, by job and rank.
static MEMBERS: Mutex<BTreeMap<(u64, i32), Member>> = Mutex::new(BTreeMap::new());

/// Counts an open of `of`. Returns its number, starting at 1, and `with`'s result for the claim.
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

/// Counts the open and claims the rank. With `is_only_open`, nothing is counted or stored. The
/// caller must keep the claim while the communicator is open.
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

/// Returns an error text that names other users with ranks under this job name; empty if there are
/// none.
pub(super) fn other_users(job_id: &JobId) -> String {
    let (own, of_job) = (process::own_uid().to_string(), format!("{:016x}-", job_id.key));
    let user_of = |name: &String| {
        let (uid, rest) = name.strip_prefix("dtl-")?.split_once('-')?;
        (rest.starts_with(&of_job) && uid != own).then(|| uid.to_owned())
    };
    let mut users: Vec<String> = unix_socket::abstract_names().iter().filter_map(user_of).collect();
    users.sort();
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

/// Returns the credentials of the process that listens at socket `name`; `None` if there is none.
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
