//! The library's own threads: they receive no signals for the process.
//!
//! A program may block a signal in its threads, to wait for it with sigwait or a descriptor, but it
//! cannot block the signal in ours: delivered there, it would run its handler or end the program.
//! So our threads block all signals from their first instruction on, except those that an
//! instruction of their own raises. Threads and processes that the program starts in one of them
//! inherit that.

use std::io;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

/// Signals that stay unblocked: the kernel kills the process at a blocked one that an instruction
/// raises, or a debugger or seccomp needs it.
const OWN: [i32; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Bytes of a thread's stack; Linux commits them as they are used. Kernels of programs run there:
/// dtl_kernel.h documents how much of it they may use.
const STACK: usize = 2 << 20;

fn builder(name: &str) -> Builder {
    Builder::new().name(name.to_owned()).stack_size(STACK)
}

/// Starts a thread.
pub fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let _quiet = Quiet::new();
    builder(name).spawn(work)
}

/// Starts one that ends within `scope`.
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
        // Miri has no signals.
        if cfg!(miri) {
            return Quiet { before };
        }
        // SAFETY: writes the set.
        unsafe { libc::sigfillset(&raw mut all) };
        for signal in OWN {
            // SAFETY: changes the set.
            unsafe { libc::sigdelset(&raw mut all, signal) };
        }
        // SAFETY: reads one set and writes the other; the only error is another first argument.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) };
        Quiet { before }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if cfg!(miri) {
            return;
        }
        // SAFETY: a mask that the thread had; nothing is written.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut())
        };
    }
}
