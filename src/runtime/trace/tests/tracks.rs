//! Tests of `tracks`.

use super::*;

fn track(group: &str, name: &str) -> Track {
    let number = |text| Name::copied(text, "name").unwrap();
    Track { group: number(group), name: number(name) }
}

#[test]
fn a_pair_of_names_is_one_track() {
    let tracks = [track("test 0", "a"), track("test 0", "b"), track("test 1", "a")];
    let [first, second, other] = tracks.each_ref().map(Track::number);
    assert_eq!(first, track("test 0", "a").number());
    assert!(first != second && second != other && first != other);
    let [first, second, other] =
        [first, second, other].map(|number| Track::find(number).unwrap().origin(5));
    assert!(first.rank == second.rank && first.thread != second.thread);
    assert!(other.rank != first.rank && other.rank > FIRST_PROCESS);
    for none in [0, 1, 1 << 32, u64::MAX, 0xFFFF_0000_0001] {
        assert!(Track::find(none).is_err(), "{none}");
    }
}

#[test]
fn processes_of_ranks_differ() {
    let track = track("test of ranks", "a");
    let processes = [0, 1, 4095, 65_535].map(|rank| track.origin(rank).rank);
    assert!(processes.is_sorted() && processes[0] >= FIRST_PROCESS, "{processes:?}");
    assert!(track.origin(65_536).rank >= FIRST_PROCESS, "more ranks than fit");
}
