//! Tests of `cart`.

use super::*;
use proptest::prelude::*;

fn chosen(size: i32, free: usize) -> Vec<i32> {
    let mut dims = vec![0; free];
    choose(size, &mut dims).expect("a grid");
    dims
}

#[test]
fn grids_are_as_even_as_can_be() {
    assert_eq!((chosen(6, 2), chosen(7, 2), chosen(1, 3)), (vec![3, 2], vec![7, 1], vec![1, 1, 1]));
    assert_eq!((chosen(48, 3), chosen(144, 2)), (vec![4, 4, 3], vec![12, 12]));
    assert_eq!(chosen(i32::MAX, 2), [i32::MAX, 1]);
    assert_eq!(chosen(1 << 30, 16), [4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 2, 2]);
    // A number with very many divisors.
    assert_eq!(chosen(2_095_133_040, 4).iter().product::<i32>(), 2_095_133_040);
    assert_eq!(chosen(2_095_133_040, 16).len(), 16);
    let mut dims = [0, 4, 0];
    choose(24, &mut dims).expect("a grid");
    assert_eq!(dims, [3, 4, 2]);
}

proptest! {
    #[test]
    fn coords_and_rank_are_inverse(dims in prop::collection::vec(1..6_i32, 1..6),
        seed in 0..i32::MAX) {
        let rank_of = seed % dims.iter().product::<i32>();
        let place = coords(&dims, rank_of).unwrap();
        prop_assert_eq!(rank(&dims, |_| false, &place).unwrap(), rank_of);
    }

    #[test]
    fn a_shift_is_a_step_of_the_coordinates(
        dims in prop::collection::vec(1..6_i32, 1..5), seed in 0..i32::MAX, by in -7..8_i32,
            periods in 0..16_u32,
    ) {
        let periodic = |dimension: usize| periods >> dimension & 1 == 1;
        let from = seed % dims.iter().product::<i32>();
        for dimension in 0..dims.len() {
            let step = |by: i32| {
                let mut place = coords(&dims, from).unwrap();
                place[dimension] += by;
                rank(&dims, periodic, &place).unwrap_or(DTL_PROC_NULL)
            };
            let got = shift(&dims, periodic, from, dimension as i32, by).unwrap();
            prop_assert_eq!(got, (step(-by), step(by)));
        }
    }
}
