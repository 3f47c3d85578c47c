//! Memory and files of other processes of this machine, and the permission to read them.

use super::process::keep_fd;
use crate::sys::memory::buf::Region;
use rustix::process::PTracer;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// Copies from addresses of another process into regions, and returns the number of bytes copied.
/// One call reads the memory of one program, whatever the process does meanwhile.
pub fn read_memory<const N: usize>(pid: i32, parts: [(u64, Region); N]) -> io::Result<usize> {
    let remote = |address: u64, len| libc::iovec {
        iov_base: std::ptr::without_provenance_mut(usize::try_from(address).unwrap_or(0)),
        iov_len: len,
    };
    let locals =
        parts.map(|(_, into)| libc::iovec { iov_base: into.addr().ptr(), iov_len: into.len() });
    let remotes = parts.map(|(address, into)| remote(address, into.len()));
    let count = N as libc::c_ulong;
    // SAFETY: the regions' creators guarantee their bytes; the kernel checks the remote ones.
    let copied =
        unsafe { libc::process_vm_readv(pid, locals.as_ptr(), count, remotes.as_ptr(), count, 0) };
    usize::try_from(copied).map_err(|_| io::Error::last_os_error())
}

/// Memory of the program that a process ran when its memory was opened. The kernel holds a
/// reference to that memory, not to the process id. Once the process has ended or runs another
/// program (exec), nothing can be read or written any more, even if another process has the id by
/// then or other memory is mapped at the address.
pub struct ForeignMemory {
    file: File,
    pid: i32,
}

impl ForeignMemory {
    /// Opens the memory for reading and writing, which needs ptrace permission. The id may belong
    /// to another process by now: the caller must compare bytes that only the intended process has.
    pub fn open(pid: i32) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(format!("/proc/{pid}/mem"))?;
        Ok(ForeignMemory { file: File::from(keep_fd(file.into())?), pid })
    }

    /// Returns the id that the process had when its memory was opened.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Copies from an address into `into` and returns the number of bytes copied. Fewer bytes are
    /// copied if the program has ended. An error means that these bytes cannot be copied.
    pub fn read(&self, address: u64, into: Region) -> io::Result<usize> {
        all(into.len(), |done| {
            let (to, at) = (into.part(done, into.len()), offset(address, done)?);
            // SAFETY: the region's creator guarantees its bytes; the kernel checks the remote ones.
            Ok(unsafe { libc::pread(self.file.as_raw_fd(), to.addr().ptr(), to.len(), at) })
        })
    }

    /// Copies `from` to an address and returns the number of bytes copied. Fewer bytes are copied
    /// if the program has ended. After an error some bytes may have been copied.
    pub fn write(&self, address: u64, from: Region) -> io::Result<usize> {
        all(from.len(), |done| {
            let (rest, at) = (from.part(done, from.len()), offset(address, done)?);
            // SAFETY: the region's creator guarantees its bytes; the kernel checks the remote ones.
            Ok(unsafe { libc::pwrite(self.file.as_raw_fd(), rest.addr().ptr(), rest.len(), at) })
        })
    }
}

/// Returns the offset in /proc/PID/mem of the byte `done` bytes after `address`.
fn offset(address: u64, done: usize) -> io::Result<libc::off_t> {
    let at = address.checked_add(done as u64).and_then(|at| libc::off_t::try_from(at).ok());
    at.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Repeats a system call that continues a copy, until `len` bytes are copied or it copies none.
fn all(len: usize, mut copy: impl FnMut(usize) -> io::Result<isize>) -> io::Result<usize> {
    let mut done = 0;
    while done < len {
        match usize::try_from(copy(done)?) {
            Ok(0) => break,
            Ok(more) => done += more,
            Err(_) => return Err(io::Error::last_os_error()),
        }
    }
    Ok(done)
}

/// Reference to the file behind another process's descriptor, obtained without opening the file
/// (O_PATH). It has no effect on the file, and always refers to that file.
pub struct PathFd(File);

impl PathFd {
    /// Creates a reference to the file of a process's descriptor. The kernel permits this to a
    /// process of an equal user that has no fewer privileges.
    pub fn of(pid: i32, number: RawFd) -> io::Result<Self> {
        let seen = File::options()
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_CLOEXEC)
            .open(format!("/proc/{pid}/fd/{number}"))?;
        Ok(PathFd(File::from(keep_fd(seen.into())?)))
    }

    /// Returns the path of the file, or the name that the kernel shows for a file without a path.
    pub fn name(&self) -> io::Result<PathBuf> {
        fs::read_link(self.path())
    }

    /// Opens the file with a new descriptor, to read and write.
    pub fn open(&self) -> io::Result<OwnedFd> {
        keep_fd(File::options().read(true).write(true).open(self.path())?.into())
    }

    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }
}

/// Lets any process of this user read the memory of this process where the Yama module restricts
/// that. Without Yama there is no restriction, and the call fails with EINVAL.
pub fn allow_readers() -> io::Result<()> {
    Ok(rustix::process::set_ptracer(PTracer::Any)?)
}

#[cfg(test)]
#[path = "tests/foreign_process.rs"]
mod tests;
