//! Communicators: everything a C program asks of one, made from a transport's five functions.
//!
//! `open` finds or makes one, `p2p` sends and receives, `request` keeps what is in flight,
//! `schedule` runs collectives, `collective` checks them and picks from `algorithms`; `progress`
//! moves all communicators while a call waits on one. `types` knows dtypes and operations.

mod algorithms;
pub mod collective;
mod numbered;
pub mod open;
pub mod p2p;
mod progress;
pub mod request;
mod schedule;
pub mod types;

use super::backend::{OpId, Selector, Transport};
use super::registry::Backend;
use crate::abi::comm::*;
use crate::abi::handle::dtl_comm_t;
use crate::error::{Result, fail};
use crate::sys::clock::Deadline;
use crate::sys::epoch::{self, Guard};
use crate::sys::lock::Mutex;
use crate::sys::slab::{Held, Table};
use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Type byte of communicator handles; DTL_COMM_WORLD and DTL_COMM_SELF are its indices 0 and 1.
pub const TAG: u8 = 6;
const WORLD: u64 = (TAG as u64) << 56;
const SELF: u64 = WORLD | 1 << 36;

static TABLE: Table<Comm> = Table::new(TAG, 2);

/// Whose message it is: classes never match across, so a user's DTL_ANY_TAG cannot take a
/// collective's message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    User = 0,
    Collective = 1,
}

/// A communicator.
pub struct Comm {
    transport: Box<dyn Transport>,
    /// A transport that matches in few bits has no room for classes: collectives get a dup.
    collective_transport: Option<Box<dyn Transport>>,
    /// The backend behind it; its share keeps the backend registered.
    _backend: Arc<Backend>,
    kind: &'static CStr,
    rank: i32,
    size: i32,
    timeout_ns: u64,
    /// Set by destroy: waiting calls return CANCELED.
    closed: AtomicBool,
    /// Why collectives are refused, once one has failed.
    broken: Mutex<Option<String>>,
    is_broken: AtomicBool,
    /// Collectives so far: their messages' tag.
    sequence: AtomicU32,
    /// One collective at a time; keeps its step list's memory from one to the next.
    collective: Mutex<schedule::Schedule>,
}

impl Comm {
    /// This process' rank.
    #[must_use]
    pub fn rank(&self) -> i32 {
        self.rank
    }

    /// Number of ranks.
    #[must_use]
    pub fn size(&self) -> i32 {
        self.size
    }

    /// The time limit of a blocking call, from now.
    fn deadline(&self) -> Deadline {
        Deadline::after(self.timeout_ns)
    }

    fn transport(&self, class: Class) -> &dyn Transport {
        match &self.collective_transport {
            Some(transport) if class == Class::Collective => transport.as_ref(),
            _ => self.transport.as_ref(),
        }
    }

    /// The match word of a tag. A transport that matches in few bits has the class in its dup.
    fn word(&self, class: Class, tag: i32) -> u64 {
        let tag = tag as u32 as u64; // checked to be 0 … DTL_TAG_MAX before it gets here
        if self.collective_transport.is_some() { tag } else { (class as u64) << 32 | tag }
    }

    fn selector(&self, class: Class, source: i32, tag: i32) -> Selector {
        if tag == DTL_ANY_TAG {
            let ignore = if self.collective_transport.is_some() { DTL_TAG_MAX as u64 } else { 0xFFFF_FFFF };
            return Selector { source, word: self.word(class, 0), ignore };
        }
        Selector { source, word: self.word(class, tag), ignore: 0 }
    }

    fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Relaxed) {
            return fail!(DTL_ERROR_CANCELED, "the communicator was destroyed by another thread");
        }
        Ok(())
    }

    /// Ranks that died or left, as text for errors; empty if none is known.
    fn failed_text(&self) -> String {
        let failed = self.transport(Class::User).failed_ranks();
        let names: Vec<_> = failed.iter().map(ToString::to_string).collect();
        names.join(", ")
    }

    fn check_peer(&self, name: &str, rank: i32, any: bool) -> Result<()> {
        if (0..self.size).contains(&rank) || rank == DTL_PROC_NULL || (any && rank == DTL_ANY_SOURCE) {
            return Ok(());
        }
        fail!(DTL_ERROR_INVALID_RANK, "{name} {rank}: the communicator has ranks 0 to {}", self.size - 1)
    }

    /// Closes the transports. Called when nobody can use the communicator any more.
    fn close(&self) {
        for transport in self.collective_transport.iter().chain([&self.transport]) {
            if let Err(error) = transport.close() {
                super::log::warning!(
                    "closing a communicator of kind {}: {error}",
                    self.kind.to_string_lossy()
                );
            }
        }
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        self.close();
    }
}

