//! Tests of `options`.

use super::*;

#[test]
fn the_command_line_is_consistent() {
    use clap::CommandFactory;
    Options::command().debug_assert();
}

#[test]
fn launchers() {
    let launcher: Launcher = "A=1 B_2=x=y /opt/bin/mpirun --mca a=b".parse().expect("a launcher");
    assert_eq!(launcher.name(), "opt/bin/mpirun");
    assert_eq!(launcher.variables, [("A".into(), "1".into()), ("B_2".into(), "x=y".into())]);
    assert_eq!(launcher.words[1..], ["--mca", "a=b"]);
    assert_eq!(launcher.text(), "A=1 B_2=x=y /opt/bin/mpirun --mca a=b");
    assert!("A=1".parse::<Launcher>().is_err() && "".parse::<Launcher>().is_err());
}

#[test]
fn rows() {
    assert_eq!(parse_row("bcast:64KiB"), Ok((Test::Bcast, 65536)));
    for bad in ["bcast", "bcast:x", "broadcast:8", ":8"] {
        assert!(parse_row(bad).is_err(), "{bad}");
    }
}

#[test]
fn sizes_and_times() {
    assert_eq!(parse_bytes("0"), Ok(0));
    assert_eq!(parse_bytes("64KiB"), Ok(65536));
    assert_eq!(parse_bytes("16 MiB"), Ok(16 << 20));
    for bad in ["", "-1", "1.5MiB", "2GiB", "x", "18446744073709551615GiB"] {
        assert!(parse_bytes(bad).is_err(), "{bad}");
    }
    assert_eq!(parse_seconds("0.05"), Ok(Duration::from_millis(50)));
    for bad in ["0", "", "-1", "nan", "inf", "1e9"] {
        assert!(parse_seconds(bad).is_err(), "{bad}");
    }
}
