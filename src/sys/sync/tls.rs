//! Two thread-local pointers, which calls to the library read: one to the data that the library
//! stores for each thread (its record), one to the thread's heap (`sys::memory::heap`).
//!
//! In a shared library, compiled code accesses thread-local data through a function call
//! (`__tls_get_addr`, 1.5 to 2 ns), which costs more than the rest of the code that runs on entry
//! to a library call. On x86-64 Linux the pointers are therefore declared in assembly with the
//! initial-exec TLS model, in which an access uses an offset that the dynamic loader has stored
//! once, and needs no function call. The loader reserves space for such data (glibc: at least 1
//! KiB), which libraries that are loaded later with dlopen can use too. This module needs 16 bytes.
//! On other platforms, and under Miri, which supports no assembly, the module uses `thread_local!`.
//! Source: U. Drepper, "ELF Handling For Thread-Local Storage", section 4.4.6.
//!
//! The pointers have no destructor, so they can be read until the very end of a thread.

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
mod model {
    use std::arch::{asm, global_asm};

    global_asm!(
        ".pushsection .tbss.dtl_thread_pointers, \"awT\", @nobits",
        ".p2align 4",
        ".globl dtl_thread_pointer",
        ".hidden dtl_thread_pointer",
        ".type dtl_thread_pointer, @object",
        ".size dtl_thread_pointer, 8",
        "dtl_thread_pointer:",
        ".zero 8",
        ".globl dtl_thread_heap",
        ".hidden dtl_thread_heap",
        ".type dtl_thread_heap, @object",
        ".size dtl_thread_heap, 8",
        "dtl_thread_heap:",
        ".zero 8",
        ".popsection",
    );

    macro_rules! pointer {
        ($get:ident, $set:ident, $symbol:literal, $what:literal) => {
            #[doc = concat!("Returns the calling thread's ", $what, " pointer; null until set.")]
            pub fn $get() -> *const () {
                let value: *const ();
                // SAFETY: reads the calling thread's 8 bytes through the offset that the loader
                // filled in. Only the setter, in the same thread, writes these bytes.
                unsafe {
                    asm!(
                        concat!("mov {value}, qword ptr [rip + ", $symbol, "@GOTTPOFF]"),
                        "mov {value}, qword ptr fs:[{value}]",
                        value = out(reg) value,
                        options(nostack, preserves_flags, readonly),
                    );
                }
                value
            }

            #[doc = concat!("Sets the calling thread's ", $what, " pointer.")]
            pub fn $set(value: *const ()) {
                // SAFETY: a plain store to the calling thread's own 8 bytes, through the offset
                // that the loader filled in. No other thread uses these bytes.
                unsafe {
                    asm!(
                        concat!("mov {offset}, qword ptr [rip + ", $symbol, "@GOTTPOFF]"),
                        "mov qword ptr fs:[{offset}], {value}",
                        offset = out(reg) _,
                        value = in(reg) value,
                        options(nostack, preserves_flags),
                    );
                }
            }
        };
    }
    pointer!(get, set, "dtl_thread_pointer", "record");
    pointer!(heap, set_heap, "dtl_thread_heap", "heap");
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
mod model {
    use std::cell::Cell;

    thread_local! {
        static POINTER: Cell<*const ()> = const { Cell::new(std::ptr::null()) };
        static HEAP: Cell<*const ()> = const { Cell::new(std::ptr::null()) };
    }

    /// Returns the pointer to the record of the calling thread (the data that the library stores
    /// for the thread); null before the first [`set`].
    pub fn get() -> *const () {
        POINTER.get()
    }

    /// Sets the pointer to the record of the calling thread (the data that the library stores for
    /// the thread).
    pub fn set(value: *const ()) {
        POINTER.set(value);
    }

    /// Returns the pointer to the calling thread's heap; null before the first [`set_heap`].
    pub fn heap() -> *const () {
        HEAP.get()
    }

    /// Sets the pointer to the calling thread's heap.
    pub fn set_heap(value: *const ()) {
        HEAP.set(value);
    }
}

pub use model::{get, heap, set, set_heap};

#[cfg(test)]
#[path = "tests/tls.rs"]
mod tests;
