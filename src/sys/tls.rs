//! One pointer for each thread, read at every call of the library.
//!
//! In a shared library the compiler reaches thread-local data through a function call
//! (`__tls_get_addr`, 1.5 to 2 ns): more than the rest of a call's entry. On x86-64 Linux the
//! pointer is therefore declared in assembly with the initial-exec model: an offset that the loader
//! fills in once, then one load. The loader keeps room for such data (glibc: at least 1 KiB) also
//! for libraries that are opened later; this needs 8 bytes of it. Elsewhere: the language's own.
//! Source: U. Drepper, "ELF Handling For Thread-Local Storage", section 4.4.6.
//!
//! No destructor belongs to the pointer, so it can be read in any thread's last moments.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod model {
    use std::arch::{asm, global_asm};

    global_asm!(
        ".pushsection .tbss.dtl_thread_pointer, \"awT\", @nobits",
        ".p2align 3",
        ".globl dtl_thread_pointer",
        ".hidden dtl_thread_pointer",
        ".type dtl_thread_pointer, @object",
        ".size dtl_thread_pointer, 8",
        "dtl_thread_pointer:",
        ".zero 8",
        ".popsection",
    );

    #[inline(always)]
    pub(super) fn get() -> *const () {
        let value: *const ();
        // SAFETY: reads the calling thread's 8 bytes through the offset that the loader filled in;
        // only `set` of the same thread writes them.
        unsafe {
            asm!(
                "mov {value}, qword ptr [rip + dtl_thread_pointer@GOTTPOFF]",
                "mov {value}, qword ptr fs:[{value}]",
                value = out(reg) value,
                options(nostack, preserves_flags, readonly),
            );
        }
        value
    }

    #[inline]
    pub(super) fn set(value: *const ()) {
        // SAFETY: as in `get`; a plain store to the calling thread's own 8 bytes.
        unsafe {
            asm!(
                "mov {offset}, qword ptr [rip + dtl_thread_pointer@GOTTPOFF]",
                "mov qword ptr fs:[{offset}], {value}",
                offset = out(reg) _,
                value = in(reg) value,
                options(nostack, preserves_flags),
            );
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod model {
    use std::cell::Cell;

    thread_local! {
        static POINTER: Cell<*const ()> = const { Cell::new(std::ptr::null()) };
    }

    pub(super) fn get() -> *const () {
        POINTER.get()
    }

    pub(super) fn set(value: *const ()) {
        POINTER.set(value);
    }
}

/// The calling thread's pointer; null until set.
#[inline(always)]
#[must_use]
pub fn get() -> *const () {
    model::get()
}

/// Sets the calling thread's pointer.
pub fn set(value: *const ()) {
    model::set(value);
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_thread_has_its_own() {
        let threads: Vec<_> = (1..5_usize)
            .map(|n| {
                std::thread::spawn(move || {
                    assert!(super::get().is_null());
                    super::set(std::ptr::without_provenance(n));
                    std::thread::yield_now();
                    let seen = super::get().addr();
                    super::set(std::ptr::null());
                    seen == n
                })
            })
            .collect();
        assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
    }
}
