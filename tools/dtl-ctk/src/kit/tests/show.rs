//! Tests of `show`.

use super::*;

#[test]
fn every_test_is_explained() {
    for test in catalog::all() {
        let text = explain(test.name).expect("a test of the catalog");
        assert!(text.contains(test.what) && text.lines().count() >= 8, "{text}");
    }
    assert!(explain("memory.nothing").is_err());
    let misspelt = explain("memory.host.every_bite_usable");
    assert!(
        misspelt.is_err_and(|text| text.contains("did you mean memory.host.every_byte_usable?"))
    );
    assert!(
        explain("every_byte").is_err_and(|text| text.contains("memory.host.every_byte_usable"))
    );
}
