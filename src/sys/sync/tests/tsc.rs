//! Tests of `tsc`.

use super::*;

#[test]
fn agrees_with_the_clock() {
    let first = TscTimer::start();
    let (watch, begin) = (TscTimer::start(), now_ns());
    while now_ns() - begin < 5_000_000 {}
    let least = now_ns() - begin;
    let told = watch.elapsed_ns();
    let most = first.elapsed_ns();
    assert!(told >= least - least / 100 && told <= most, "{least} {told} {most}");
}
