//! Descriptors.

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// First descriptor number after the standard streams.
const FIRST: RawFd = 3;

/// Takes ownership of the result of a system call: a new descriptor, or -1 and an error.
///
/// The kernel assigns the lowest free number. If standard streams are closed, that is the number of
/// one of them, so the descriptor is moved to a higher number.
pub(crate) fn new(given: RawFd) -> io::Result<OwnedFd> {
    if given < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    let fd = unsafe { OwnedFd::from_raw_fd(given) };
    if given >= FIRST {
        return Ok(fd);
    }
    // SAFETY: takes integers only.
    let copy = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, FIRST) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Returns true if a number is an open descriptor of this process.
#[must_use]
pub fn is_open(fd: RawFd) -> bool {
    // SAFETY: takes integers; one that is no descriptor is an error.
    unsafe { libc::fcntl(fd, libc::F_GETFD) != -1 }
}

/// Makes a descriptor nonblocking.
pub fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes integers only.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
    // SAFETY: takes integers only; after a failed query it is not called.
    let set = || unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) };
    if flags < 0 || set() < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Returns true if the process at the other end of a UNIX socket belongs to this user.
pub fn is_own_peer(socket: BorrowedFd<'_>) -> io::Result<bool> {
    // SAFETY: three integers, for which zeros are values.
    let mut peer: libc::ucred = unsafe { std::mem::zeroed() };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: the structure has `size` bytes, and both are written during the call only.
    let got = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut peer).cast(), &raw mut size)
    };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: takes nothing, and cannot fail.
    let own = unsafe { libc::geteuid() };
    Ok(peer.uid == own)
}

/// Waits until one of the descriptors is readable or at end of file, until `timeout_ns` has passed,
/// or until a signal interrupts the wait. Returns for each descriptor whether it is ready; after a
/// signal, all are reported as not ready.
pub fn wait_readable(fds: &[BorrowedFd<'_>], timeout_ns: u64) -> io::Result<Vec<bool>> {
    let mut entries: Vec<libc::pollfd> = fds
        .iter()
        .map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 })
        .collect();
    // Rounded up, or the last millisecond would be spent spinning.
    let millis = i32::try_from(timeout_ns.div_ceil(1_000_000)).unwrap_or(i32::MAX);
    // SAFETY: the length is that of the array; the descriptors are borrowed for the call.
    let rc = unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, millis) };
    if rc < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != ErrorKind::Interrupted {
            return Err(error);
        }
        return Ok(vec![false; fds.len()]);
    }
    Ok(entries.iter().map(|entry| entry.revents != 0).collect())
}
