//! Comparison of generated output with a golden file. README.md in this folder describes the files.

use std::path::Path;

/// Fails at the first line that differs from `tests/golden/FILE`; `details` describes a line of `now`
/// by its index. With `DTL_GOLDEN=write` the file is written instead.
pub(crate) fn compare(file: &str, now: &[String], details: impl FnOnce(usize) -> String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file);
    if std::env::var_os("DTL_GOLDEN").is_some_and(|value| value == "write") {
        std::fs::write(&path, now.join("\n") + "\n").unwrap();
        return;
    }
    let text = std::fs::read_to_string(&path).unwrap();
    let recorded: Vec<&str> = text.lines().collect();
    let both = recorded.len().max(now.len());
    let line = |index: usize| now.get(index).map(String::as_str);
    let Some(index) = (0..both).find(|index| recorded.get(*index).copied() != line(*index)) else {
        return;
    };
    let (was, is) = (recorded.get(index).unwrap_or(&"(end)"), line(index).unwrap_or("(end)"));
    let details = if index < now.len() { details(index) } else { String::new() };
    panic!(
        "tests/golden/{file}:{}: DTL_GOLDEN=write accepts a change that is meant\n  \
         recorded: {was}\n  now:      {is}\n{details}",
        index + 1
    );
}
