//! Host memory of kind DTL_MEMORY_SHARED. Each block is an in-memory file that other processes of
//! the node can map too.
//!
//! The process that allocated a block keeps the file descriptor. The exported handle of a block
//! contains the ID of that process and the number of the descriptor; another process opens the file
//! through /proc, if the operating system permits. Every field of a handle may be stale or forged,
//! so the file is examined before it is opened. The file is mapped only if the file name contains
//! the random number that the handle contains. docs/adr/0014 gives the reasons.

use crate::abi::status::*;
use crate::abi::word::DTL_MEMORY_SHARED;
use crate::backend::os_error::{memory_error, os_error};
use crate::error::{Error, Result, fail, failure};
use crate::runtime::component::{Exports, Extent, Ticket};
use crate::runtime::enums::describe;
use crate::sys::memory::buf::Addr;
use crate::sys::memory::host_pages::page_size;
use crate::sys::os::foreign_process::PathFd;
use crate::sys::os::process;
use crate::sys::os::shm_segment::SharedMapping;
use crate::sys::sync::lock::Mutex;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// Blocks that this process has allocated or imported, keyed by the address of the first byte.
#[derive(Default)]
pub(super) struct HostBlocks(Mutex<BTreeMap<usize, HostBlock>>);

struct HostBlock {
    memory: Arc<SharedMapping>,
    nonce: u64,
}

/// Content of an exported handle: the data that other processes use to find a block.
#[derive(Clone, Copy)]
struct Location {
    pid: i32,
    descriptor: i32,
    /// Start time of the process, which distinguishes it from a later process with the same ID.
    started: u64,
    /// PID namespace in which the process ID is valid.
    namespace: u64,
    nonce: u64,
    uid: u32,
}

impl HostBlocks {
    pub(super) fn alloc(&self, size: u64, align: u64) -> Result<Addr> {
        let failed = |error| memory_error(&format!("{size} bytes of shared host memory"), &error);
        let nonce = process::random_u64().map_err(failed)?;
        let (Some(len), Ok(align)) = (whole_pages(size), usize::try_from(align)) else {
            return Err(failed(io::Error::from_raw_os_error(libc::ENOMEM)));
        };
        let memory = SharedMapping::block(&file_name(nonce), len, align).map_err(failed)?;
        Ok(self.keep(memory, nonce))
    }

    pub(super) fn free(&self, addr: Addr) -> Result<()> {
        let block = self.0.lock().remove(&addr.get());
        block.map(|_| ()).ok_or_else(|| {
            failure!(DTL_ERROR_INVALID_ARGUMENT, "{addr:?} is no block of shared host memory")
        })
    }

    fn keep(&self, memory: Arc<SharedMapping>, nonce: u64) -> Addr {
        let base = memory.base();
        self.0.lock().insert(base.get(), HostBlock { memory, nonce });
        base
    }
}

impl Exports for HostBlocks {
    fn export(&self, addr: Addr, extent: Extent) -> Result<Ticket> {
        if extent.kind != DTL_MEMORY_SHARED {
            return fail!(
                DTL_ERROR_NOT_SUPPORTED,
                "{addr:?} is memory of this process alone: allocate it with kind DTL_MEMORY_SHARED"
            );
        }
        let blocks = self.0.lock();
        let own = blocks
            .get(&addr.get())
            .and_then(|block| Some((block.memory.descriptor()?, block.nonce)));
        let (descriptor, nonce) = own.ok_or_else(|| {
            failure!(DTL_ERROR_INVALID_ARGUMENT, "{addr:?} is no live block of this process' own")
        })?;
        let pid = process::own_pid();
        let owner =
            process::start_time(pid).and_then(|started| Ok((started, process::pid_namespace()?)));
        let (started, namespace) = owner.map_err(|error| nameless(&error))?;
        let descriptor = descriptor.as_raw_fd();
        let uid = process::own_uid();
        let location = Location { pid, descriptor, started, namespace, nonce, uid };
        location.check_own()?;
        Ok(location.ticket())
    }

    fn import(&self, ticket: &Ticket, extent: Extent) -> Result<Addr> {
        if extent.kind != DTL_MEMORY_SHARED {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "handle has memory kind {}, which backend host exports none of",
                describe(extent.kind)
            );
        }
        let location = Location::of(ticket)?;
        let (Some(len), Ok(align)) = (whole_pages(extent.size), usize::try_from(extent.align))
        else {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "handle has {} bytes, which no block has",
                extent.size
            );
        };
        location.check_process()?;
        let seen = location.look()?;
        let file = seen.open().map_err(|error| location.refused("opening its memory", &error))?;
        let memory =
            SharedMapping::block_of(file, len, align).map_err(|error| match error.kind() {
                io::ErrorKind::InvalidData => failure!(
                    DTL_ERROR_INVALID_ARGUMENT,
                    "handle does not fit the memory of {location}: {error}"
                ),
                _ => memory_error(&format!("mapping {len} bytes of {location}"), &error),
            })?;
        Ok(self.keep(memory, location.nonce))
    }

    fn close(&self, addr: Addr, _extent: Extent) -> Result<()> {
        self.free(addr)
    }
}

