//! Copies of memory that two cores use, by the instructions that are fastest there.

use super::buf::Region;

/// Minimum number of bytes for which the string instruction (`rep movsb`) is at least as fast as a
/// loop of stores, whatever the distance between the two cores that access the memory.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const STRING_FROM: usize = 4096;
/// If the destination is 1 to 63 bytes after the source, both seen within a page, the string
/// instruction copies single bytes on AMD Zen 3 (16 KiB take 7.5 us instead of 0.4 us), and up to
/// this distance it is about half as fast as usual. Memory of `malloc` often begins 16 bytes after
/// a page, and cells begin with one.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const STRING_DISTANCE: usize = 128;

/// Copies `$len` bytes, a multiple of 64 but not 0, by stores with the instruction `$store`, and
/// ends with the instruction `$last`. A loop in Rust would become a call of `memcpy`, which may use
/// the string instruction.
#[cfg(all(target_arch = "x86_64", not(miri)))]
macro_rules! copy_lines {
    ($store:literal, $last:literal, $into:expr, $from:expr, $len:expr) => {
        std::arch::asm!(
            "2:",
            "movups {a}, [{from}]", "movups {b}, [{from} + 16]",
            "movups {c}, [{from} + 32]", "movups {d}, [{from} + 48]",
            concat!($store, " [{into}], {a}"), concat!($store, " [{into} + 16], {b}"),
            concat!($store, " [{into} + 32], {c}"), concat!($store, " [{into} + 48], {d}"),
            "add {from}, 64", "add {into}, 64", "sub {left}, 64", "jnz 2b", $last,
            a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
            from = inout(reg) $from.addr().ptr() => _,
            into = inout(reg) $into.addr().ptr() => _, left = inout(reg) $len => _, options(nostack)
        )
    };
}

impl Region {
    /// Copies bytes from `source`, up to the length of the shorter region. The regions must not
    /// overlap. Meant for copies in which another core uses one of the two regions. For 4096 bytes
    /// or more, the method uses the string instruction (`rep movsb`), which does not fetch the
    /// cache lines that it overwrites. Those lines are in the other core's cache, and a loop of
    /// stores would wait for each of them (copying 1 MiB between distant cores takes 34 us,
    /// compared with 130 us for a loop of stores). At a distance at which that instruction is slow
    /// (`STRING_DISTANCE`), the method uses a loop.
    #[inline]
    pub fn copy_across(self, source: Region) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.len().min(source.len()) >= STRING_FROM && std::is_x86_feature_detected!("ermsb") {
            return self.copy_string(source);
        }
        self.copy_from(source);
    }

    /// Not inline, so that the copies of short messages stay small.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline(never)]
    fn copy_string(self, source: Region) {
        let len = self.len().min(source.len());
        let distance = self.addr().get().wrapping_sub(source.addr().get()) % 4096;
        if (1..STRING_DISTANCE).contains(&distance) {
            let (head, rest) = (len & !63, len % 64);
            // SAFETY: both regions' creators guarantee `head` bytes, which are at least one round
            // of the loop, because `len` is at least `STRING_FROM`.
            unsafe { copy_lines!("movups", "", self, source, head) };
            return self.part(head, rest).copy_from(source.part(head, rest));
        }
        // SAFETY: both regions' creators guarantee `len` bytes; Rust code has the direction flag
        // clear.
        unsafe {
            std::arch::asm!(
                "rep movsb", inout("rcx") len => _, inout("rdi") self.addr().ptr() => _,
                inout("rsi") source.addr().ptr() => _, options(nostack, preserves_flags)
            );
        }
    }

    /// Copies bytes from `source`, up to the length of the shorter region, with non-temporal
    /// stores, which leave the bytes in no cache. The regions must not overlap. All stores of the
    /// method are complete before any later store of this thread: the fence orders non-temporal
    /// stores, which x86 does not order with others, before a store with Release.
    pub fn copy_nt(self, source: Region) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.addr().get() % 16 == 0 && self.len().min(source.len()) >= 64 {
            let len = self.len().min(source.len());
            let (head, rest) = (len & !63, len % 64);
            // SAFETY: both regions' creators guarantee `head` bytes, which are at least one round
            // of the loop; the stores are to multiples of 16.
            unsafe { copy_lines!("movntps", "sfence", self, source, head) };
            return self.part(head, rest).copy_from(source.part(head, rest));
        }
        self.copy_from(source);
    }
}

#[cfg(test)]
#[path = "tests/copies.rs"]
mod tests;
