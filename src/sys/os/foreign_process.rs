//! Access to the memory and files of other processes on this machine, and permission for other
//! processes to access the memory of this process.

use super::process::keep_fd;
use crate::sys::memory::buf::Region;
use rustix::process::PTracer;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// Copies data from addresses in another process into regions of this process (process_vm_readv).
/// Returns the number of bytes copied. If the process executes another program during the call, all
/// bytes still come from the memory of one of the two programs.
pub fn read_memory<const N: usize>(pid: i32, parts: [(u64, Region); N]) -> io::Result<usize> {
    let (locals, remotes) = (parts.map(|(_, into)| local(into)), parts.map(remote));
    let count = N as libc::c_ulong;
    // SAFETY: the regions' creators guarantee their bytes; the kernel checks the remote ones.
    let copied =
        unsafe { libc::process_vm_readv(pid, locals.as_ptr(), count, remotes.as_ptr(), count, 0) };
    usize::try_from(copied).map_err(|_| io::Error::last_os_error())
}

/// Copies a region of this process to an address in another process (process_vm_writev). Returns
/// the number of bytes copied.
pub fn write_memory(pid: i32, address: u64, from: Region) -> io::Result<usize> {
    let (local, remote) = (local(from), remote((address, from)));
    // SAFETY: the region's creator guarantees its bytes; the kernel checks the remote ones.
    let copied =
        unsafe { libc::process_vm_writev(pid, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(copied).map_err(|_| io::Error::last_os_error())
}

fn local(region: Region) -> libc::iovec {
    libc::iovec { iov_base: region.addr().ptr(), iov_len: region.len() }
}

/// Returns the range of another process at `address` with the length of `region`.
fn remote((address, region): (u64, Region)) -> libc::iovec {
    let address = usize::try_from(address).unwrap_or(0);
    libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: region.len() }
}

/// Address space that a process had when its memory was opened (/proc/PID/mem). The kernel holds a
/// reference to the address space, not to the process id. Once the process has ended or has
/// executed another program, nothing can be read or written any more, even if another process has
/// the same id by then or the new program has memory at the same address.
pub struct ForeignMemory {
    file: File,
    pid: i32,
}

impl ForeignMemory {
    /// Opens the memory of a process for reading and writing, which needs ptrace permission. The ID
    /// may have been reused for another process, so the caller must verify the process by reading
    /// bytes that only the intended process has.
    pub fn open(pid: i32) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(format!("/proc/{pid}/mem"))?;
        Ok(ForeignMemory { file: File::from(keep_fd(file.into())?), pid })
    }

    /// Returns the id that the process had when its memory was opened.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Copies from an address in the process into `into` and returns the number of bytes copied,
    /// which is smaller than the region if the address space no longer exists (see
    /// [`ForeignMemory`]). An error means that not all bytes can be copied; some may have been
    /// copied.
    pub fn read(&self, address: u64, into: Region) -> io::Result<usize> {
        all(into.len(), |done| {
            let (to, at) = (into.part(done, into.len()), offset(address, done)?);
            // SAFETY: the region's creator guarantees its bytes; the kernel checks the remote ones.
            Ok(unsafe { libc::pread(self.file.as_raw_fd(), to.addr().ptr(), to.len(), at) })
        })
    }

    /// Copies `from` to an address in the process and returns the number of bytes copied, which is
    /// smaller than the region if the address space no longer exists (see [`ForeignMemory`]). On an
    /// error, some bytes may have been copied.
    pub fn write(&self, address: u64, from: Region) -> io::Result<usize> {
        all(from.len(), |done| {
            let (rest, at) = (from.part(done, from.len()), offset(address, done)?);
            // SAFETY: the region's creator guarantees its bytes; the kernel checks the remote ones.
            Ok(unsafe { libc::pwrite(self.file.as_raw_fd(), rest.addr().ptr(), rest.len(), at) })
        })
    }
}

/// Returns the offset in /proc/PID/mem of the address `address` + `done`.
fn offset(address: u64, done: usize) -> io::Result<libc::off_t> {
    let at = address.checked_add(done as u64).and_then(|at| libc::off_t::try_from(at).ok());
    at.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Calls `copy`, which continues a copy at the offset in its argument, until `len` bytes are copied
/// or a call copies no bytes. Returns the number of bytes copied.
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

/// Reference to a file that another process has open, obtained without opening the file (O_PATH).
/// It refers to the same file even if the process closes its descriptor.
pub struct PathFd(File);

impl PathFd {
    /// Creates a reference to the file of the descriptor `number` in the process `pid`. The kernel
    /// requires that both processes belong to one user and that this process has at least the
    /// privileges of the other.
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

    /// Opens the file for reading and writing, with a new file description.
    pub fn open(&self) -> io::Result<OwnedFd> {
        keep_fd(File::options().read(true).write(true).open(self.path())?.into())
    }

    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }
}

/// Permits all processes of this user to access the memory of this process on systems where the
/// Yama security module restricts such access. Without Yama there is no such restriction, and the
/// call fails with EINVAL.
pub fn allow_readers() -> io::Result<()> {
    Ok(rustix::process::set_ptracer(PTracer::Any)?)
}

#[cfg(test)]
#[path = "tests/foreign_process.rs"]
mod tests;
