//! Tests of `args`.

use super::*;

#[test]
fn events_survive_being_records() {
    let args = Args::NONE.bytes(1 << 40).peer(-2).tag(7).comm(9).op(-1).what("host → cuda");
    for phase in Phase::ALL {
        // Events of tracks have a value in the place of the communicator.
        let (args, value) = match phase.is_of_track() {
            true => (Args { has: args.has & !DTL_TRACE_HAS_COMM, comm: 0, ..args }, 1 << 63),
            false => (args, 0),
        };
        let event = TraceEvent {
            phase,
            category: Name(5),
            name: Name(1 << 20),
            id: 77,
            time_ns: 1,
            value,
            status: 106,
            args,
        };
        assert_eq!(TraceEvent::of_record(event.to_record()), Some(event));
    }
    assert_eq!(TraceEvent::of_record([4; 12]), None, "no such phase");
    assert_eq!(args.text(), "host → cuda");
}

#[test]
fn texts_are_cut_at_characters() {
    assert_eq!(Args::NONE.what("x".repeat(40)).text(), "x".repeat(31));
    assert_eq!(Args::NONE.what(format!("{}é", "x".repeat(30))).text(), "x".repeat(30));
    assert_eq!(Args::NONE.what("a\0b").text(), "ab");
}

#[test]
fn later_arguments_win() {
    let both = Args::NONE.bytes(1).peer(2).and(&Args::NONE.bytes(3).what("x"));
    assert_eq!(both, Args::NONE.bytes(3).peer(2).what("x"));
}
