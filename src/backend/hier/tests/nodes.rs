//! Tests of `nodes`.

use super::*;

#[test]
fn ranks_with_one_word_share_a_node() {
    let nodes = Nodes::new(3, &[7, 9, 7, 9, 4]);
    assert_eq!((&nodes.of[..], &nodes.local[..]), (&[0, 1, 0, 1, 2][..], &[0, 0, 1, 1, 0][..]));
    assert_eq!((nodes.mine, nodes.count), (vec![1, 3], 3));
    assert_eq!(Nodes::new(0, &[7, 7, 7, 9]).text(), "2 nodes with 1 to 3 ranks");
    assert_eq!(Nodes::new(0, &[7, 7, 9, 9]).text(), "2 nodes x 2 ranks");
    assert_eq!(Nodes::new(0, &[7, 7]).text(), "1 node x 2 ranks");
    assert_eq!(Nodes::new(0, &[7, 9]).text(), "2 nodes x 1 rank");
}

#[test]
fn nodes_are_pretended_as_told() {
    assert_eq!(pretended("2x2", 4).unwrap(), [0, 0, 1, 1]);
    assert_eq!(pretended("3,1", 4).unwrap(), [0, 0, 0, 1]);
    assert_eq!(pretended("1x3", 3).unwrap(), [0, 0, 0]);
    assert_eq!(pretended("3", 3).unwrap(), [0, 0, 0]);
    for bad in
        ["2x2", "3,1,1", "2000000000x2000000000", "2x", "", "x", "-1,4", "0x3", "2;1", "1x1x1"]
    {
        let error = pretended(bad, 3).unwrap_err();
        assert!(error.text().contains(&format!("DTL_FAKE_NODES={bad}:")), "{error}");
    }
}
