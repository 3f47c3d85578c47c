//! Tests of `options`.

use super::*;

#[test]
fn what_to_do_on_failure() {
    assert_eq!(parse_on_failure("wait:5s"), Ok(OnFailure::Wait(Duration::from_secs(5))));
    assert_eq!(parse_on_failure("wait:250ms"), Ok(OnFailure::Wait(Duration::from_millis(250))));
    assert_eq!(parse_on_failure("wait:0.5"), Ok(OnFailure::Wait(Duration::from_millis(500))));
    assert_eq!(parse_on_failure("kill"), Ok(OnFailure::Kill));
    for bad in ["", "wait", "wait:", "wait:-1s", "wait:infs", "die"] {
        assert!(parse_on_failure(bad).is_err(), "{bad}");
    }
}

#[test]
fn arguments_after_the_program_are_the_programs() {
    let options = Options::parse_from(["dtlrun", "-n", "3", "prog", "-n", "--prefix"]);
    assert_eq!((options.ranks, options.prefix, options.command.len()), (3, false, 3));
    assert!(Options::try_parse_from(["dtlrun", "-n", "0", "prog"]).is_err());
    assert!(Options::try_parse_from(["dtlrun", "-n", "2"]).is_err());
}
