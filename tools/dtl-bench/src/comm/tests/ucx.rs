//! Tests of `ucx`.

use super::*;

#[test]
fn the_last_line_counts() {
    let said = "|  Stage | # iterations |\n   500   1.362   1.422   1.433   5493.38   5493.38  \
        703152 703152\n";
    assert_eq!(value(said, Test::Latency), Some(1362.0));
    assert_eq!(value(said, Test::Bandwidth), Some(1433.0));
    assert_eq!(value("", Test::Latency), None);
}
