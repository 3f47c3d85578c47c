//! TCP sockets that never wait, what this machine is reached at, and one question after many of
//! them.
//!
//! Not here: Unix sockets, and waiting for a few descriptors at a start (`sys::socket`).

use super::fd;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// How many may have connected and not be accepted yet; the system may allow fewer.
const BACKLOG: libc::c_int = 4096;

/// Listens at an address of this machine (port 0 = any). Accepting does not wait.
pub fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::from(fd::keep(TcpListener::bind(at)?.into())?);
    // SAFETY: takes integers; a socket that listens goes on with the longer queue.
    if unsafe { libc::listen(listener.as_raw_fd(), BACKLOG) } != 0 {
        return Err(io::Error::last_os_error());
    }
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Listens at a port of all addresses (0 = any).
pub fn listen_everywhere(port: u16) -> io::Result<TcpListener> {
    // The first takes IPv4 too, unless the system says otherwise; the second is for systems without
    // IPv6.
    listen((Ipv6Addr::UNSPECIFIED, port).into())
        .or_else(|_| listen((Ipv4Addr::UNSPECIFIED, port).into()))
}

/// The next that has connected, if any. The stream does not wait.
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
    let stream = TcpStream::from(fd::keep(socket)?);
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Begins to connect. When the stream can be written, it has connected or failed:
/// `TcpStream::take_error` tells.
pub fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes integers and gives a new descriptor.
    let stream = quiet(fd::new(unsafe { libc::socket(family, kind, 0) })?)?;
    let socket = stream.as_raw_fd();
    let rc = match to {
        SocketAddr::V4(to) => {
            let name = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: to.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(to.ip().octets()) },
                sin_zero: [0; 8],
            };
            let len = size_of_val(&name) as libc::socklen_t;
            // SAFETY: an address of the length that is told.
            unsafe { libc::connect(socket, (&raw const name).cast(), len) }
        }
        SocketAddr::V6(to) => {
            let name = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: to.port().to_be(),
                sin6_flowinfo: to.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: to.ip().octets() },
                sin6_scope_id: to.scope_id(),
            };
            let len = size_of_val(&name) as libc::socklen_t;
            // SAFETY: as above.
            unsafe { libc::connect(socket, (&raw const name).cast(), len) }
        }
    };
    if rc == 0 {
        return Ok(stream);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EINPROGRESS | libc::EINTR) => Ok(stream),
        _ => Err(error),
    }
}

/// Makes a connection end by itself when its other side has been silent for so long, as a machine
/// without power is; also when it has not taken for so long what was sent, although its buffer was
/// full.
pub fn end_if_silent(stream: &TcpStream, silent: Duration) -> io::Result<()> {
    let seconds = i32::try_from(silent.as_secs()).unwrap_or(i32::MAX).max(1);
    // Asked each second, or as often as a long silence needs: the first time after one interval.
    let interval = (seconds / 5).max(1);
    let millis = i32::try_from(silent.as_millis()).unwrap_or(i32::MAX).max(1);
    for (level, name, value) in [
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, interval),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, interval),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, (seconds / interval).max(1)),
        // Of what has been sent.
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, millis),
    ] {
        let len = size_of_val(&value) as libc::socklen_t;
        // SAFETY: one integer, of the length that is told.
        let rc = unsafe {
            libc::setsockopt(stream.as_raw_fd(), level, name, (&raw const value).cast(), len)
        };
        if rc != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// An address of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The interface's name.
    pub name: String,
    /// Its address.
    pub address: IpAddr,
}

/// The addresses of the interfaces that are up, in the system's order.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: writes one pointer, which `first` is.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = first;
    while !next.is_null() {
        // SAFETY: an entry of the list that getifaddrs made; it stays until the list is freed.
        let entry = unsafe { &*next };
        next = entry.ifa_next;
        let is_up = entry.ifa_flags & libc::IFF_UP as libc::c_uint != 0;
        // SAFETY: the entry's address is null or a whole one of its family.
        let address = unsafe { address_of(entry.ifa_addr) };
        if let Some(address) = address.filter(|_| is_up) {
            // SAFETY: every entry has a name, which ends with a NUL.
            let name = unsafe { std::ffi::CStr::from_ptr(entry.ifa_name) };
            found.push(Interface { name: name.to_string_lossy().into_owned(), address });
        }
    }
    // SAFETY: the list of above, which nothing refers to any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// # Safety
