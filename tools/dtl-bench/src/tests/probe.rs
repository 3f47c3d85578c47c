//! Tests of `probe`.

use super::*;

#[test]
fn two_threads_bounce_a_line() {
    let memory = memory().expect("memory");
    let other = open(address_of(&memory)).expect("of this process");
    let mut ping = Probe::new(&memory, Part::Ping).expect("inside");
    let mut pong = Probe::new(&other, Part::Pong).expect("inside");
    std::thread::scope(|scope| {
        scope.spawn(move || pong.round_trip());
        assert!(ping.round_trip() > 1.0);
    });
    assert!(open([0, 0]).is_err());
}
