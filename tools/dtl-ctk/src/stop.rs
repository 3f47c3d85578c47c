//! Orderly exit after a signal: child processes are terminated, temporary files are removed, and
//! the exit status identifies the signal. If this process is killed with SIGKILL, its children are
//! still terminated.

use std::io::{Error, ErrorKind};
use std::process::{Child, Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};
use subprocess::{Setup, Signals, is_ignored, prepare};

static SIGNALS: Mutex<Option<Signals>> = Mutex::new(None);
/// Number of the signal that this process has received; 0 if none.
static ARRIVED: AtomicI32 = AtomicI32::new(0);

/// Blocks SIGINT, SIGTERM and SIGHUP, so that they stay pending until [`check`] reads them. Ignored
/// signals (`nohup`) stay ignored.
pub(crate) fn listen() {
    let wanted = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
    let heard: Vec<i32> = wanted.into_iter().filter(|&signal| !is_ignored(signal)).collect();
    if let (Ok(signals), Ok(mut place)) = (Signals::take_over(&heard), SIGNALS.lock()) {
        *place = Some(signals);
    }
}

/// Prepares a command so that its child process is killed when this process ends. The signals that
/// this process blocks are unblocked in the child.
pub(crate) fn with_us(command: &mut Command) -> &mut Command {
    prepare(command, Setup::default());
    command
}

/// Fails if a signal has arrived since the call to [`listen`]. In this case, also kills the child
/// process.
pub(crate) fn check(child: Option<&mut Child>) -> Result<(), Error> {
    if let Some(signal) = SIGNALS.lock().ok().and_then(|mut signals| signals.as_mut()?.take()) {
        ARRIVED.store(signal.number, Ordering::Relaxed);
    }
    let signal = ARRIVED.load(Ordering::Relaxed);
    if signal == 0 {
        return Ok(());
    }
    if let Some(child) = child {
        child.kill()?;
        child.wait()?;
    }
    Err(Error::new(ErrorKind::Interrupted, format!("ended by signal {signal}")))
}

/// Returns the exit status for the signal that has arrived; `None` if none has.
pub(crate) fn status() -> Option<ExitCode> {
    let signal = ARRIVED.load(Ordering::Relaxed);
    u8::try_from(signal)
        .ok()
        .filter(|&signal| signal != 0)
        .map(|signal| ExitCode::from(128 + signal))
}
