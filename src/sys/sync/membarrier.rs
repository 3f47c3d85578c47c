//! Asymmetric fence. The light half costs next to nothing; the heavy half makes every running
//! thread execute a full barrier (membarrier). If one thread stores before the light half and loads
//! after it, and another thread stores before the heavy half and loads after it, at least one of
//! the two loads sees the store of the other thread.

use crate::sys::sync::{AtomicBool, Ordering, compiler_fence, fence, global};

global! {
    /// True if the light half must be a real fence, because this process has no membarrier.
    static NEEDS_FENCE: AtomicBool = AtomicBool::new(true);
}

/// Registers the process with the kernel and returns true if the light half needs a fence. Call
/// before the first use, and again after a fork.
pub(crate) fn register() -> bool {
    // Miri does not support this system call, so it uses fences.
    if cfg!(miri) {
        return needs_fence();
    }
    // SAFETY: the syscall takes plain numbers and accesses no memory of this process.
    let refused = unsafe {
        libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0)
    };
    NEEDS_FENCE.store(refused != 0, Ordering::SeqCst);
    needs_fence()
}

/// Returns true if the light half is a real fence.
pub(crate) fn needs_fence() -> bool {
    NEEDS_FENCE.load(Ordering::Relaxed)
}

/// Executes the light half of the fence.
pub(crate) fn light() {
    compiler_fence(Ordering::SeqCst);
    if NEEDS_FENCE.load(Ordering::Relaxed) {
        fence(Ordering::SeqCst);
    }
}

/// The other half, the heavy one: makes every running thread of the process execute a full barrier.
pub(crate) fn heavy() {
    fence(Ordering::SeqCst);
    if !needs_fence() {
        // SAFETY: the syscall takes plain numbers and accesses no memory of this process.
        let _ = unsafe {
            libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0)
        };
    }
}
