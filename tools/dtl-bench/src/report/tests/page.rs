//! Tests of `page`.

use super::*;

#[test]
fn a_page_has_all_its_parts() {
    let text = r#"{"measured": "copy", "version": "1", "machine": {"cpu": "X"}, "peer": {"name": "memcpy"}, "rows":
        [{"test": "copy", "bytes": 8, "unit": "ns", "regimes": {"any": {"dtl": {"p10_ns": 10, "count": 9},
        "memcpy": {"p10_ns": 5, "count": 9}}}}]}"#;
    let runs = [Run::of_text(text).expect("a run")];
    let (missing, pictures) =
        (["MPI: none".to_owned()], [("a plot".to_owned(), "p/a.svg".to_owned())]);
    let page = super::text(&Parts {
        runs: &runs,
        missing: &missing,
        notes: &Notes::default(),
        pictures: &pictures,
    });
    for part in [
        "![a plot](p/a.svg)",
        "## Copies\n",
        "| memcpy |",
        "| copy | 8 B | ns | 10.00 | 5.000 (2.00) |",
        "- MPI: none",
    ] {
        assert!(page.contains(part), "no {part} in\n{page}");
    }
}
