//! Nonblocking TCP sockets, and the network addresses of this machine.
//!
//! Unix sockets are in `sys::os::unix_socket`. Waiting for sockets is in `sys::os::poller`.

use super::process;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Maximum number of pending connections of a listening socket (backlog); the system may allow
/// fewer.
const BACKLOG: i32 = 4096;

/// Creates a nonblocking socket that listens on an address of this machine (port 0: any free port).
pub fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::from(process::keep_fd(TcpListener::bind(at)?.into())?);
    // A second `listen` gives the listening socket the longer backlog.
    rustix::net::listen(&listener, BACKLOG)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Creates a nonblocking socket that listens on `port` on all addresses of this machine (port 0:
/// any free port).
pub fn listen_everywhere(port: u16) -> io::Result<TcpListener> {
    // IPv6 accepts IPv4 too, unless configured otherwise; IPv4 alone where IPv6 is missing.
    listen((Ipv6Addr::UNSPECIFIED, port).into())
        .or_else(|_| listen((Ipv4Addr::UNSPECIFIED, port).into()))
}

/// Accepts the next connection on a nonblocking listener; returns `None` if no connection is
/// pending. The new stream is nonblocking.
pub fn accept(listener: &TcpListener) -> io::Result<Option<(TcpStream, SocketAddr)>> {
    match listener.accept() {
        Ok((stream, from)) => Ok(Some((quiet(stream.into())?, from))),
        Err(error) => match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::ConnectionAborted => Ok(None),
            ErrorKind::Interrupted => accept(listener),
            _ => Err(error),
        },
    }
}

fn quiet(socket: OwnedFd) -> io::Result<TcpStream> {
    let stream = TcpStream::from(process::keep_fd(socket)?);
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Starts to connect a nonblocking stream. The stream becomes writable when the connection is
/// established or has failed; `TcpStream::take_error` then returns the error, if any.
pub fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let stream = quiet(rustix::net::socket_with(family, SocketType::STREAM, flags, None)?)?;
    match rustix::net::connect(&stream, &to) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(stream),
        Err(error) => Err(error.into()),
    }
}

/// Makes the kernel close the connection if the peer does not respond for the time `silent` (for
/// example after a power failure), or if it accepts no data for that time because its receive
/// buffer is full.
pub fn end_if_silent(stream: &TcpStream, silent: Duration) -> io::Result<()> {
    let seconds = silent.as_secs().clamp(1, i32::MAX as u64);
    // A probe each second, or at a fifth of a longer limit; the first probe after one interval.
    let interval = (seconds / 5).max(1);
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(interval))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(interval))?;
    sockopt::set_tcp_keepcnt(stream, (seconds / interval).max(1) as u32)?;
    // The limit for sent data without acknowledgement.
    let millis = silent.as_millis().clamp(1, i32::MAX as u128) as u32;
    Ok(sockopt::set_tcp_user_timeout(stream, millis)?)
}

/// Network interface of this machine, with one of its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name of the interface.
    pub name: String,
    /// Address of the interface.
    pub address: IpAddr,
}

/// Returns the addresses of all network interfaces that are up, in the order of getifaddrs.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: writes one pointer, to `first`.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = first;
    while !next.is_null() {
        // SAFETY: an entry of the list that getifaddrs allocated; it stays until the list is freed.
        let entry = unsafe { &*next };
        next = entry.ifa_next;
        let is_up = entry.ifa_flags & libc::IFF_UP as libc::c_uint != 0;
        // SAFETY: the entry's address is null or a complete address of its family.
        let address = unsafe { address_of(entry.ifa_addr) };
        if let Some(address) = address.filter(|_| is_up) {
            // SAFETY: every entry has a name, which ends with a NUL.
            let name = unsafe { std::ffi::CStr::from_ptr(entry.ifa_name) };
            found.push(Interface { name: name.to_string_lossy().into_owned(), address });
        }
    }
    // SAFETY: the list of getifaddrs, to which there are no references any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// # Safety
/// `name` must be null, or point to a complete socket address of the family that its first field
/// specifies.
unsafe fn address_of(name: *const libc::sockaddr) -> Option<IpAddr> {
    if name.is_null() {
        return None;
    }
    // SAFETY: not null, so an address, all of which begin with a family.
    match libc::c_int::from(unsafe { (*name).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the address has the family AF_INET, so it is a sockaddr_in.
            let bytes =
                unsafe { (*name.cast::<libc::sockaddr_in>()).sin_addr.s_addr }.to_ne_bytes();
            Some(Ipv4Addr::from(bytes).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the address has the family AF_INET6, so it is a sockaddr_in6.
            let bytes = unsafe { (*name.cast::<libc::sockaddr_in6>()).sin6_addr.s6_addr };
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}
