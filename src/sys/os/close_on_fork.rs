//! Descriptors that a forked child closes: sockets whose peers detect the end of this process by
//! the end of the connection.
//!
//! A child gets a copy of every descriptor, and a connection stays open as long as any copy of its
//! descriptor is open. So the child closes the descriptors that are recorded here, before fork
//! returns in the child. This is not necessary for a child that executes another program, because
//! exec closes these descriptors.

use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Upper bound (exclusive) of the descriptor numbers that can be recorded, usually the maximum
/// number of descriptors of a process. Descriptors with higher numbers stay open in forked
/// children.
const NUMBERS: usize = 1 << 20;
/// Bit set of the recorded descriptors. It has no lock, because another thread could hold the lock
/// at the time of the fork.
///
/// Relaxed ordering suffices: the child reads its own copy of the memory, which no other thread
/// writes. A descriptor that another thread is adding or removing at the time of the fork may stay
/// open in the child.
static NOTED: [AtomicU64; NUMBERS / 64] = [const { AtomicU64::new(0) }; NUMBERS / 64];
/// Number of words of the bit set up to and including the last word that has ever contained a
/// recorded descriptor.
static USED: AtomicUsize = AtomicUsize::new(0);
static ASKED: Once = Once::new();

/// Owner of a descriptor that forked children close. A child must neither drop nor use it.
pub struct CloseOnFork<T: AsFd>(T);

impl<T: AsFd> CloseOnFork<T> {
    /// Records the descriptor: children that are forked from now on close it.
    pub fn new(of: T) -> Self {
        ASKED.call_once(|| {
            // SAFETY: a function without arguments, which makes system calls only. If there is no
            // memory to register it, children close no descriptors.
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
        // Before the descriptor is closed and its number may be reused.
        if let Some((word, bit)) = place(self.0.as_fd().as_raw_fd()) {
            NOTED.get(word).map(|bits| bits.fetch_and(!bit, Ordering::Relaxed));
        }
    }
}

/// Returns the index of the word and the bit mask of a descriptor in the bit set; `None` if the
/// descriptor's number is out of range.
fn place(fd: RawFd) -> Option<(usize, u64)> {
    let number = usize::try_from(fd).ok().filter(|number| *number < NUMBERS)?;
    Some((number / 64, 1 << (number % 64)))
}

/// Closes the recorded descriptors in a forked child. The function takes no lock: the child has one
/// thread, so a lock that another thread held at the fork stays locked forever.
extern "C" fn close_all() {
    for (word, bits) in NOTED.iter().take(USED.load(Ordering::Relaxed)).enumerate() {
        let mut bits = bits.swap(0, Ordering::Relaxed);
        while bits != 0 {
            // SAFETY: a descriptor of the library, which no code in this process uses or closes.
            unsafe { libc::close((word * 64) as RawFd + bits.trailing_zeros() as RawFd) };
            bits &= bits - 1;
        }
    }
}

#[cfg(test)]
#[path = "tests/close_on_fork.rs"]
mod tests;
