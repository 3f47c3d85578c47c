//! Starting processes that end with this one, and hearing of signals without a handler.
//!
//! For the programs; the library itself starts no process and touches no signal.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What a child gets before its program starts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup {
    /// The processor it is bound to.
    pub cpu: Option<usize>,
}

/// Prepares a command: its process is killed when this one (the thread that starts it) dies, starts
/// with no signal blocked, and runs on the processor named.
pub fn prepare(command: &mut Command, setup: Setup) {
    let parent = super::process::own_pid();
    let hook = move || before_exec(parent, setup);
    // SAFETY: the hook runs between fork and exec: it makes system calls only, allocates nothing
    // and takes no lock.
    unsafe { command.pre_exec(hook) };
}

fn before_exec(parent: i32, setup: Setup) -> io::Result<()> {
    // SAFETY: takes integers only.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // The parent may have died before that call: then nobody would send the signal.
    // SAFETY: getppid has no arguments and cannot fail.
    if unsafe { libc::getppid() } != parent {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    set_mask(libc::SIG_SETMASK, &[])?;
    setup.cpu.map_or(Ok(()), bind)
}

fn bind(cpu: usize) -> io::Result<()> {
    if cpu >= 8 * size_of::<libc::cpu_set_t>() {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: all-zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `cpu` is inside the set.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: `set` is a set of the size told; 0 = the calling thread.
    if unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) } == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

/// The processors that this process may run on.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    // SAFETY: all-zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is a writable set of the size told.
    if unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let inside = |&cpu: &usize| {
        // SAFETY: `cpu` is below the number of bits of the set.
        unsafe { libc::CPU_ISSET(cpu, &set) }
    };
    Ok((0..8 * size_of::<libc::cpu_set_t>()).filter(inside).collect())
}

fn set_mask(how: i32, signals: &[i32]) -> io::Result<()> {
    let set = set_of(signals)?;
    // SAFETY: `set` is a valid set; the old one is not asked for.
    let code = unsafe { libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut()) };
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

fn set_of(signals: &[i32]) -> io::Result<libc::sigset_t> {
    // SAFETY: sigset_t is plain data that sigemptyset initialises.
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

/// A signal that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    /// Its number.
    pub number: i32,
    /// Whether the kernel sent it (a terminal's Ctrl-C goes to the whole process group).
    pub from_kernel: bool,
}

/// Signals as a descriptor: they are blocked from their usual effect and read instead.
pub struct Signals(OwnedFd);

impl Signals {
    /// Takes over these signals. Call before starting threads, which inherit the mask.
    pub fn take_over(signals: &[i32]) -> io::Result<Self> {
        set_mask(libc::SIG_BLOCK, signals)?;
        let set = set_of(signals)?;
        // SAFETY: `set` is a valid set; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        Ok(Signals(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The next one that arrived, if any.
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

/// Whether this process ignores a signal, as `nohup` makes it ignore SIGHUP.
#[must_use]
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: all-zero is a valid sigaction: no function, no flags.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: only asks; `now` is writable.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut now) };
    asked == 0 && now.sa_sigaction == libc::SIG_IGN
}

/// Sends a signal. A process that is gone already is not an error.
pub fn signal(pid: u32, number: i32) {
    if let Ok(pid) = i32::try_from(pid) {
        // SAFETY: takes integers only; the caller has not reaped the child, so the id is its own.
        let _ = unsafe { libc::kill(pid, number) };
    }
}

/// Kills every process of the group that this child leads. A group that is gone already is not an error.
pub fn kill_group(leader: u32) {
    if let Ok(leader) = i32::try_from(leader) {
        // SAFETY: takes integers only.
        let _ = unsafe { libc::kill(-leader, libc::SIGKILL) };
    }
}

/// Makes reads of a descriptor return at once.
pub fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes integers only.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
    // SAFETY: takes integers only.
    if flags < 0 || unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
