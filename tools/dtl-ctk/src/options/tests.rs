//! Tests of `options`.

use super::*;

#[test]
fn sizes_and_times() {
    assert_eq!(parse_bytes("4MiB"), Ok(4 << 20));
    assert_eq!(parse_bytes("17"), Ok(17));
    assert_eq!(parse_time("60s"), Ok(Duration::from_secs(60)));
    assert_eq!(parse_time("500ms"), Ok(Duration::from_millis(500)));
    assert_eq!(parse_time("2m"), Ok(Duration::from_secs(120)));
    for bad in ["", "x", "-1", "1TiB", "99999999999GiB"] {
        assert!(parse_bytes(bad).is_err(), "{bad}");
        assert!(parse_time(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_run_can_be_repeated_from_its_arguments() {
    let line = "--kind shm --ranks 3 --seed 5 --case 17 --only bcast,p2p --shrink h,d1 \
                --no-time-limit";
    let run = Run::of(line);
    let again = Run::of(&run.arguments()[1..].join(" "));
    assert_eq!(run.arguments(), again.arguments());
    assert_eq!(format!("{:?}", run.choice()), format!("{:?}", again.choice()));
}
