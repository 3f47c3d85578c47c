//! Operations on elements of the built-in dtypes, in private memory and in memory that other
//! threads and processes update concurrently.
//!
//! Private memory: element-wise reduction of raw buffers, `into[i] = left[i] op right[i]`, for
//! every built-in pair of dtype and operation. For zeros and NaNs, the bits of the result depend on
//! the order of the operands. Buffers need not be aligned. Two buffers may be identical, but must
//! not overlap otherwise. User-defined dtypes are in `runtime::types`.
//!
//! In reading order:
//! - `ops`: the operations, each on two elements
//! - `arithmetic`: integers, floats
//! - `half`: 16-bit floats
//! - `pair_types`: complex numbers, pairs
//! - `simd`: loops over elements, one for each instruction set
//! - `cell`: the compare-and-swap loop around an operation
//!
//! Shared memory: compare-and-swap, and `target = target op operand` for every built-in pair, with
//! or without returning the old value.
//!
//! There are two mechanisms. Only the dtype and the address of an element determine the mechanism:
//! - Naturally aligned integers of 4 and 8 bytes are changed by atomic instructions: sums, bitwise
//!   operations, exchange and load take one instruction, all others a compare-and-swap loop
//!   (`cell`) around the kernel for private memory.
//! - Elements of all other dtypes, and integers at other addresses, are changed under a lock that
//!   the caller takes, by the kernel for private memory with the widest instructions. One atomic
//!   instruction per element costs about 5 ns, so an operation on 65536 bytes takes 317 us; under
//!   the lock it takes as long as a reduction of private memory.
//!
//! The number of elements must not influence the choice: an atomic instruction ignores the lock, so
//! the update of a short operation could be lost during a long operation under the lock. Every
//! process maps an element at an equally aligned address, and an element is accessed with one dtype
//! at a time, so all operations on it use the same mechanism.
//!
//! The update of one element is atomic; that of a range of elements is not. Other modules determine
//! the owner of the memory, check the bounds and take the lock.

mod arithmetic;
pub mod cell;
mod half;
mod ops;
mod pair_types;
mod simd;

use crate::abi::word::*;
use crate::sys::memory::buf::Region;
use crate::sys::sync::AtomicUpdate;
use half::{Bf16, Half};
use ops::*;
use pair_types::{Complex, Pair};
use simd::kernel_of;
pub use simd::{Kernel, Level};
use std::array;
use std::ffi::CStr;
use std::sync::LazyLock;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Function that returns the kernel (reduction loop) of an operation on the elements of one dtype.
type KernelOfOp = fn(Level, dtl_reduce_op_t) -> Option<Kernel>;

/// Table of the built-in dtypes, indexed by `dtl_dtype_t`: name without the prefix `DTL_DTYPE_`,
/// size in bytes, and function that returns the kernels.
const DTYPES: [(&CStr, usize, KernelOfOp); 23] = [
    (c"INT8", 1, integer::<i8>),
    (c"INT16", 2, integer::<i16>),
    (c"INT32", 4, integer::<i32>),
    (c"INT64", 8, integer::<i64>),
    (c"UINT8", 1, integer::<u8>),
    (c"UINT16", 2, integer::<u16>),
    (c"UINT32", 4, integer::<u32>),
    (c"UINT64", 8, integer::<u64>),
    (c"FLOAT32", 4, ordered::<f32>),
    (c"FLOAT64", 8, ordered::<f64>),
    (c"BYTE", 1, bitwise),
    (c"BOOL", 1, logical::<u8>),
    (c"FLOAT16", 2, ordered::<Half>),
    (c"BFLOAT16", 2, ordered::<Bf16>),
    (c"COMPLEX64", 8, arithmetic::<Complex<f32>>),
    (c"COMPLEX128", 16, arithmetic::<Complex<f64>>),
    (c"FLOAT32_INT32", 8, located::<Pair<f32, i32>>),
    (c"FLOAT64_INT32", 16, located::<Pair<f64, i32>>),
    (c"INT32_INT32", 8, located::<Pair<i32, i32>>),
    (c"INT64_INT32", 16, located::<Pair<i64, i32>>),
    (c"INT16_INT32", 8, located::<Pair<i16, i32>>),
    (c"FLOAT64_INT64", 16, located::<Pair<f64, i64>>),
    (c"INT64_INT64", 16, located::<Pair<i64, i64>>),
];

