//! Tests of `strided`.

use super::*;

fn plan(
    shape: &[u64],
    dst: &[i64],
    src: &[i64],
    element_bytes: u64,
) -> Result<Option<StridedPlan>> {
    let (d, s) = (Addr::NULL, Addr::NULL);
    StridedPlan::new(&Axes {
        dst: d,
        src: s,
        shape,
        dst_strides: dst,
        src_strides: src,
        element_bytes,
    })
}

#[test]
fn axes_are_put_together() {
    let of = |shape: &[u64], dst: &[i64], src: &[i64]| {
        let plan = plan(shape, dst, src, 4).unwrap().unwrap();
        (plan.axes.len(), plan.run)
    };
    assert_eq!(of(&[2, 3, 4], &[12, 4, 1], &[12, 4, 1]), (0, 96));
    assert_eq!(of(&[2, 3, 4], &[12, 4, 1], &[24, 8, 1]), (1, 16), "rows of one pitch");
    assert_eq!(of(&[2, 3, 4], &[12, 4, 1], &[120, 8, 1]), (2, 16));
    assert_eq!(of(&[2, 3, 4], &[12, 4, 1], &[1, 2, 6]), (3, 4), "turned");
    assert_eq!(
        of(&[2, 3, 4], &[12, 4, 1], &[6, 2, 12]),
        (2, 4),
        "turned, but two stay side by side"
    );
    assert_eq!(
        of(&[1, 3, 1], &[-7, 1, 1000], &[9, 1, 3]),
        (0, 12),
        "strides of one element say nothing"
    );
    assert_eq!(of(&[], &[], &[]), (0, 4));
    assert!(plan(&[3, 0, 2], &[1, 1, 1], &[1, 1, 1], 4).unwrap().is_none());
}

#[test]
fn what_cannot_be_is_refused() {
    let status = |shape: &[u64], dst: &[i64], element| {
        plan(shape, dst, dst, element).err().map(|error| error.status()).unwrap_or_default()
    };
    use crate::abi::status::*;
    assert_eq!(status(&[2; 9], &[1; 9], 1), DTL_ERROR_NOT_SUPPORTED);
    assert_eq!(status(&[2, 2], &[1, 1], 4), DTL_ERROR_INVALID_ARGUMENT, "two on each other");
    assert_eq!(status(&[2], &[0], 4), DTL_ERROR_INVALID_ARGUMENT);
    assert_eq!(status(&[u64::MAX, 2], &[i64::MAX, 2], 4), DTL_ERROR_INVALID_ARGUMENT);
    assert_eq!(status(&[2], &[i64::MIN], 4), DTL_ERROR_INVALID_ARGUMENT, "too far");
    assert_eq!(status(&[2], &[8], 0), DTL_ERROR_INVALID_ARGUMENT);
}
