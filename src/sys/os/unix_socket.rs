//! Unix sockets, which can pass descriptors between processes. Waiting for sockets is in
//! `sys::os::poller`.
//!
//! The sockets have the types of the standard library and abstract names. An abstract name is not a
//! file; the kernel removes it when the last descriptor of its socket is closed.

use super::process;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

/// Creates a nonblocking socket that listens on an abstract name; fails with AddrInUse if the name
/// is in use.
pub fn listen(name: &str) -> io::Result<UnixListener> {
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    let listener = UnixListener::from(process::keep_fd(listener.into())?);
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Connects to the socket that has the abstract name `name`. The new stream is nonblocking.
pub fn connect(name: &str) -> io::Result<UnixStream> {
    quiet(UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?)
}

/// Accepts the next connection of a nonblocking listener; returns `None` if no connection is
/// pending. The new stream is nonblocking.
pub fn accept(listener: &UnixListener) -> io::Result<Option<UnixStream>> {
    match listener.accept() {
        Ok((stream, _)) => quiet(stream).map(Some),
        Err(error) => match error.kind() {
            // ConnectionAborted: the peer has disconnected already.
            ErrorKind::WouldBlock | ErrorKind::ConnectionAborted => Ok(None),
            ErrorKind::Interrupted => accept(listener),
            _ => Err(error),
        },
    }
}

fn quiet(stream: UnixStream) -> io::Result<UnixStream> {
    let stream = UnixStream::from(process::keep_fd(stream.into())?);
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// Returns the names of the Unix sockets in the abstract namespace that /proc/net/unix lists.
pub fn abstract_names() -> Vec<String> {
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let name =
        |line: &str| line.split_ascii_whitespace().nth(7)?.strip_prefix('@').map(str::to_owned);
    sockets.lines().filter_map(name).collect()
}

/// Sends as many bytes as fit into the socket's buffer and returns their number. Returns an error
/// if the peer has disconnected, without raising SIGPIPE.
pub fn send_some(stream: &UnixStream, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::net::send(stream, bytes, SendFlags::NOSIGNAL)?)
}

/// Sends one byte and, as its control message (SCM_RIGHTS), the descriptor `passed`.
pub fn send_descriptor(stream: &UnixStream, passed: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let passed = [passed];
    if !control.push(SendAncillaryMessage::ScmRights(&passed)) {
        return Err(io::Error::from(ErrorKind::OutOfMemory));
    }
    let parts = [IoSlice::new(&[1])];
    // NOSIGNAL: a disconnected peer is an error, not SIGPIPE.
    match rustix::net::sendmsg(stream, &parts, &mut control, SendFlags::NOSIGNAL)? {
        1 => Ok(()),
        _ => Err(io::Error::from(ErrorKind::WriteZero)),
    }
}

/// Receives one byte from [`send_descriptor`], and returns the descriptor that came with it. Fails
/// with InvalidData if no descriptor came with the byte.
pub fn receive_descriptor(stream: &UnixStream) -> io::Result<OwnedFd> {
    let mut byte = [0_u8];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = rustix::net::recvmsg(stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if got.bytes == 0 {
        return Err(io::Error::from(ErrorKind::UnexpectedEof));
    }
    match control.drain().next() {
        Some(RecvAncillaryMessage::ScmRights(mut descriptors)) => match descriptors.next() {
            Some(descriptor) => process::keep_fd(descriptor),
            None => Err(invalid("no descriptor came")),
        },
        Some(_) => Err(invalid("something else than a descriptor came")),
        // A descriptor came, but no number is left for it: only this flag reports that.
        None if got.flags.contains(ReturnFlags::CTRUNC) => Err(Errno::MFILE.into()),
        None => Err(invalid("no descriptor came")),
    }
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, text)
}

#[cfg(test)]
#[path = "tests/unix_socket.rs"]
mod tests;
