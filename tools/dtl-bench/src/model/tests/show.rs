//! Tests of `show`.

use super::*;
use crate::model::{rows, wanted};

/// Returns the headings of a Markdown page, and the rows of its tables for the numbers of ranks in
/// `ranks`. Each heading or row is split into cells.
fn of_few<'a>(page: &'a str, ranks: &[&str]) -> Vec<Vec<&'a str>> {
    let is_table = |line: &&str| line.starts_with("| ") || line.starts_with("## ");
    let cells = |line: &'a str| line.trim_matches(['|', ' ']).split(" | ").collect::<Vec<_>>();
    let is_kept =
        |cells: &Vec<&str>| cells.len() == 1 || cells[0] == "ranks" || ranks.contains(&cells[0]);
    page.lines().filter(is_table).map(cells).filter(is_kept).collect()
}

/// Checks that the table rows for 2 and 32 ranks in the documentation (scaling/tables.md) are equal
/// to newly computed rows. Only the memory of a communicator may differ, by less than 1 %.
#[test]
fn the_tables_of_the_page_are_not_stale() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/explanation");
    let read = |name: &str| std::fs::read_to_string(docs.join(name)).expect(name);
    let (text, found) = (read("scaling.md"), read("scaling/tables.md"));
    let command =
        text.lines().find_map(|line| line.strip_prefix("dtl-bench model ")).expect("a command");
    let few = command.replace("--ranks 2..1000000", "--ranks 2..32");
    assert_ne!(few, command);
    let wanted = wanted::tests::wanted(&few);
    let made = page(&wanted, &rows(&wanted, &wanted.all_ranks()).expect("rows"));
    let again = format!("run this again, in the project's folder: dtl-bench model {command}");
    assert!(LEGEND.iter().all(|line| found.contains(line)), "{again}");
    let (made, found) = (of_few(&made, &["2", "32"]), of_few(&found, &["2", "32"]));
    assert!(
        made.len() > 75 && made.len() == found.len(),
        "{}, {}: {again}",
        made.len(),
        found.len()
    );
    for (made, found) in made.iter().zip(&found) {
        let of = |cells: &[&str]| cells.get(COMM)?.parse::<f64>().ok();
        let is_near =
            of(made).zip(of(found)).is_some_and(|(made, found)| (made / found - 1.0).abs() < 0.01);
        let same = |(at, (made, found))| made == found || at == COMM && is_near;
        let is_same = made.len() == found.len() && made.iter().zip(found).enumerate().all(same);
        assert!(is_same, "{made:?}, on the page {found:?}: {again}");
    }
}

/// Index of the table column that contains the memory of the communicator.
const COMM: usize = 9;

#[test]
fn columns_have_names_of_their_own() {
    assert_eq!(COLUMNS[COMM + 2], "comm");
    assert!((1..COLUMNS.len()).all(|at| !COLUMNS[..at].contains(&COLUMNS[at])));
}
