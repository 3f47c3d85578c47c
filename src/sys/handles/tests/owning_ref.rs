//! Tests of [`OwningRef`].

use super::*;

#[test]
fn the_part_lives_as_long_as_a_share_of_the_whole() {
    let whole = Arc::new((7, Box::new(String::from("part"))));
    let within: OwningRef<str, _> = OwningRef::new(Arc::clone(&whole), |whole| whole.1.as_str());
    drop(whole);
    assert_eq!((within.part(), within.0, Arc::strong_count(&within)), ("part", 7, 1));
    assert!(OwningRef::find(Arc::clone(&within), |_| None::<&str>).is_none());
    let found = OwningRef::find(Arc::clone(&within), |whole| Some(&whole.0));
    drop(within);
    assert_eq!(found.map(|found| *found.part()), Some(7));
}
