//! The ranks' output with `--prefix`: whole lines, each with its rank before it.

use crate::ranks::Rank;
use dtl::sys::child::set_nonblocking;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{ChildStderr, ChildStdout};
use std::sync::OnceLock;

/// A line longer than this is passed on in pieces.
const LONGEST_LINE: usize = 64 << 10;

static LOST: OnceLock<String> = OnceLock::new();

enum Source {
    Out(ChildStdout),
    Err(ChildStderr),
}

/// One stream of one rank.
pub(crate) struct Stream {
    rank: u32,
    source: Source,
    line: Vec<u8>,
}

/// The streams that ranks were started with; none without `--prefix`.
pub(crate) fn streams_of(ranks: &mut [Rank]) -> Vec<Stream> {
    let mut streams = Vec::new();
    for rank in ranks {
        let out = rank.child.stdout.take().map(Source::Out);
        let err = rank.child.stderr.take().map(Source::Err);
        for source in out.into_iter().chain(err) {
            let stream = Stream { rank: rank.number, source, line: Vec::new() };
            // A stream that cannot be made non-blocking would stop all others: it is closed.
            if set_nonblocking(stream.descriptor()).is_ok() {
                streams.push(stream);
            }
        }
    }
    streams
}

impl Stream {
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.source {
            Source::Out(pipe) => pipe.as_fd(),
            Source::Err(pipe) => pipe.as_fd(),
        }
    }

    /// Passes on what has arrived; false at the end of the stream.
    pub(crate) fn pump(&mut self) -> bool {
        let mut room = [0_u8; 8192];
        loop {
            let got = match &mut self.source {
                Source::Out(pipe) => pipe.read(&mut room),
                Source::Err(pipe) => pipe.read(&mut room),
            };
            match got {
                Ok(0) => return false,
                Ok(count) => self.add(room.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.line.len() > LONGEST_LINE {
                self.flush();
            }
        }
    }

    /// Writes the line so far, with a newline where it has none.
    pub(crate) fn flush(&mut self) {
        if self.line.is_empty() {
            return;
        }
        let mut text = format!("[{}] ", self.rank).into_bytes();
        text.append(&mut self.line);
        if !text.ends_with(b"\n") {
            text.push(b'\n');
        }
        let written = match self.source {
            Source::Out(_) => std::io::stdout().write_all(&text),
            Source::Err(_) => std::io::stderr().write_all(&text),
        };
        // That nobody reads us any more (`| head`) is no loss.
        if let Some(error) = written.err().filter(|error| error.kind() != ErrorKind::BrokenPipe) {
            let _ = LOST.set(error.to_string()); // the first reason counts
        }
    }
}

/// Why output of the ranks could not be passed on; `None` if all was.
pub(crate) fn lost() -> Option<&'static str> {
    LOST.get().map(String::as_str)
}
