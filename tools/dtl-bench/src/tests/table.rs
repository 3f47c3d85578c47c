//! Tests of `table`.

use super::*;

#[test]
fn units() {
    assert_eq!(Unit::Microseconds.of(1500.0), 1.5);
    assert_eq!(Unit::Bandwidth(8192.0).of(1024.0), 8.0);
    assert_eq!(Unit::Rate.of(50.0), 20.0);
    assert_eq!(
        (digits(0.12345), digits(12.345), digits(12345.6)),
        ("0.1235".into(), "12.35".into(), "12346".into())
    );
}

#[test]
fn a_regime_that_one_side_lacks_is_left_out() {
    let mut both = Samples::default();
    (0..10).for_each(|_| both.push(Regime::Near, 100.0));
    let mut more = both.clone();
    more.push(Regime::Far, 900.0);
    let sides = vec![("dtl".to_owned(), more), ("mpi".to_owned(), both)];
    let line = Line { test: "latency".into(), bytes: Some(8), unit: Unit::Microseconds, sides };
    let regimes: Vec<_> = line.regimes().into_iter().map(|one| one.0).collect();
    assert_eq!(regimes, [Regime::Near]);
}
