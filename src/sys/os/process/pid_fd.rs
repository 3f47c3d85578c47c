//! Descriptors of processes.

use super::{keep_fd, wait_readable};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Descriptor of a process (pidfd). Unlike a process id, it never refers to another process.
pub struct PidFd(OwnedFd);

impl PidFd {
    /// Opens a process descriptor (pidfd); fails with ESRCH if no process has that id.
    pub fn open(pid: i32) -> io::Result<Self> {
        let pid = Pid::from_raw(pid.max(0)).ok_or(Errno::INVAL)?;
        keep_fd(rustix::process::pidfd_open(pid, PidfdFlags::empty())?).map(PidFd)
    }

    /// Like [`PidFd::open`]. If the kernel has no pidfds (before Linux 5.3), opens the directory of
    /// the process in /proc instead, which does not refer to another process either. With that
    /// descriptor only [`PidFd::exited`] works, and no poller accepts it.
    pub fn open_to_watch(pid: i32) -> io::Result<Self> {
        let failed = match PidFd::open(pid) {
            Err(error) if error.raw_os_error() != Some(libc::ESRCH) => error,
            other => return other,
        };
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(format!("/proc/{pid}"), flags, Mode::empty()) {
            Ok(directory) => keep_fd(directory).map(PidFd),
            // Without /proc, the first error is the one to report.
            Err(Errno::NOENT) if Path::new("/proc/self").exists() => Err(Errno::SRCH.into()),
            Err(_) => Err(failed),
        }
    }

    /// Returns true if the process has exited. A zombie has exited; a stopped process has not.
    pub fn exited(&self) -> bool {
        // A directory is always readable.
        wait_readable(&[self.as_fd()], 0).is_ok_and(|ready| ready == [true])
            && !self.runs_by_directory()
    }

    /// Returns true if the descriptor is a directory of /proc, and its process has not exited.
    fn runs_by_directory(&self) -> bool {
        let open = rustix::fs::openat(&self.0, c"stat", OFlags::CLOEXEC, Mode::empty());
        // A pidfd is no directory, and the file of a process that was reaped cannot be opened or
        // read.
        let text =
            open.map_err(io::Error::from).and_then(|file| io::read_to_string(File::from(file)));
        let text = text.unwrap_or_default();
        text.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    }

    /// Kills the process. Has no effect if the process has ended already.
    pub fn kill(&self) {
        let _ = rustix::process::pidfd_send_signal(&self.0, Signal::KILL);
    }

    /// Waits until the process has ended, and reaps it. Returns at once if it is not a child of
    /// this process or has already been reaped.
    pub fn reap(&self) {
        let _ = rustix::process::waitid(WaitId::PidFd(self.0.as_fd()), WaitIdOptions::EXITED);
    }
}

/// Returns the descriptor, which becomes readable when the process exits.
impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
