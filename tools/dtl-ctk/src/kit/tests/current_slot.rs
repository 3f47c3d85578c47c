//! Tests of `current_slot`.

use super::*;

#[test]
fn only_a_rank_within_a_step_is_reported() {
    let report = std::env::temp_dir().join(format!("dtl-ctk-step-{}", std::process::id()));
    write_beside(&report, 1);
    assert!(read(&report, 2).is_empty());
    let inside = within("memory.alloc", || read(&report, 2));
    assert_eq!(inside, [(1, "memory.alloc".to_owned())]);
    assert!(read(&report, 2).is_empty());
    std::fs::remove_file(place(&report, 1)).expect("it is removed");
}
