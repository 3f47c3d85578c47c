//! Orderly exit after a signal: children end, temporary files are removed, and the exit status
//! names the signal. After SIGKILL, at least the children end.

use std::io::{Error, ErrorKind};
use std::process::{Child, Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};
use subprocess::{Setup, Signals, is_ignored, prepare};

static SIGNALS: Mutex<Option<Signals>> = Mutex::new(None);
/// The signal that arrived; 0 = none.
static ARRIVED: AtomicI32 = AtomicI32::new(0);

/// Blocks the signals, so that they wait for [`check`]. Ignored signals (`nohup`) stay ignored.
pub(crate) fn listen() {
    let wanted = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
    let heard: Vec<i32> = wanted.into_iter().filter(|&signal| !is_ignored(signal)).collect();
    if let (Ok(signals), Ok(mut place)) = (Signals::take_over(&heard), SIGNALS.lock()) {
        *place = Some(signals);
    }
}

/// Sets up a command so that its process ends with this one, and receives signals as usual.
pub(crate) fn with_us(command: &mut Command) -> &mut Command {
    prepare(command, Setup::default());
    command
}

/// Fails if a signal has arrived, now or before; then also ends the child.
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

/// The exit status after a signal.
pub(crate) fn status() -> Option<ExitCode> {
    let signal = ARRIVED.load(Ordering::Relaxed);
    u8::try_from(signal)
        .ok()
        .filter(|&signal| signal != 0)
        .map(|signal| ExitCode::from(128 + signal))
}
