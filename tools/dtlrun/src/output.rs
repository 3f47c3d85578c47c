//! Output of the ranks with `--prefix`: whole lines, each with its rank.

use crate::ranks::Rank;
use crate::watch::say;
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use subprocess::set_nonblocking;

/// Exit status after the reader of the output has closed the pipe: as if SIGPIPE had ended the
/// program.
pub(crate) const READER_GONE: u8 = 128 + libc::SIGPIPE as u8;
/// Exit status if lines could not be written.
const LOST: u8 = 125;

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Entry of .init_array. The loader calls `look` before Rust's runtime starts, because the runtime
/// opens /dev/null in place of a closed standard stream.
// SAFETY: the loader calls what is in this section once, before main, and functions of this type.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    WAS_CLOSED.store(!subprocess::is_open(libc::STDOUT_FILENO), Ordering::Relaxed);
}

/// Returns true if standard output was closed when this program was started.
pub(crate) fn was_closed() -> bool {
    WAS_CLOSED.load(Ordering::Relaxed)
}

/// Destination of the lines that the ranks write: standard output and standard error of dtlrun.
pub(crate) struct Output {
    out: Target,
    err: Target,
}

struct Target {
    name: &'static str,
    /// Open stream; `None` for standard output that was closed when the program was started.
    file: Option<File>,
    /// Exit status for the first failed write; `None` if no write has failed.
    failure: Option<u8>,
}

impl Output {
    pub(crate) fn new() -> std::io::Result<Output> {
        let open = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().map(File::from);
        let out = if was_closed() { None } else { Some(open(std::io::stdout().as_fd())?) };
        let err = Some(open(std::io::stderr().as_fd())?);
        let target = |name, file| Target { name, file, failure: None };
        Ok(Output { out: target("standard output", out), err: target("standard error", err) })
    }

    /// Returns the exit status for output that could not be written; `None` if all output was
    /// written.
    pub(crate) fn failure(&self) -> Option<u8> {
        self.out.failure.or(self.err.failure)
    }
}

impl Target {
    /// Writes a line. Returns false if the reader has closed the pipe. A line that cannot be
    /// written for another reason is lost. Only the first such loss is reported; later calls still
    /// try to write their lines.
    fn write(&mut self, text: &[u8]) -> bool {
        let Err(error) = self.try_write(text) else { return true };
        let is_gone = error.kind() == ErrorKind::BrokenPipe;
        if self.failure.is_none() {
            self.failure = Some(if is_gone { READER_GONE } else { LOST });
            if !is_gone {
                say(&format!("{}: {error}: lines of the ranks are lost", self.name));
            }
        }
        !is_gone
    }

    fn try_write(&mut self, mut text: &[u8]) -> std::io::Result<()> {
        let Some(file) = &mut self.file else { return Err(Error::from_raw_os_error(libc::EBADF)) };
        while !text.is_empty() {
            match file.write(text) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => text = text.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Somebody who shares it has made it non-blocking.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Length in bytes beyond which a line is split into several output lines.
const LONGEST_LINE: usize = 64 << 10;

/// One stream of one rank.
pub(crate) struct Stream {
    rank: u32,
    pipe: File,
    /// True for standard error, false for standard output.
    is_error: bool,
    line: Vec<u8>,
}

/// Returns the output streams of the ranks; none without `--prefix`.
pub(crate) fn streams_of(ranks: &mut [Rank]) -> Vec<Stream> {
    let mut streams = Vec::new();
    for rank in ranks {
        let out = rank.child.stdout.take().map(|pipe| (OwnedFd::from(pipe), false));
        let err = rank.child.stderr.take().map(|pipe| (OwnedFd::from(pipe), true));
        for (pipe, is_error) in out.into_iter().chain(err) {
            // A stream that cannot be made non-blocking would stop all others: it is closed.
            if set_nonblocking(pipe.as_fd()).is_ok() {
                let (rank, pipe) = (rank.number, File::from(pipe));
                streams.push(Stream { rank, pipe, is_error, line: Vec::new() });
            }
        }
    }
    streams
}

impl Stream {
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// Forwards available output. Returns false at the end of the stream, or if the reader has
    /// closed the pipe. In both cases the caller must close the stream, so that a rank that
    /// continues to write gets SIGPIPE.
    pub(crate) fn pump(&mut self, output: &mut Output) -> bool {
        let mut room = [0_u8; 8192];
        loop {
            match self.pipe.read(&mut room) {
                Ok(0) => return false,
                Ok(count) => {
                    if !self.add(room.get(..count).unwrap_or_default(), output) {
                        return false;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    }

    fn add(&mut self, bytes: &[u8], output: &mut Output) -> bool {
        bytes.split_inclusive(|&byte| byte == b'\n').all(|piece| {
            self.line.extend_from_slice(piece);
            let is_whole = piece.ends_with(b"\n") || self.line.len() > LONGEST_LINE;
            !is_whole || self.flush(output)
        })
    }

    /// Writes the prefix with the rank, then the buffered line. Appends a newline if the line has
    /// none. Returns false if the reader has closed the pipe.
    pub(crate) fn flush(&mut self, output: &mut Output) -> bool {
        if self.line.is_empty() {
            return true;
        }
        let mut text = format!("[{}] ", self.rank).into_bytes();
        text.append(&mut self.line);
        if !text.ends_with(b"\n") {
            text.push(b'\n');
        }
        let target = if self.is_error { &mut output.err } else { &mut output.out };
        target.write(&text)
    }
}
