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

/// In one of three rounds the machine is slower, for one of two implementations longer.
#[test]
fn a_ratio_is_the_median_of_rounds() {
    let (mut one, mut other) = (Samples::default(), Samples::default());
    let add = |samples: &mut Samples, round, ns| {
        let mut batches = Samples::default();
        (0..FEW).for_each(|_| batches.push(Regime::Far, ns));
        samples.append(round, batches);
    };
    for (round, times) in (0..).zip([(100.0, 50.0), (900.0, 300.0), (110.0, 100.0)]) {
        add(&mut one, round, times.0);
        add(&mut other, round, times.1);
    }
    assert_eq!(one.ratio(&other, Regime::Far), Some((2.0, 3)));
    assert_eq!(one.ratio(&other, Regime::Near), None);
    one.push(Regime::Near, 30.0);
    other.push(Regime::Near, 10.0);
    assert_eq!(one.ratio(&other, Regime::Near), Some((3.0, 0)), "too few for a round");
}

/// In the second round, the processors move from one distance to the other.
#[test]
fn a_round_is_of_the_regime_of_most_of_its_samples() {
    let (mut one, mut other) = (Samples::default(), Samples::default());
    for (round, near, ratio) in [(0, 0, 1.0), (1, FEW, 4.0), (2, 3 * FEW, 3.0)] {
        for (samples, ns) in [(&mut one, 10.0 * ratio), (&mut other, 10.0)] {
            let mut batches = Samples::default();
            (0..near).for_each(|_| batches.push(Regime::Near, ns));
            (0..2 * FEW).for_each(|_| batches.push(Regime::Far, 20.0));
            samples.append(round, batches);
        }
    }
    assert_eq!(one.ratio(&other, Regime::Near), Some((3.0, 1)));
    assert_eq!(one.ratio(&other, Regime::Far), Some((1.0, 2)));
}
