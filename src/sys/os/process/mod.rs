//! Processes of this machine: their identity, their liveness and their memory.
//!
//! Not here: running processes (`sys::os::process`) and communication with them
//! (`sys::os::unix_socket`, `sys::os::shm_segment`).
//!
//! Running a program and collecting its output, without changes to the process's signal handling.
//!
//! Threads of the library: they receive no signals that are sent to the process.
//!
//! A program may block a signal in its threads, to wait for the signal with sigwait or a
//! descriptor, but it cannot block the signal in threads of the library: delivered there, the
//! signal would run its handler or end the program. So threads of the library block all signals
//! from their first instruction on, except those that an instruction of their own raises. Threads
//! and processes that the program starts in such a thread inherit that mask.

use crate::sys::{
    memory::buf::Region,
    os::{fd, poller::wait_readable},
};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{PTracer, Pid, PidfdFlags, Resource, Signal, WaitId, WaitIdOptions};
use rustix::rand::GetRandomFlags;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::{
    fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    unix::process::CommandExt,
};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};
use std::{fs, io};

/// Ends the process at once: no destructors, no atexit functions.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: takes a number and does not return.
    unsafe { libc::_exit(code) }
}

/// Returns the id of this process.
pub fn own_pid() -> i32 {
    // The kernel's ids fit in 22 bits.
    i32::try_from(std::process::id()).unwrap_or(i32::MAX)
}

/// Returns the calling thread's id, as listed in /proc/self/task.
pub fn thread_id() -> i32 {
    rustix::thread::gettid().as_raw_pid()
}

/// Returns the maximum size in bytes of a file that this process writes (`ulimit -f`). A write
/// beyond it usually kills the process by SIGXFSZ.
pub fn file_size_limit() -> u64 {
    rustix::process::getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX)
}

/// Returns malloc's free memory to the system, if the C library supports that.
pub fn trim_malloc() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: takes malloc's own locks, and accesses free memory only.
        unsafe { libc::malloc_trim(0) };
    }
}

/// Returns the id of the process that started this process.
pub fn parent_pid() -> i32 {
    i32::try_from(std::os::unix::process::parent_id()).unwrap_or(i32::MAX)
}

/// Returns the effective user id of this process.
pub fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns the id of the parent of a process.
pub fn parent_of(pid: i32) -> io::Result<i32> {
    stat_field(pid, 4)
}

/// Returns the path of the program that a process runs.
pub fn program_of(pid: i32) -> io::Result<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe"))
}

/// Returns a process's start time in clock ticks since boot: with the id, it is unique.
pub fn start_time(pid: i32) -> io::Result<u64> {
    stat_field(pid, 22)
}

/// Returns a field of /proc/PID/stat by its number in proc(5), from 3 up.
fn stat_field<T: FromStr>(pid: i32, number: usize) -> io::Result<T> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses, the second field, may contain any characters, so count from its end.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = rest.split_ascii_whitespace().nth(number - 3).and_then(|text| text.parse().ok());
    field.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "unexpected format"))
}

/// Returns the id of this process in /proc, which differs if /proc is of another PID namespace.
pub fn pid_in_proc() -> io::Result<i32> {
    let link = std::fs::read_link("/proc/self")?;
    link.to_str().and_then(|text| text.parse().ok()).ok_or(io::ErrorKind::InvalidData.into())
}

/// Returns a number that is equal for two processes that see equal process ids (one PID namespace).
pub fn pid_namespace() -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(fs::metadata("/proc/self/ns/pid")?.ino())
}

/// Credentials of the peer of a connected Unix socket, as the kernel reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Process id of the peer; 0 if the peer is in a namespace that this process cannot see.
    pub pid: i32,
    /// Effective user id of the peer when it connected or listened.
    pub uid: u32,
}

/// Returns the process at the other end of a Unix socket. Fails if `fd` (any number) is no socket.
pub fn peer_of(fd: RawFd) -> io::Result<PeerCredentials> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `peer`, which is that large.
    let rc = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(PeerCredentials { pid: peer.pid, uid: peer.uid })
}

/// Descriptor of a process (pid fd). Unlike a process id, it never refers to another process.
pub struct PidFd(OwnedFd);

impl PidFd {
    /// Opens a descriptor of a process; fails with ESRCH if no process has that id.
    pub fn open(pid: i32) -> io::Result<Self> {
        let pid = Pid::from_raw(pid.max(0)).ok_or(Errno::INVAL)?;
        fd::keep(rustix::process::pidfd_open(pid, PidfdFlags::empty())?).map(PidFd)
    }

