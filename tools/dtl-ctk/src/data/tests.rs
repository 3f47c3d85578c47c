//! Tests of `data`.

use super::*;

#[test]
fn elements_come_back() {
    for ty in TYPES {
        let mut element = vec![0; ty.size];
        for value in [0, 1, 100] {
            encode(&mut element, ty, value);
            assert_eq!(decode(&element, ty), value, "{}", ty.name);
        }
        if matches!(ty.class, Class::Signed | Class::Float) {
            encode(&mut element, ty, -50);
            assert_eq!(
                (decode(&element, ty), show(&element, ty).as_str()),
                (-50, "-50"),
                "{}",
                ty.name
            );
        }
    }
}

#[test]
fn random_numbers_repeat_and_keep_their_bounds() {
    let (mut a, mut b) = (Random::new(1, 2), Random::new(1, 2));
    for _ in 0..1000 {
        let value = a.spread(100);
        assert_eq!(value, b.spread(100));
        assert!(value <= 100);
    }
    let mut order = a.permutation(9);
    order.sort_unstable();
    assert_eq!(order, (0..9).collect::<Vec<_>>());
}
