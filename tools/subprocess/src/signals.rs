//! Functions that send signals to processes, and that receive signals as data, without a signal
//! handler.

use crate::fd;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Signal that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    /// Number of the signal.
    pub number: i32,
    /// True if the kernel, not a process, has sent the signal. For Ctrl-C on a terminal, the kernel
    /// signals the whole foreground process group.
    pub from_kernel: bool,
}

/// Descriptor (signalfd) from which blocked signals are read.
pub struct Signals(OwnedFd);

impl Signals {
    /// Blocks these signals and creates a descriptor from which they are read. Must be called
    /// before other threads are started, because they inherit the signal mask.
    pub fn take_over(signals: &[i32]) -> io::Result<Self> {
        let set = set_of(signals)?;
        set_mask(libc::SIG_BLOCK, &set)?;
        // SAFETY: `set` is a valid set; -1 stands for a new descriptor.
        fd::new(unsafe {
            libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        })
        .map(Signals)
    }

    /// Returns the next signal that has arrived, if any.
    pub fn take(&mut self) -> Option<Signal> {
        // SAFETY: all-zero is a valid signalfd_siginfo: it is plain integers.
        let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: reads at most `size` bytes into `info`, which is that large.
        let got = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut info).cast(), size) };
        let whole = usize::try_from(got) == Ok(size);
        whole.then_some(Signal {
            number: i32::try_from(info.ssi_signo).unwrap_or(0),
            from_kernel: info.ssi_code == libc::SI_KERNEL,
        })
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Unblocks all signals in the calling thread.
pub(crate) fn unblock_all() -> io::Result<()> {
    set_mask(libc::SIG_SETMASK, &set_of(&[])?)
}

fn set_mask(how: i32, set: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: `set` is a valid set; the old one is not wanted.
    let code = unsafe { libc::pthread_sigmask(how, set, std::ptr::null_mut()) };
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

fn set_of(signals: &[i32]) -> io::Result<libc::sigset_t> {
    // SAFETY: sigset_t is plain data that sigemptyset initializes.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: writes the set.
    unsafe { libc::sigemptyset(&raw mut set) };
    for &signal in signals {
        // SAFETY: changes the set; a number that is no signal is an error.
        if unsafe { libc::sigaddset(&raw mut set, signal) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(set)
}

/// Returns true if this process ignores a signal (SIGHUP, for example, if `nohup` started the
/// process).
#[must_use]
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: all-zero is a valid sigaction: no function, no flags.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: changes nothing, as the new action is NULL; `now` is writable.
    let code = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut now) };
    code == 0 && now.sa_sigaction == libc::SIG_IGN
}

/// Sends a signal to a child that has not been reaped. A child that has already exited is not an
/// error.
pub fn send_signal(pid: u32, number: i32) {
    if let Ok(pid) = i32::try_from(pid) {
        // SAFETY: takes integers only; the caller has not reaped the child, so the id is its own.
        let _ = unsafe { libc::kill(pid, number) };
    }
}

/// Kills every process in the process group whose leader has the process ID `leader`. A group that
/// no longer exists is not an error.
pub fn kill_group(leader: u32) {
    if let Ok(leader) = i32::try_from(leader) {
        // SAFETY: takes integers only.
        let _ = unsafe { libc::kill(-leader, libc::SIGKILL) };
    }
}

/// Returns true if a child has exited. Leaves it unreaped, so that its process id is not reused.
#[must_use]
pub fn has_exited(child: u32) -> bool {
    // SAFETY: numbers and unions of them: all zeros is one of its values.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: takes plain numbers and writes to a local.
    let code = unsafe { libc::waitid(libc::P_PID, child, &raw mut info, how) };
    // SAFETY: filled in by waitid, or still zeros: 0 is no process.
    let ended = unsafe { info.si_pid() };
    code != 0 || ended != 0 // -1: it is reaped already
}

/// Sets SIGCHLD to its default action, because a process that inherits SIGCHLD as ignored cannot
/// wait for a child.
pub fn reset_sigchld() {
    // SAFETY: the default action is no code of ours.
    let _ = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}
