//! Tests of `close_on_fork`.

use super::*;
use std::io::Read;
use std::os::unix::net::UnixStream;

fn is_noted(fd: RawFd) -> bool {
    place(fd).is_some_and(|(word, bit)| NOTED[word].load(Ordering::Relaxed) & bit != 0)
}

#[test]
fn a_child_does_not_keep_it() {
    let (ours, mut other) = UnixStream::pair().expect("sockets");
    let (kept, mut witness) = UnixStream::pair().expect("sockets");
    let fd = ours.as_raw_fd();
    let ours = CloseOnFork::new(ours);
    assert!(is_noted(fd));
    // SAFETY: the child makes system calls only.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: waits until it is killed.
        unsafe { libc::pause() };
        // SAFETY: ends this process.
        unsafe { libc::_exit(0) };
    }
    drop((ours, kept));
    assert!(!is_noted(fd));
    // The last descriptor of that socket, while the child lives.
    assert_eq!(other.read(&mut [0]).expect("an end"), 0);
    witness.set_nonblocking(true).expect("set");
    assert!(witness.read(&mut [0]).is_err(), "the child has that one");
    // SAFETY: the id of a child of this process.
    unsafe { libc::kill(child, libc::SIGKILL) };
    // SAFETY: a child that no other code reaps; the null pointer requests no status.
    assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
}
