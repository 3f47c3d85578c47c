//! Runs a program and collects its output. It touches no signal of the process.

use super::fd;
use super::poller::wait_readable;
use super::process::PidFd;
use rustix::pipe::PipeFlags;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Output of a program.
#[derive(Debug)]
pub struct ChildOutput {
    /// Bytes of its standard output, and of its standard error if [`Hear::Everything`] was passed.
    pub output: Vec<u8>,
    /// Whether it ended by itself; else it was killed at the time limit.
    pub in_time: bool,
}

/// Streams that [`run`] collects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capture {
    /// Its standard output.
    Output,
    /// Its standard output and standard error, as they come. The program and those that it starts
    /// are one process group, which is killed at its end.
    Everything,
}

/// Runs a program until its end or the time limit. Its input is empty. Works in a process with
/// threads (no code of ours or of fork handlers runs in between: a command without hooks is
/// `posix_spawn`), and whatever that process does with SIGCHLD or its children: the end is seen at
/// a descriptor. The exit status is not returned, because the process may have reaped the child;
/// the result has to be in the output.
pub fn run(command: &mut Command, hear: Capture, limit: Duration) -> io::Result<ChildOutput> {
    let begin = Instant::now();
    let streams = fd::occupy_standard()?;
    let (mut child, pipe) = start(command, hear)?;
    drop(streams);
    // Without one (it is reaped already, or the kernel is older than 5.3) the end of its output is
    // its end.
    let held = PidFd::open(i32::try_from(child.id()).unwrap_or(0)).ok();
    let heard = listen(pipe, held.as_ref(), begin, limit);
    if hear == Capture::Everything {
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
    Ok(ChildOutput { output: said, in_time })
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

/// Starts a program with one pipe for its output.
fn start(command: &mut Command, hear: Capture) -> io::Result<(Child, OwnedFd)> {
    let (ours, theirs) = pipe()?;
    command.stdin(Stdio::null()).stdout(theirs.try_clone()?);
    if hear == Capture::Everything {
        command.stderr(theirs.try_clone()?).process_group(0);
    }
    drop(theirs);
    let child = command.spawn();
    // The command keeps its own copies, and with them the pipe would never end.
    command.stdout(Stdio::null()).stderr(Stdio::inherit());
    fd::set_nonblocking(ours.as_fd())?;
    Ok((child?, ours))
}

/// Kills every process of the group that this child leads. A group that is gone already is not an
/// error.
fn kill_group(leader: u32) {
    if let Ok(leader) = i32::try_from(leader) {
        // SAFETY: takes integers only.
        let _ = unsafe { libc::kill(-leader, libc::SIGKILL) };
    }
}

/// Both ends of a pipe: to read, to write.
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
