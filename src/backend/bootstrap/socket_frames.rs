//! Connection that carries short frames. A frame consists of a header (payload length and frame
//! kind) and the payload. Only `receive` blocks. Incoming data is untrusted: a frame that is longer
//! than the reader allows ends the connection.

use crate::sys::os::close_on_fork::CloseOnFork;
use crate::sys::os::{process, unix_socket};
use crate::sys::sync::wait::Deadline;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// Size of a frame's header, in bytes.
const HEAD: usize = 4;
/// Maximum size of a frame's payload, in bytes.
pub(super) const LONGEST: usize = (1 << 24) - 1;
/// Maximum number of bytes read per call to `fill`.
const MOST_AT_ONCE: usize = 64 << 10;
/// Interval between two write attempts while the socket buffer is full, in nanoseconds.
const MOMENT_NS: u64 = 1_000_000;

/// A connected socket in nonblocking mode.
pub(super) trait Stream: AsFd {
    fn read_some(&self, into: &mut [u8]) -> io::Result<usize>;
    /// Writes some bytes. If the peer has closed the connection, returns an error and does not
    /// raise SIGPIPE.
    fn write_some(&self, bytes: &[u8]) -> io::Result<usize>;
}

impl Stream for TcpStream {
    fn read_some(&self, into: &mut [u8]) -> io::Result<usize> {
        (&*self).read(into)
    }

    fn write_some(&self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }
}

impl Stream for UnixStream {
    fn read_some(&self, into: &mut [u8]) -> io::Result<usize> {
        (&*self).read(into)
    }

    fn write_some(&self, bytes: &[u8]) -> io::Result<usize> {
        unix_socket::send_some(self, bytes)
    }
}

/// One end of a connection, with its receive and send buffers.
pub(super) struct Channel<S: Stream = TcpStream> {
    pub(super) stream: CloseOnFork<S>,
    /// Received bytes; the first `read` bytes have been consumed.
    inbox: Vec<u8>,
    read: usize,
    /// Bytes to send; the first `written` bytes have been written.
    outbox: Vec<u8>,
    written: usize,
}

/// Reason why `receive` did not return a frame.
pub(super) enum FrameFailure {
    /// The deadline passed before a complete frame arrived.
    Silent,
    /// The connection has ended; the string is the reason.
    Ended(String),
    /// The frame is longer than allowed; the value is the length of its payload in bytes.
    TooLong(usize),
}

impl<S: Stream> Channel<S> {
    pub(super) fn new(stream: S) -> Self {
        Channel {
            stream: CloseOnFork::new(stream),
            inbox: Vec::new(),
            read: 0,
            outbox: Vec::new(),
            written: 0,
        }
    }

    /// Queues a frame. If `bytes` exceeds `LONGEST`, it is truncated.
    pub(super) fn queue(&mut self, kind: u8, bytes: &[u8]) {
        let len = bytes.len().min(LONGEST);
        self.outbox.extend((len as u32 | u32::from(kind) << 24).to_le_bytes());
        self.outbox.extend_from_slice(bytes.get(..len).unwrap_or_default());
    }

    /// Writes as many queued bytes as the socket accepts; returns true if queued bytes are left.
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        while let Some(rest) = self.outbox.get(self.written..).filter(|rest| !rest.is_empty()) {
            match self.stream.write_some(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        (self.outbox, self.written) = (Vec::new(), 0);
        Ok(false)
    }

    pub(super) fn has_more_to_write(&self) -> bool {
        self.written < self.outbox.len()
    }

    /// Reads bytes that have arrived. If the connection has ended or failed, returns the reason as
    /// an error; bytes that have already been read can still be consumed.
    pub(super) fn fill(&mut self) -> Result<(), String> {
        self.fill_up_to(MOST_AT_ONCE)
    }

    fn fill_up_to(&mut self, mut most: usize) -> Result<(), String> {
        let mut room = [0_u8; 4096];
        while most > 0 {
            let wanted = most.min(room.len());
            match self.stream.read_some(room.get_mut(..wanted).unwrap_or_default()) {
                Ok(0) => return Err("it ended its connection".to_owned()),
                Ok(count) => {
                    self.inbox.extend_from_slice(room.get(..count).unwrap_or_default());
                    if count < wanted {
                        return Ok(());
                    }
                    most -= count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }

    /// Returns the kind and the bytes of the next complete frame, or `None` if there is none.
    /// Returns the payload length of the frame as an error if the length exceeds `most`. No rank
    /// sends such a frame.
    pub(super) fn next(&mut self, most: usize) -> Result<Option<(u8, Vec<u8>)>, usize> {
        let waiting = self.inbox.get(self.read..).unwrap_or_default();
        let Some((head, rest)) = waiting.split_first_chunk::<HEAD>() else {
            self.forget_read();
            return Ok(None);
        };
        let head = u32::from_le_bytes(*head);
        let (len, kind) = ((head & 0xFF_FFFF) as usize, (head >> 24) as u8);
        if len > most {
            return Err(len);
        }
        let Some(bytes) = rest.get(..len).map(<[u8]>::to_vec) else {
            self.forget_read();
            return Ok(None);
        };
        self.read += HEAD + len;
        Ok(Some((kind, bytes)))
    }

    /// Writes queued frames and waits for the next frame. Does not read beyond that frame, so that
    /// a file descriptor sent after the frame stays in the socket.
    pub(super) fn receive(
        &mut self,
        most: usize,
        deadline: Deadline,
    ) -> Result<(u8, Vec<u8>), FrameFailure> {
        loop {
            let more = self.flush().unwrap_or(false);
            if let Some(frame) = self.next(most).map_err(FrameFailure::TooLong)? {
                return Ok(frame);
            }
            let before = self.inbox.len();
            self.fill_up_to(self.missing()).map_err(FrameFailure::Ended)?;
            if self.inbox.len() > before {
                continue;
            }
            if deadline.passed() {
                return Err(FrameFailure::Silent);
            }
            let left_ns = deadline.left_ns();
            let wait_ns = if more { left_ns.min(MOMENT_NS) } else { left_ns };
            process::wait_readable(&[self.as_fd()], wait_ns)
                .map_err(|error| FrameFailure::Ended(error.to_string()))?;
        }
    }

    /// Returns the number of bytes that are missing from the next frame, or from its header if the
    /// header is incomplete.
    fn missing(&self) -> usize {
        let waiting = self.inbox.get(self.read..).unwrap_or_default();
        let whole = match waiting.first_chunk::<HEAD>() {
            Some(head) => HEAD + (u32::from_le_bytes(*head) & 0xFF_FFFF) as usize,
            None => HEAD,
        };
        whole.saturating_sub(waiting.len())
    }

    fn forget_read(&mut self) {
        self.inbox.drain(..self.read);
        self.read = 0;
        if self.inbox.is_empty() {
            self.inbox = Vec::new(); // connections are nearly always idle
        }
    }
}

impl<S: Stream> AsFd for Channel<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
#[path = "tests/socket_frames.rs"]
mod tests;
