//! A rank that cannot take part: it sends the reason to the others that are present, so that they
//! need not wait for it and guess. Best effort: without a descriptor for that, they find it absent
//! when their time is up.

use super::bootstrap_wire::{self, Frame};
use super::{LINGER_NS, Place, find_host};
use crate::error::Error;
use crate::sys::os::{poller, process, unix_socket};
use crate::sys::sync::clock::Deadline;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixListener;

/// Sends the reason why this rank does not take part.
pub(in crate::backend::shm) fn excuse(place: &Place<'_>, why: &Error) {
    let deadline = Deadline::after(LINGER_NS.min(place.timeout_ns));
    let said = Frame::of(Some(why), Some(&format!("rank {}", place.rank)));
    if place.rank > 0 {
        if let Ok(stream) = find_host(place, deadline) {
            // In one piece: rank 0 reads the second half once the hello has identified the sender.
            // If rank 0 is absent, nothing is sent.
            let _ = bootstrap_wire::send(&stream, &[place.hello(deadline), said.bytes()].concat());
        }
    } else if let Ok(listener) = unix_socket::listen(&place.identity.meeting) {
        turn_away(&listener, place.size - 1, &said, deadline);
    }
}

/// Sends `said` to the next `count` connections. It takes one descriptor at a time.
pub(in crate::backend::shm) fn turn_away(
    listener: &UnixListener,
    mut count: usize,
    said: &Frame,
    deadline: Deadline,
) {
    let said = said.bytes();
    while count > 0 && !deadline.passed() {
        if poller::wait_readable(&[listener.as_fd()], deadline.left_ns()).is_err() {
            return;
        }
        let stream = match unix_socket::accept(listener) {
            Ok(Some(stream)) => stream,
            Ok(None) => continue,
            Err(_) => return,
        };
        if process::peer_of(stream.as_raw_fd()).is_ok_and(|peer| peer.uid == process::own_uid()) {
            // Who has gone already needs no answer.
            let _ = bootstrap_wire::send(&stream, &said);
            count -= 1;
        }
    }
}
