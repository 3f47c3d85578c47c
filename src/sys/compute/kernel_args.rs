//! Copies of a kernel's arguments, made at the launch and alive until the kernel has run.
//!
//! Typical argument lists fit inside the value itself, so that a launch allocates nothing.

use crate::sys::memory::buf::{Addr, Region, Scratch};
use std::ffi::c_void;
use std::ptr;

/// Maximum number of arguments and of bytes that are stored without an allocation.
const INLINE_ARGS: usize = 16;
const INLINE_BYTES: usize = 192;
/// Alignment of every copy, in bytes: that of malloc's memory.
const ALIGN: usize = 16;

#[derive(Clone, Copy)]
#[repr(align(16))]
struct InlineBytes([u8; INLINE_BYTES]);

/// Copy of a kernel's argument list, which lives until the kernel has run.
#[allow(clippy::large_enum_variant, reason = "short lists are meant to need no allocation")]
pub enum ArgPack {
    /// Short lists, stored inline.
    Inline(Inline),
    /// Long lists or large arguments, with the size of each argument.
    Heap(Scratch, Vec<u64>),
}

/// Short argument list, stored without an allocation.
pub struct Inline {
    bytes: InlineBytes,
    sizes: [u64; INLINE_ARGS],
    count: usize,
}

impl ArgPack {
    /// Argument list without arguments.
    pub const EMPTY: ArgPack = ArgPack::Inline(Inline {
        bytes: InlineBytes([0; INLINE_BYTES]),
        sizes: [0; INLINE_ARGS],
        count: 0,
    });

    /// Copies the bytes of each argument. Returns `None` if out of memory or if the sizes add up to
    /// too much.
    pub fn copy_of(args: &[Region]) -> Option<Self> {
        let mut total = 0_usize;
        for arg in args {
            total = total.checked_add(arg.len())?.checked_next_multiple_of(ALIGN)?;
        }
        if args.len() <= INLINE_ARGS && total <= INLINE_BYTES {
            return Some(Self::copy_inline(args));
        }
        let scratch = Scratch::new(total)?;
        let mut offset = 0;
        for arg in args {
            scratch.region().part(offset, arg.len()).copy_from(*arg);
            offset = (offset + arg.len()).next_multiple_of(ALIGN);
        }
        Some(ArgPack::Heap(scratch, args.iter().map(|arg| arg.len() as u64).collect()))
    }

    fn copy_inline(args: &[Region]) -> Self {
        let mut inline = Inline {
            bytes: InlineBytes([0; INLINE_BYTES]),
            sizes: [0; INLINE_ARGS],
            count: args.len(),
        };
        let mut offset = 0;
        for (arg, size) in args.iter().zip(&mut inline.sizes) {
            *size = arg.len() as u64;
            if let Some(space) = inline.bytes.0.get_mut(offset..offset + arg.len()) {
                // SAFETY: the region's creator guarantees its bytes; `space` is as long and local.
                unsafe {
                    ptr::copy_nonoverlapping(arg.addr().ptr().cast(), space.as_mut_ptr(), arg.len())
                };
            }
            offset = (offset + arg.len()).next_multiple_of(ALIGN);
        }
        ArgPack::Inline(inline)
    }

    /// Returns the size of each argument in bytes.
    pub fn sizes(&self) -> &[u64] {
        match self {
            ArgPack::Inline(inline) => inline.sizes.get(..inline.count).unwrap_or_default(),
            ArgPack::Heap(_, sizes) => sizes,
        }
    }

    /// Returns the address of each copy, valid as long as the pack is not moved. The addresses of
    /// short lists are written into `space`, those of long lists into `spill`.
    pub fn pointers<'a>(
        &self,
        space: &'a mut [Addr; INLINE_ARGS],
        spill: &'a mut Vec<Addr>,
    ) -> &'a [Addr] {
        let base = match self {
            ArgPack::Inline(inline) => {
                Addr::new(ptr::from_ref(&inline.bytes).cast_mut().cast::<c_void>())
            }
            ArgPack::Heap(scratch, _) => scratch.region().addr(),
        };
        let mut offset = 0;
        let addresses = self.sizes().iter().map(|size| {
            let at = base.offset(offset);
            offset = (offset + *size as usize).next_multiple_of(ALIGN);
            at
        });
        if self.sizes().len() > INLINE_ARGS {
            spill.extend(addresses);
            return spill;
        }
        let mut count = 0;
        for (slot, address) in space.iter_mut().zip(addresses) {
            *slot = address;
            count += 1;
        }
        space.get(..count).unwrap_or_default()
    }
}

#[cfg(test)]
#[path = "tests/kernel_args.rs"]
mod tests;
