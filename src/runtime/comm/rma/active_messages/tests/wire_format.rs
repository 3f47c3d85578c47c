//! Tests of `wire_format`.

use super::*;

#[test]
fn heads_survive_the_way() {
    for what in ALL {
        let head =
            Head { what, op: 13, dtype: 22, tag: answer_tag(8191), offset: 1 << 40, len: 77 };
        assert_eq!(Head::parse(head.words()), Some(head));
    }
    assert_eq!(Head::parse([99, 0, 0]), None);
}

#[test]
fn tags_differ_and_fit_every_mpi() {
    let tags: std::collections::BTreeSet<i32> =
        (0..NUMBERS).flat_map(|number| [answer_tag(number), data_tag(number)]).collect();
    assert!(tags.len() == 2 * NUMBERS as usize && !tags.contains(&REQUEST));
    assert!(tags.last().is_some_and(|last| *last <= 32767), "MPI promises tags up to 32767");
}