/// Names of the built-in operations without the prefix `DTL_OP_`, indexed by `dtl_reduce_op_t`.
const OP_NAMES: [&CStr; 14] = [
    c"SUM", c"PROD", c"MIN", c"MAX", c"LAND", c"LOR", c"BAND", c"BOR", c"LXOR", c"BXOR", c"MINLOC",
    c"MAXLOC", c"REPLACE", c"NO_OP",
];

/// Number of pairs of a built-in dtype and operation.
const PAIRS: usize = DTYPES.len() * OP_NAMES.len();

/// Returns the index of a pair of dtype and operation in the tables of all such pairs; `None` if
/// the dtype or the operation is not built in.
#[inline]
fn index_of(dtype: dtl_dtype_t, op: dtl_reduce_op_t) -> Option<usize> {
    let (dtype, op) = (dtype as u32 as usize, op as u32 as usize);
    let is_known = dtype < DTYPES.len() && op < OP_NAMES.len();
    is_known.then_some(dtype * OP_NAMES.len() + op)
}

/// Returns the pair of dtype and operation at an index of the tables of all such pairs.
fn pair_at(index: usize) -> (dtl_dtype_t, dtl_reduce_op_t) {
    ((index / OP_NAMES.len()) as dtl_dtype_t, (index % OP_NAMES.len()) as dtl_reduce_op_t)
}

/// Returns the size of a built-in dtype in bytes; `None` if `dtype` is not built in.
pub fn dtype_size(dtype: dtl_dtype_t) -> Option<usize> {
    Some(DTYPES.get(usize::try_from(dtype).ok()?)?.1)
}

/// Returns the name of a built-in dtype's constant without the prefix `DTL_DTYPE_`; `None` if
/// `dtype` is not built in.
pub fn dtype_name(dtype: dtl_dtype_t) -> Option<&'static CStr> {
    Some(DTYPES.get(usize::try_from(dtype).ok()?)?.0)
}

/// Returns the name of a built-in operation's constant without the prefix `DTL_OP_`; `None` if `op`
/// is not built in.
pub fn op_name(op: dtl_reduce_op_t) -> Option<&'static CStr> {
    OP_NAMES.get(usize::try_from(op).ok()?).copied()
}

/// Returns true if a built-in operation is commutative.
pub fn commutes(op: dtl_reduce_op_t) -> bool {
    ![DTL_OP_REPLACE, DTL_OP_NO_OP].contains(&op)
}

/// Returns the fastest kernel on this processor for a built-in dtype and operation; `None` if the
/// dtype does not support `op`.
#[inline]
pub fn kernel(dtype: dtl_dtype_t, op: dtl_reduce_op_t) -> Option<Kernel> {
    static ALL: LazyLock<[Option<Kernel>; PAIRS]> = LazyLock::new(|| {
        array::from_fn(|index| {
            let (dtype, op) = pair_at(index);
            kernel_at(Level::best(), dtype, op)
        })
    });
    *ALL.get(index_of(dtype, op)?)?
}

fn copy_operand(into: Region, operand: Region) {
    if into != operand {
        into.copy_from(operand);
    }
}

/// Returns the kernel of an operation that only copies one of its operands (REPLACE, NO_OP) and is
/// therefore defined for every dtype; `None` for any other operation.
pub fn kernel_of_bytes(op: dtl_reduce_op_t) -> Option<Kernel> {
    match op {
        DTL_OP_REPLACE => Some(|into, _, right| copy_operand(into, right)),
        DTL_OP_NO_OP => Some(|into, left, _| copy_operand(into, left)),
        _ => None,
    }
}

/// Returns the kernel for a built-in dtype and operation in one instruction set. Results are
/// bitwise identical across instruction sets.
pub fn kernel_at(level: Level, dtype: dtl_dtype_t, op: dtl_reduce_op_t) -> Option<Kernel> {
    let (_, _, kernel_of_op) = DTYPES.get(usize::try_from(dtype).ok()?)?;
    kernel_of_bytes(op).or_else(|| kernel_of_op(level, op))
}

fn arithmetic<T: Arithmetic>(level: Level, op: dtl_reduce_op_t) -> Option<Kernel> {
    Some(match op {
        DTL_OP_SUM => kernel_of::<Sum<T>>(level),
        DTL_OP_PROD => kernel_of::<Prod<T>>(level),
        _ => return None,
    })
}

