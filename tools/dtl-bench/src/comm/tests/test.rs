//! Tests of `test`.

use super::*;

#[test]
fn rows_are_what_is_asked_for() {
    let all = Row::list(&[], &[]).expect("all");
    assert_eq!(all.len(), 8 + 2 * 5 + 1 + 1 + 5 + 4 * 3);
    let some = Row::list(&[Test::Barrier, Test::Latency, Test::Bandwidth], &[0, 12]).expect("some");
    let of = |test, bytes| Row { test, bytes };
    assert_eq!(
        some,
        [
            of(Test::Barrier, 0),
            of(Test::Latency, 0),
            of(Test::Latency, 12),
            of(Test::Bandwidth, 12)
        ]
    );
    assert!(Row::list(&[Test::Bandwidth], &[0]).is_err_and(|text| text.contains("another size")));
    assert!(Row::list(&[Test::Reduce], &[7]).is_err_and(|text| text.contains("multiples of 4")));
    assert!(all.iter().all(|row| 2 * row.window() <= super::super::raw::MOST_STARTED));
}
