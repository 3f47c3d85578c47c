//! Loop that reduces two buffers to one, element by element. The loop is compiled for several
//! instruction sets from one source. The compiler vectorizes the loop, and since no operation is
//! fused or reordered, all variants compute bitwise identical results. The instruction sets of this
//! processor are queried once.

use super::ops::Rule;
use crate::sys::memory::buf::Region;
use std::sync::OnceLock;

/// Function that computes `into = left op right`, element by element, up to the end of the shortest
/// region. Any two regions are identical or do not overlap.
pub type Kernel = fn(into: Region, left: Region, right: Region);

/// Instruction set that this processor supports. A value is created only after a query of the
/// processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Level(Set);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Set {
    Plain,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(all(target_arch = "x86_64", dtl_avx512))]
    Avx512,
}

impl Level {
    /// Baseline instruction set, which every processor of the architecture supports.
    pub const PLAIN: Level = Level(Set::Plain);

    /// Returns all instruction sets that this processor supports, the fastest last.
    pub fn all() -> Vec<Level> {
        #[allow(unused_mut, reason = "other architectures have one level")]
        let mut found = vec![Level::PLAIN];
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("avx2") {
            found.push(Level(Set::Avx2));
            #[cfg(dtl_avx512)]
            if std::is_x86_feature_detected!("avx512f")
                && std::is_x86_feature_detected!("avx512bw")
                && std::is_x86_feature_detected!("avx512dq")
                && std::is_x86_feature_detected!("avx512vl")
            {
                found.push(Level(Set::Avx512));
            }
        }
        found
    }

    /// Returns the fastest instruction set that this processor supports. The first call queries the
    /// processor.
    pub fn best() -> Level {
        static BEST: OnceLock<Level> = OnceLock::new();
        *BEST.get_or_init(|| Level::all().pop().unwrap_or(Level::PLAIN))
    }
}

/// Expands to the loop that reduces the elements of two regions, element by element. This is a
/// macro so that each function with target features contains the loop. A called function would be
/// compiled without these features. The compiler vectorizes a loop over regions that do not
/// overlap, so there is a loop for each operand that the result can replace. Operands that may be
/// exchanged share one.
macro_rules! fold {
    ($rule:ty, $into:ident, $left:ident, $right:ident) => {
        let shortest = $into.len().min($left.len()).min($right.len());
        type Element<R> = <R as Rule>::Element;
        let count = shortest / size_of::<Element<$rule>>();
        let [into, left, right] =
            [$into, $left, $right].map(|region| region.addr().ptr().cast::<Element<$rule>>());
        let exchange = <$rule>::COMMUTES && into == right;
        let (left, right) = if exchange { (right, left) } else { (left, right) };
        if into == left {
            fold!(loop $rule, count, into, into, right);
        } else if !<$rule>::COMMUTES && into == right {
            fold!(loop $rule, count, into, left, into);
        } else {
            fold!(loop $rule, count, into, left, right);
        }
    };
    (loop $rule:ty, $count:ident, $into:ident, $left:ident, $right:ident) => {
        for index in 0..$count {
            // SAFETY: index < count: an element of `left`, whose creator guarantees its bytes.
            let left = unsafe { $left.wrapping_add(index).read_unaligned() };
            // SAFETY: index < count: an element of `right`, whose creator guarantees its bytes.
            let right = unsafe { $right.wrapping_add(index).read_unaligned() };
            // SAFETY: index < count: an element of `into`, whose creator guarantees its bytes.
            // Elements consist of plain numbers, for which any bits are valid.
            unsafe { $into.wrapping_add(index).write_unaligned(<$rule>::of(left, right)) };
        }
    };
}

/// Returns the loop that applies the operation `R` to all elements, compiled for an instruction
/// set.
pub(super) fn kernel_of<R: Rule>(level: Level) -> Kernel {
    match level.0 {
        Set::Plain => fold_plain::<R>,
        #[cfg(target_arch = "x86_64")]
        // SAFETY: only `Level::all` creates this level, after it has detected AVX2.
        Set::Avx2 => |into, left, right| unsafe { fold_avx2::<R>(into, left, right) },
        #[cfg(all(target_arch = "x86_64", dtl_avx512))]
        // SAFETY: only `Level::all` creates this level, after detecting these parts of AVX-512.
        Set::Avx512 => |into, left, right| unsafe { fold_avx512::<R>(into, left, right) },
    }
}

fn fold_plain<R: Rule>(into: Region, left: Region, right: Region) {
    fold!(R, into, left, right);
}

/// # Safety
/// The processor must support AVX2. (Safe functions with target features need rustc 1.86.)
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn fold_avx2<R: Rule>(into: Region, left: Region, right: Region) {
    fold!(R, into, left, right);
}

/// # Safety
/// The processor must support AVX-512 F, BW, DQ and VL.
#[cfg(all(target_arch = "x86_64", dtl_avx512))]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn fold_avx512<R: Rule>(into: Region, left: Region, right: Region) {
    fold!(R, into, left, right);
}
