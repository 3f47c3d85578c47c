//! Unix sockets that pass a descriptor, and waiting for several of them.
//!
//! The sockets themselves are the standard library's, with abstract names: they are no files, and
//! the kernel forgets them with their last descriptor.

use super::fd;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

/// Listens under an abstract name; AddrInUse if somebody does already.
pub fn listen(name: &str) -> io::Result<UnixListener> {
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    let listener = UnixListener::from(fd::keep(listener.into())?);
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Connects to an abstract name. The stream does not block.
pub fn connect(name: &str) -> io::Result<UnixStream> {
    quiet(UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?)
}

/// The next one that has connected, if any. The stream does not block.
pub fn accept(listener: &UnixListener) -> io::Result<Option<UnixStream>> {
    match listener.accept() {
        Ok((stream, _)) => quiet(stream).map(Some),
        // The second: it has gone already.
        Err(error)
            if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionAborted) =>
        {
            Ok(None)
        }
        Err(error) if error.kind() == ErrorKind::Interrupted => accept(listener),
        Err(error) => Err(error),
    }
}

fn quiet(stream: UnixStream) -> io::Result<UnixStream> {
    let stream = UnixStream::from(fd::keep(stream.into())?);
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// The abstract names that are in use, as far as the system tells (/proc/net/unix).
#[must_use]
pub fn abstract_names() -> Vec<String> {
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let name =
        |line: &str| line.split_ascii_whitespace().nth(7)?.strip_prefix('@').map(str::to_owned);
    sockets.lines().filter_map(name).collect()
}

/// Waits until a descriptor is readable (or closed by its peer) or `timeout_ns` has passed; tells
/// for each whether it is.
pub fn wait_readable(fds: &[BorrowedFd<'_>], timeout_ns: u64) -> io::Result<Vec<bool>> {
    let mut entries: Vec<libc::pollfd> = fds
        .iter()
        .map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 })
        .collect();
    // Rounded up, or the last millisecond would be spent spinning.
    let millis = i32::try_from(timeout_ns.div_ceil(1_000_000)).unwrap_or(i32::MAX);
    // SAFETY: as many valid entries as told; the descriptors are borrowed for the call.
    let rc = unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, millis) };
    if rc < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != ErrorKind::Interrupted {
            return Err(error);
        }
        return Ok(vec![false; fds.len()]);
    }
    Ok(entries.iter().map(|entry| entry.revents != 0).collect())
}

/// Sends all bytes; what does not fit into the socket's buffer at once is an error. A peer that is
/// gone is an error too, not SIGPIPE.
pub fn send(stream: &UnixStream, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the slice is valid for reads of its length.
    let sent = unsafe {
        libc::send(stream.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL)
    };
    match usize::try_from(sent) {
        Ok(count) if count == bytes.len() => Ok(()),
        Ok(_) => Err(io::Error::from(ErrorKind::WriteZero)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Sends one byte that carries a descriptor.
pub fn send_descriptor(stream: &UnixStream, passed: BorrowedFd<'_>) -> io::Result<()> {
    let mut byte = [1_u8];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let mut control = Control([0; CONTROL_WORDS]);
    let message = message_of(&mut part, &mut control);
    // SAFETY: the control buffer is large enough for one header, and aligned for it.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    // SAFETY: computes a length from a length.
    let length = unsafe { libc::CMSG_LEN(size_of::<RawFd>() as u32) };
    // SAFETY: CMSG_FIRSTHDR gave the address of a header inside `control` (never null: it fits).
    let fields = unsafe { &mut *header };
    fields.cmsg_level = libc::SOL_SOCKET;
    fields.cmsg_type = libc::SCM_RIGHTS;
    fields.cmsg_len = length as _;
    // SAFETY: the data lies right behind that header.
    let data = unsafe { libc::CMSG_DATA(header) };
    // SAFETY: CMSG_SPACE left room for one descriptor there.
    unsafe { data.cast::<RawFd>().write_unaligned(passed.as_raw_fd()) };
    // SAFETY: every pointer in `message` is to a live local. MSG_NOSIGNAL: an error, not SIGPIPE.
    let sent = unsafe { libc::sendmsg(stream.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    if sent == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Receives the byte of [`send_descriptor`]; InvalidData if no descriptor came with it.
pub fn receive_descriptor(stream: &UnixStream) -> io::Result<OwnedFd> {
    let mut byte = [0_u8];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let mut control = Control([0; CONTROL_WORDS]);
    let mut message = message_of(&mut part, &mut control);
    // SAFETY: every pointer in `message` is to a live local that may be written.
    let got =
        unsafe { libc::recvmsg(stream.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    match got {
        1 => {}
        0 => return Err(io::Error::from(ErrorKind::UnexpectedEof)),
        _ => return Err(io::Error::last_os_error()),
    }
    // SAFETY: the kernel filled the control buffer and told its length.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    if header.is_null() && message.msg_flags & libc::MSG_CTRUNC != 0 {
        // One came, but there is no number left for it: the kernel says it in this way only.
        return Err(io::Error::from_raw_os_error(libc::EMFILE));
    }
    if header.is_null() {
        return Err(io::Error::new(ErrorKind::InvalidData, "no descriptor came"));
    }
    // SAFETY: not null, so it lies in `control`.
    let fields = unsafe { &*header };
    if fields.cmsg_level != libc::SOL_SOCKET || fields.cmsg_type != libc::SCM_RIGHTS {
        return Err(io::Error::new(
            ErrorKind::InvalidData,
            "something else than a descriptor came",
        ));
    }
    // SAFETY: a rights message holds at least one descriptor behind its header.
    let data = unsafe { libc::CMSG_DATA(header) };
    // SAFETY: as above; the buffer has room for exactly one.
    fd::new(unsafe { data.cast::<RawFd>().read_unaligned() })
}

/// Words that one control message with one descriptor takes (24 bytes on 64-bit Linux).
const CONTROL_WORDS: usize = 3;

/// Aligned room for one control message with one descriptor.
#[repr(C, align(8))]
struct Control([u64; CONTROL_WORDS]);

fn message_of(part: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: all-zero is a valid msghdr: no name, no parts, no control.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = size_of::<Control>() as _;
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    #[test]
    fn a_descriptor_travels() {
        let (a, b) = UnixStream::pair().expect("pair");
        let (mut read, write) = UnixStream::pair().expect("pair");
        send_descriptor(&a, write.as_fd()).expect("send");
        let mut arrived = std::fs::File::from(receive_descriptor(&b).expect("receive"));
        drop(write);
        arrived.write_all(b"through").expect("write");
        drop(arrived);
        let mut text = String::new();
        read.read_to_string(&mut text).expect("read");
        assert_eq!(text, "through");
    }

    #[test]
    fn a_byte_without_a_descriptor_is_refused() {
        let (mut a, b) = UnixStream::pair().expect("pair");
        a.write_all(&[1]).expect("write");
        assert_eq!(receive_descriptor(&b).expect_err("none").kind(), ErrorKind::InvalidData);
        drop(a);
        assert_eq!(receive_descriptor(&b).expect_err("end").kind(), ErrorKind::UnexpectedEof);
    }
}
