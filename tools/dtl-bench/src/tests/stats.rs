//! Tests of `stats`.

use super::*;

#[test]
fn regimes() {
    assert_eq!(Regime::of(Some(110.0), Some(130.0)), Regime::Near);
    assert_eq!(Regime::of(Some(440.0), Some(520.0)), Regime::Far);
    assert_eq!(Regime::of(Some(110.0), Some(520.0)), Regime::Between);
    assert_eq!(Regime::of(Some(250.0), Some(250.0)), Regime::Between);
    assert_eq!(Regime::of(None, Some(100.0)), Regime::Unknown);
}

#[test]
fn percentiles_are_of_their_regime() {
    let mut samples = Samples::default();
    (0..100).rev().for_each(|value| samples.push(Regime::Near, f64::from(value)));
    samples.push(Regime::Far, 7.0);
    let near = Summary { count: 100, best: 0.0, p10: 10.0, median: 50.0 };
    assert_eq!(samples.summary(Regime::Near), Some(near));
    assert_eq!(samples.summary(Regime::Far).map(|far| (far.count, far.p10)), Some((1, 7.0)));
    assert_eq!(samples.summary(Regime::Between), None);
}
