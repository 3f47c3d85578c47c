//! Tests of `table`.

use super::*;

#[test]
fn each_kind_finds_its_row() {
    for row in rows() {
        assert_eq!(row.kind.row().kind, row.kind);
    }
    assert_eq!(Kind::Fence.row().kind, Kind::Barrier);
    assert_eq!(Kind::Send.row().kind, Kind::Barrier);
}