    /// Returns true if the process has exited (a zombie has, a stopped process has not).
    pub fn exited(&self) -> bool {
        let mut entry = [PollFd::new(&self.0, PollFlags::IN)];
        let ready = rustix::event::poll(&mut entry, Some(&Timespec::default()));
        ready.is_ok() && entry.iter().all(|entry| entry.revents().contains(PollFlags::IN))
    }

    /// Kills the process. A process that has ended already is not an error.
    pub fn kill(&self) {
        let _ = rustix::process::pidfd_send_signal(&self.0, Signal::KILL);
    }

    /// Waits for the end of the process and reaps it, if it is a child that is not reaped yet.
    pub fn reap(&self) {
        let _ = rustix::process::waitid(WaitId::PidFd(self.0.as_fd()), WaitIdOptions::EXITED);
    }
}

/// Returns the descriptor, which is readable once the process has exited.
impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

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
/// program (exec), nothing can be read or written any more, whichever process has the id and
/// whatever is mapped at the address by then.
pub struct ForeignMemory {
    file: File,
    pid: i32,
}

impl ForeignMemory {
    /// Opens the memory for reading and writing, which needs ptrace permission. The id may belong
    /// to another process by now: the caller must compare bytes that only the intended process has.
    pub fn open(pid: i32) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(format!("/proc/{pid}/mem"))?;
        Ok(ForeignMemory { file: File::from(fd::keep(file.into())?), pid })
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

/// Lets any process of this user read the memory of this process where the Yama module restricts
/// that. Without Yama there is no restriction, and the call fails with EINVAL.
pub fn allow_readers() -> io::Result<()> {
    Ok(rustix::process::set_ptracer(PTracer::Any)?)
}

/// Returns 64 random bits from the kernel.
pub fn random_u64() -> io::Result<u64> {
    let mut bytes = [0_u8; 8];
    // The kernel does not return fewer, once it has collected entropy: getrandom(2).
    rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Output of a program.
#[derive(Debug)]
pub struct ChildOutput {
    /// Bytes of standard output, and of standard error if [`Capture::Everything`] was passed.
    pub output: Vec<u8>,
    /// True if the program ended by itself; false if it was killed at the time limit.
    pub in_time: bool,
}

/// Streams that [`run`] collects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capture {
    /// The program's standard output.
    Output,
    /// The program's standard output and standard error, in order of arrival. The program and its
    /// subprocesses are one process group, which is killed when the program has ended.
    Everything,
}

/// Runs a program until its end or the time limit, with empty input. Works in a process with
/// threads: no library code and no fork handlers run between fork and exec, because a command
/// without hooks is `posix_spawn`. It also works whatever that process does with SIGCHLD or its
/// children, because a descriptor reports the end. The exit status is not returned, because the
/// process may have reaped the child; the result must be in the output.
pub fn run(command: &mut Command, hear: Capture, limit: Duration) -> io::Result<ChildOutput> {
    let begin = Instant::now();
    let streams = fd::occupy_standard()?;
    let (mut child, pipe) = start(command, hear)?;
    drop(streams);
    // Without a pid fd (the child is reaped already, or the kernel is older than 5.3) the end of
    // the output counts as the end of the program.
    let held = PidFd::open(i32::try_from(child.id()).unwrap_or(0)).ok();
    let read = listen(pipe, held.as_ref(), begin, limit);
    if hear == Capture::Everything {
        if held.is_none() && matches!(read, Ok((_, true))) {
            wait_by_looking(child.id(), begin, limit);
        }
        // The process id is still the child's: not reaped yet, or reaped just now by the program.
        kill_group(child.id());
    }
    match held {
        Some(held) => {
            held.kill();
            // By the descriptor: if the program has reaped this child, the id may be another
            // process's.
            held.reap();
        }
        None => drop(child.try_wait()), // it may be reaped already
    }
    let (output, in_time) = read?;
    Ok(ChildOutput { output, in_time })
}

/// Waits for a child whose output has ended, where the kernel has no pid fd. Does not reap it.
fn wait_by_looking(id: u32, begin: Instant, limit: Duration) {
    while !has_exited(id) && begin.elapsed() < limit {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn has_exited(id: u32) -> bool {
    // SAFETY: numbers and unions of numbers: all zeros is a valid value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: takes plain numbers and writes to a local.
    let code = unsafe { libc::waitid(libc::P_PID, id, &raw mut info, how) };
    // SAFETY: filled in by waitid, or still zeros: 0 is no process.
    let ended = unsafe { info.si_pid() };
    code != 0 || ended != 0 // -1: other code has reaped the child
}

/// Starts a program with one pipe for its output. Returns the child and the pipe's reading end.
fn start(command: &mut Command, hear: Capture) -> io::Result<(Child, OwnedFd)> {
    let (ours, theirs) = pipe()?;
    command.stdin(Stdio::null()).stdout(theirs.try_clone()?);
    if hear == Capture::Everything {
        command.stderr(theirs.try_clone()?).process_group(0);
    }
    drop(theirs);
    let child = command.spawn();
    // The command holds copies of the writing end; with them the pipe would never end.
    command.stdout(Stdio::null()).stderr(Stdio::inherit());
    fd::set_nonblocking(ours.as_fd())?;
    Ok((child?, ours))
}

/// Kills every process of the group that `leader` leads. An ended group is not an error.
fn kill_group(leader: u32) {
    if let Ok(leader) = i32::try_from(leader) {
        // SAFETY: takes integers only.
        let _ = unsafe { libc::kill(-leader, libc::SIGKILL) };
    }
}

/// Creates a pipe. Returns the reading end and the writing end.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    Ok((fd::keep(read)?, fd::keep(write)?))
}

/// Reads the pipe until its end or the program's. Returns the bytes, and whether that was in time.
fn listen(
    pipe: OwnedFd,
    held: Option<&PidFd>,
    begin: Instant,
    limit: Duration,
) -> io::Result<(Vec<u8>, bool)> {
    let (mut pipe, mut output) = (Some(File::from(pipe)), Vec::new());
    loop {
        // In this order: all bytes that the program wrote before its end are in the pipe by then.
        let has_ended = held.is_some_and(PidFd::exited);
        pipe = pipe.take().and_then(|mut pipe| drain(&mut pipe, &mut output).then_some(pipe));
        if has_ended || (held.is_none() && pipe.is_none()) {
            return Ok((output, true));
        }
        let left = limit.saturating_sub(begin.elapsed());
        if left.is_zero() {
            return Ok((output, false));
        }
        let fds: Vec<_> =
            pipe.iter().map(AsFd::as_fd).chain(held.iter().map(|held| held.as_fd())).collect();
        wait_readable(&fds, u64::try_from(left.as_nanos()).unwrap_or(u64::MAX))?;
    }
}

/// Reads the bytes that have arrived. Returns false at the end of the output.
fn drain(pipe: &mut File, output: &mut Vec<u8>) -> bool {
    match pipe.read_to_end(output) {
        Ok(_) => false,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

/// Signals that stay unblocked: the kernel kills the process if an instruction raises such a signal
/// while it is blocked, or a debugger or seccomp needs the signal.
const OWN: [i32; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Size of a thread's stack in bytes; Linux commits its pages as they are used. Kernels of programs
/// run on it: dtl_kernel.h documents how much of it they may use.
const STACK: usize = 2 << 20;

fn builder(name: &str) -> Builder {
    Builder::new().name(name.to_owned()).stack_size(STACK)
}

/// Starts a thread that receives no signals.
pub fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let _quiet = Quiet::new();
    builder(name).spawn(work)
}

/// Starts a thread that receives no signals and ends within `scope`.
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    let _quiet = Quiet::new();
    builder(name).spawn_scoped(scope, work)
}

/// Guard: while it lives, signals are blocked in the calling thread and in threads that it starts.
struct Quiet {
    before: libc::sigset_t,
}

impl Quiet {
    fn new() -> Self {
        // SAFETY: sigset_t is plain data that sigfillset initialises.
        let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
        let mut before = all;
        // Miri does not support signals.
        if cfg!(miri) {
            return Quiet { before };
        }
        // SAFETY: writes to the local set.
        unsafe { libc::sigfillset(&raw mut all) };
        for signal in OWN {
            // SAFETY: changes the local set.
            unsafe { libc::sigdelset(&raw mut all, signal) };
        }
        // SAFETY: reads one set and writes the other; only an invalid first argument would be an
        // error.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) };
        Quiet { before }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if cfg!(miri) {
            return;
        }
        // SAFETY: a mask that the thread had before; the null pointer requests no output.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut())
        };
    }
}

#[cfg(test)]
mod tests;
