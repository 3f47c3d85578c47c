//! Functions for a child process that has been started.

use crate::signals::send_signal;
use std::io::{self, Read};
use std::process::Child;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

/// Starts a thread that reads from a child's pipe until end of file. The returned channel receiver
/// yields the whole output.
pub fn listen(mut pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes); // what was read before an error counts
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned()); // nobody may wait any more
    });
    receiver
}

/// Ends a child process: sends SIGTERM, so that a launcher can end its ranks, and sends SIGKILL if
/// the process has not exited after `grace`. SIGKILL alone would leave the ranks running.
pub fn end(child: &mut Child, grace: Duration) -> io::Result<()> {
    send_signal(child.id(), libc::SIGTERM);
    let begin = Instant::now();
    while begin.elapsed() < grace {
        if child.try_wait()?.is_some() {
            return Ok(());
        }
        sleep(Duration::from_millis(10));
    }
    child.kill()?;
    child.wait().map(drop)
}