fn ordered<T: Arithmetic + Ordered>(level: Level, op: dtl_reduce_op_t) -> Option<Kernel> {
    Some(match op {
        DTL_OP_MIN => kernel_of::<Min<T>>(level),
        DTL_OP_MAX => kernel_of::<Max<T>>(level),
        _ => return arithmetic::<T>(level, op),
    })
}

fn integer<T: Arithmetic + Ordered + Logical>(level: Level, op: dtl_reduce_op_t) -> Option<Kernel> {
    ordered::<T>(level, op).or_else(|| bitwise(level, op)).or_else(|| logical::<T>(level, op))
}

/// Returns the kernel of a bitwise operation: one loop over bytes serves every integer type.
fn bitwise(level: Level, op: dtl_reduce_op_t) -> Option<Kernel> {
    Some(match op {
        DTL_OP_BAND => kernel_of::<BitAnd>(level),
        DTL_OP_BOR => kernel_of::<BitOr>(level),
        DTL_OP_BXOR => kernel_of::<BitXor>(level),
        _ => return None,
    })
}

fn logical<T: Logical>(level: Level, op: dtl_reduce_op_t) -> Option<Kernel> {
    Some(match op {
        DTL_OP_LAND => kernel_of::<And<T>>(level),
        DTL_OP_LOR => kernel_of::<Or<T>>(level),
        DTL_OP_LXOR => kernel_of::<Xor<T>>(level),
        _ => return None,
    })
}

/// Returns the kernel of MINLOC or MAXLOC. It uses the baseline instruction set, because SIMD
/// instructions do not make the comparison of pairs faster.
fn located<T: Ordered>(_level: Level, op: dtl_reduce_op_t) -> Option<Kernel> {
    Some(match op {
        DTL_OP_MINLOC => kernel_of::<Min<T>>(Level::PLAIN),
        DTL_OP_MAXLOC => kernel_of::<Max<T>>(Level::PLAIN),
        _ => return None,
    })
}

/// Method that an operation uses to update elements of a dtype in memory that other threads and
/// processes update concurrently.
#[derive(Clone, Copy)]
pub struct Update {
    /// Number of bytes of an element.
    size: u32,
    /// Mask of address bits. An element needs a lock if any of these bits is set in its address.
    misplaced: usize,
    act: Act,
    /// Kernel for one element.
    kernel: Kernel,
    /// Kernel for several elements, with the widest instructions.
    wide: Kernel,
    /// Offset and length in bytes of the padding of an 8-byte element, which [`Update::made`]
    /// leaves unchanged.
    padding: (usize, usize),
}

/// Atomic operation that updates one element without a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    Add,
    And,
    Or,
    Xor,
    Exchange,
    Look,
    /// Compare-and-swap loop around the kernel.
    Fold,
}

/// Returns the [`Update`] for a built-in dtype and operation; `None` if the operation is not
/// defined for the dtype.
#[inline]
pub fn update(dtype: dtl_dtype_t, op: dtl_reduce_op_t) -> Option<&'static Update> {
    static ALL: LazyLock<[Option<Update>; PAIRS]> =
        LazyLock::new(|| array::from_fn(|index| make(pair_at(index))));
    ALL.get(index_of(dtype, op)?)?.as_ref()
}

fn make((dtype, op): (dtl_dtype_t, dtl_reduce_op_t)) -> Option<Update> {
    let is_integer = (DTL_DTYPE_INT8..=DTL_DTYPE_UINT64).contains(&dtype);
    let act = match op {
        DTL_OP_SUM if is_integer => Act::Add,
        DTL_OP_BAND => Act::And,
        DTL_OP_BOR => Act::Or,
        DTL_OP_BXOR => Act::Xor,
        DTL_OP_REPLACE => Act::Exchange,
        DTL_OP_NO_OP => Act::Look,
        _ => Act::Fold,
    };
    let wide = kernel(dtype, op)?;
    let kernel = kernel_at(Level::PLAIN, dtype, op)?;
    let padding = if dtype == DTL_DTYPE_INT16_INT32 { (2, 2) } else { (0, 0) };
    let size = dtype_size(dtype)?;
    let misplaced = if is_integer && is_word(size) { size - 1 } else { usize::MAX };
    Some(Update { size: u32::try_from(size).ok()?, misplaced, act, kernel, wide, padding })
}

