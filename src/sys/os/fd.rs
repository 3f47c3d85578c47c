//! Descriptors of the library's own: never those of the standard streams, and what it means that
//! there are none left.
//!
//! The kernel gives out the lowest number that is free. In a program whose standard streams are
//! closed that is one of theirs, and the next line that something prints would go into our socket
//! or our memory. So whatever this process makes or is sent comes through here.

use rustix::fs::{MemfdFlags, OFlags};
use rustix::process::Resource;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// The first number behind the standard streams.
const FIRST: RawFd = 3;

/// Takes the result of a system call: a new descriptor, or -1 and an error.
pub fn new(given: RawFd) -> io::Result<OwnedFd> {
    if given < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    keep(unsafe { OwnedFd::from_raw_fd(given) })
}

/// Moves a descriptor to a number above the standard streams', if it is not there yet.
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

/// The stream of that name, without the standard library's lock: a thread of the library may have
/// that when the program forks, and the child would wait for it for ever.
pub struct StandardError;

impl io::Write for StandardError {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(rustix::stdio::stderr(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reference to the file behind another process's descriptor, held without opening it (O_PATH):
/// looking at it has no effect on it, and it stays the same file.
pub struct PathFd(File);

impl PathFd {
    /// Looks at a process' descriptor. The kernel lets the same user look, with no fewer
    /// privileges.
    pub fn of(pid: i32, number: RawFd) -> io::Result<Self> {
        let seen = File::options()
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_CLOEXEC)
            .open(format!("/proc/{pid}/fd/{number}"))?;
        Ok(PathFd(File::from(keep(seen.into())?)))
    }

    /// Its path, or the text that the kernel shows for what has none.
    pub fn name(&self) -> io::Result<PathBuf> {
        fs::read_link(self.path())
    }

    /// A descriptor of its own, to read and write.
    pub fn open(&self) -> io::Result<OwnedFd> {
        keep(File::options().read(true).write(true).open(self.path())?.into())
    }

    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }
}

/// Something that is nothing, in the place of each standard stream that is closed, so that the
/// standard library's own descriptors come behind them.
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

/// Checks that this process can have `count` more descriptors, by opening them for a moment.
pub fn room_for(count: usize) -> io::Result<()> {
    let first = keep(rustix::fs::memfd_create(c"dtl", MemfdFlags::CLOEXEC)?)?;
    let rest: io::Result<Vec<OwnedFd>> = (1..count).map(|_| again(&first)).collect();
    rest.map(drop)
}

/// Returns the remedy for an error that no descriptors are left; `None`: it is another error.
#[must_use]
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

/// How many descriptors this process may have.
fn most() -> u64 {
    rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_descriptor_is_an_error() {
        // SAFETY: takes an integer, which is no descriptor.
        let error = new(unsafe { libc::dup(-1) }).expect_err("no descriptor");
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
        assert_eq!(shortage(&error), None);
    }

    #[test]
    fn a_shortage_names_its_limit() {
        let error = room_for(usize::try_from(most()).unwrap()).expect_err("some are open already");
        let text = shortage(&error).expect("a shortage");
        assert!(
            text.contains("ulimit -n") && text.contains(&format!(" {} open files", most())),
            "{text}"
        );
        let text = shortage(&io::Error::from_raw_os_error(libc::ENFILE)).expect("a shortage");
        assert!(text.contains("fs.file-max"), "{text}");
        room_for(1).expect("a descriptor");
    }

    #[test]
    fn a_glimpse_does_not_open_and_stays_what_it_was() {
        let own = crate::sys::os::process::own_pid();
        let folder = File::open("/").expect("a folder");
        let seen = PathFd::of(own, folder.as_raw_fd()).expect("own descriptor");
        drop(folder);
        assert_eq!(seen.name().expect("still held").as_os_str(), "/");
        assert!(seen.open().is_err(), "it cannot be written");
        assert_eq!(
            PathFd::of(own, 1 << 20).err().map(|error| error.kind()),
            Some(io::ErrorKind::NotFound)
        );
    }
}
