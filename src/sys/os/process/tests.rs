//! Tests of `process`.

use super::*;
use crate::sys::os::poller::{Interest, Poller};

#[test]
fn start_time_of_self_is_stable() {
    let first = start_time(own_pid()).expect("own stat");
    assert!(first > 0);
    assert_eq!(first, start_time(own_pid()).expect("own stat"));
    assert!(start_time(i32::MAX).is_err());
}

#[test]
fn pidfd_sees_a_zombie_as_exited_and_a_living_process_as_not() {
    let mut child = std::process::Command::new("cat")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("spawn");
    let held = PidFd::open(child.id() as i32).expect("pidfd");
    let poller = Poller::new().expect("epoll");
    poller.add(held.as_fd(), 7, Interest::Once).expect("watched");
    let look = || poller.ready(0).numbers().collect::<Vec<_>>();
    assert!(!held.exited() && look().is_empty());
    drop(child.stdin.take());
    while !held.exited() {
        std::thread::yield_now();
    }
    // A process has exited a moment before the kernel reports it.
    let told = || std::iter::repeat_with(look).find(|found| !found.is_empty());
    assert_eq!((told(), look()), (Some(vec![7]), vec![]), "told once");
    child.wait().expect("reap");
}

#[test]
fn what_is_no_descriptor_is_an_error() {
    // SAFETY: takes an integer, which is no descriptor.
    let error = new_fd(unsafe { libc::dup(-1) }).expect_err("no descriptor");
    assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    assert_eq!(fd_shortage(&error), None);
}

#[test]
fn a_shortage_names_its_limit() {
    let error = room_for_fds(usize::try_from(most()).unwrap()).expect_err("some are open already");
    let text = fd_shortage(&error).expect("a shortage");
    assert!(
        text.contains("ulimit -n") && text.contains(&format!(" {} open files", most())),
        "{text}"
    );
    let text = fd_shortage(&io::Error::from_raw_os_error(libc::ENFILE)).expect("a shortage");
    assert!(text.contains("fs.file-max"), "{text}");
    room_for_fds(1).expect("a descriptor");
}