impl Location {
    fn ticket(self) -> Ticket {
        let Location { pid, descriptor, started, namespace, nonce, uid } = self;
        // The conversions preserve the values, because neither number is negative.
        [
            u64::from(pid as u32) | u64::from(descriptor as u32) << 32,
            started,
            namespace,
            nonce,
            u64::from(uid),
            0,
            0,
            0,
        ]
    }

    fn of(&[both, started, namespace, nonce, uid, rest @ ..]: &Ticket) -> Result<Self> {
        let half =
            |word: u64| i32::try_from(word & u64::from(u32::MAX)).ok().filter(|number| *number > 0);
        let (Some(pid), Some(descriptor), Ok(uid), [0, 0, 0]) =
            (half(both), half(both >> 32), u32::try_from(uid), rest)
        else {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "handle names no process: dtl_mem_export did not write it"
            );
        };
        Ok(Location { pid, descriptor, started, namespace, nonce, uid })
    }

    /// Returns an error unless other processes find this process in /proc under its process ID, and
    /// the descriptor still refers to the block.
    fn check_own(&self) -> Result<()> {
        let seen = process::pid_in_proc().map_err(|error| nameless(&error))?;
        if seen != self.pid {
            return fail!(
                DTL_ERROR_UNAVAILABLE,
                "/proc is of another PID namespace ({self} is {seen} there), so nobody could \
                 import: mount this one's /proc"
            );
        }
        match self.look() {
            Err(error) if error.status() == DTL_ERROR_INVALID_HANDLE => fail!(
                DTL_ERROR_INVALID_STATE,
                "descriptor {} of this process is not the memory's any more: the program has \
                 closed what it did not open",
                self.descriptor
            ),
            seen => seen.map(drop),
        }
    }

    /// Returns an error if the process that exported the block is in another PID namespace, or if
    /// the process ID no longer belongs to that process.
    fn check_process(&self) -> Result<()> {
        let own = process::pid_namespace()
            .map_err(|error| self.refused("reading /proc/self/ns/pid", &error))?;
        if own != self.namespace {
            return fail!(
                DTL_ERROR_NOT_SUPPORTED,
                "handle comes from another container (PID namespace), whose processes cannot be \
                 reached from here: start all ranks of the node in one"
            );
        }
        let why = match process::start_time(self.pid) {
            Ok(started) if started == self.started => return Ok(()),
            Ok(_) => " (its id is another's now)",
            Err(error) if !is_missing(&error) => {
                return Err(self.refused("looking at it in /proc", &error));
            }
            Err(_) if self.uid == process::own_uid() => "",
            Err(_) => ", or /proc hides other users' processes (hidepid)",
        };
        fail!(
            DTL_ERROR_INVALID_HANDLE,
            "handle is stale: {self} has ended{why}, and whoever had not imported the memory \
             cannot any more"
        )
    }

    /// Looks up the file to which the handle refers, without opening it. Returns an error if it is
    /// not the exported file.
    fn look(&self) -> Result<PathFd> {
        let gone = || {
            failure!(
                DTL_ERROR_INVALID_HANDLE,
                "handle is stale: {self} has freed the memory or has ended; export, let all \
                 import, then free"
            )
        };
        let seen = match PathFd::of(self.pid, self.descriptor) {
            Ok(seen) => seen,
            Err(error) if is_missing(&error) => return Err(gone()),
            Err(error) => return Err(self.refused("looking at its memory", &error)),
        };
        let name = seen.name().map_err(|error| self.refused("looking at its memory", &error))?;
        let wanted = format!("/memfd:{} (deleted)", file_name(self.nonce).to_string_lossy());
        // Another name means that the descriptor number now belongs to another file.
        if name.as_os_str() == wanted.as_str() { Ok(seen) } else { Err(gone()) }
    }

    fn refused(&self, what: &str, error: &io::Error) -> Error {
        let is_refusal = error.kind() == io::ErrorKind::PermissionDenied;
        if is_refusal && self.uid != process::own_uid() {
            let text = format!(
                "handle is of {self} of user {}: {what}: {error}; memory is shared between \
                 processes of one user",
                self.uid
            );
            return Error::new(DTL_ERROR_MEMORY, text);
        }
        if is_refusal {
            let text = format!(
                "handle is of {self}: {what}: {error}; run both with the same privileges \
                 (capabilities, setuid, prctl(PR_SET_DUMPABLE), security modules)"
            );
            return Error::new(DTL_ERROR_MEMORY, text);
        }
        let error = memory_error(&format!("handle is of {self}: {what}"), error);
        match error.status() {
            DTL_ERROR_LIMIT | DTL_ERROR_OUT_OF_MEMORY => error,
            _ => Error::new(DTL_ERROR_MEMORY, error.text()),
        }
    }
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {}", self.pid)
    }
}

fn nameless(error: &io::Error) -> Error {
    os_error(DTL_ERROR_MEMORY, "what names this process cannot be read (/proc)", error)
}

/// Returns true if `error` means that the process or the descriptor does not exist. The error is
/// ESRCH if the process ends after its file in /proc is opened and before the file is read.
fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

fn file_name(nonce: u64) -> CString {
    CString::new(format!("dtl-{nonce:016x}")).unwrap_or_default()
}

fn whole_pages(size: u64) -> Option<usize> {
    usize::try_from(size).ok()?.checked_next_multiple_of(page_size())
}
