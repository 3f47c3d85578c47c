//! Tests of `expect`.

use super::*;

#[test]
fn lines_and_their_faults() {
    let text = "# why\n[expected]\n\"memory.device\" = \"no memory \
        yet\"\n\nexec.event.elapsed_adds_up = \"coarse clock\"\n";
    let all = parse(text).expect("good lines");
    assert_eq!(all.len(), 2);
    assert_eq!(reason(&all, "memory.device.every_byte_usable"), Some("no memory yet"));
    assert_eq!(reason(&all, "memory.host.every_byte_usable"), None);
    for bad in ["memory.device", "memory.device = \"\"", "memory.typo = \"x\"", "memory.device = x"]
    {
        assert!(parse(bad).is_err(), "{bad}");
    }
}