/// Returns true if the operation is the sum of 8-byte integers, for which [`add`] executes one
/// atomic instruction. All other pairs of dtype and operation need [`Update::apply`].
pub fn is_counter(dtype: dtl_dtype_t, op: dtl_reduce_op_t) -> bool {
    op == DTL_OP_SUM && matches!(dtype, DTL_DTYPE_INT64 | DTL_DTYPE_UINT64)
}

/// Atomically adds `operand` to `target`, an aligned 8-byte integer. `old`, unless empty, receives
/// the old value.
pub fn add(target: Region, operand: Region, old: Region) {
    write::<AtomicU64>(
        old,
        cell_of::<AtomicU64>(target).fetch_add(read::<AtomicU64>(operand), AcqRel),
    );
}

/// Returns true if aligned integers of `size` bytes are updated by atomic instructions.
const fn is_word(size: usize) -> bool {
    matches!(size, 4 | 8)
}

/// Returns true if an integer of `size` bytes at the address of `target` can be updated atomically
/// without a lock.
pub fn is_lock_free(target: Region, size: usize) -> bool {
    is_word(size) && target.addr().get() % size == 0
}

impl Update {
    /// Returns the number of bytes of an element.
    pub fn size(&self) -> usize {
        self.size as usize
    }

    /// Returns true if the elements of `target` can be updated without a lock.
    pub fn is_lock_free(&self, target: Region) -> bool {
        target.addr().get() & self.misplaced == 0
    }

    /// Updates each whole element of `target`. [`Update::is_lock_free`] must return true for
    /// `target`. `operand` has as many elements as `target`, unless the operation only loads.
    /// `old`, unless empty, receives the old values.
    pub fn apply(&self, target: Region, operand: Region, old: Region) {
        if self.size == 8 && target.len() == 8 && self.act == Act::Add {
            add(target, operand, old);
        } else {
            self.apply_any(target, operand, old);
        }
    }

    #[inline(never)]
    fn apply_any(&self, target: Region, operand: Region, old: Region) {
        match self.size {
            4 => each::<AtomicU32>(self, target, operand, old),
            _ => each::<AtomicU64>(self, target, operand, old),
        }
    }

    /// Updates each whole element of `target` like `apply`, under a lock that the caller holds.
    pub fn apply_locked(&self, target: Region, operand: Region, old: Region) {
        old.copy_from(target);
        let kernel = if target.len() == self.size() { self.kernel } else { self.wide };
        kernel(target, target, operand);
    }

    /// Returns the result of the operation for an 8-byte element with the value `was` as the left
    /// operand and `operand` as the right operand.
    pub fn made(&self, was: u64, operand: Region) -> u64 {
        let mut element = was;
        self.apply_any(region_of(&mut element), operand, Region::EMPTY);
        element
    }

    /// Returns the result of the operation with `was` as the left operand and `operand` as the
    /// right operand. Padding is taken from `was`.
    fn folded<W: Width>(&self, was: W::Value, operand: Region) -> W::Value {
        let mut made = was;
        let (new, old) = (region_of(&mut made), was);
        (self.kernel)(new, new, operand);
        // Padding is unspecified after the compiler has copied an element: restore it.
        let (from, len) = self.padding;
        new.part(from, len).copy_from(region_of(&mut { old }).part(from, len));
        made
    }
}

/// Returns the bytes of a value as a region, valid as long as the value is borrowed.
fn region_of<T>(value: &mut T) -> Region {
    // SAFETY: the value lives through its uses in this module, which end before the borrow ends.
    unsafe { Region::new(std::ptr::from_mut(value).cast(), size_of::<T>()) }
}

/// Atomic integer of one width, with the operations for which the processor has an atomic
/// instruction.
trait Width: AtomicUpdate<Value: Copy + Default> + 'static {
    fn act(&self, act: Act, value: Self::Value) -> Self::Value;
    /// Atomically replaces the value with `to` if it equals `from`. Returns the old value.
    fn swap_if(&self, from: Self::Value, to: Self::Value) -> Self::Value;
}

