//! Setup of a child process between fork and exec.

use crate::cpus::bind;
use crate::signals::unblock_all;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Properties of a child process, set before its program starts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup {
    /// Processor to which the process is bound, if any.
    pub cpu: Option<usize>,
    /// True if the process does not write a core dump when it crashes.
    pub no_core: bool,
    /// True if the child process gets SIGTERM instead of SIGKILL when the calling process dies. A
    /// launcher then ends its ranks, which SIGKILL would prevent.
    pub is_launcher: bool,
}

/// Prepares a command. Its process receives SIGKILL, or SIGTERM if the process is a launcher, when
/// the thread that started the process ends. The process starts with all signals unblocked and runs
/// on the processor in `setup`, if any.
pub fn prepare(command: &mut Command, setup: Setup) {
    let parent = std::process::id();
    let hook = move || before_exec(parent, setup);
    // SAFETY: the hook runs between fork and exec: it makes system calls only, allocates nothing
    // and takes no lock.
    unsafe { command.pre_exec(hook) };
}

fn before_exec(parent: u32, setup: Setup) -> io::Result<()> {
    let last = if setup.is_launcher { libc::SIGTERM } else { libc::SIGKILL };
    // SAFETY: takes integers only.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, last, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // The parent may have died before that call: then nobody would send the signal.
    if std::os::unix::process::parent_id() != parent {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    unblock_all()?;
    if setup.no_core {
        forbid_cores()?;
    }
    setup.cpu.map_or(Ok(()), bind)
}

/// Sets the core dump size limit (RLIMIT_CORE) to at most one byte: a limit of 0 does not stop the
/// kernel from piping a dump to a program (core(5)), but a limit of 1 does.
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
