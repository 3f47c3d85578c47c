//! Descriptors that a forked child does not keep: sockets whose end signals this process's end.
//!
//! A child gets a copy of every descriptor, and a socket lives as long as any copy of it. So the
//! child closes those that are noted here, before fork returns in it. One that runs another program
//! has none in any case: they are closed then.

use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Numbers of descriptors that can be noted: as many as a process may have, usually. Those beyond
/// stay open in children.
const NUMBERS: usize = 1 << 20;
/// A bit for each number. No lock: another thread of the parent may have had it at the fork.
///
/// Relaxed: the child reads its own copy of the memory, in which nobody writes. What another thread
/// is about to note or to strike out at the fork stays open there.
static NOTED: [AtomicU64; NUMBERS / 64] = [const { AtomicU64::new(0) }; NUMBERS / 64];
/// Words of those that were ever used.
static USED: AtomicUsize = AtomicUsize::new(0);
static ASKED: Once = Once::new();

/// Owner of a descriptor that forked children do not keep. A child must neither drop nor use it.
pub struct CloseOnFork<T: AsFd>(T);

impl<T: AsFd> CloseOnFork<T> {
    /// From now on.
    pub fn new(of: T) -> Self {
        ASKED.call_once(|| {
            // SAFETY: a function without arguments, which makes system calls only. Without memory
            // for it children keep all.
            unsafe { libc::pthread_atfork(None, None, Some(close_all)) };
        });
        if let Some((word, bit)) = place(of.as_fd().as_raw_fd()) {
            USED.fetch_max(word + 1, Ordering::Relaxed);
            NOTED.get(word).map(|bits| bits.fetch_or(bit, Ordering::Relaxed));
        }
        CloseOnFork(of)
    }
}

impl<T: AsFd> Deref for CloseOnFork<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: AsFd> Drop for CloseOnFork<T> {
    fn drop(&mut self) {
        // Before it is closed, and its number another one's.
        if let Some((word, bit)) = place(self.0.as_fd().as_raw_fd()) {
            NOTED.get(word).map(|bits| bits.fetch_and(!bit, Ordering::Relaxed));
        }
    }
}

/// Word and bit.
fn place(fd: RawFd) -> Option<(usize, u64)> {
    let number = usize::try_from(fd).ok().filter(|number| *number < NUMBERS)?;
    Some((number / 64, 1 << (number % 64)))
}

/// In the child, with one thread and locks that may be held for ever.
extern "C" fn close_all() {
    for (word, bits) in NOTED.iter().take(USED.load(Ordering::Relaxed)).enumerate() {
        let mut bits = bits.swap(0, Ordering::Relaxed);
        while bits != 0 {
            // SAFETY: a descriptor of the library's own, which nobody in this process uses or
            // closes.
            unsafe { libc::close((word * 64) as RawFd + bits.trailing_zeros() as RawFd) };
            bits &= bits - 1;
        }
    }
}

#[cfg(test)]
mod tests {
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
            // SAFETY: waits to be killed.
            unsafe { libc::pause() };
            // SAFETY: ends this process.
            unsafe { libc::_exit(0) };
        }
        drop((ours, kept));
        assert!(!is_noted(fd));
        // The last one of that socket, while the child lives.
        assert_eq!(other.read(&mut [0]).expect("an end"), 0);
        witness.set_nonblocking(true).expect("set");
        assert!(witness.read(&mut [0]).is_err(), "the child has that one");
        // SAFETY: our child.
        unsafe { libc::kill(child, libc::SIGKILL) };
        // SAFETY: our child, which nobody else reaps; the null pointer requests no status.
        assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
    }
}