/// A share of a handle's communicator; the predefined ones are opened at their first use.
pub fn pin(inside: &Guard, handle: dtl_comm_t) -> Result<Arc<Comm>> {
    if let Some(comm) = TABLE.pin(inside, handle.id) {
        return Ok(comm);
    }
    match handle.id {
        WORLD => open::predefined(inside, 0, handle),
        SELF => open::predefined(inside, 1, handle),
        id => Err(super::invalid_handle("communicator", TAG, id)),
    }
}

/// A handle's communicator for a call that will wait; a predefined one is opened at its first use.
pub fn hold(inside: Guard, handle: dtl_comm_t) -> Result<Held<Comm>> {
    let inside = match TABLE.hold(inside, handle.id) {
        Ok(held) => return Ok(held),
        Err(inside) => inside,
    };
    drop(pin(&inside, handle)?);
    TABLE.hold(inside, handle.id).map_err(|_| super::invalid_handle("communicator", TAG, handle.id))
}

/// Puts a communicator under a fresh handle.
pub fn insert(comm: Comm) -> Result<dtl_comm_t> {
    let comm = Arc::new(comm);
    progress::add(&comm);
    match TABLE.insert(comm) {
        Some(id) => Ok(dtl_comm_t { id }),
        None => fail!(DTL_ERROR_LIMIT, "no handle left for another communicator"),
    }
}

/// Destroys a communicator: waiting calls return CANCELED, operations in flight are withdrawn, the
/// transport closes with the last user. Null and the predefined ones: nothing.
pub fn destroy(inside: &Guard, handle: dtl_comm_t) -> Result<()> {
    if [0, WORLD, SELF].contains(&handle.id) {
        return Ok(());
    }
    let Some(comm) = TABLE.pin(inside, handle.id) else {
        return Err(super::invalid_handle("communicator", TAG, handle.id));
    };
    request::check_withdrawable(&comm)?;
    // First, so that who waits on one of its requests hears CANCELED.
    comm.closed.store(true, Ordering::Release);
    request::withdraw_all(&comm)?;
    match TABLE.remove(inside, handle.id) {
        Some(_) => Ok(()),
        None => Err(super::invalid_handle("communicator", TAG, handle.id)),
    }
}

/// At finalize: every communicator closes.
pub fn destroy_all() {
    let inside = epoch::enter();
    for id in TABLE.handles() {
        if let Some(comm) = TABLE.pin(&inside, id) {
            comm.closed.store(true, Ordering::Release);
        }
        drop(TABLE.remove(&inside, id));
    }
}

/// In a forked child: the handles go; shared memory and sockets stay the parent's.
pub fn forget_all() {
    let inside = epoch::enter();
    for id in TABLE.handles() {
        std::mem::forget(TABLE.remove(&inside, id));
    }
}

/// Describes a communicator.
pub fn info(comm: &Comm, out: &mut dtl_comm_info_t) -> Result<()> {
    let transport = comm.transport(Class::User);
    (out.rank, out.size, out.timeout_ns) = (comm.rank, comm.size, comm.timeout_ns);
    out.failed_count = i32::try_from(transport.failed_ranks().len()).unwrap_or(i32::MAX);
    out.kind = comm.kind.as_ptr();
    super::copy_text(&mut out.transport, &transport.describe());
    Ok(())
}

/// Withdraws an operation and waits until the transport lets go of its buffer. `Ok` = it had
/// completed before it could be withdrawn.
fn withdraw(transport: &dyn Transport, op: OpId) -> Result<Option<super::backend::Done>> {
    use crate::abi::status::DTL_ERROR_CANCELED;
    transport.cancel(op)?;
    let mut backoff = crate::sys::park::Backoff::new();
    loop {
        match transport.test(op)? {
            Some(done) if done.status == DTL_ERROR_CANCELED => return Ok(None),
            Some(done) => return Ok(Some(done)),
            None => backoff.pause(),
        }
    }
}
