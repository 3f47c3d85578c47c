//! Bootstrap protocol between the ranks: one hello, then frames of a status and bytes.

use crate::abi::status::*;
use crate::error::{Error, Result, fail, is_status};
use crate::sys::os::{fd, poller, unix_socket};
use crate::sys::sync::clock::Deadline;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Changes with everything that both sides of a shared memory must agree on.
const MAGIC: u64 = u64::from_be_bytes(*b"dtl-shm3");
/// Bytes of a hello.
pub(in crate::backend::shm) const HELLO_BYTES: usize = 48;
/// The longest frame that is read: a roster of the most ranks is half of it.
const LONGEST: usize = 16 << 10;

/// The first frame that a rank sends.
pub(in crate::backend::shm) struct Hello {
    pub(in crate::backend::shm) cookie: u64,
    pub(in crate::backend::shm) rank: u64,
    pub(in crate::backend::shm) size: u64,
    /// Nanoseconds until it gives up.
    pub(in crate::backend::shm) left_ns: u64,
    pub(in crate::backend::shm) namespace: u64,
}

impl Hello {
    pub(in crate::backend::shm) fn bytes(&self) -> Vec<u8> {
        let words = [MAGIC, self.cookie, self.rank, self.size, self.left_ns, self.namespace];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// `None`: not a hello of this job.
    pub(in crate::backend::shm) fn parse(bytes: &[u8], cookie: u64) -> Option<Hello> {
        let words: Vec<u64> = bytes.chunks_exact(8).map(word_of).collect();
        match words.as_slice() {
            &[MAGIC, said, rank, size, left_ns, namespace] if said == cookie => {
                Some(Hello { cookie, rank, size, left_ns, namespace })
            }
            _ => None,
        }
    }
}

fn word_of(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// A status and bytes: the text of a failure, or a roster.
pub(in crate::backend::shm) struct Frame {
    status: dtl_status_t,
    bytes: Vec<u8>,
}

impl Frame {
    /// Success, or a failure with its text and who had it.
    pub(in crate::backend::shm) fn of(error: Option<&Error>, whose: Option<&str>) -> Frame {
        let Some(error) = error else {
            return Frame { status: DTL_SUCCESS, bytes: Vec::new() };
        };
        let text =
            whose.map_or(error.text().to_string(), |whose| format!("{whose}: {}", error.text()));
        Frame {
            status: error.status(),
            bytes: text.into_bytes().into_iter().take(LONGEST).collect(),
        }
    }

    /// The process ids of all ranks.
    pub(in crate::backend::shm) fn roster(pids: &[i32]) -> Frame {
        Frame {
            status: DTL_SUCCESS,
            bytes: pids.iter().flat_map(|&pid| i64::from(pid).to_le_bytes()).collect(),
        }
    }

    pub(in crate::backend::shm) fn bytes(&self) -> Vec<u8> {
        let head = (u64::from(self.status as u32) | (self.bytes.len() as u64) << 32).to_le_bytes();
        [&head[..], &self.bytes].concat()
    }

    /// The failure, if it is one.
    pub(in crate::backend::shm) fn success(&self) -> Result<()> {
        match self.status {
            DTL_SUCCESS => Ok(()),
            status => {
                let status = if is_status(status) { status } else { DTL_ERROR_COMMUNICATION };
                Err(Error::new(status, String::from_utf8_lossy(&self.bytes)))
            }
        }
    }

    /// The roster.
    pub(in crate::backend::shm) fn pids(&self) -> Result<Vec<i32>> {
        self.success()?;
        Ok(self
            .bytes
            .chunks_exact(8)
            .map(|bytes| i32::try_from(word_of(bytes)).unwrap_or(0))
            .collect())
    }
}

/// An operating system's error as ours.
pub(in crate::backend::shm) fn failed(error: io::Error) -> Error {
    match fd::shortage(&error) {
        Some(text) => Error::new(DTL_ERROR_LIMIT, text),
        None => {
            Error::new(DTL_ERROR_COMMUNICATION, format!("{error}; see the other ranks' output"))
        }
    }
}

pub(in crate::backend::shm) fn send(stream: &UnixStream, bytes: &[u8]) -> Result<()> {
    unix_socket::send(stream, bytes).map_err(failed)
}

/// Appends what has arrived, up to `most` bytes in all; false at the end of the stream.
pub(in crate::backend::shm) fn read_some(
    mut stream: &UnixStream,
    said: &mut Vec<u8>,
    most: usize,
) -> bool {
    let mut room = [0_u8; 256];
    let wanted = most.saturating_sub(said.len()).min(room.len());
    let Some(room) = room.get_mut(..wanted) else { return false };
    match stream.read(room) {
        Ok(0) => false,
        Ok(count) => {
            said.extend(room.iter().take(count));
            true
        }
        Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
    }
}

fn read_exactly(stream: &UnixStream, count: usize, deadline: Deadline) -> Result<Vec<u8>> {
    let mut said = Vec::new();
    while said.len() < count {
        wait(stream, deadline)?;
        if !read_some(stream, &mut said, count) {
            return fail!(
                DTL_ERROR_RANK_FAILURE,
                "it ended while the communicator was opened; see its own output"
            );
        }
    }
    Ok(said)
}

fn wait(stream: &UnixStream, deadline: Deadline) -> Result<()> {
    let ready = poller::wait_readable(&[stream.as_fd()], deadline.left_ns()).map_err(failed)?;
    if !ready.contains(&true) && deadline.passed() {
        return fail!(
            DTL_ERROR_TIMEOUT,
            "no answer within the time limit; raise it, or see whether all ranks run"
        );
    }
    Ok(())
}

pub(in crate::backend::shm) fn read_frame(
    stream: &UnixStream,
    deadline: Deadline,
) -> Result<Frame> {
    let head = word_of(&read_exactly(stream, 8, deadline)?);
    let (status, len) = (head as u32 as i32, (head >> 32) as usize);
    if len > LONGEST {
        return fail!(
            DTL_ERROR_COMMUNICATION,
            "an answer of {len} bytes makes no sense; use one version of libdtl"
        );
    }
    Ok(Frame { status, bytes: read_exactly(stream, len, deadline)? })
}

pub(in crate::backend::shm) fn read_descriptor(
    stream: &UnixStream,
    deadline: Deadline,
) -> Result<OwnedFd> {
    loop {
        wait(stream, deadline)?;
        match unix_socket::receive_descriptor(stream) {
            Ok(fd) => return Ok(fd),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(failed(error)),
        }
    }
}
