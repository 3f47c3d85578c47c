//! Tests of `plugin`.

use super::*;

#[test]
fn the_highest_common_version_is_spoken() {
    assert_eq!(agree((1, 3), (1, 5)).unwrap(), 3);
    assert_eq!(agree((1, 7), (1, 5)).unwrap(), 5);
    assert_eq!(agree((4, 4), (2, 5)).unwrap(), 4);
    let newer = agree((6, 7), (1, 5)).unwrap_err();
    assert!(newer.text().contains("6 to 7, this library 1 to 5: update libdtl"), "{newer}");
    let older = agree((1, 2), (3, 5)).unwrap_err();
    assert!(older.text().contains("1 to 2, this library 3 to 5: build the plugin anew"), "{older}");
    assert!(agree((0, 1), (1, 1)).is_err() && agree((3, 2), (1, 5)).is_err());
}
