//! Puts and gets on windows in memory that the application allocated: the OS kernel copies between
//! the processes.
//!
//! A rank's memory is opened once (/proc/PID/mem) and verified by means of a memory word with a
//! random value, whose address and value the rank published when the communicator was opened. From
//! then on the file descriptor refers only to the memory of the program that the rank was executing
//! when the file was opened. So a write never reaches a process that reuses the process ID, or a
//! program that the same process executes later (exec). A check before process_vm_writev could not
//! guarantee that: the target may end between the check and the call.
//!
//! process_vm_readv copies large blocks two to four times as fast as /proc/PID/mem. Only reads use
//! it, because a read can be verified: the same call also reads the word at the published address,
//! and a single call reads the memory of only one program.

use super::segment::Segment;
use crate::abi::status::{DTL_ERROR_NOT_SUPPORTED, DTL_ERROR_RANK_FAILURE};
use crate::backend::shm::peer::Mode;
use crate::error::{Error, Result, fail};
use crate::runtime::component::{CopyOutcome, Remote};
use crate::sys::memory::buf::{Region, Scratch};
use crate::sys::os::foreign_process::{self, ForeignMemory};
use crate::sys::sync::lock::Mutex;
use std::io;
use std::sync::{Arc, Weak};

/// Minimum size of a read for which process_vm_readv is used, in bytes.
const LONG_READ: usize = 4096;
/// Maximum size of a write, in bytes. Larger writes are faster as messages, because the target then
/// does part of the copying.
const LONGEST_WRITE: usize = 1 << 20;

/// Other ranks' memory that this process has opened for copies.
pub(crate) struct Copies {
    mode: Mode,
    open: Mutex<Vec<(usize, Weak<CmaMemory>)>>,
}

struct CmaMemory {
    memory: ForeignMemory,
    /// Address and expected value of the memory word that the rank published to identify its
    /// memory.
    probe: (u64, u64),
}

impl Copies {
    pub(crate) fn new(mode: Mode) -> Self {
        Copies { mode, open: Mutex::new(Vec::new()) }
    }

    /// Opens the memory of `rank`. Fails with RANK_FAILURE if the process with the id `pid` is no
    /// longer the process of that rank, and with NOT_SUPPORTED if cross-process copies are disabled
    /// or not permitted.
    pub(crate) fn find(&self, segment: &Segment, rank: usize, pid: i32) -> Result<Arc<dyn Remote>> {
        let probe = segment.probe(rank);
        match probe.0 {
            _ if self.mode == Mode::Cells => {
                return fail!(DTL_ERROR_NOT_SUPPORTED, "DTL_SHM_COPY=cells");
            }
            0 => return fail!(DTL_ERROR_NOT_SUPPORTED, "DTL_SHM_COPY=cells on rank {rank}"),
            _ => {}
        }
        let mut open = self.open.lock();
        open.retain(|(_, memory)| memory.strong_count() > 0);
        if let Some(memory) =
            open.iter().find(|(of, _)| *of == rank).and_then(|(_, memory)| memory.upgrade())
        {
            return Ok(memory);
        }
        let failed = |error| why_not(rank, pid, &error);
        let memory =
            Arc::new(CmaMemory { memory: ForeignMemory::open(pid).map_err(failed)?, probe });
        memory.check().map_err(failed)?;
        open.push((rank, Arc::downgrade(&memory)));
        Ok(memory)
    }
}

fn why_not(rank: usize, pid: i32, error: &io::Error) -> Error {
    let is_gone =
        matches!(error.raw_os_error(), None | Some(libc::ENOENT | libc::ESRCH | libc::EIO));
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; it needs the same permission as ptrace: the same user, and DTL_SHM_COPY=allow if \
             kernel.yama.ptrace_scope is 1"
        }
        _ => "",
    };
    let text = format!("memory of rank {rank}, /proc/{pid}/mem: {error}{hint}");
    Error::new(if is_gone { DTL_ERROR_RANK_FAILURE } else { DTL_ERROR_NOT_SUPPORTED }, text)
}

impl CmaMemory {
    /// Checks that the memory belongs to the rank and can be read and written. An error without
    /// errno, or EIO, means that the memory belongs to another program.
    fn check(&self) -> io::Result<()> {
        let (address, value) = self.probe;
        let Some(word) = Scratch::new(size_of::<u64>()) else {
            return Err(io::ErrorKind::OutOfMemory.into());
        };
        self.memory.read(address, word.region())?;
        if word.region().first_words() != [value] {
            return Err(io::Error::other("it is the memory of another program"));
        }
        // Writes the value that the word already has, which changes nothing.
        self.memory.write(address, word.region()).map(drop)
    }

    /// Reads the rank's memory at `address` into `into` with process_vm_readv. Returns false if the
    /// call failed or read the memory of a process other than the rank's process.
    fn read_at_once(&self, address: u64, into: Region) -> bool {
        let (probe, value) = self.probe;
        let mut found = [0_u64];
        // SAFETY: the array is valid for writes for the duration of the call.
        let word = unsafe { Region::new(found.as_mut_ptr().cast(), size_of_val(&found)) };
        let read =
            foreign_process::read_memory(self.memory.pid(), [(address, into), (probe, word)]);
        read.is_ok_and(|count| count == into.len() + word.len()) && found == [value]
    }
}

impl Remote for CmaMemory {
    fn read(&self, address: u64, into: Region) -> CopyOutcome {
        if into.len() >= LONG_READ && self.read_at_once(address, into) {
            return CopyOutcome::All;
        }
        ended(self.memory.read(address, into), into.len())
    }

    fn write(&self, address: u64, from: Region) -> CopyOutcome {
        if from.len() > LONGEST_WRITE {
            return CopyOutcome::Refused;
        }
        ended(self.memory.write(address, from), from.len())
    }
}

fn ended(copied: io::Result<usize>, len: usize) -> CopyOutcome {
    match copied {
        Ok(count) if count == len => CopyOutcome::All,
        Ok(_) => CopyOutcome::Gone,
        Err(_) => CopyOutcome::Refused,
    }
}

#[cfg(test)]
#[path = "tests/cma_copies.rs"]
mod tests;
