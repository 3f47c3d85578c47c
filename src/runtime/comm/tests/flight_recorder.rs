//! Tests of `flight_recorder`.

use super::*;

#[test]
fn keeps_the_latest_and_their_state() {
    let recorder = Recorder::new();
    let tickets: Vec<_> = (0..100_u64)
        .map(|count| {
            recorder.begin(OpDesc { peer: 1, ..OpDesc::new(Kind::Bcast).with(count, 2) }.words())
        })
        .collect();
    assert_eq!(recorder.stuck().map(|call| call.count), Some(36), "the oldest of 64");
    recorder.end(tickets[98]);
    recorder.end(tickets[1]); // a later operation uses its entry
    let kept: Vec<_> = recorder.latest().collect();
    assert_eq!(kept.len(), KEPT);
    assert_eq!((kept[0].0.count, kept[0].1), (99, false));
    assert_eq!((kept[1].0.count, kept[1].1), (98, true));
    assert_eq!(kept.iter().filter(|(_, over)| *over).count(), 1);
}