/// Null, or a whole address of the family that it begins with.
unsafe fn address_of(name: *const libc::sockaddr) -> Option<IpAddr> {
    if name.is_null() {
        return None;
    }
    // SAFETY: not null, so an address, all of which begin with a family.
    match libc::c_int::from(unsafe { (*name).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the family says that it is one of IPv4.
            let bytes =
                unsafe { (*name.cast::<libc::sockaddr_in>()).sin_addr.s_addr }.to_ne_bytes();
            Some(Ipv4Addr::from(bytes).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that it is one of IPv6.
            let bytes = unsafe { (*name.cast::<libc::sockaddr_in6>()).sin6_addr.s6_addr };
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

/// What a descriptor is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Something to read, or its end.
    Reading,
    /// The same, or room to write.
    Both,
}

/// Asks after many descriptors with one system call. Who is asked after is kept by the kernel.
pub struct Poller(OwnedFd);

impl Poller {
    /// Asks after nobody.
    pub fn new() -> io::Result<Self> {
        // SAFETY: takes an integer and gives a new descriptor.
        fd::new(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }).map(Poller)
    }

    /// Adds a descriptor under a number.
    pub fn add(&self, what: BorrowedFd<'_>, number: u64, wanted: Wanted) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, what, number, wanted)
    }

    /// From now on it is asked for this.
    pub fn change(&self, what: BorrowedFd<'_>, number: u64, wanted: Wanted) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, what, number, wanted)
    }

    /// Asks no more after one. To be called before it is closed: the kernel forgets it by itself
    /// only when no forked child has it any more either.
    pub fn remove(&self, what: BorrowedFd<'_>) {
        // It fails for one that is not there, which is what is wanted.
        drop(self.control(libc::EPOLL_CTL_DEL, what, 0, Wanted::Reading));
    }

    fn control(
        &self,
        how: i32,
        what: BorrowedFd<'_>,
        number: u64,
        wanted: Wanted,
    ) -> io::Result<()> {
        let events = match wanted {
            Wanted::Reading => libc::EPOLLIN,
            Wanted::Both => libc::EPOLLIN | libc::EPOLLOUT,
        };
        let mut entry = libc::epoll_event { events: events as u32, u64: number };
        // SAFETY: two open descriptors and one valid entry, which is only read.
        match unsafe { libc::epoll_ctl(self.0.as_raw_fd(), how, what.as_raw_fd(), &raw mut entry) }
        {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The numbers of those that are ready, some of them if they are many; waits up to `timeout_ns`
    /// for the first (`u64::MAX`: for ever). One system call.
    pub fn ready(&self, timeout_ns: u64) -> Ready {
        let mut found =
            Ready { entries: [libc::epoll_event { events: 0, u64: 0 }; MOST], count: 0 };
        // Rounded up, or the last millisecond would be spent spinning.
        let millis = match timeout_ns {
            u64::MAX => -1,
            ns => i32::try_from(ns.div_ceil(1_000_000)).unwrap_or(i32::MAX),
        };
        // SAFETY: room for as many entries as are asked for.
        let count = unsafe {
            libc::epoll_wait(self.0.as_raw_fd(), found.entries.as_mut_ptr(), MOST as i32, millis)
        };
        // An error is a signal that came in between: the next call tells.
        found.count = usize::try_from(count).unwrap_or(0);
        found
    }
}

/// Readable if one of those that it asks after is ready.
impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Most that one call tells of.
const MOST: usize = 32;

/// Numbers of descriptors that are ready.
pub struct Ready {
    entries: [libc::epoll_event; MOST],
    count: usize,
}

impl Ready {
    /// The numbers.
    pub fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.entries.iter().take(self.count).map(|entry| entry.u64)
    }

    /// Whether others may be ready too.
    #[must_use]
    pub fn there_may_be_more(&self) -> bool {
        self.count == MOST
    }
}
