//! Asymmetric fence: the light half costs next to nothing; the heavy half makes every running
//! thread pass a full barrier (membarrier). If one thread stores before the light half and loads
//! after it, and another does so around the heavy half, at least one load sees the other side's
//! store.

use crate::sys::sync::{AtomicBool, Ordering, compiler_fence, fence, global};

global! {
    /// Whether the cheap half has to be a real fence because the kernel has no membarrier for us.
    static NEEDS_FENCE: AtomicBool = AtomicBool::new(true);
}

/// Registers with the kernel; returns whether the light half needs a fence. Call before the first
/// use, and again after a fork.
pub(in crate::sys) fn register() -> bool {
    // Miri has no such call: fences there.
    if cfg!(miri) {
        return needs_fence();
    }
    // SAFETY: the syscall takes plain numbers and touches no memory of ours.
    let refused = unsafe {
        libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0)
    };
    NEEDS_FENCE.store(refused != 0, Ordering::SeqCst);
    needs_fence()
}

/// Whether the cheap half is a real fence.
pub(in crate::sys) fn needs_fence() -> bool {
    NEEDS_FENCE.load(Ordering::Relaxed)
}

/// The cheap half.
#[inline]
pub(in crate::sys) fn light() {
    compiler_fence(Ordering::SeqCst);
    if NEEDS_FENCE.load(Ordering::Relaxed) {
        fence(Ordering::SeqCst);
    }
}

/// The other half.
pub(in crate::sys) fn heavy() {
    fence(Ordering::SeqCst);
    if !needs_fence() {
        // SAFETY: the syscall takes plain numbers and touches no memory of ours.
        let _ = unsafe {
            libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0)
        };
    }
}
