//! Running a program and collecting its output, without changes to the process's signal handling.

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
    let heard = listen(pipe, held.as_ref(), begin, limit);
    if hear == Capture::Everything {
        if held.is_none() && matches!(heard, Ok((_, true))) {
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
    let (said, in_time) = heard?;
    Ok(ChildOutput { output: said, in_time })
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
    let (mut pipe, mut said) = (Some(File::from(pipe)), Vec::new());
    loop {
        // In this order: all bytes that the program wrote before its end are in the pipe by then.
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

/// Reads the bytes that have arrived. Returns false at the end of the output.
fn drain(pipe: &mut File, said: &mut Vec<u8>) -> bool {
    match pipe.read_to_end(said) {
        Ok(_) => false,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}