macro_rules! widths {
    ($($atomic:ty),+) => {$(
        impl Width for $atomic {
            #[inline]
            fn act(&self, act: Act, value: Self::Value) -> Self::Value {
                match act {
                    Act::Add => self.fetch_add(value, AcqRel),
                    Act::And => self.fetch_and(value, AcqRel),
                    Act::Or => self.fetch_or(value, AcqRel),
                    Act::Xor => self.fetch_xor(value, AcqRel),
                    Act::Exchange => self.swap(value, AcqRel),
                    Act::Look | Act::Fold => self.load(Acquire),
                }
            }
            fn swap_if(&self, from: Self::Value, to: Self::Value) -> Self::Value {
                self.compare_exchange(from, to, AcqRel, Acquire).unwrap_or_else(|was| was)
            }
        }
    )+};
}
widths!(AtomicU32, AtomicU64);

/// Returns the first element of a region as an atomic integer.
fn cell_of<'a, W: Width>(target: Region) -> &'a W {
    // SAFETY: aligned and large enough (callers check); the region's creator guarantees validity
    // during the operation. All code that changes it meanwhile uses atomics of this width.
    unsafe { &*target.addr().ptr().cast::<W>() }
}

/// Returns the first element of a region, or zero if the region has none.
fn read<W: Width>(from: Region) -> W::Value {
    if from.len() < size_of::<W::Value>() {
        return W::Value::default();
    }
    // SAFETY: an element's bytes are valid by the creator's guarantee, and any bits are a number.
    unsafe { from.addr().ptr().cast::<W::Value>().read_unaligned() }
}

/// Writes `value` to the beginning of a region, unless the region is too small.
fn write<W: Width>(into: Region, value: W::Value) {
    if into.len() >= size_of::<W::Value>() {
        // SAFETY: an element's bytes are valid by the creator's guarantee.
        unsafe { into.addr().ptr().cast::<W::Value>().write_unaligned(value) }
    }
}

#[inline]
fn each<W: Width>(update: &Update, target: Region, operand: Region, old: Region) {
    let size = size_of::<W::Value>();
    if target.len() == size {
        return one::<W>(update, target, operand, old);
    }
    for index in 0..target.len() / size {
        let at = |region: Region| region.part(index * size, size);
        one::<W>(update, at(target), at(operand), at(old));
    }
}

#[inline]
fn one<W: Width>(update: &Update, target: Region, operand: Region, old: Region) {
    let cell = cell_of::<W>(target);
    let was = match update.act {
        Act::Fold => cell::update(cell, |was| update.folded::<W>(was, operand)),
        act => cell.act(act, read::<W>(operand)),
    };
    write::<W>(old, was);
}

/// Buffers of a compare-and-swap. Each buffer has the size of one element.
#[derive(Clone, Copy)]
pub struct Swap {
    /// Value to store if the target equals `expected`.
    pub value: Region,
    /// Value that the target must have, bit for bit.
    pub expected: Region,
    /// Buffer that receives the old value of the target.
    pub result: Region,
}

/// Executes an atomic compare-and-swap on the only element of `target`. The element must not
/// require a lock ([`is_lock_free`]).
pub fn compare_and_swap(target: Region, swap: Swap) {
    match target.len() {
        4 => swap_one::<AtomicU32>(target, swap),
        _ => swap_one::<AtomicU64>(target, swap),
    }
}

fn swap_one<W: Width>(target: Region, swap: Swap) {
    let (value, expected) = (read::<W>(swap.value), read::<W>(swap.expected));
    write::<W>(swap.result, cell_of::<W>(target).swap_if(expected, value));
}

/// Executes a nonatomic compare-and-swap on the only element of `target`. The caller must hold the
/// lock that makes the operation atomic.
pub fn compare_and_swap_locked(target: Region, swap: Swap) {
    let mut held = [0_u8; 8];
    let mut wanted = [0_u8; 8];
    region_of(&mut held).copy_from(target);
    region_of(&mut wanted).copy_from(swap.expected.part(0, target.len()));
    if held == wanted {
        target.copy_from(swap.value);
    }
    swap.result.copy_from(region_of(&mut held).part(0, target.len()));
}

#[cfg(test)]
#[path = "tests/kernels.rs"]
mod kernels_tests;
#[cfg(test)]
#[path = "tests/updates.rs"]
mod updates_tests;
