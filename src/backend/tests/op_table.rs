//! Tests of `op_table`.

use super::*;

#[test]
fn ids_are_not_used_twice() {
    let mut table = Operations::default();
    let a = table.add('a').expect("room");
    let b = table.add('b').expect("room");
    assert_eq!(table.remove(a), Some('a'));
    assert_eq!((table.remove(a), table.get(a)), (None, None));
    let c = table.add('c').expect("room");
    assert_ne!(a, c);
    assert_eq!(
        (table.get_mut(c).copied(), table.get(b), table.get(a)),
        (Some('c'), Some(&'b'), None)
    );
    assert_eq!(
        table.iter_mut().map(|(id, what)| (id, *what)).collect::<Vec<_>>(),
        [(c, 'c'), (b, 'b')]
    );
}
