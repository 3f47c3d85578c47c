//! A TCP connection that carries short frames and never waits: {length and kind, bytes}. What
//! arrives is not trusted: a frame longer than the reader allows ends the connection.

use crate::sys::os::close_on_fork::Unforked;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

/// Bytes before each frame.
const HEAD: usize = 4;
/// The longest frame that there can be.
pub(in crate::backend::rdma) const LONGEST: usize = (1 << 24) - 1;
/// Most bytes taken in by one call.
const MOST_AT_ONCE: usize = 64 << 10;

/// One side of a connection.
pub(in crate::backend::rdma) struct Channel {
    pub(in crate::backend::rdma) stream: Unforked<TcpStream>,
    /// What came, up to `read` taken out already.
    inbox: Vec<u8>,
    read: usize,
    /// What goes, up to `written` gone already.
    outbox: Vec<u8>,
    written: usize,
}

/// How a connection stands.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::backend::rdma) enum State {
    Open,
    /// The other side sends no more, in words why.
    Ended(String),
}

impl Channel {
    pub(in crate::backend::rdma) fn new(stream: TcpStream) -> Self {
        Channel {
            stream: Unforked::new(stream),
            inbox: Vec::new(),
            read: 0,
            outbox: Vec::new(),
            written: 0,
        }
    }

    /// Puts a frame behind those that go. Longer ones than `LONGEST` are not made here.
    pub(in crate::backend::rdma) fn queue(&mut self, kind: u8, bytes: &[u8]) {
        let len = bytes.len().min(LONGEST);
        self.outbox.extend((len as u32 | u32::from(kind) << 24).to_le_bytes());
        self.outbox.extend_from_slice(bytes.get(..len).unwrap_or_default());
    }

    /// Writes what the socket takes; whether anything is left.
    pub(in crate::backend::rdma) fn flush(&mut self) -> std::io::Result<bool> {
        while let Some(rest) = self.outbox.get(self.written..).filter(|rest| !rest.is_empty()) {
            match (&*self.stream).write(rest) {
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

    pub(in crate::backend::rdma) fn has_more_to_write(&self) -> bool {
        self.written < self.outbox.len()
    }

    /// Takes in what has arrived. What came before an end is there to be taken out.
    pub(in crate::backend::rdma) fn fill(&mut self) -> State {
        let mut room = [0_u8; 4096];
        for _ in 0..MOST_AT_ONCE / room.len() {
            match (&*self.stream).read(&mut room) {
                Ok(0) => return State::Ended("it ended its connection".to_owned()),
                Ok(count) => {
                    self.inbox.extend_from_slice(room.get(..count).unwrap_or_default());
                    if count < room.len() {
                        return State::Open;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return State::Open,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return State::Ended(error.to_string()),
            }
        }
        State::Open
    }

    /// The next whole frame: its kind and bytes. An error: what comes is longer than `most`, nobody
    /// of ours sends that.
    pub(in crate::backend::rdma) fn next(
        &mut self,
        most: usize,
    ) -> Result<Option<(u8, Vec<u8>)>, usize> {
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

    fn forget_read(&mut self) {
        self.inbox.drain(..self.read);
        self.read = 0;
        if self.inbox.is_empty() {
            self.inbox = Vec::new(); // connections are idle nearly always
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Words as bytes.
pub(in crate::backend::rdma) fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Bytes as words; those that make no whole word are left.
pub(in crate::backend::rdma) fn words_of(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|bytes| bytes.try_into().map_or(0, u64::from_le_bytes)).collect()
}
