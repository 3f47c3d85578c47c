//! Descriptors of the library, kept apart from the standard streams; diagnosis of their shortage.
//!
//! The kernel assigns the lowest number that is free. In a program that has closed its standard
//! streams, that is the number of a standard stream. The next line that any code prints would then
//! go into a socket or a memory file of the library. So every descriptor that the library creates
//! or receives passes through this module.

use rustix::fs::{MemfdFlags, OFlags};
use rustix::process::Resource;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// First descriptor number after the standard streams.
const FIRST: RawFd = 3;

/// Wraps the result of a system call: a new descriptor, or -1, for which the OS error is returned.
pub fn new(given: RawFd) -> io::Result<OwnedFd> {
    if given < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    keep(unsafe { OwnedFd::from_raw_fd(given) })
}

/// Moves a descriptor to a number above the standard streams, if it is not there already.
pub fn keep(fd: OwnedFd) -> io::Result<OwnedFd> {
    if fd.as_raw_fd() >= FIRST { Ok(fd) } else { again(&fd) }
}

fn again(fd: &OwnedFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, FIRST)?)
}

/// Sets O_NONBLOCK: a read of a descriptor that has no data returns at once.
pub fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    Ok(rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)?)
}

/// Standard error without the standard library's lock. Another thread of the process may hold that
/// lock when the program forks, and the child would wait for it forever.
pub struct StandardError;

impl io::Write for StandardError {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(rustix::stdio::stderr(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
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
        Ok(PathFd(File::from(keep(seen.into())?)))
    }

    /// Returns the path of the file, or the text that the kernel shows for a file without a path.
    pub fn name(&self) -> io::Result<PathBuf> {
        fs::read_link(self.path())
    }

    /// Opens the file with a new descriptor, to read and write.
    pub fn open(&self) -> io::Result<OwnedFd> {
        keep(File::options().read(true).write(true).open(self.path())?.into())
    }

    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }
}

/// Opens /dev/null in the place of each closed standard stream, so that descriptors of the standard
/// library get higher numbers. Returns the open files, which occupy the places.
pub fn occupy_standard() -> io::Result<Vec<File>> {
    let mut held = Vec::new();
    loop {
        let file = File::open("/dev/null")?;
        if file.as_raw_fd() >= FIRST {
            return Ok(held);
        }
        held.push(file);
    }
}

/// Checks that this process can open `count` more descriptors, by opening that many for a moment.
pub fn room_for(count: usize) -> io::Result<()> {
    let first = keep(rustix::fs::memfd_create(c"dtl", MemfdFlags::CLOEXEC)?)?;
    let rest: io::Result<Vec<OwnedFd>> = (1..count).map(|_| again(&first)).collect();
    rest.map(drop)
}

/// Returns the remedy for an error that reports a shortage of descriptors; `None` for others.
pub fn shortage(error: &io::Error) -> Option<String> {
    match error.raw_os_error()? {
        libc::EMFILE => Some(format!(
            "this process may have {} open files and has them: raise that limit (ulimit -n, \
             RLIMIT_NOFILE) or close some",
            most()
        )),
        libc::ENFILE => Some(
            "the system has as many open files as it may: raise fs.file-max (sysctl) or end \
             programs"
                .to_owned(),
        ),
        _ => None,
    }
}

/// Returns the maximum number of descriptors of this process.
fn most() -> u64 {
    rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "tests/fd.rs"]
mod tests;
