//! Tests of `agree`.

use super::*;

#[test]
fn words_survive_the_way() {
    let mut failed = vec![false; 70];
    (failed[3], failed[69]) = (true, true);
    let word = AgreeMessage { decided: true, context: 77, failed, places: Vec::new() };
    let again = AgreeMessage::parse(&word.words(), 70);
    assert!(again == word && again.survivors().len() == 68);
    let failed = vec![false, true, false];
    let word = AgreeMessage { decided: false, context: u32::MAX, failed, places: vec![7, 0, 63] };
    assert!(AgreeMessage::parse(&word.words(), 3) == word);
}
