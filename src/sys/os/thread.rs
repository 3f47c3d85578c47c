//! Threads of the library: they receive no signals that are sent to the process.
//!
//! A program may block a signal in its threads, to wait for the signal with sigwait or a
//! descriptor, but it cannot block the signal in threads of the library: delivered there, the
//! signal would run its handler or end the program. So threads of the library block all signals
//! from their first instruction on, except those that an instruction of their own raises. Threads
//! and processes that the program starts in such a thread inherit that mask.

use std::io;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

/// Signals that stay unblocked: the kernel kills the process if an instruction raises such a signal
/// while it is blocked, or a debugger or seccomp needs the signal.
const OWN: [i32; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Size of a thread's stack in bytes; Linux commits its pages as they are used. Kernels of programs
/// run on it: dtl_kernel.h documents how much of it they may use.
const STACK: usize = 2 << 20;

fn builder(name: &str) -> Builder {
    Builder::new().name(name.to_owned()).stack_size(STACK)
}

/// Starts a thread that receives no signals.
pub fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let _quiet = Quiet::new();
    builder(name).spawn(work)
}

/// Starts a thread that receives no signals and ends within `scope`.
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    let _quiet = Quiet::new();
    builder(name).spawn_scoped(scope, work)
}

/// Guard: while it lives, signals are blocked in the calling thread and in threads that it starts.
struct Quiet {
    before: libc::sigset_t,
}

impl Quiet {
    fn new() -> Self {
        // SAFETY: sigset_t is plain data that sigfillset initialises.
        let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
        let mut before = all;
        // Miri does not support signals.
        if cfg!(miri) {
            return Quiet { before };
        }
        // SAFETY: writes to the local set.
        unsafe { libc::sigfillset(&raw mut all) };
        for signal in OWN {
            // SAFETY: changes the local set.
            unsafe { libc::sigdelset(&raw mut all, signal) };
        }
        // SAFETY: reads one set and writes the other; only an invalid first argument would be an
        // error.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) };
        Quiet { before }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if cfg!(miri) {
            return;
        }
        // SAFETY: a mask that the thread had before; the null pointer requests no output.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut())
        };
    }
}
