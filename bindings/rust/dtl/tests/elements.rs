//! Tests of the element types beside the numbers of Rust, between ranks that are threads.
//!
//! Needs libdtl.so.0.2: DTL_LIB_DIR=$PWD/build/stage/lib cargo test -p dtl-binding.

#![allow(clippy::unwrap_used, reason = "a call that fails fails the test")]

use dtl_binding::{
    Bool, Comm, Complex, Dtype, LAND, LOR, LXOR, MAXLOC, MINLOC, PROD, Pair, SUM, sys,
};
use std::fmt::Debug;

/// Runs `body` on each of three ranks, with its rank.
fn on_all_ranks(body: impl Fn(&Comm, i16) + Sync) {
    let ranks = Comm::threads(3, sys::DTL_TIMEOUT_INFINITE).unwrap();
    std::thread::scope(|threads| {
        for comm in &ranks {
            threads.spawn(|| body(comm, comm.rank().unwrap() as i16));
        }
    });
}

/// Checks that the library's elements of this dtype have the size of the type.
fn has_dtype<T: Dtype>(dtype: sys::dtl_dtype_t) {
    assert_eq!(T::dtype().unwrap(), dtype);
    let mut size = 0;
    // SAFETY: the output is a local.
    unsafe { dtl_binding::call!(dtl_dtype_size(dtype, &raw mut size)) }.unwrap();
    assert_eq!(size, size_of::<T>() as u64);
}

#[test]
fn truth_values() {
    has_dtype::<Bool>(sys::DTL_DTYPE_BOOL);
    assert_eq!((Bool(0), Bool(77)), (false.into(), true.into()));
    assert_eq!(format!("{:?} {:?}", Bool(0), Bool(2)), "false true");
    assert!(bool::from(Bool(9)));
    on_all_ranks(|comm, rank| {
        // 0, 1 and 2: any byte but 0 is true.
        let mine = Bool(rank as u8);
        let mut all = [Bool::default(); 3];
        comm.allreduce(&mine, &mut all[0], LAND).unwrap();
        comm.allreduce(&mine, &mut all[1], LOR).unwrap();
        comm.allreduce(&mine, &mut all[2], LXOR).unwrap();
        assert_eq!(all.map(|value| value.0), [0, 1, 0]);
        let error = comm.allreduce_in_place(&mut all, SUM).unwrap_err();
        assert_eq!(error.status, sys::DTL_ERROR_TYPE, "{error}");
    });
}

#[test]
fn complex_numbers() {
    has_dtype::<Complex<f32>>(sys::DTL_DTYPE_COMPLEX64);
    has_dtype::<Complex<f64>>(sys::DTL_DTYPE_COMPLEX128);
    on_all_ranks(|comm, _| {
        let mut product = Complex { re: 0.0_f64, im: 1.0 };
        comm.allreduce_in_place(&mut product, PROD).unwrap();
        assert_eq!(product, Complex { re: 0.0, im: -1.0 });
        let mut sum = [Complex { re: 1.5_f32, im: -2.0 }; 2];
        comm.allreduce_in_place(&mut sum, SUM).unwrap();
        assert_eq!(sum, [Complex { re: 4.5, im: -6.0 }; 2]);
    });
}

/// Reduces (3, 7), (1, 8), (1, 9) of ranks 0, 1, 2.
fn reduce_pairs<V, I>(comm: &Comm, rank: i16, dtype: sys::dtl_dtype_t)
where
    V: From<i16> + Copy + PartialEq + Debug,
    I: From<i16> + Copy + PartialEq + Debug,
    Pair<V, I>: Dtype,
{
    has_dtype::<Pair<V, I>>(dtype);
    let pair = |value: i16, index: i16| Pair { value: V::from(value), index: I::from(index) };
    let mut ends = [pair(if rank == 0 { 3 } else { 1 }, 7 + rank); 2];
    comm.allreduce_in_place(&mut ends[0], MINLOC).unwrap();
    comm.allreduce_in_place(&mut ends[1], MAXLOC).unwrap();
    assert_eq!(ends, [pair(1, 8), pair(3, 7)]);
}

#[test]
fn pairs() {
    on_all_ranks(|comm, rank| {
        reduce_pairs::<f32, i32>(comm, rank, sys::DTL_DTYPE_FLOAT32_INT32);
        reduce_pairs::<f64, i32>(comm, rank, sys::DTL_DTYPE_FLOAT64_INT32);
        reduce_pairs::<i32, i32>(comm, rank, sys::DTL_DTYPE_INT32_INT32);
        reduce_pairs::<i64, i32>(comm, rank, sys::DTL_DTYPE_INT64_INT32);
        reduce_pairs::<i16, i32>(comm, rank, sys::DTL_DTYPE_INT16_INT32);
        reduce_pairs::<f64, i64>(comm, rank, sys::DTL_DTYPE_FLOAT64_INT64);
        reduce_pairs::<i64, i64>(comm, rank, sys::DTL_DTYPE_INT64_INT64);
        let error = comm.allreduce_in_place(&mut [1.0_f64; 2], MINLOC).unwrap_err();
        assert_eq!(error.status, sys::DTL_ERROR_TYPE, "{error}");
    });
}

#[cfg(feature = "half")]
#[test]
fn numbers_of_16_bits() {
    use half::{bf16, f16};
    has_dtype::<f16>(sys::DTL_DTYPE_FLOAT16);
    has_dtype::<bf16>(sys::DTL_DTYPE_BFLOAT16);
    on_all_ranks(|comm, rank| {
        let mut sum = f16::from_f32(f32::from(rank) + 0.5);
        comm.allreduce_in_place(&mut sum, SUM).unwrap();
        assert_eq!(sum.to_f32(), 4.5);
        let mut product = vec![bf16::from_f32(-3.0); 5];
        comm.allreduce_in_place(&mut product, PROD).unwrap();
        assert_eq!(product, [bf16::from_f32(-27.0); 5]);
    });
}

#[cfg(feature = "num-complex")]
#[test]
fn complex_numbers_of_num_complex() {
    use num_complex::Complex;
    has_dtype::<Complex<f32>>(sys::DTL_DTYPE_COMPLEX64);
    has_dtype::<Complex<f64>>(sys::DTL_DTYPE_COMPLEX128);
    on_all_ranks(|comm, _| {
        let mut product = Complex::new(1.0_f64, 1.0);
        comm.allreduce_in_place(&mut product, PROD).unwrap();
        assert_eq!(product, Complex::new(1.0, 1.0).powi(3));
    });
}
