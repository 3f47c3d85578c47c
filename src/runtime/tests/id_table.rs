//! Tests of `id_table`.

use super::*;

#[test]
fn numbers_are_given_once_and_end() {
    let table: Box<IdTable<usize>> = Box::new(IdTable::new(FIRST));
    for index in 0..LIMIT {
        let number = table.add(index).unwrap();
        assert_eq!(number, FIRST + index as i32);
        assert!(matches!(table.destroy(number), IdLookup::Live(value) if *value == index));
        assert!(matches!(table.find(number), IdLookup::Destroyed));
        assert!(matches!(table.destroy(number), IdLookup::Destroyed));
    }
    assert_eq!(table.add(0), None);
    for never in [i32::MIN, -1, 0, FIRST - 1, FIRST + LIMIT as i32, i32::MAX] {
        assert!(matches!(table.find(never), IdLookup::Never));
    }
}

#[test]
fn the_end_of_the_library_destroys_all() {
    let table = IdTable::new(FIRST);
    let (first, second) = (table.add(1).unwrap(), table.add(2).unwrap());
    table.destroy_all();
    assert!(matches!(table.find(first), IdLookup::Destroyed));
    assert!(matches!(table.find(second), IdLookup::Destroyed));
    assert!(matches!(table.find(table.add(3).unwrap()), IdLookup::Live(3)));
}
