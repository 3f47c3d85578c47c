//! Starting processes that end with this one, and hearing of signals without a handler.
//!
//! For the programs. The library itself uses [`ask`] alone, and only if it is told to or compiles a
//! kernel; it touches no signal.

use super::fd;
use super::poller::wait_readable;
use super::process::PidFd;
use rustix::pipe::PipeFlags;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What a child gets before its program starts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup {
    /// The processor it is bound to.
    pub cpu: Option<usize>,
    /// Whether it leaves no core dump when it crashes.
    pub no_core: bool,
    /// Whether it is asked to end (SIGTERM) when this one dies: a launcher then ends its ranks,
    /// which it could not if it were killed.
    pub is_launcher: bool,
}

/// Prepares a command: its process is killed (a launcher: asked to end) when this one (the thread
/// that starts it) dies, starts with no signal blocked, and runs on the processor named.
pub fn prepare(command: &mut Command, setup: Setup) {
    let parent = super::process::own_pid();
    let hook = move || before_exec(parent, setup);
    // SAFETY: the hook runs between fork and exec: it makes system calls only, allocates nothing
    // and takes no lock.
    unsafe { command.pre_exec(hook) };
}

fn before_exec(parent: i32, setup: Setup) -> io::Result<()> {
    let last = if setup.is_launcher { libc::SIGTERM } else { libc::SIGKILL };
    // SAFETY: takes integers only.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, last, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // The parent may have died before that call: then nobody would send the signal.
    // SAFETY: getppid has no arguments and cannot fail.
    if unsafe { libc::getppid() } != parent {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    set_mask(libc::SIG_SETMASK, &[])?;
    if setup.no_core {
        forbid_cores()?;
    }
    setup.cpu.map_or(Ok(()), bind)
}

/// One byte rather than none: a limit of 0 does not stop the kernel from piping a dump to a program
/// (core(5)); below 2 it does.
fn forbid_cores() -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes the struct.
    if unsafe { libc::getrlimit(libc::RLIMIT_CORE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    limit.rlim_max = limit.rlim_max.min(1);
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: reads the struct.
    if unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Lets the calling thread run on this processor only.
pub fn bind(cpu: usize) -> io::Result<()> {
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
        fd::new(unsafe {
            libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        })
        .map(Signals)
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

/// Kills every process of the group that this child leads. A group that is gone already is not an
/// error.
pub fn kill_group(leader: u32) {
    if let Ok(leader) = i32::try_from(leader) {
        // SAFETY: takes integers only.
        let _ = unsafe { libc::kill(-leader, libc::SIGKILL) };
    }
}

/// What a program answered.
#[derive(Debug)]
pub struct Answer {
    /// What it wrote to its standard output, and to its standard error if that was asked for.
    pub said: Vec<u8>,
    /// Whether it ended by itself; else it was killed at the time limit.
    pub in_time: bool,
}

/// What [`ask`] listens to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hear {
    /// Its standard output.
    Output,
    /// That and its standard error, as they come; it and the programs that it starts are one group,
    /// which ends with it.
    Everything,
}

/// Runs a program until its end or the time limit. Its input is empty. Works in a process with
/// threads (no code of ours or of fork handlers runs in between: a command without hooks is
/// `posix_spawn`), and whatever that does with SIGCHLD or its children: the end is seen at a
/// descriptor. What it ended with is not told, for the program may have taken that: it has to be in
/// what is said.
pub fn ask(command: &mut Command, hear: Hear, limit: Duration) -> io::Result<Answer> {
    let begin = Instant::now();
    let streams = fd::occupy_standard()?;
    let (mut child, pipe) = start(command, hear)?;
    drop(streams);
    // Without one (it is reaped already, or the kernel is older than 5.3) the end of its output is
    // its end.
    let held = PidFd::open(i32::try_from(child.id()).unwrap_or(0)).ok();
    let heard = listen(pipe, held.as_ref(), begin, limit);
    if hear == Hear::Everything {
        if held.is_none() && matches!(heard, Ok((_, true))) {
            wait_by_looking(child.id(), begin, limit);
        }
        // Its number is its own: not taken from the kernel's list yet, or just now by the program.
        kill_group(child.id());
    }
    match held {
        Some(held) => {
            held.kill();
            // By the descriptor: its number may mean another child by now, if the program has
            // reaped this one.
            held.reap();
        }
        None => drop(child.try_wait()), // it may be taken already
    }
    let (said, in_time) = heard?;
    Ok(Answer { said, in_time })
}

/// Waits for a child whose output has ended, where the kernel has no descriptor for it; it stays to
/// be reaped.
fn wait_by_looking(id: u32, begin: Instant, limit: Duration) {
    while !has_exited(id) && begin.elapsed() < limit {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn has_exited(id: u32) -> bool {
    // SAFETY: numbers and unions of them: all zeros is one of its values.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: takes plain numbers and writes to a local.
    let code = unsafe { libc::waitid(libc::P_PID, id, &raw mut info, how) };
    // SAFETY: filled in by waitid, or still zeros: 0 is no process.
    let ended = unsafe { info.si_pid() };
    code != 0 || ended != 0 // -1: somebody has reaped it
}

/// Starts it with one pipe for what is heard.
fn start(command: &mut Command, hear: Hear) -> io::Result<(Child, OwnedFd)> {
    let (ours, theirs) = pipe()?;
    command.stdin(Stdio::null()).stdout(theirs.try_clone()?);
    if hear == Hear::Everything {
        command.stderr(theirs.try_clone()?).process_group(0);
    }
    drop(theirs);
    let child = command.spawn();
    // The command keeps its own copies, and with them the pipe would never end.
    command.stdout(Stdio::null()).stderr(Stdio::inherit());
    fd::set_nonblocking(ours.as_fd())?;
    Ok((child?, ours))
}

/// Both ends of a pipe: to read, to write.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    Ok((fd::keep(read)?, fd::keep(write)?))
}

/// What comes out of the pipe until its end or the program's, and whether that was in time.
fn listen(
    pipe: OwnedFd,
    held: Option<&PidFd>,
    begin: Instant,
    limit: Duration,
) -> io::Result<(Vec<u8>, bool)> {
    let (mut pipe, mut said) = (Some(File::from(pipe)), Vec::new());
    loop {
        // In this order: what it wrote before its end is there by now.
        let has_ended = held.is_some_and(PidFd::exited);
        pipe = pipe.take().and_then(|mut pipe| drain(&mut pipe, &mut said).then_some(pipe));
        if has_ended || (held.is_none() && pipe.is_none()) {
            return Ok((said, true));
        }
        let left = limit.saturating_sub(begin.elapsed());
        if left.is_zero() {
            return Ok((said, false));
        }
        let fds: Vec<_> =
            pipe.iter().map(AsFd::as_fd).chain(held.iter().map(|held| held.as_fd())).collect();
        wait_readable(&fds, u64::try_from(left.as_nanos()).unwrap_or(u64::MAX))?;
    }
}

/// Takes what has arrived; false at the end of the output.
fn drain(pipe: &mut File, said: &mut Vec<u8>) -> bool {
    match pipe.read_to_end(said) {
        Ok(_) => false,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

/// Undoes what this process may have inherited: with SIGCHLD ignored no child can be waited for.
pub fn allow_waiting() {
    // SAFETY: the default action is no code of ours.
    let _ = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}
